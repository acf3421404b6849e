"""The holdings of owners: sums at the three levels, for quotas and fairness."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from muster.core.owner import Owner
from muster.core.specs import Level, QuotaSpec
from muster.scheduling.cluster.snapshot import NotHeld
from muster.scheduling.workload import WorkloadClass

Scope: TypeAlias = tuple[Level, str]
"""A level and the name of an owner at it, such as (USER, "default/research/ann")."""


@lru_cache(maxsize=16_384)
def scopes(owner: Owner) -> tuple[Scope, Scope, Scope]:
    """User, project and domain of an owner."""
    user, project, domain = Level.USER, Level.PROJECT, Level.DOMAIN
    return (user, user.of(owner)), (project, project.of(owner)), (domain, domain.of(owner))


@dataclass(slots=True)
class Holding:
    """The sum over an owner's sessions.

    Args:
        amounts: canonical amounts by name of the resource; none is 0.
        sessions: how many are placed.
        pending: how many wait.
    """

    amounts: dict[str, int] = field(default_factory=dict)
    sessions: int = 0
    pending: int = 0


_NOTHING = Holding()


class Usage:
    """Holdings by scope, kept current by deltas."""

    def __init__(self) -> None:
        self._below: Usage | None = None  # the original, for scopes without an entry here
        self._noted: list[tuple[WorkloadClass, int]] = []  # placed, and not yet counted in
        self._holdings: dict[Scope, Holding] = {}
        self._of_owner: dict[Owner, tuple[Holding, Holding, Holding]] = {}  # in _holdings too

    def fork(self) -> "Usage":
        """A copy to try on, which costs nothing to make; the original must not be changed while it
        is used."""
        twin = Usage()
        twin._below = self
        return twin

    def of(self, scope: Scope) -> Holding:
        """The holding of a scope; must not be changed."""
        if self._noted:
            self._count_noted()
        holding = self._holdings.get(scope)
        if holding is None:
            return _NOTHING if self._below is None else self._below.of(scope)
        return holding

    def placed(self, owner: Owner, amounts: Mapping[str, int], sessions: int = 1) -> None:
        """Count ``sessions`` placed sessions with ``amounts`` together; a negative number is the
        exact opposite.

        Raises:
            NotHeld: the owner has fewer placed sessions, or they hold less; nothing was changed.
        """
        holdings = self._own(owner)
        if sessions < 0:
            self._give_back(owner, holdings, amounts, -sessions)
            return
        for holding in holdings:
            holding.sessions += sessions
            held = holding.amounts
            for name, amount in amounts.items():
                held[name] = held.get(name, 0) + amount

    def note_placed(self, workload: WorkloadClass, sessions: int) -> None:
        """``placed``, for so many sessions of a class; they are counted at the next question."""
        self._noted.append((workload, sessions))

    def waits(self, owner: Owner, sessions: int) -> None:
        """Count so many more waiting sessions, or fewer if negative.

        Raises:
            NotHeld: the owner has fewer waiting sessions; nothing was changed.
        """
        holdings = self._own(owner)
        if holdings[0].pending + sessions < 0:
            raise NotHeld(f"{owner} has {holdings[0].pending} sessions waiting, not {-sessions}")
        for holding in holdings:
            holding.pending += sessions

    def _give_back(
        self,
        owner: Owner,
        holdings: tuple[Holding, Holding, Holding],
        amounts: Mapping[str, int],
        sessions: int,
    ) -> None:
        user = holdings[0]  # a project and a domain hold at least as much as each of their users
        less = [name for name, amount in amounts.items() if user.amounts.get(name, 0) < amount]
        if less or user.sessions < sessions:
            raise NotHeld(
                f"{owner} holds {user.amounts} with {user.sessions} sessions, which is less than "
                f"{dict(amounts)} with {sessions}"
            )
        for holding in holdings:
            holding.sessions -= sessions
            held = holding.amounts
            for name, amount in amounts.items():
                left = held.get(name, 0) - amount
                if left:
                    held[name] = left
                else:
                    held.pop(name, None)

    def _count_noted(self) -> None:
        noted, self._noted = self._noted, []
        for workload, sessions in noted:
            amounts = {name: amount * sessions for name, amount in workload.total.items()}
            self.placed(workload.owner, amounts, sessions)

    def _own(self, owner: Owner) -> tuple[Holding, Holding, Holding]:
        """The owner's three holdings, for a change: copied from the original the first time."""
        own = self._of_owner.get(owner)
        if own is None:
            user, project, domain = scopes(owner)
            own = self._copied(user), self._copied(project), self._copied(domain)
            self._of_owner[owner] = own
        return own

    def _copied(self, scope: Scope) -> Holding:
        holding = self._holdings.get(scope)
        if holding is None:
            below = self.of(scope)
            holding = Holding(dict(below.amounts), below.sessions, below.pending)
            self._holdings[scope] = holding
        return holding


class Quotas:
    """The limits of each scope: its own, or those of ``*`` at its level.

    Attributes: levels: at which there are limits.
    """

    def __init__(self, specs: Iterable[QuotaSpec] = ()) -> None:
        self._specs = {(spec.level, spec.name): spec for spec in specs}
        self.levels = frozenset(level for level, _ in self._specs)
        self._found: dict[Scope, QuotaSpec | None] = {}

    def of(self, scope: Scope) -> QuotaSpec | None:
        """The nearest limits that are set: for d/p/u those of d/p/u, d/p/*, d/*/* or */*/*."""
        if not self._specs:
            return None
        try:
            return self._found[scope]
        except KeyError:
            found = self._found[scope] = self._nearest(*scope)
            return found

    def _nearest(self, level: Level, name: str) -> QuotaSpec | None:
        parts = name.split("/")
        for known in range(len(parts), -1, -1):
            named = "/".join(parts[:known] + ["*"] * (len(parts) - known))
            spec = self._specs.get((level, named))
            if spec is not None:
                return spec
        return None


@dataclass(slots=True)
class Accounting:
    """The holdings and limits of owners in the whole cluster, which the groups share."""

    usage: Usage = field(default_factory=Usage)
    quotas: Quotas = field(default_factory=Quotas)
