"""The lifecycle of pools: their machines are listed, and one that is to be deleted ends with its
last slice."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from muster.control.engine.handler import (
    DerivationHandler,
    FollowingHandler,
    TransitionStatus,
)
from muster.control.engine.lifecycle import Lifecycle
from muster.control.engine.work import Move, Work
from muster.control.pool.effects import ANSWER_S, DeleteSlice, ListMachines
from muster.control.pool.fleet import Fleet
from muster.control.pool.records import Pool
from muster.control.pool.slices import SliceLifecycle
from muster.control.pool.states import POOL_TABLE, PoolStatus
from muster.core.reasons import Reason
from muster.core.reasons.of_pools import PoolOrphans
from muster.core.results import SchedulingResult

LIST_S = 30.0
"""The time between two lists of a pool's machines."""
LIST_TAKEN_S = 10.0
"""The same where the provider may take machines away, which it announces two minutes before."""
LAST_LIST_S = 5.0
"""The same while a pool is deleted, which ends with a list."""
UNLISTED_S = 300.0
"""How long a provider that lists nothing keeps a pool from its end."""
ORPHANED_S = 300.0
"""How long machines without a slice are left alone before they are deleted."""
ORPHANED_LISTS = 2
"""Complete lists that must show machines without a slice before they are deleted."""
_ACTING = frozenset({PoolStatus.ACTIVE, PoolStatus.PAUSED})


class LooksAtGroups(Protocol):
    """A handler that looks at all pools of a group together, now and then."""

    def next_look(self, group: str) -> Iterable[float]:
        """When the group is to be looked at next."""


class PoolLifecycle(Lifecycle[Pool]):
    """Moves pools."""

    entity = Pool

    def __init__(
        self, fleet: Fleet, slices: SliceLifecycle, looking: Sequence[LooksAtGroups]
    ) -> None:
        self._fleet = fleet
        self._slices = slices
        self._looking = looking

    def moved(self, work: Work, record: Pool, move: Move) -> None:
        record.reason = move.reason
        self._slices.changed_groups.add(record.group)
        if record.status in POOL_TABLE.terminal:
            record.finished_at = work.now
            self._fleet.drop_pool(record)
        for slice_ in self._fleet.slices(record.name):
            if slice_.doomed is not None:  # its deletion may have waited for this
                work.mark(slice_)

    def deadlines(self, record: Pool, work: Work) -> Iterable[float]:
        yield _lists_at(record)
        if record.asked_at is not None:
            yield record.asked_at + ANSWER_S
        for handler in self._looking:
            yield from handler.next_look(record.group)


def _lists_at(pool: Pool) -> float:
    """When the pool's machines are listed next, or an answer is waited for no longer."""
    if pool.asked_at is not None:
        return pool.asked_at + ANSWER_S
    if pool.tried_at is None:
        return 0.0
    if pool.status is PoolStatus.DELETING:
        return pool.tried_at + LAST_LIST_S
    return pool.tried_at + (LIST_TAKEN_S if pool.spec.preemptible else LIST_S)


class ListPools(FollowingHandler[Pool]):
    """Has providers list their machines, at the start and again and again, and delete those that
    belong to no slice."""

    name = "ListPools"
    entity = Pool
    statuses = frozenset(POOL_TABLE.live)

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def follow(self, record: Pool, work: Work) -> None:
        if record.status is not PoolStatus.TRIPPED:
            self._delete_orphans(record, work)
        if work.now < _lists_at(record):
            return
        record.generation += 1
        record.asked_at = record.tried_at = work.now
        is_last = record.status is PoolStatus.DELETING
        is_quiet = not self._fleet.slices(record.name) and self._fleet.is_settled(record, work.now)
        record.asked_alone = is_last and is_quiet
        work.emit(ListMachines(record.name, record.generation))

    def _delete_orphans(self, pool: Pool, work: Work) -> None:
        orphans = self._fleet.orphans.get(pool.name, {})
        for id_, each in list(orphans.items()):
            wanted_no_more = each.has_ended and pool.status is PoolStatus.DELETING
            was_seen = each.lists >= ORPHANED_LISTS and work.now >= each.since + ORPHANED_S
            if not was_seen and not (wanted_no_more and each.lists):
                continue
            each.lists = 0  # asked for again only if further lists show them
            why = PoolOrphans(pool=pool.name, slice=id_, machines=each.machines)
            work.unit.note(pool, self.name, SchedulingResult.SUCCESS, why)
            work.emit(DeleteSlice(id_, pool.name, 0))


class EndPools(DerivationHandler[Pool]):
    """DELETING → DELETED once the pool's last slice is gone, and its provider lists nothing since;
    a provider that does not tell, or tells in part and of nothing, is waited for no longer than
    UNLISTED_S."""

    name = "EndPools"
    entity = Pool
    statuses = frozenset({PoolStatus.DELETING})

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def derive(self, record: Pool, work: Work) -> tuple[TransitionStatus, Reason | None] | None:
        if self._fleet.slices(record.name):
            return None
        began = record.status_changed_at
        is_mute = record.heard_at is None or record.heard_at < began
        if record.is_bare or (is_mute and work.now >= began + UNLISTED_S):
            return TransitionStatus(PoolStatus.DELETED), None
        return None
