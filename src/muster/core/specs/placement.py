"""The agents that a session may use, and those that it prefers, as people write them."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from muster.core.errors import Problem
from muster.core.specs.amounts import Flag, Name, ShortText, Spec, Whole
from muster.core.text import ATTRIBUTE, MAX_NAME, check_text

AttributeName = Annotated[str, StringConstraints(max_length=63, pattern=f"^{ATTRIBUTE}$")]


class Operator(StrEnum):
    """How an agent's attribute is compared. The last four of them compare numbers."""

    EQ = "EQ"
    NE = "NE"
    IN = "IN"
    EXISTS = "EXISTS"
    NOT_EXISTS = "NOT_EXISTS"
    GT = "GT"
    GE = "GE"
    LT = "LT"
    LE = "LE"


NUMERIC = frozenset({Operator.GT, Operator.GE, Operator.LT, Operator.LE})
_SIGNS = {
    "!=": Operator.NE,
    ">=": Operator.GE,
    "<=": Operator.LE,
    "==": Operator.EQ,
    "=": Operator.EQ,
    ">": Operator.GT,
    "<": Operator.LT,
}
_SIGN_OF = {op: sign for sign, op in _SIGNS.items()}  # the last of two: "="
_ATTRIBUTE = re.compile(ATTRIBUTE)
_A_CONSTRAINT = "expected a constraint such as zone=a, disk>=100, 'zone in a,b' or !spot"
_MAX_VALUES = 100
_MAX_CONSTRAINT = 64 + _MAX_VALUES * MAX_NAME


def _from_text(value: Any) -> Any:
    """The fields of a constraint that is written as text: "zone=a", "zone != a", "disk>=100",
    "zone in a,b", "nvlink" or "!nvlink"."""
    if isinstance(value, dict | Constraint):
        return value
    if not isinstance(value, str):
        raise ValueError(_A_CONSTRAINT)
    text = check_text(value, _MAX_CONSTRAINT).strip()
    negated = text.startswith("!")
    text = text.removeprefix("!").lstrip()
    match = _ATTRIBUTE.match(text)
    if match is None:
        raise ValueError(_A_CONSTRAINT)
    attribute, rest = match[0], text[match.end() :]
    compared = rest.lstrip()
    if not compared:
        return {"attribute": attribute, "op": Operator.NOT_EXISTS if negated else Operator.EXISTS}
    if negated or "\n" in compared:
        raise ValueError(_A_CONSTRAINT)
    for sign, op in _SIGNS.items():
        if operand := compared.removeprefix(sign).strip() if compared.startswith(sign) else "":
            return {"attribute": attribute, "op": op, "values": [operand]}
    among, _, texts = compared.partition(" ")
    if rest[0].isspace() and among == "in" and texts.strip():
        values = [each.strip() for each in texts.split(",")]
        return {"attribute": attribute, "op": Operator.IN, "values": values}
    raise ValueError(_A_CONSTRAINT)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str | int | float) else value


class Constraint(Spec):
    """A condition on an attribute of an agent, which must hold (or, ``soft``, should).

    Written as text ("zone=a", "disk>=100", "zone in a,b", "nvlink", "!spot") or as fields. An agent
    without the attribute meets NE and NOT_EXISTS only.

    Args:
        attribute: its name.
        op: how it is compared; GT, GE, LT and LE compare numbers.
        values: the values to compare with; several with IN.
        soft: the condition should hold, and need not.
    """

    attribute: AttributeName
    op: Operator = Operator.EQ
    values: Annotated[
        tuple[ShortText, ...], BeforeValidator(_listed), Field(max_length=_MAX_VALUES)
    ] = ()
    soft: Flag = False

    def __str__(self) -> str:
        """The constraint as a person writes it."""
        match self.op:
            case Operator.EXISTS:
                return self.attribute
            case Operator.NOT_EXISTS:
                return f"!{self.attribute}"
            case Operator.IN:
                return f"{self.attribute} in {','.join(self.values)}"
            case op:
                return f"{self.attribute}{_SIGN_OF[op]}{self.values[0]}"

    @model_validator(mode="after")
    def _values_fit_operator(self) -> "Constraint":
        count = len(self.values)
        if self.op in (Operator.EXISTS, Operator.NOT_EXISTS):
            if count:
                raise ValueError(f"values: expected none with {self.op}")
        elif self.op is Operator.IN:
            if not count:
                raise ValueError("values: expected at least one with IN")
        elif count != 1:
            raise ValueError(f"values: expected exactly one with {self.op}")
        if self.op in NUMERIC and as_number(self.values[0]) is None:
            raise ValueError(f"values: expected a number with {self.op}, not {self.values[0]!r}")
        return self


def as_number(text: str) -> float | None:
    """The finite number that a text is, if it is one."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number - number == 0.0 else None


class ClusterMode(StrEnum):
    """Whether the kernels of a session may lie on several agents."""

    SINGLE_NODE = "single-node"
    MULTI_NODE = "multi-node"


class Grouping(StrEnum):
    """Whether the sessions of one set are spread over agents or packed onto few."""

    SPREAD = "spread"
    PACK = "pack"


class PlacementSpec(Spec):
    """The choice of agents for the kernels of a session.

    Args:
        constraints: on attributes of agents; all hard ones must hold, soft ones rank.
        agents: designated agents, by name; empty for any.
        agents_only: whether the session waits for ``agents`` (strict), or takes others too
            (preferred).
        mode: ``single-node``: all kernels on one agent.
        together: an attribute that must have one value on all agents of the session (a rack, an
            NVLink domain); the best-fitting value is taken.
        rank_by: an attribute by which the kernels' indexes follow the agents.
        max_kernels_per_agent: kernels of this session on one agent, at most.
        set: sessions of one owner that name the same set go by ``set_grouping``.
        set_grouping: whether the set's sessions are spread over agents, or packed onto few.
    """

    constraints: Annotated[
        tuple[Annotated[Constraint, BeforeValidator(_from_text)], ...], Field(max_length=32)
    ] = ()
    agents: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()
    agents_only: Flag = True
    mode: ClusterMode = ClusterMode.MULTI_NODE
    together: AttributeName | None = None
    rank_by: AttributeName | None = None
    max_kernels_per_agent: Annotated[Whole, Field(ge=1, le=10_000)] | None = None
    set: Name | None = None
    set_grouping: Grouping = Grouping.SPREAD

    @field_validator("agents")
    @classmethod
    def _sorted(cls, agents: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(agents)))

    def contradictions(self) -> Iterator[Problem]:
        if self.set is None and "set_grouping" in self.model_fields_set:
            expected = "this is for the sessions of a set: name it, as set: trial-7"
            yield Problem("placement.set_grouping", repr(str(self.set_grouping)), expected)

    def between_kernels(self) -> Iterator[tuple[str, str]]:
        """The keys, as written, that relate the kernels of one session to each other."""
        if self.mode is ClusterMode.SINGLE_NODE:
            yield "mode", repr(str(self.mode))
        for key in ("together", "rank_by", "max_kernels_per_agent"):
            if (value := getattr(self, key)) is not None:
                yield key, repr(value)


ANYWHERE = PlacementSpec()  # one for all: a default is copied deeply for each spec


class DependencyCondition(StrEnum):
    """The state that the other work must have reached; ``healthy`` is that of a deployment, and
    ``failed`` that of work that ended in any other way than to succeed, also because it was
    cancelled."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    ENDED = "ended"
    FAILED = "failed"
    HEALTHY = "healthy"


class Dependency(Spec):
    """Another job or session of the same owner, or a deployment that takes the owner's requests,
    and the state that it must reach before this one starts.

    Written as text ("train", "train:ended", "chat:healthy") or as fields.

    Args:
        on: name or id of the other work; the id once this spec is accepted.
        condition: the state that the other work must have reached: `healthy` of a deployment, the
            others of a job or a session.
        name: the text that was written as ``on``, once this spec is accepted.
    """

    on: Annotated[
        str, StringConstraints(max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    ]
    condition: DependencyCondition = DependencyCondition.SUCCEEDED
    name: Annotated[str, StringConstraints(max_length=63)] | None = None

    @property
    def called(self) -> str:
        """The name or id by which people know the other work."""
        return self.name or self.on

    @property
    def is_on_deployment(self) -> bool:
        """Whether the other work is a deployment."""
        return self.condition is DependencyCondition.HEALTHY


def _dependency(value: Any) -> Any:
    if isinstance(value, dict):
        return {"on" if key is True else key: each for key, each in value.items()}  # YAML's "on"
    if isinstance(value, Dependency):
        return value
    if not isinstance(value, str):
        raise ValueError("expected the name or id of work, such as prep or 'prep:ended'")
    on, colon, condition = check_text(value).partition(":")
    if colon and not condition:
        known = ", ".join(DependencyCondition)
        raise ValueError(f"expected one of {known} after the colon, or no colon")
    return {"on": on} | ({"condition": condition} if condition else {})


Dependencies = Annotated[
    tuple[Annotated[Dependency, BeforeValidator(_dependency)], ...], Field(max_length=100)
]
