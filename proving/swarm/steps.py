"""Steps of a run, as data; their kinds are registered by the modules that define them."""

import inspect
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, TypeAlias, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from proving.swarm.scene import Scene

Params: TypeAlias = Mapping[str, Any]
Seconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count: TypeAlias = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happens: the name of its kind and its parameters, which are plain values."""

    name: str
    params: Params = field(default_factory=dict)

    def __str__(self) -> str:
        told = ", ".join(f"{key}={value}" for key, value in self.params.items())
        return f"{self.name}({told})"


@dataclass(slots=True)
class Lot:
    """The source of randomness from which steps are drawn; ``submissions`` counts those drawn so
    far. A later step names a submission by its number, so that it means the same when other steps
    are taken out. ``uses_devices`` and ``uses_memory`` say whether work may ask for such."""

    rng: random.Random
    seed: int = 0
    submissions: int = 0
    uses_devices: bool = False
    uses_memory: bool = False
    _topics: dict[str, random.Random] = field(default_factory=dict)

    def topic(self, name: str) -> random.Random:
        """The randomness of one topic alone: all that is drawn from elsewhere stays as it is
        whatever is drawn from here, and so do the steps of known seeds when a topic joins."""
        return self._topics.setdefault(name, random.Random(f"{self.seed} {name}"))

    def apart(self, topic: str) -> "Lot":
        """The source of randomness of a topic's own steps."""
        return replace(self, rng=self.topic(topic))

    def devices(self, most: int) -> Params:
        """The devices that a kernel asks for, as keys of its resources: ``most`` at most."""
        if not self.uses_devices:
            return {}
        return {"gpu": self.rng.choice([0, 0, 0.5, *range(1, most + 1)])}

    def memory(self, most_gib: int = 40) -> Params:
        """The memory that a kernel asks for, as keys of its resources."""
        if not self.uses_memory:
            return {}
        return {"memory": f"{min(self.topic('memory').choice([1, 12, 24, 40]), most_gib)}GiB"}

    def a_submission(self) -> int:
        return self.rng.randrange(max(1, self.submissions))


Draw: TypeAlias = Callable[[Lot], Params]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of step.

    ``draw`` makes parameters; ``do`` carries the step out, or does nothing where it has no sense
    (the agent is gone, say), so that steps can be taken out of a run. The annotations of ``do`` say
    what its parameters may be. ``weight`` is how often it is drawn, next to others, in each of
    ``every`` seeds. One that ``is_apart`` has a chance of its own, and comes in between: ``weight``
    times after a hundred of the others.
    """

    name: str
    weight: float
    draw: Draw
    do: Callable[..., None]
    is_fault: bool = False
    every: int = 1
    is_apart: bool = False

    def is_in(self, seed: int) -> bool:
        """Whether it is drawn in the steps of a seed: in the last of so many."""
        return seed % self.every == self.every - 1


class Kinds:
    """All kinds of steps of a simulation; each entity may add its own.

    Args:
        others: their kinds are among these.
        faults: whether the kinds that are added are faults.
    """

    def __init__(self, *others: "Kinds", faults: bool = False) -> None:
        self._faults = faults
        self._kinds: dict[str, Kind] = {}
        for each in others:
            self._kinds |= each._kinds

    def add(
        self, weight: float, draw: Draw, *, every: int = 1, apart: bool = False
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Register the decorated function, which takes the scene and the parameters; its name is
        the step's. See ``Kind`` for the arguments. The steps of other kinds are the same whether
        there is one that is drawn ``apart`` or not, unless that one hands in work."""

        def register(do: Callable[..., None]) -> Callable[..., None]:
            name = do.__name__
            self._kinds[name] = Kind(name, weight, draw, do, self._faults, every, apart)
            return do

        return register

    def draw(self, lot: Lot) -> Iterator[Step]:
        """A step at random, and those that come in between."""
        kinds = [kind for kind in self._kinds.values() if kind.is_in(lot.seed)]
        main = [kind for kind in kinds if not kind.is_apart]
        (kind,) = lot.rng.choices(main, [each.weight for each in main])
        yield Step(kind.name, kind.draw(lot))
        for each in kinds:
            if each.is_apart and lot.topic(each.name).random() * 100 < each.weight:
                yield Step(each.name, each.draw(lot.apart(each.name)))

    def do(self, step: Step, scene: Scene) -> None:
        """
        Raises:
            KeyError: there is no such kind.
            ValidationError: its parameters are not of the right kind.
        """
        do = self._kinds[step.name].do
        read = _read(do, step.params)
        do(scene, **{name: getattr(read, name) for name in read.model_fields_set})

    def wrong(self, step: Step) -> str | None:
        """Why the step cannot be carried out; None if it can."""
        kind = self._kinds.get(step.name)
        if kind is None:
            return f"there is no step {step.name!r}; there are {', '.join(sorted(self._kinds))}"
        try:
            _read(kind.do, step.params)
        except ValidationError as error:
            # A name that there is not tells more than that of the parameter which it was to be.
            wrong = sorted(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
            first = wrong[0]
            return f"{step.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        return None

    def described(self) -> Iterator[str]:
        """Each kind with its parameters, and what it does."""
        for name, kind in sorted(self._kinds.items()):
            schema = _model_of(kind.do).model_json_schema()
            takes = [
                f"{parameter}: {_kinds_of(of, schema)}"
                + (f" = {of['default']!r}" if "default" in of else "")
                for parameter, of in schema["properties"].items()
            ]
            yield f"{name}({', '.join(takes)})"
            yield f"    {' '.join((inspect.getdoc(kind.do) or '').split())}"

    def is_fault(self, step: Step) -> bool:
        return self._kinds[step.name].is_fault


def _read(do: Callable[..., None], params: Params) -> BaseModel:
    """The parameters of a step as its function takes them; they are as in a file of JSON."""
    return _model_of(do).model_validate_json(json.dumps(params, default=str))


@cache
def _model_of(do: Callable[..., None]) -> type[BaseModel]:
    hints = get_type_hints(do, include_extras=True)
    _scene, *parameters = inspect.signature(do).parameters.values()
    fields: dict[str, Any] = {
        each.name: (hints[each.name], ... if each.default is each.empty else each.default)
        for each in parameters
    }
    return create_model(do.__name__, __config__=ConfigDict(strict=True, extra="forbid"), **fields)


def _kinds_of(of: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """The kinds of values that a parameter takes, by its JSON schema."""
    if "$ref" in of:
        return _kinds_of(schema["$defs"][of["$ref"].rpartition("/")[2]], schema)
    if "anyOf" in of:
        return " | ".join(_kinds_of(each, schema) for each in of["anyOf"])
    return " | ".join(map(repr, of["enum"])) if "enum" in of else str(of["type"])
