"""The shares that owners hold of a group now and have held of late, by which ``drf`` and
``fair_share`` order.

Amounts of different resources are compared by the *dominant share*: an owner's part of the group's
capacity, for the resource of which that part is largest (source: Ghodsi 2011). The dominant share
of amount-seconds is in dominant-resource-seconds: 1.0 is the whole group for a second.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from muster.core.owner import Owner
from muster.core.resources import KERNELS
from muster.scheduling.accounting.usage import Scope, scopes
from muster.scheduling.cluster.snapshot import NotHeld, Snapshot

WEEK_S = 7 * 86_400.0


def dominant_share(amounts: Mapping[str, float], capacity: Mapping[str, float]) -> float:
    """The dominant share of these amounts; resources that the group lacks are not looked at."""
    largest = 0.0
    for name, amount in amounts.items():
        total = capacity.get(name)
        if total and amount / total > largest:
            largest = amount / total
    return largest


class Capacity:
    """The capacity of all agents of a snapshot together, silent ones too, by name of the resource;
    the number of kernels is none."""

    def __init__(self) -> None:
        self._seen: tuple[Snapshot, int] | None = None
        self._totals: dict[str, float] = {}

    def of(self, snapshot: Snapshot) -> Mapping[str, float]:
        """The sum, computed again only when the snapshot has changed."""
        seen = self._seen
        if seen is None or seen[0] is not snapshot or seen[1] != snapshot.version:
            columns = snapshot.columns
            totals = columns.capacity.sum(axis=0, dtype=float).tolist()
            self._totals = dict(zip(columns.dimensions, totals, strict=True))
            self._totals.pop(KERNELS, None)
            self._totals["gpu"] = float(columns.device_capacity.sum())
            self._seen = snapshot, snapshot.version
        return self._totals


@dataclass(frozen=True, slots=True)
class UsageSpan:
    """The amounts that one session held from its start to its end, or until now."""

    owner: Owner
    amounts: Mapping[str, int]
    started_at: float
    ended_at: float | None = None


@dataclass(slots=True)
class _Decaying:
    """The usage of one scope: ``amount_s`` is its decayed sum at the moment ``at``, ``held`` are
    the amounts that the scope holds from ``at`` on.

    ``seen`` is the last answer of ``DecayedUsage.used`` with its moment; a change clears it.
    """

    at: float
    held: dict[str, int] = field(default_factory=dict)
    amount_s: dict[str, float] = field(default_factory=dict)
    seen: tuple[float, Mapping[str, float]] | None = None


class DecayedUsage:
    """Amount-seconds by scope, in which a second counts for half after each half-life.

    The usage until ``now`` is the integral of the amount held at t, times 2 ** (-(now - t) /
    half_life_s), over all t before. It is kept exactly, in closed form: the cost of a change does
    not depend on the past, and time that passes costs nothing. Changes may come in any order of
    their times.
    """

    def __init__(self, half_life_s: float = WEEK_S) -> None:
        self.half_life_s = half_life_s
        self.mean_life_s = half_life_s / math.log(2)
        """The usage of holding 1 for ever."""
        self._scopes: dict[Scope, _Decaying] = {}

    @staticmethod
    def of_past(spans: Iterable[UsageSpan], half_life_s: float = WEEK_S) -> "DecayedUsage":
        """The usage after all ``spans``."""
        usage = DecayedUsage(half_life_s)
        for span in spans:
            if span.ended_at is None:
                usage.placed(span.owner, span.amounts, span.started_at)
            else:
                usage.ran(span.owner, span.amounts, span.started_at, span.ended_at)
        return usage

    def placed(self, owner: Owner, amounts: Mapping[str, int], at: float) -> None:
        """Note that the owner holds these amounts in addition from ``at`` on."""
        for scope in scopes(owner):
            self._change(scope, amounts, at, +1)

    def released(self, owner: Owner, amounts: Mapping[str, int], at: float) -> None:
        """Note that the owner holds these amounts no longer from ``at`` on.

        Raises:
            NotHeld: the owner holds less; nothing was changed.
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
        """Note that the owner held these amounts from start to end. For a span long ago this is
        more exact than ``placed`` and ``released``. A span that ends before it starts counts
        nothing."""
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
        changed. For a moment before the last known change the answer is as at that change."""
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
        """The scope's state, advanced to ``at`` unless it is later already, for a change."""
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
        """The weight that a usage of 1 has after ``elapsed_s`` seconds."""
        return math.exp(-elapsed_s / self.mean_life_s)

    def _worth_s(self, length_s: float) -> float:
        """The usage of holding 1 for ``length_s`` seconds, at their end."""
        return -math.expm1(-length_s / self.mean_life_s) * self.mean_life_s
