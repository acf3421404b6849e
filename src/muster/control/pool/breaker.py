"""The breaker of pools: while too many machines of one are silent at once, nothing is decided about
them."""

from muster.autoscaling.standing import breaks
from muster.control.engine.handler import DerivationHandler, TransitionStatus
from muster.control.engine.work import Work
from muster.control.pool.fleet import Fleet, is_silent
from muster.control.pool.records import Pool
from muster.control.pool.states import PoolStatus
from muster.core.reasons import Reason
from muster.core.reasons.of_pools import PoolBreaker, PoolHeard
from muster.core.states.slice import SliceStatus


class BreakPools(DerivationHandler[Pool]):
    """A pool of which many machines are silent or unknown at once stands still: it is likelier that
    this controller is cut off, or remembers wrongly, than that they are gone. It goes on by an
    operator's word, or once every machine is heard again; a pool that was paused is paused then."""

    name = "BreakPools"
    entity = Pool
    statuses = frozenset({PoolStatus.ACTIVE, PoolStatus.PAUSED, PoolStatus.TRIPPED})

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def derive(self, record: Pool, work: Work) -> tuple[TransitionStatus, Reason | None] | None:
        silent, machines = 0, 0
        if self._fleet.some_are_silent(record.name):
            silent, machines = self._silent(record)
        if record.status is PoolStatus.TRIPPED:
            if silent:
                return None
            to = PoolStatus.PAUSED if record.was_paused else PoolStatus.ACTIVE
            return TransitionStatus(to), PoolHeard()
        if not breaks(silent, machines):
            return None
        was_paused = record.status is PoolStatus.PAUSED
        why = PoolBreaker(pool=record.name, silent=silent, machines=machines, was_paused=was_paused)
        return TransitionStatus(PoolStatus.TRIPPED), why

    def _silent(self, pool: Pool) -> tuple[int, int]:
        """How many machines are silent or unknown without an operator's pardon, and how many there
        are."""
        silent = machines = 0
        for slice_ in self._fleet.slices(pool.name):
            if slice_.status is not SliceStatus.READY:
                continue
            machines += len(slice_.machines)
            if slice_.doomed is not None:
                continue
            for name, agent in self._fleet.agents(slice_).items():
                known_gone = name in slice_.gone and slice_.missing > 0
                if is_silent(agent) and not known_gone:
                    silent += agent.status_changed_at > pool.pardoned_at
        for orphans in self._fleet.orphans.get(pool.name, {}).values():
            machines += orphans.machines
            if orphans.since > pool.pardoned_at and not orphans.has_ended:
                silent += orphans.machines
        return silent, machines
