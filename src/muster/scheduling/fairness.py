"""Who has had how much of a group, now and of late: what ``drf`` and ``fair_share`` order by.

Amounts of different resources are compared by the *dominant share*: the largest of what somebody
has of each resource, as a part of what all agents of the group have of it (source: Ghodsi
2011). The dominant share of amount-seconds is in dominant-resource-seconds:
1.0 is the whole group for a second.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from muster.core.owner import Owner
from muster.scheduling.snapshot import NotHeld, Snapshot
from muster.scheduling.usage import Scope, scopes

WEEK_S = 7 * 86_400.0


def dominant_share(amounts: Mapping[str, float], capacity: Mapping[str, float]) -> float:
    """The largest part of a resource; resources that the group does not have are not looked at."""
    largest = 0.0
    for name, amount in amounts.items():
        total = capacity.get(name)
        if total and amount / total > largest:
            largest = amount / total
    return largest


class Capacity:
    """What all agents of a snapshot have together, silent ones too, by name of the resource."""

    def __init__(self) -> None:
        self._seen: tuple[Snapshot, int] | None = None
        self._totals: dict[str, float] = {}

    def of(self, snapshot: Snapshot) -> Mapping[str, float]:
        """Added up again only when the snapshot has changed."""
        seen = self._seen
        if seen is None or seen[0] is not snapshot or seen[1] != snapshot.version:
            columns = snapshot.columns
            totals = columns.capacity.sum(axis=0, dtype=float).tolist()
            self._totals = dict(zip(columns.dimensions, totals, strict=True))
            self._totals["gpu"] = float(columns.device_capacity.sum())
            self._seen = snapshot, snapshot.version
        return self._totals


@dataclass(frozen=True, slots=True)
class Stay:
    """What one session held from its start to its end, or holds still: a row of the past."""

    owner: Owner
    amounts: Mapping[str, int]
    started_at: float
    ended_at: float | None = None


@dataclass(slots=True)
class _Decaying:
    """One scope: ``amount_s`` is what its past amounts to at ``at``, ``held`` goes on from there.

    ``seen`` is the last answer and the moment that it was for, until something changes.
    """

    at: float
    held: dict[str, int] = field(default_factory=dict)
    amount_s: dict[str, float] = field(default_factory=dict)
    seen: tuple[float, Mapping[str, float]] | None = None


class DecayedUsage:
    """Amount-seconds by scope, in which a second counts for half after each half-life.

    What has been used until ``now`` is the integral of what was held at t, times
    2 ** (-(now - t) / half_life_s), over all t before. It is kept exactly, in closed form: a change
    costs the same whatever came before, and nothing needs doing while nothing changes. Changes may
    come in any order of their times.
    """

    def __init__(self, half_life_s: float = WEEK_S) -> None:
        self.half_life_s = half_life_s
        self.mean_life_s = half_life_s / math.log(2)
        """What holding 1 for ever comes to."""
        self._scopes: dict[Scope, _Decaying] = {}

    @staticmethod
    def of_past(stays: Iterable[Stay], half_life_s: float = WEEK_S) -> "DecayedUsage":
        """As it would be had it been told of all ``stays`` when they happened."""
        usage = DecayedUsage(half_life_s)
        for stay in stays:
            if stay.ended_at is None:
                usage.placed(stay.owner, stay.amounts, stay.started_at)
            else:
                usage.ran(stay.owner, stay.amounts, stay.started_at, stay.ended_at)
        return usage

    def placed(self, owner: Owner, amounts: Mapping[str, int], at: float) -> None:
        """From ``at`` on the owner holds so much more."""
        for scope in scopes(owner):
            self._change(scope, amounts, at, +1)

    def released(self, owner: Owner, amounts: Mapping[str, int], at: float) -> None:
        """From ``at`` on the owner holds so much less.

        Raises:
            NotHeld: so much is not held; nothing was changed.
        """
        user = self._scopes.get(scopes(owner)[0])
        held = user.held if user is not None else {}
        if any(held.get(name, 0) < amount for name, amount in amounts.items()):
            raise NotHeld(f"{owner} holds {held}, which is less than {dict(amounts)}")
        for scope in scopes(owner):
            self._change(scope, amounts, at, -1)

    def ran(
        self, owner: Owner, amounts: Mapping[str, int], started_at: float, ended_at: float
    ) -> None:
        """The owner held so much in between; more exact than to place and release it, if that was
        long ago. An end before the start is nothing."""
        worth_s = self._worth_s(ended_at - started_at)
        if worth_s <= 0:
            return
        for scope in scopes(owner):
            state = self._advanced(scope, ended_at)
            left_s = worth_s * self._left(state.at - ended_at)
            for name, amount in amounts.items():
                state.amount_s[name] = state.amount_s.get(name, 0.0) + amount * left_s

    def used(self, scope: Scope, now: float) -> Mapping[str, float]:
        """Amount-seconds until ``now`` by name of the resource, in canonical amounts; must not be
        changed. Before the last change that it knows of, it answers as at that change."""
        state = self._scopes.get(scope)
        if state is None:
            return {}
        if state.seen is None or state.seen[0] != now:
            after = self._after(state, max(now, state.at))
            # Below zero only if a clock was set back between a start and its end.
            state.seen = now, {name: max(amount_s, 0.0) for name, amount_s in after.items()}
        return state.seen[1]

    def _change(self, scope: Scope, amounts: Mapping[str, int], at: float, sign: int) -> None:
        state = self._advanced(scope, at)
        since_s = self._worth_s(state.at - at)
        for name, amount in amounts.items():
            state.held[name] = state.held.get(name, 0) + sign * amount
            state.amount_s[name] = state.amount_s.get(name, 0.0) + sign * amount * since_s

    def _advanced(self, scope: Scope, at: float) -> _Decaying:
        """The scope's state, at ``at`` unless it is past that already; it is about to change."""
        state = self._scopes.setdefault(scope, _Decaying(at))
        if at > state.at:
            state.amount_s = self._after(state, at)
            state.at = at
        state.seen = None
        return state

    def _after(self, state: _Decaying, at: float) -> dict[str, float]:
        left, worth_s = self._left(at - state.at), self._worth_s(at - state.at)
        return {
            name: amount_s * left + state.held.get(name, 0) * worth_s
            for name, amount_s in state.amount_s.items()
        }

    def _left(self, elapsed_s: float) -> float:
        """What is left of 1 so long after."""
        return math.exp(-elapsed_s / self.mean_life_s)

    def _worth_s(self, length_s: float) -> float:
        """What having held 1 for so long amounts to at its end."""
        return -math.expm1(-length_s / self.mean_life_s) * self.mean_life_s
