"""The usage of owners now: sums at the three levels, for quotas and fairness."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias, TypeVar

from muster.core.owner import Owner
from muster.core.resources import Device
from muster.core.specs import Level, QuotaSpec
from muster.core.specs.quota import (
    MAX_ENDED_SPECS_BYTES,
    MAX_OPEN_SPECS_BYTES,
    MAX_OPEN_WORK,
    MAX_PRIORITY_OF_USER,
)
from muster.scheduling.cluster.snapshot import NotHeld
from muster.scheduling.workload import NO_PARTS, Part, WorkloadClass

Scope: TypeAlias = tuple[Level, str]
"""A level and the name of an owner at it, such as (USER, "default/research/ann")."""


@lru_cache(maxsize=16_384)
def scopes(owner: Owner) -> tuple[Scope, Scope, Scope]:
    """User, project and domain of an owner."""
    user, project, domain = Level.USER, Level.PROJECT, Level.DOMAIN
    return (user, user.of(owner)), (project, project.of(owner)), (domain, domain.of(owner))


@dataclass(slots=True)
class ScopeUsage:
    """The sum over the sessions of an owner at one level.

    Args:
        amounts: canonical amounts by name of the resource; none is 0.
        sessions: the number of placed sessions.
        pending: the number of waiting sessions.
        parts: the parts of the amounts by which single groups and models are counted; none is 0.
    """

    amounts: dict[str, int] = field(default_factory=dict)
    sessions: int = 0
    pending: int = 0
    parts: dict[Part, int] = field(default_factory=dict)


_NOTHING = ScopeUsage()


class Usage:
    """The usage of each scope, kept current by deltas."""

    def __init__(self) -> None:
        self.models: dict[str, set[str]] = {}
        """By group, the models of the GPUs that its agents have or had."""
        self._below: Usage | None = None  # the original of a fork, for scopes without an entry here
        self._noted: list[tuple[WorkloadClass, int]] = []  # placed, not in the sums yet
        self._entries: dict[Scope, ScopeUsage] = {}
        self._of_owner: dict[Owner, tuple[ScopeUsage, ScopeUsage, ScopeUsage]] = {}  # of _entries

    def fork(self) -> "Usage":
        """A copy to try on, which costs nothing to make; the original must not be changed while it
        is used."""
        twin = Usage()
        twin._below, twin.models = self, self.models
        return twin

    def note_models(self, group: str, devices: Iterable[Device]) -> None:
        """Note which models of GPUs an agent of the group has."""
        models = {device.model for device in devices}
        if models:
            self.models.setdefault(group, set()).update(models)

    def of(self, scope: Scope) -> ScopeUsage:
        """The usage of a scope; must not be changed."""
        if self._noted:
            self._count_noted()
        entry = self._entries.get(scope)
        if entry is None:
            return _NOTHING if self._below is None else self._below.of(scope)
        return entry

    def placed(
        self,
        owner: Owner,
        amounts: Mapping[str, int],
        sessions: int = 1,
        parts: Mapping[Part, int] = NO_PARTS,
    ) -> None:
        """Count ``sessions`` placed sessions with ``amounts`` together; a negative number is the
        exact opposite.

        Args:
            parts: of the amounts (``WorkloadClass.parts``).

        Raises:
            NotHeld: the owner has fewer placed sessions, or they hold less; nothing was changed.
        """
        entries = self._own(owner)
        if sessions < 0:
            self._give_back(owner, entries, amounts, -sessions, parts)
            return
        for entry in entries:
            entry.sessions += sessions
            held, held_parts = entry.amounts, entry.parts
            for name, amount in amounts.items():
                held[name] = held.get(name, 0) + amount
            for part, amount in parts.items():
                held_parts[part] = held_parts.get(part, 0) + amount

    def note_placed(self, workload: WorkloadClass, sessions: int) -> None:
        """Count ``sessions`` sessions of a class as placed, as ``placed`` does. The sums are
        computed at the next call of ``of``, because most passes never read them."""
        self._noted.append((workload, sessions))

    def waits(self, owner: Owner, sessions: int) -> None:
        """Count ``sessions`` more waiting sessions, or fewer if the number is negative.

        Raises:
            NotHeld: the owner has fewer waiting sessions; nothing was changed.
        """
        entries = self._own(owner)
        if entries[0].pending + sessions < 0:
            raise NotHeld(f"{owner} has {entries[0].pending} sessions waiting, not {-sessions}")
        for entry in entries:
            entry.pending += sessions

    def _give_back(
        self,
        owner: Owner,
        entries: tuple[ScopeUsage, ScopeUsage, ScopeUsage],
        amounts: Mapping[str, int],
        sessions: int,
        parts: Mapping[Part, int],
    ) -> None:
        user = entries[0]  # a project and a domain hold at least as much as each of their users
        less = [name for name, amount in amounts.items() if user.amounts.get(name, 0) < amount]
        if less or user.sessions < sessions:
            raise NotHeld(
                f"{owner} holds {user.amounts} with {user.sessions} sessions, which is less than "
                f"{dict(amounts)} with {sessions}"
            )
        for entry in entries:
            entry.sessions -= sessions
            _take_off(entry.amounts, amounts)
            _take_off(entry.parts, parts)

    def _count_noted(self) -> None:
        noted, self._noted = self._noted, []
        for workload, sessions in noted:
            amounts = {name: amount * sessions for name, amount in workload.total.items()}
            parts = {part: amount * sessions for part, amount in workload.parts.items()}
            self.placed(workload.owner, amounts, sessions, parts)

    def _own(self, owner: Owner) -> tuple[ScopeUsage, ScopeUsage, ScopeUsage]:
        """The owner's entries at its three levels, for a change; in a fork they are copied from the
        original the first time."""
        own = self._of_owner.get(owner)
        if own is None:
            user, project, domain = scopes(owner)
            own = self._copied(user), self._copied(project), self._copied(domain)
            self._of_owner[owner] = own
        return own

    def _copied(self, scope: Scope) -> ScopeUsage:
        entry = self._entries.get(scope)
        if entry is None:
            below = self.of(scope)
            parts = dict(below.parts)
            entry = ScopeUsage(dict(below.amounts), below.sessions, below.pending, parts)
            self._entries[scope] = entry
        return entry


K = TypeVar("K")


def _take_off(held: dict[K, int], amounts: Mapping[K, int]) -> None:
    for name, amount in amounts.items():
        left = held.get(name, 0) - amount
        if left:
            held[name] = left
        else:
            held.pop(name, None)


@dataclass(frozen=True, slots=True)
class StoredLimits:
    """The limits on what an owner may have in the database; None is no limit.

    Args:
        open_work: jobs, sessions and deployments that have not ended.
        open_specs_bytes: of their specs.
        ended_specs_bytes: of large specs of ended work that are kept whole.
    """

    open_work: int | None = None
    open_specs_bytes: int | None = None
    ended_specs_bytes: int | None = None


DEFAULT_OF_USER = StoredLimits(MAX_OPEN_WORK, MAX_OPEN_SPECS_BYTES, MAX_ENDED_SPECS_BYTES)
"""The limits of a user for whom no quota says others."""
_UNLIMITED = StoredLimits()


def stored_limits(level: Level, quota: QuotaSpec | None) -> StoredLimits:
    """The limits of a quota on what an owner may have in the database; a user has the default for
    those that the quota does not say."""
    default = DEFAULT_OF_USER if level is Level.USER else _UNLIMITED
    if quota is None:
        return default
    return StoredLimits(
        default.open_work if quota.open_work is None else quota.open_work,
        default.open_specs_bytes if quota.open_specs is None else quota.open_specs,
        default.ended_specs_bytes if quota.ended_specs is None else quota.ended_specs,
    )


class Quotas:
    """The limits of each scope: the scope's own, and those of ``*`` at its level for each key that
    the scope's own leave out.

    Attributes:
        levels: the levels at which there are limits on what is placed.
    """

    def __init__(self, specs: Iterable[QuotaSpec] = ()) -> None:
        self._specs = {(spec.level, spec.name): spec for spec in specs}
        limiting = (each.level for each in self._specs.values() if each.limits_placement)
        self.levels = frozenset(limiting)
        self._found: dict[Scope, QuotaSpec | None] = {}

    def of(self, scope: Scope) -> QuotaSpec | None:
        """The limits of a scope: for d/p/u each key is that of the first of d/p/u, d/p/*, d/*/* and
        */*/* which has it; None if none of them is set."""
        if not self._specs:
            return None
        try:
            return self._found[scope]
        except KeyError:
            found = self._found[scope] = self._merged(*scope)
            return found

    def stored(self, scope: Scope) -> StoredLimits:
        """The limits on what a scope may have in the database."""
        return stored_limits(scope[0], self.of(scope))

    def bind(self, owner: Owner) -> bool:
        """Whether a quota may keep sessions of the owner from being placed."""
        if not self.levels:
            return False
        found = (self.of(scope) for scope in scopes(owner))
        return any(quota is not None and quota.limits_placement for quota in found)

    def max_priority(self, owner: Owner) -> "tuple[int, Scope]":
        """The highest priority that an owner's work may have, and the scope whose limit that is:
        the lowest limit of its user, project and domain."""
        limits = []
        for scope in scopes(owner):
            quota = self.of(scope)
            limit = None if quota is None else quota.max_priority
            if limit is None and scope[0] is Level.USER:
                limit = MAX_PRIORITY_OF_USER
            if limit is not None:
                limits.append((limit, scope))
        return min(limits, key=lambda each: each[0])

    def _merged(self, level: Level, name: str) -> QuotaSpec | None:
        parts = name.split("/")
        merged: QuotaSpec | None = None
        for known in range(len(parts), -1, -1):
            named = "/".join(parts[:known] + ["*"] * (len(parts) - known))
            spec = self._specs.get((level, named))
            if spec is not None:
                merged = spec if merged is None else merged.or_else(spec)
        return merged


@dataclass(slots=True)
class Accounting:
    """The usage and limits of owners in the whole cluster, which the groups share."""

    usage: Usage = field(default_factory=Usage)
    quotas: Quotas = field(default_factory=Quotas)
