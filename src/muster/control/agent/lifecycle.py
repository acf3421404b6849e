"""An agent that falls silent is UNREACHABLE; past the kernel lease it is LOST (DESIGN rule 9)."""

from collections.abc import Iterable, Sequence

from muster.control.engine.handler import DerivationHandler, Handler, TransitionStatus
from muster.control.engine.lifecycle import Lifecycle
from muster.control.engine.work import Work
from muster.control.session.board import Board
from muster.control.session.facts import Facts
from muster.core.reasons import Reason, ReasonCode, reason
from muster.core.results import SchedulingResult
from muster.core.states import AgentStatus
from muster.store.live import LedgerKey
from muster.store.records import Agent

LEASE_MARGIN_S = 15.0
"""Added to the kernel lease before its kernels count as stopped: they have up to ten seconds of
grace (the supervisor's LEASE_GRACE_MAX_S), and two clocks may run at different speeds."""


class AgentLifecycle(Lifecycle[Agent]):
    entity = Agent

    def __init__(self, board: Board) -> None:
        self._board = board

    def move(
        self,
        work: Work,
        records: Sequence[Agent],
        handler: Handler[Agent],
        to: TransitionStatus,
        result: SchedulingResult,
        reason: Reason | None,
    ) -> list[Agent]:
        assert to.status is not None, "an agent moves to a status"
        stale = work.transition(
            records, handler.targets, to.status, phase=handler.name, result=result, reason=reason
        )
        moved = [agent for agent in records if agent not in stale]
        for agent in moved:
            agent.reason = reason
            self._board.agent_changed(agent)
        return moved

    def deadlines(self, record: Agent, work: Work) -> Iterable[float]:
        group = work.live.groups[record.group]
        if record.leave_by is not None:
            yield record.leave_by
        match record.status:
            case AgentStatus.ALIVE:
                yield record.seen_at + group.agent_silence
            case AgentStatus.UNREACHABLE:
                yield record.seen_at + group.kernel_lease + LEASE_MARGIN_S


class DetectSilence(DerivationHandler[Agent]):
    """ALIVE → UNREACHABLE: its kernels are unknown and stay charged; it gets nothing new."""

    name = "DetectSilence"
    entity = Agent
    targets = frozenset({AgentStatus.ALIVE})

    def derive(self, record: Agent, work: Work) -> tuple[str, Reason | None] | None:
        silent_s = work.now - record.seen_at
        if silent_s < work.live.groups[record.group].agent_silence:
            return None
        return AgentStatus.UNREACHABLE, reason(ReasonCode.AGENT_SILENT, silent_s=round(silent_s, 1))


class DetectLoss(DerivationHandler[Agent]):
    """UNREACHABLE → LOST: it has stopped its kernels itself by now, so they are gone."""

    name = "DetectLoss"
    entity = Agent
    targets = frozenset({AgentStatus.UNREACHABLE})

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def derive(self, record: Agent, work: Work) -> tuple[str, Reason | None] | None:
        silent_s = work.now - record.seen_at
        if silent_s < work.live.groups[record.group].kernel_lease + LEASE_MARGIN_S:
            return None
        return AgentStatus.LOST, reason(ReasonCode.AGENT_SILENT, silent_s=round(silent_s, 1))

    def derived(self, record: Agent, work: Work) -> None:
        why = reason(ReasonCode.AGENT_LOST, agent=record.name)
        lose_kernels(work, record, list(work.live.held_by.get(record.id, ())), why, self._facts)


def lose_kernels(
    work: Work, agent: Agent, keys: Sequence[LedgerKey], why: Reason, facts: Facts
) -> None:
    """These kernels of the agent are proven gone: their rows are free, their sessions learn it."""
    for kernel_id, generation in keys:
        kernel = work.live.kernels.get(kernel_id)
        if kernel is not None and kernel.generation == generation and kernel.agent_id == agent.id:
            facts.lose(work, kernel, why)
        else:
            work.unit.release((kernel_id, generation))
            if kernel is not None:
                work.mark(kernel.session)
