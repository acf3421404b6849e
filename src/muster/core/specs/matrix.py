"""The parameters of a job's tasks: a grid of values, and points beside it.

The tasks number the grid in the order in which its parameters are written, the last one changing
fastest; the points of ``include`` follow. What a task's values are is computed from its index, so
that a job of ten million tasks costs a constant. An excluded point keeps its index, and is not run.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from math import prod
from typing import Annotated, Any, Self, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    InstanceOf,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from muster.core.specs.amounts import Spec
from muster.core.specs.written_numbers import written_as
from muster.core.task_ranges import MAX_RANGES, MAX_TASKS, TaskRanges, is_range
from muster.core.text import MAX_ARGUMENT, check_text

MAX_PARAMETERS = 32
MAX_VALUES = 100_000
"""Values of a parameter that are written one by one, and points beside the grid."""
MAX_RULES = 1_000
"""Rules of ``exclude``."""
VARIABLE = "MUSTER_PARAM_"
"""The beginning of the variables that tell a task its values: MUSTER_PARAM_LR of ``lr``."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_EXPECTED = "parameters with values, such as {lr: [0.1, 0.01]}, or a list of points"
_EXPECTED_VALUES = "a list of values, such as [0.1, 0.01], or a range of whole numbers, as '1-5'"

Point: TypeAlias = Mapping[str, str]
"""The values of one task, by their parameters."""


def as_text(value: Any) -> str:
    """A value as it was written: 0.10 is "0.10", and true is "true".

    Raises:
        ValueError: it is no text, number or truth value, or too long.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return written_as(value) or str(value)
    if not isinstance(value, str):
        raise ValueError("expected text, a number, or true or false")
    return check_text(value, MAX_ARGUMENT)


class ParameterValues(Sequence[str]):
    """The values of one parameter: those of a list, or the whole numbers of a range."""

    def __init__(self, values: Sequence[str] | TaskRanges) -> None:
        self._values = values

    @staticmethod
    def read(value: Any) -> "ParameterValues":
        """
        Raises:
            ValueError: it is neither a list of values nor a range.
        """
        if isinstance(value, ParameterValues):
            return value
        if isinstance(value, str) and is_range(value):
            return ParameterValues(TaskRanges.parse(value))
        if not isinstance(value, list | tuple):
            raise ValueError(f"expected {_EXPECTED_VALUES}")
        if not 0 < len(value) <= MAX_VALUES:
            raise ValueError(f"expected 1 to {MAX_VALUES} values")
        values = tuple(map(as_text, value))
        if len(set(values)) < len(values):
            often = Counter(values).most_common(1)[0][0]
            raise ValueError(f"expected each value once, not {often[:80]!r} again")
        return ParameterValues(values)

    def written(self) -> str | list[str]:
        """The values as they are stored and sent."""
        return str(self._values) if isinstance(self._values, TaskRanges) else list(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, position: Any) -> Any:
        return str(self._values[position])

    def place_of(self, value: str) -> int | None:
        """The position of a value; None if it is none of them."""
        return self._places.get(value) if self._places is not None else self._in_range(value)

    @cached_property
    def _places(self) -> Mapping[str, int] | None:
        if isinstance(self._values, TaskRanges):
            return None
        return {value: position for position, value in enumerate(self._values)}

    def _in_range(self, value: str) -> int | None:
        assert isinstance(self._values, TaskRanges)
        if not (value.isascii() and value.isdecimal()) or str(int(value)) != value:
            return None
        number = int(value)
        return self._values.below(number) if number in self._values else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ParameterValues) and self._values == other._values

    def __hash__(self) -> int:
        return hash(self._values)


def _check_name(name: str) -> None:
    """
    Raises:
        ValueError: it is no name of a parameter.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"expected letters, digits or '_', the first no digit, as the name of a parameter, "
            f"not {name[:80]!r}"
        )


def _values_of(name: Any, values: Any) -> ParameterValues:
    """
    Raises:
        ValueError: they are none.
    """
    try:
        return ParameterValues.read(values)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _point(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError("expected parameters with values, such as {lr: 0.1, seed: 3}")
    return {name: as_text(each) for name, each in value.items()}


_Values = Annotated[
    InstanceOf[ParameterValues],
    BeforeValidator(ParameterValues.read),
    PlainSerializer(ParameterValues.written),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
]
_Point = Annotated[dict[str, str], BeforeValidator(_point)]


class Matrix(Spec):
    """The parameters of a job's tasks, of which each task has other values.

    Args:
        grid: values by parameter; each combination of them is a task. They are written as keys of
            the matrix itself.
        exclude: rules, each with values of some parameters: combinations that have them all are
            not run.
        include: points beside the grid, each of which is one more task.
    """

    grid: Annotated[dict[str, _Values], Field(max_length=MAX_PARAMETERS)] = Field(
        default_factory=dict
    )
    exclude: Annotated[tuple[_Point, ...], Field(max_length=MAX_RULES)] = ()
    include: Annotated[tuple[_Point, ...], Field(max_length=MAX_VALUES)] = ()

    @model_validator(mode="before")
    @classmethod
    def _written_flat(cls, data: Any) -> Any:
        """The parameters are keys beside ``exclude`` and ``include``."""
        if isinstance(data, list | tuple):
            return {"include": data}
        if not isinstance(data, Mapping):
            raise ValueError(f"expected {_EXPECTED}")
        own = {key: data[key] for key in ("exclude", "include") if key in data}
        grid = {}
        for name, values in data.items():
            if name not in own:
                grid[name] = _values_of(name, values)
        return {**own, "grid": grid}

    @model_serializer(mode="wrap")
    def _write_flat(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written = write(self)
        return {**written.pop("grid", {}), **written}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.names:
            raise ValueError(f"expected {_EXPECTED}")
        for name in self.names:
            _check_name(name)
        if len({name.upper() for name in self.names}) < len(self.names):
            raise ValueError("expected names of parameters that differ in more than capitals")
        for position, point in enumerate(self.include):
            if point.keys() != set(self.names):
                raise ValueError(f"include.{position}: expected {', '.join(self.names)}, each once")
        for position, rule in enumerate(self.exclude):
            self._check_rule(position, rule)
        if self.size > MAX_TASKS:
            raise ValueError(f"expected at most {MAX_TASKS:,} tasks, and not {self.size:,}")
        if self.excluded is not None and len(self.excluded) == self.size:
            raise ValueError("exclude: expected rules that leave something to run")
        return self

    def _check_rule(self, position: int, rule: Point) -> None:
        if not rule:
            raise ValueError(f"exclude.{position}: expected parameters with values")
        for name, value in rule.items():
            if name not in self.grid:
                known = ", ".join(self.grid)
                raise ValueError(f"exclude.{position}.{name}: no such parameter; known are {known}")
            if self.grid[name].place_of(value) is None:
                raise ValueError(f"exclude.{position}.{name}: {value!r} is none of its values")

    @cached_property
    def names(self) -> Sequence[str]:
        """The parameters, in the order in which they are written."""
        return tuple(self.grid) if self.grid else tuple(self.include[0]) if self.include else ()

    @cached_property
    def size(self) -> int:
        """How many tasks there are, those included that are not run."""
        return self._grid_size + len(self.include)

    @cached_property
    def _grid_size(self) -> int:
        return prod(map(len, self.grid.values())) if self.grid else 0

    def common(self, indexes: Iterable[int]) -> Point:
        """The values that all of some tasks have, and not all tasks of the job."""
        points = map(self.point, indexes)
        found = dict(next(points, {}))
        for point in points:
            found = {name: value for name, value in found.items() if point[name] == value}
        return {name: value for name, value in found.items() if self._varies(name)}

    def _varies(self, name: str) -> bool:
        """Whether not all tasks have the same value of a parameter."""
        values = {point[name] for point in self.include}
        values.update(islice(self.grid.get(name, ()), 2))
        return len(values) > 1

    def point(self, index: int) -> Point:
        """The values of the task with this index.

        Raises:
            IndexError: there are fewer tasks.
        """
        if not 0 <= index < self.size:
            raise IndexError(index)
        if index >= self._grid_size:
            return self.include[index - self._grid_size]
        found: dict[str, str] = {}
        for name, values in reversed(self.grid.items()):
            index, position = divmod(index, len(values))
            found[name] = values[position]
        return {name: found[name] for name in self.grid}

    @cached_property
    def excluded(self) -> TaskRanges | None:
        """The tasks that are not run; None if all are.

        Raises:
            ValueError: they lie in too many places.
        """
        found: list[tuple[int, int]] = []
        for rule in self.exclude:
            found += self._ranges(rule, MAX_RANGES - len(found))
        return TaskRanges.of(found) if found else None

    def run(self, only: TaskRanges | None) -> TaskRanges | None:
        """The tasks of ``only`` that are not excluded; None stands for all.

        Raises:
            ValueError: all of them are excluded.
        """
        if self.excluded is None:
            return only
        chosen = [(0, self.size - 1)] if only is None else only.ranges
        left = TaskRanges.of(_without(chosen, self.excluded.ranges))
        if not left.ranges:
            raise ValueError("expected tasks that the matrix does not exclude")
        return left

    def matching(self, where: Point) -> Iterator[int]:
        """The indexes of the tasks that have these values, in rising order."""
        places = {name: self.grid[name].place_of(value) for name, value in where.items()
                  if name in self.grid}  # fmt: skip
        is_possible = self.grid and all(place is not None for place in places.values())
        if is_possible and where.keys() <= self.grid.keys():
            for first, last in self._boxes(where):
                yield from range(first, last + 1)
        for position, point in enumerate(self.include):
            if where.items() <= point.items():
                yield self._grid_size + position

    def _ranges(self, rule: Point, most: int) -> list[tuple[int, int]]:
        """The ranges of the grid's tasks that have the rule's values.

        Raises:
            ValueError: there are more than ``most``.
        """
        last_fixed = max(position for position, name in enumerate(self.grid) if name in rule)
        before = list(self.grid.items())[:last_fixed]
        if prod(len(values) for name, values in before if name not in rule) > most:
            raise ValueError(
                f"exclude: expected rules that leave at most {MAX_RANGES} gaps between tasks; "
                "write the parameters that they name first"
            )
        return list(self._boxes(rule))

    def _boxes(self, rule: Point) -> Iterator[tuple[int, int]]:
        """The ranges of the grid's tasks that have these values, in rising order."""
        sizes = [len(values) for values in self.grid.values()]
        fixed = [position for position, name in enumerate(self.grid) if name in rule]
        depth = fixed[-1] + 1 if fixed else 0
        block = prod(sizes[depth:])
        choices: list[Sequence[int]] = []
        for name, values in list(self.grid.items())[:depth]:
            place = values.place_of(rule[name]) if name in rule else None
            choices.append(range(len(values)) if place is None else (place,))

        def starts(position: int, start: int) -> Iterator[int]:
            if position == depth:
                yield start * block
                return
            for place in choices[position]:
                yield from starts(position + 1, start * sizes[position] + place)

        for first in starts(0, 0):
            yield first, first + block - 1


def _without(
    chosen: Sequence[tuple[int, int]], gone: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """The parts of the first ranges that lie in none of the second; both in order."""
    position = 0
    for first, last in chosen:
        while position < len(gone) and gone[position][1] < first:
            position += 1
        at = position
        while at < len(gone) and gone[at][0] <= last:
            if first < gone[at][0]:
                yield first, gone[at][0] - 1
            first = gone[at][1] + 1
            at += 1
        if first <= last:
            yield first, last


def placeholders(texts: Sequence[str]) -> Iterator[str]:
    """The names that stand in braces: ``{lr}``."""
    return chain.from_iterable(map(_PLACEHOLDER.findall, texts))


def filled(text: str, point: Point) -> str:
    """The text with the values of parameters in place of their names in braces; braces around
    anything else stay."""
    if not point:
        return text

    def value(found: re.Match[str]) -> str:
        return point.get(found[1], found[0])

    return _PLACEHOLDER.sub(value, text)


def variables(point: Point) -> dict[str, str]:
    """The variables by which a task learns its values."""
    return {f"{VARIABLE}{name.upper()}": value for name, value in point.items()}
