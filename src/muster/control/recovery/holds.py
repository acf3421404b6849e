"""The machines that recoveries wait for, or begin their tasks on again: they are kept from being
deleted as idle or replaced, no longer than the recovery may wait."""

from muster.control.recovery.book import Recoveries
from muster.control.recovery.entity import Recovery
from muster.control.recovery.lifecycle import spec_of, time_limit_s
from muster.control.recovery.rounds import AgentResult, Round
from muster.control.session.cluster.machine_holds import MachineHold, MachineHolds
from muster.core.ids import AgentId
from muster.core.states.recovery import RecoveryStatus

_USABLE = frozenset(
    {AgentResult.AWAITED, AgentResult.HEALTHY, AgentResult.HEALED, AgentResult.UNCHECKED}
)


class RecoveryHolds(MachineHolds):
    """The holds of all recoveries under way."""

    def __init__(self, recoveries: Recoveries) -> None:
        self._recoveries = recoveries

    def on(self, agent: AgentId, now: float) -> MachineHold | None:
        holds = [
            MachineHold(recovery.job.id, recovery.status_changed_at + limit_s)
            for recovery in self._recoveries.watching(agent)
            if (limit_s := time_limit_s(recovery)) is not None and _needs(recovery, agent)
        ]
        last = max(holds, key=lambda each: each.until, default=None)
        return last if last is not None and now < last.until else None


def _needs(recovery: Recovery, agent: AgentId) -> bool:
    """Whether the recovery waits for the machine, or means to use it again. One that is at fault is
    waited for only where no other may take its place."""
    rounds = filter(None, (recovery.open, recovery.next))
    result = next((found for each in rounds if (found := _result(each, agent))), None)
    if result is None:
        return False
    if result in _USABLE:
        return True
    waits = recovery.status is not RecoveryStatus.RESTARTING
    return waits and result is not AgentResult.GONE and not spec_of(recovery).replace


def _result(round_: Round, agent: AgentId) -> AgentResult | None:
    """The finding about a machine; None if it is not of the round."""
    return next((each.result for each in round_.agents if each.id == agent), None)
