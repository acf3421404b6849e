"""Quotas as operators write them: how much one domain, project or user may hold at a time."""

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, Strict, ValidationInfo, field_validator

from muster.core.owner import OWNER_NAME, Owner
from muster.core.specs.amounts import Extra, MaybeBytes, MaybeMilli, ShortText, Spec, Whole


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


class QuotaLimits(Spec):
    """Most of each resource; None, or an extra resource without a name here, is no limit.

    Args:
        cpu, memory, disk, gpu: at most so much.
        extra: limits of resources that agents declare, by name.
    """

    cpu: MaybeMilli = None
    memory: MaybeBytes = None
    disk: MaybeBytes = None
    gpu: MaybeMilli = None
    extra: Extra = Field(default_factory=dict)

    @cached_property
    def amounts(self) -> Mapping[str, int]:
        """Canonical amounts of the limited resources, by name."""
        named = {"cpu": self.cpu, "memory": self.memory, "disk": self.disk, "gpu": self.gpu}
        return {name: amount for name, amount in named.items() if amount is not None} | self.extra


_Count = Annotated[Whole, Field(ge=0, le=10_000_000)]

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
            the last parts, every owner of that form without limits of its own.
        limits: amounts that the owner's placed sessions may hold together.
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
        weight: the owner's part of the whole under the ``fair_share`` sequencer.
    """

    kind: Literal["quota"] = "quota"
    level: Level = Level.USER
    name: ShortText
    limits: QuotaLimits = Field(default_factory=QuotaLimits)
    largest: QuotaLimits = Field(default_factory=QuotaLimits)
    sessions: _Count | None = None
    pending_sessions: _Count | None = None
    open_work: _Count | None = None
    open_specs: MaybeBytes = None
    ended_specs: MaybeBytes = None
    weight: Annotated[float, Strict(), Field(gt=0, le=1e6)] = 1.0

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
