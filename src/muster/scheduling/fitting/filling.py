"""Placing kernels with equal requests one after the other, each on the agent that is best then: the
inner loop of ``fit``, which is for whole sessions.

The best agent is determined by these criteria, in this order: the tiers of ``constraints``, the
number of kernels of the session's set on it, whether it is without GPUs where none are asked for,
the selector's score, and the slot.
"""

import itertools
from collections.abc import Collection

import numpy as np

from muster.core.errors import MusterError
from muster.core.resources import GPU_WHOLE, Resources
from muster.core.specs.placement import Grouping
from muster.scheduling.cluster.columns import Bulk, Flags, Floats, Ints, Need, Shares
from muster.scheduling.cluster.constraints import has_free, soft_ranks, tiers, within
from muster.scheduling.cluster.devices import choose, choose_all, repeat, share, shares_of
from muster.scheduling.cluster.order import MAX_SLOTS, Ranking, Tier
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.workload import KernelPlacement, SetKey, WorkloadClass

_MANY = 16  # kernels are placed together from this number on, and at least one for so many slots
_SLOTS_FOR_ONE = 256
_LEAST_STEP = 1.0  # ... where each adds at least so many steps to the utilisation


class Filling:
    """Kernels of one session, or of sessions of one class, being placed in a statement.

    Args:
        only: the only slots that may be used; None for all slots that the class may use.
    """

    def __init__(
        self,
        statement: Statement,
        selector: AgentSelector,
        workload: WorkloadClass,
        only: Flags | None = None,
    ) -> None:
        placement, snapshot = workload.placement, statement.snapshot
        self._statement = statement
        self._snapshot = snapshot
        self._columns = columns = snapshot.columns
        self._selector = selector
        self._ranking = selector.ranking if columns.slots <= MAX_SLOTS else None
        self._many = _MANY + columns.slots // _SLOTS_FOR_ONE
        self._fullest_device = selector.fullest_device
        self._tiers = tiers(snapshot, workload)
        if only is not None:
            self._tiers = within(self._tiers, only)
        self._sets, self._port = workload.sets, workload.port
        self._set: SetKey | None = None
        if placement.set is not None:
            self._set = workload.owner, placement.set
            self._spread = placement.set_grouping is Grouping.SPREAD
        self._limit: int | None = None
        self._full: Collection[int] = ()  # slots with as many kernels of the session as are allowed
        if placement.max_kernels_per_agent is not None and len(workload.kernels) > 1:
            self._limit = placement.max_kernels_per_agent
            self._on_slot: dict[int, int] = {}
            self._full = self._filled = set[int]()

    def fill(self, request: Resources, count: int) -> list[KernelPlacement]:
        """Take room for up to ``count`` kernels, the best place first; for fewer if the room ends.

        Raises:
            MusterError: the selector raises or answers nonsense; room that was taken stays taken.
        """
        need = self._columns.need(request)
        if need is None:
            return []
        found: list[KernelPlacement] = []
        for tier in self._tiers:
            left = count - len(found)
            if self._sets:
                found += self._one_by_one_in_set(need, tier, left)
            elif self._ranking is None:
                found += self._by_scores(need, tier, left)
            elif left >= self._many and (not need.milli or self._fullest_device is not None):
                found += self._together(self._ranking, need, tier, left)
            else:
                found += self._by_order(self._ranking, need, tier, left)
            if len(found) == count:
                break
        return found

    # One by one

    def _by_order(
        self, ranking: Ranking, need: Need, tier: Tier, count: int
    ) -> list[KernelPlacement]:
        found: list[KernelPlacement] = []
        snapshot, columns, full = self._snapshot, self._columns, self._full
        order = snapshot.order(ranking)
        plain_first = not need.milli and columns.is_mixed
        while len(found) < count:
            slot = None
            if plain_first:
                slot = order.first(need, tier, full, snapshot.next_slot, plain=True)
            if slot is None:
                slot = order.first(need, tier, full, snapshot.next_slot, plain=False)
            if slot is None:
                break
            left = count - len(found)
            if left > 1:  # the fullest slot stays the best until it is full
                left = columns.room(slot, need, left) if ranking is Ranking.FULLEST else 1
            found += self._take(need, slot, left)
        return found

    def _by_scores(self, need: Need, tier: Tier, count: int) -> list[KernelPlacement]:
        """Place kernels by the scores of any selector."""
        found: list[KernelPlacement] = []
        while len(found) < count:
            candidates = self._candidates(need, tier)
            if not candidates.size:
                break
            scores = self._scores(need, candidates)
            left = count - len(found)
            if left == 1 or not self._selector.packs:
                found += self._take(need, int(candidates[scores.argmax()]), 1)
                continue
            room = self._columns.copies(need.request, candidates, left)
            for best in np.argsort(-scores, kind="stable").tolist():
                number = min(int(room[best]), count - len(found))
                found += self._take(need, int(candidates[best]), number)
                if len(found) == count:
                    break
        return found

    def _one_by_one_in_set(self, need: Need, tier: Tier, count: int) -> list[KernelPlacement]:
        """Place kernels of a set one by one: the number of the set's kernels on an agent ranks
        before the score. Those with a fixed port go where nobody has it."""
        found: list[KernelPlacement] = []
        while len(found) < count:
            candidates = self._candidates(need, tier, mixed=True)
            if not candidates.size:
                break
            if self._set is not None:
                held = _held_of_set(self._snapshot, self._set, candidates)
                candidates = candidates[held == (held.min() if self._spread else held.max())]
            candidates = self._plain_first(need, candidates)
            slot = int(candidates[self._scores(need, candidates).argmax()])
            for key in self._sets:
                self._statement.join_set(slot, key)
            found += self._take(need, slot, 1)
        return found

    # Candidates and their scores

    def _candidates(self, need: Need, tier: Tier, *, mixed: bool = False) -> Ints:
        """The slots of a tier that have room for one more kernel."""
        slots = self._columns.fitting(need.request)
        if tier.mask is not None:
            slots = slots[tier.mask[slots]]
        if self._port is not None:
            slots = slots[has_free(self._snapshot, self._port)[slots]]
        if self._full:
            slots = slots[~np.isin(slots, list(self._full))]
        return slots if mixed else self._plain_first(need, slots)

    def _plain_first(self, need: Need, slots: Ints) -> Ints:
        """The slots without devices, if the request asks for none and there are such slots."""
        if need.milli or not self._columns.is_mixed:
            return slots
        plain = slots[self._columns.device_count[slots] == 0]
        return plain if plain.size else slots

    def _scores(self, need: Need, candidates: Ints) -> Floats:
        return scores(self._selector, need.request, self._snapshot, candidates)

    # Taking

    def _take(self, need: Need, slot: int, number: int) -> list[KernelPlacement]:
        """Take room for kernels in ``slot``, where they fit, but no more than the session's
        limit."""
        if self._limit is not None:
            held = self._on_slot.get(slot, 0)
            number = min(number, self._limit - held)
            self._note_on(slot, number)
        if not need.milli:
            self._statement.put(slot, need, (), number)
            return [self._snapshot.place(slot)] * number
        agent_id = self._snapshot.facts(slot).id
        if self._fullest_device is not None:
            agent = self._columns.agent(slot)
            if number == 1 and need.devices == 1 and need.milli == GPU_WHOLE and not need.allowed:
                index = agent.amounts.index(GPU_WHOLE, agent.dimensions) - agent.dimensions
                shares: Shares = (share(index, GPU_WHOLE),)
                self._statement.put(slot, need, shares)
                return [KernelPlacement(agent_id, shares)]
            chosen = choose(need.devices_in(agent), need, number, fullest=self._fullest_device)
            shares = chosen[0] if number == 1 else tuple(itertools.chain.from_iterable(chosen))
            self._statement.put(slot, need, shares, number)
            return [KernelPlacement(agent_id, each) for each in chosen]
        found = []
        for _ in range(number):
            shares = devices_of(self._selector, need.request, self._snapshot, slot)
            self._statement.put(slot, need, shares)
            found.append(KernelPlacement(agent_id, shares))
        return found

    def _note_on(self, slot: int, number: int) -> None:
        held = self._on_slot[slot] = self._on_slot.get(slot, 0) + number
        if held == self._limit:
            self._filled.add(slot)

    # Many together

    def _together(
        self, ranking: Ranking, need: Need, tier: Tier, count: int
    ) -> list[KernelPlacement]:
        """Place kernels as ``_by_order`` would, but many of them in few steps."""
        found: list[KernelPlacement] = []
        candidates = self._candidates(need, tier, mixed=True)
        plain = self._plain_first(need, candidates)
        parts = [plain]
        if plain.size < candidates.size:
            parts.append(candidates[self._columns.device_count[candidates] > 0])
        for slots in parts:
            left = count - len(found)
            sequence = self._sequence(ranking, need, slots, left)
            if sequence is None:
                return found + self._by_order(ranking, need, tier, left)
            if sequence.size:
                found += self._take_all(need, sequence)
            if len(found) == count:
                break
        return found

    def _sequence(self, ranking: Ranking, need: Need, slots: Ints, count: int) -> Ints | None:
        """The slots for up to ``count`` kernels, one after the other. None if a kernel changes the
        utilisation so little that kernels must be placed one by one.

        Args:
            slots: each has room for at least one kernel.
        """
        columns, next_slot = self._columns, self._snapshot.next_slot
        order = self._snapshot.order(ranking)
        slots = order.best(slots, count, next_slot)
        if ranking is Ranking.ROUND_ROBIN and slots.size == count:
            return slots
        room = columns.copies(need.request, slots, count)
        if self._limit is not None:
            held = [self._on_slot.get(slot, 0) for slot in slots.tolist()]
            np.minimum(room, self._limit - np.array(held, np.int64), out=room)
        if ranking is Ranking.FULLEST:  # the best slot stays the best until it is full
            return np.repeat(slots, room)[:count]
        if ranking is Ranking.ROUND_ROBIN:
            room = np.minimum(room, _rounds(room, count))
        elif int(room.sum()) > count:
            step = columns.step(slots, need)
            if step.min(initial=_LEAST_STEP) < _LEAST_STEP:
                return None
            room = _up_to(columns.all_steps()[slots], step, room, count)
        entries, before = repeat(slots, room)
        if ranking is Ranking.ROUND_ROBIN:  # each round takes every slot that has room
            return entries[np.argsort(before, kind="stable")][:count]
        keys = order.keys(entries, columns.steps_after(entries, need, before))
        return entries[np.argsort(keys, kind="stable")][:count]

    def _take_all(self, need: Need, sequence: Ints) -> list[KernelPlacement]:
        """Take room for a kernel in each slot of ``sequence``."""
        snapshot, columns = self._snapshot, self._columns
        number = np.bincount(sequence, minlength=columns.slots)
        slots = np.flatnonzero(number)
        number = number[slots]
        amounts = np.zeros((len(columns.dimensions), slots.size), np.int64)
        for dimension, amount in need.requested:
            amounts[dimension] = amount * number
        fullest = self._fullest_device is True
        devices = choose_all(columns, need, slots, number, fullest=fullest)
        device_slots = np.repeat(slots, number * need.devices)
        milli = np.full(devices.size, need.milli, np.int64)
        self._statement.put_all(
            Bulk(slots, amounts, device_slots, devices, milli), int(sequence[-1])
        )
        if self._limit is not None:
            for slot, more in zip(slots.tolist(), number.tolist(), strict=True):
                self._note_on(slot, more)
        if not need.milli:
            return [snapshot.place(slot) for slot in sequence.tolist()]
        # Devices are listed by slot; the n-th kernel in a slot gets the n-th device of the slot.
        by_slot = np.empty(sequence.size, np.int64)
        by_slot[np.argsort(sequence, kind="stable")] = np.arange(sequence.size)
        in_order = devices.reshape(-1, need.devices)[by_slot].reshape(-1).tolist()
        indexes = zip(*[iter(in_order)] * need.devices, strict=True)
        shares = map(shares_of, indexes, itertools.repeat(need.milli))
        return list(map(KernelPlacement, map(snapshot.ids.__getitem__, sequence.tolist()), shares))


def best_first(
    snapshot: Snapshot,
    selector: AgentSelector,
    workload: WorkloadClass,
    request: Resources,
    candidates: Ints,
    count: int,
    before: Ints | None = None,
) -> list[tuple[int, float]]:
    """The first ``count`` of ``candidates``, with their scores, in the order in which a kernel of
    the class would choose them; for people.

    Args:
        candidates: slots in which ``request`` fits.
        before: ranks by slot that decide before everything else, the lowest first.

    Raises:
        MusterError: the selector raises or answers nonsense.
    """
    columns, placement = snapshot.columns, workload.placement
    keys = [before, soft_ranks(snapshot, workload)]
    if placement.set is not None:
        held = _held_of_set(snapshot, (workload.owner, placement.set), np.arange(columns.slots))
        keys.append(held if placement.set_grouping is Grouping.SPREAD else -held)
    if not request.gpu_milli and columns.is_mixed:
        keys.append(np.minimum(columns.device_count, 1))
    found: list[tuple[int, float]] = []
    while candidates.size:
        best = candidates
        for key in keys:
            if key is not None:
                best = best[key[best] == key[best].min()]
        its = scores(selector, request, snapshot, best)
        order = np.argsort(-its, kind="stable")[: count - len(found)]
        found += zip(best[order].tolist(), its[order].tolist(), strict=True)
        if len(found) == count:
            break
        candidates = np.setdiff1d(candidates, best, assume_unique=True)
    return found


def _held_of_set(snapshot: Snapshot, key: SetKey, slots: Ints) -> Ints:
    """How many kernels of a set each of ``slots`` holds."""
    held = snapshot.in_set(key)
    counts = np.zeros(snapshot.columns.slots, np.int64)
    if held:
        counts[list(held)] = list(held.values())
    return counts[slots]


def scores(
    selector: AgentSelector, request: Resources, snapshot: Snapshot, candidates: Ints
) -> Floats:
    """The selector's scores of ``candidates``.

    Raises:
        MusterError: the selector raises or answers nonsense.
    """
    name = type(selector).__name__
    try:
        answer = np.asarray(selector.score(request, snapshot, candidates), np.float64)
    except MusterError:
        raise
    except Exception as error:
        raise MusterError(f"selector {name} failed: {error!r}") from error
    if answer.shape != candidates.shape or not np.isfinite(answer).all():
        raise MusterError(
            f"selector {name} must answer a finite number for each of {candidates.size} agents; it "
            f"answered {answer!r}"
        )
    return answer


def devices_of(
    selector: AgentSelector, request: Resources, snapshot: Snapshot, slot: int
) -> Shares:
    """The devices that the selector names for ``request``, which asks for devices and fits.

    Raises:
        MusterError: the selector raises, or its devices are not free or do not suit the request.
    """
    name = type(selector).__name__
    try:
        shares = tuple(selector.devices(request, snapshot, slot))
        free = {index: left for left, index in snapshot.columns.devices_for(request, slot)}
        milli = min(request.gpu_milli, GPU_WHOLE)
        right = len(shares) == len({each.index for each in shares}) == request.gpu_devices and all(
            each.milli == milli <= free.get(each.index, -1) for each in shares
        )
    except MusterError:
        raise
    except Exception as error:
        raise MusterError(f"selector {name} failed: {error!r}") from error
    if not right:
        raise MusterError(
            f"selector {name} must name devices of agent {snapshot.facts(slot).name} that are free "
            f"for {request.describe()}; it answered {shares!r}"
        )
    return shares


def _rounds(room: Ints, count: int) -> int:
    """The fewest rounds in which ``count`` kernels are placed, if each slot with room takes one
    kernel a round."""
    low, high = 0, int(room.max(initial=0))
    while low < high:
        middle = (low + high) // 2
        if int(np.minimum(room, middle).sum()) >= count:
            high = middle
        else:
            low = middle + 1
    return low


def _up_to(steps: Ints, step: Floats, room: Ints, count: int) -> Ints:
    """How many kernels each slot may get if ``count`` kernels go, one after the other, to the
    lowest utilisation: a few more in all, because utilisations are rounded.

    Args:
        steps: utilisation now.
        step: the utilisation that each kernel adds.
        room: how many kernels fit, together more than ``count``.
    """

    def within(level: int) -> Ints:
        """How many kernels find a utilisation of at most ``level``."""
        number = np.floor((level - steps) / step).astype(np.int64) + 1
        return np.clip(number, 0, room)

    low, high = int(steps.min()), int((steps + step * room).max()) + 1
    while low < high:
        middle = (low + high) // 2
        if int(within(middle).sum()) >= count:
            high = middle
        else:
            low = middle + 1
    return np.minimum(within(low + 2) + 1, room)
