"""Quotas as operators write them: how much one domain, project or user may hold at a time."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    Strict,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

from muster.core.owner import OWNER_NAME, Owner
from muster.core.resources import EXTRA_NAME, parse_milli, sent_bytes
from muster.core.specs.amounts import Name, ShortText, Spec, if_given, maybe_size, write_milli
from muster.core.specs.work import Priority

T = TypeVar("T")


class Level(StrEnum):
    """The level at which holdings are summed (design: Words)."""

    DOMAIN = "domain"
    PROJECT = "project"
    USER = "user"

    def of(self, owner: Owner) -> str:
        """The name at this level of the domain, project or user to which ``owner`` belongs:
        domain[/project[/user]]."""
        return "/".join((owner.domain, owner.project, owner.user)[: _DEPTH[self]])

    def is_name(self, text: str) -> bool:
        """Whether the text could be the name of a domain, project or user at this level."""
        parts = text.split("/")
        return len(parts) == _DEPTH[self] and all(map(OWNER_NAME.fullmatch, parts))


_DEPTH = {Level.DOMAIN: 1, Level.PROJECT: 2, Level.USER: 3}


UNLIMITED = 2**62
"""A limit that nothing reaches: that of a key of which a quota says that it has none."""
_UNLIMITED_TEXT = "unlimited"


def _limit(read: Callable[[Any], Any]) -> BeforeValidator:
    """The validator of a limit, which may be said to be none."""
    return BeforeValidator(lambda value: UNLIMITED if value == _UNLIMITED_TEXT else read(value))


def _written(write: Callable[[int], Any]) -> PlainSerializer:
    def written(limit: int | None) -> Any:
        if limit is None:
            return None
        return _UNLIMITED_TEXT if limit == UNLIMITED else write(limit)

    return PlainSerializer(written)


_MilliLimit = Annotated[int | None, _limit(if_given(parse_milli)), _written(write_milli)]


def _size_limit(value: Any, info: ValidationInfo) -> int | None:
    return UNLIMITED if value == _UNLIMITED_TEXT else maybe_size(value, info)


_BytesLimit = Annotated[int | None, BeforeValidator(_size_limit), _written(sent_bytes)]


def _each_limit(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("expected names with amounts, such as {H100: 4}")
    if not all(isinstance(name, str) for name in value):
        raise ValueError("expected names that are text")
    return {
        name: UNLIMITED if amount == _UNLIMITED_TEXT else parse_milli(amount)
        for name, amount in value.items()
    }


def _extra_limit(value: Any) -> Any:
    for name in value if isinstance(value, dict) else ():
        if not EXTRA_NAME.fullmatch(str(name)):
            raise ValueError(f"expected names of lower-case letters, digits, _ . - /, not {name!r}")
    return _each_limit(value)


def _write_each(limits: dict[str, int]) -> dict[str, str]:
    return {
        name: _UNLIMITED_TEXT if limit == UNLIMITED else write_milli(limit)
        for name, limit in limits.items()
    }


_Model = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"[A-Za-z0-9]")]


class QuotaLimits(Spec):
    """Most of each resource. What is left out is as the next quota by name says, and is no limit if
    none says it; ``unlimited`` is none whatever that says.

    Args:
        cpu, memory, disk, gpu: at most so much.
        gpu_models: at most so many GPUs of these models, named as in ``gpu_model``. Work that names
            no model, or others too, counts where it could get one of these.
        extra: limits of resources that agents declare, by name.
    """

    cpu: _MilliLimit = None
    memory: _BytesLimit = None
    disk: _BytesLimit = None
    gpu: _MilliLimit = None
    gpu_models: Annotated[
        dict[_Model, int],
        BeforeValidator(_each_limit),
        PlainSerializer(_write_each),
        Field(max_length=32),
    ] = Field(default_factory=dict)
    extra: Annotated[
        dict[str, int],
        BeforeValidator(_extra_limit),
        PlainSerializer(_write_each),
        Field(max_length=32),
    ] = Field(default_factory=dict)

    @cached_property
    def said(self) -> Mapping[str, int]:
        """The limits by name of the resource, ``UNLIMITED`` included."""
        named = {"cpu": self.cpu, "memory": self.memory, "disk": self.disk, "gpu": self.gpu}
        return {name: limit for name, limit in named.items() if limit is not None} | self.extra

    @cached_property
    def amounts(self) -> Mapping[str, int]:
        """Canonical amounts of the limited resources, by name."""
        return _limited(self.said)

    @cached_property
    def models(self) -> Mapping[str, int]:
        """Thousandths of GPUs of each limited model."""
        return _limited(self.gpu_models)

    def or_else(self, other: "QuotaLimits") -> "QuotaLimits":
        """These limits, with those of ``other`` where they say none."""
        return QuotaLimits.model_construct(
            cpu=_first(self.cpu, other.cpu),
            memory=_first(self.memory, other.memory),
            disk=_first(self.disk, other.disk),
            gpu=_first(self.gpu, other.gpu),
            gpu_models=other.gpu_models | self.gpu_models,
            extra=other.extra | self.extra,
        )


def _limited(said: Mapping[str, int]) -> Mapping[str, int]:
    return {name: limit for name, limit in said.items() if limit != UNLIMITED}


def _first(one: T | None, other: T | None) -> T | None:
    return other if one is None else one


def _count(value: Any) -> Any:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if value is None or (is_number and 0 <= value <= _MOST):
        return value
    raise ValueError(f"expected a whole number, at least 0 and at most {_MOST:,}, or unlimited")


_MOST = 10_000_000
_Count = Annotated[int | None, _limit(_count), _written(int)]

MAX_PRIORITY_OF_USER = 50
"""The highest priority that a user may give work, unless a quota says otherwise."""

MAX_OPEN_WORK = 100_000
"""Jobs, sessions and deployments of a user that have not ended, unless a quota says otherwise."""
MAX_OPEN_SPECS_BYTES = 24 * 2**20
"""Bytes of the specs of a user's open work, unless a quota says otherwise."""
MAX_ENDED_SPECS_BYTES = 16 * 2**20
"""Bytes of large specs of a user's ended work that are kept whole, unless a quota says
otherwise."""


class QuotaSpec(Spec):
    """Limits of one owner at one level.

    Args:
        level: whether the owner is a domain, a project or a user.
        name: the owner: ``domain``, ``domain/project`` or ``domain/project/user``. With ``*`` for
            the last parts, every owner of that form. A key that an owner's quota leaves out is that
            of the next one: for d/p/u of d/p/*, of d/*/*, of */*/*.
        limits: amounts that the owner's placed sessions may hold together.
        groups: amounts that they may hold of single groups, by the group's name.
        largest: amounts that one session may ask for in all; more is refused at submission.
        sessions: how many of the owner's sessions may be placed at a time; 0 makes all of them
            wait.
        pending_sessions: how many may wait; more are refused at submission.
        open_work: how many jobs, sessions and deployments that have not ended may be there; more
            are refused at submission. A user without this limit has 100,000.
        open_specs: bytes of the specs of work that has not ended; more are refused at submission.
            A user without this limit has 24MiB.
        ended_specs: bytes of specs over 16KiB of a user's ended work that are kept whole; of older
            ones the long values are removed. A user without this limit has 16MiB; it has no effect
            at other levels.
        max_priority: the highest priority of the owner's work; a higher one is refused. A user
            without this limit has 50. Administrators' requests are not limited.
        weight: the owner's part of the whole under the ``fair_share`` sequencer, 1 if nobody says.
    """

    kind: Literal["quota"] = "quota"
    level: Level = Level.USER
    name: ShortText
    limits: QuotaLimits = Field(default_factory=QuotaLimits)
    groups: Annotated[dict[Name, QuotaLimits], Field(max_length=100)] = Field(default_factory=dict)
    largest: QuotaLimits = Field(default_factory=QuotaLimits)
    sessions: _Count = None
    pending_sessions: _Count = None
    open_work: _Count = None
    open_specs: _BytesLimit = None
    ended_specs: _BytesLimit = None
    max_priority: Priority | None = None
    weight: Annotated[float, Strict(), Field(gt=0, le=1e6)] | None = None

    @field_validator("name")
    @classmethod
    def _is_of_level(cls, name: str, info: ValidationInfo) -> str:
        level = info.data.get("level")
        if level is None:
            return name  # the level is wrong, which is a problem of its own
        parts = name.split("/")
        own = [part for part in parts if part != "*"]
        stars = ["*"] * (len(parts) - len(own))
        names = all(map(OWNER_NAME.fullmatch, own))
        if not names or len(parts) != _DEPTH[level] or parts != own + stars:
            form = "/".join(("domain", "project", "user")[: _DEPTH[level]])
            raise ValueError(f"expected {form}, as level is {level}; the last parts may be *")
        return name

    @cached_property
    def limits_placement(self) -> bool:
        """Whether it may keep sessions from being placed."""
        amounts = any(each.amounts or each.models for each in (self.limits, *self.groups.values()))
        return amounts or self.sessions not in (None, UNLIMITED)

    def or_else(self, other: "QuotaSpec") -> "QuotaSpec":
        """This quota, with the keys of ``other`` that it leaves out."""
        groups = {
            name: self.groups.get(name, NO_LIMITS).or_else(other.groups.get(name, NO_LIMITS))
            for name in {**other.groups, **self.groups}
        }
        return QuotaSpec.model_construct(
            level=self.level,
            name=self.name,
            limits=self.limits.or_else(other.limits),
            largest=self.largest.or_else(other.largest),
            groups=groups,
            sessions=_first(self.sessions, other.sessions),
            pending_sessions=_first(self.pending_sessions, other.pending_sessions),
            open_work=_first(self.open_work, other.open_work),
            open_specs=_first(self.open_specs, other.open_specs),
            ended_specs=_first(self.ended_specs, other.ended_specs),
            max_priority=_first(self.max_priority, other.max_priority),
            weight=_first(self.weight, other.weight),
        )


NO_LIMITS = QuotaLimits()


KIND = QuotaSpec
