"""ScheduleNewSessions: PENDING → SCHEDULED, a scaling group's queue at a time."""

import logging
from collections.abc import Sequence

from muster.control.engine.handler import (
    HandlerResult,
    LifecycleHandler,
    StatusTransitions,
    TransitionStatus,
)
from muster.control.engine.work import Work
from muster.control.session.board import Board, GroupBoard, may_wait_ahead
from muster.control.session.lifecycle import reschedule_limit
from muster.control.session.start import send_starts
from muster.core.ids import AgentId, JobId, KernelId
from muster.core.reasons import Reason, ReasonCode, reason
from muster.core.states import KernelStatus, SessionStatus
from muster.scheduling.fit import devices_at
from muster.scheduling.outcome import Placed
from muster.scheduling.placement import place
from muster.scheduling.workload import SessionWorkload
from muster.store.live import Live
from muster.store.records import Job, Kernel, Session

log = logging.getLogger(__name__)


class ScheduleNewSessions(LifecycleHandler[Session]):
    """Places what fits, holds short work ahead where a kernel of its shape will soon end, and says
    of the rest why it waits.

    Waiting is *skipped*, not failed: time can cure it (DESIGN section 4).
    """

    name = "ScheduleNewSessions"
    entity = Session
    targets = frozenset({SessionStatus.PENDING})
    transitions = StatusTransitions(
        success=TransitionStatus(SessionStatus.SCHEDULED, KernelStatus.SCHEDULED),
        need_retry=None,
        expired=TransitionStatus(SessionStatus.CANCELLED, KernelStatus.CANCELLED),
        give_up=TransitionStatus(SessionStatus.CANCELLED, KernelStatus.CANCELLED),
    )

    def __init__(self, board: Board) -> None:
        self._board = board

    def gather(self, candidates: Sequence[Session], work: Work) -> Sequence[Session]:
        """The whole queue of each group that was stirred, and those whose time may be over."""
        targets = dict.fromkeys(super().gather(candidates, work))
        for session in targets:
            if session.status is SessionStatus.PENDING and session.created_at < work.now:
                self._board.groups[session.group].stirred = True
        for group in self._board.groups.values():
            if group.stirred:
                targets.update((session, None) for session, _ in group.pending.values())
        return list(targets)

    def execute(self, targets: Sequence[Session], work: Work) -> HandlerResult[Session]:
        result: HandlerResult[Session] = HandlerResult()
        for name, group in self._board.groups.items():
            if not group.stirred:
                continue
            group.stirred = False
            self._grant_held_ahead(group, work)
            ready = []
            for session, workload in list(group.pending.values()):
                limit = reschedule_limit(session, work.live.groups[name].max_reschedules)
                if limit is not None:
                    result.failures[session] = limit
                    continue
                held = [kernel.id for kernel in session.kernels if kernel.id in work.live.rows_of]
                if held:
                    result.skipped[session] = (cleaning_up(held[0], work.live),)
                else:
                    ready.append(workload)
            self._place(group, ready, result, work)
        return result

    def _place(
        self,
        group: GroupBoard,
        ready: Sequence[SessionWorkload],
        result: HandlerResult[Session],
        work: Work,
    ) -> None:
        try:
            outcomes = place(ready, group.snapshot, group.policy, work.now)
        except Exception as error:
            # Nothing is held yet: the sessions wait, and the other groups go on.
            log.exception("placement in group %s failed", group.snapshot.group)
            why = reason(ReasonCode.HANDLER_ERROR, handler=self.name, error=repr(error)[:200])
            for workload in ready:
                result.skipped[group.pending[workload.id][0]] = (why,)
            return
        room = _Ahead(self._board)
        for outcome in outcomes:
            session, _ = group.pending[outcome.session.id]
            if isinstance(outcome, Placed):
                for kernel, placement in zip(session.kernels, outcome.kernels, strict=True):
                    agent = work.live.agents[placement.agent_id]
                    kernel.agent_id = agent.id
                    kernel.shares = placement.shares
                    work.unit.hold(kernel, agent, placement.shares, charged=True)
                result.successes.append(session)
            elif room.take(session, outcome.reasons, work):
                result.successes.append(session)
            else:
                result.skipped[session] = outcome.reasons

    def _grant_held_ahead(self, group: GroupBoard, work: Work) -> None:
        """Charge what an agent holds ahead and now has room for.

        A kernel may end before those meant to follow it have reached its agent; then nobody but
        the controller can give them its room.
        """
        snapshot, selector = group.snapshot, group.policy.selector
        for agents in list(group.shapes.values()):
            for agent_id, shape in list(agents.items()):
                for row in list(shape.ahead.values()):
                    shares = devices_at(snapshot, selector, row.resources, agent_id)
                    kernel = work.live.kernels.get(row.kernel_id)
                    if shares is None or kernel is None or kernel.generation != row.generation:
                        break
                    if kernel.stop_sent_at is not None:
                        continue
                    work.unit.charge(row, shares)
                    kernel.shares = shares
                    work.unit.touch(kernel)
                    work.mark(kernel.session)
                    send_starts(kernel.session, [kernel], work)

    def timeout_s(self, record: Session, work: Work) -> float | None:
        return record.scheduling_timeout_s or work.live.groups[record.group].pending_timeout

    def since(self, record: Session, work: Work) -> float:
        return record.queued_at

    def expiry_reason(self, record: Session, work: Work, timeout_s: float) -> Reason:
        return reason(ReasonCode.SCHEDULING_TIMEOUT, timeout_s=timeout_s)


class _Ahead:
    """Where a group's agents may hold more kernels ahead, in one pass: it only gets less."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._held: set[object] = set()
        self._room: dict[JobId, list[AgentId]] = {}

    def take(self, session: Session, reasons: Sequence[Reason], work: Work) -> bool:
        """Hold the session ahead on some agent, if it is short work and one has a place."""
        if len(reasons) != 1 or not may_wait_ahead(session):
            return False
        why = reasons[0]
        if why.code is ReasonCode.BEHIND_STARVING:
            # What an ended kernel frees must reach the one that starves; it will, if that one
            # itself is next in line for it.
            if dict(why.numbers).get("session") not in self._held:
                return False
        elif why.code is not ReasonCode.NO_ROOM:
            return False
        assert session.job is not None
        kernel = session.kernels[0]
        room = self._room_of(session.job, kernel, work.now)
        if not room:
            return False
        kernel.agent_id = room.pop()
        work.unit.hold(kernel, work.live.agents[kernel.agent_id], (), charged=False)
        self._held.add(session.id)
        return True

    def _room_of(self, job: Job, kernel: Kernel, now: float) -> list[AgentId]:
        """An agent's id for each kernel that it may yet hold, the agents in turn.

        Jobs of one shape share that room; whoever comes later may find it too large by what the
        earlier took, never by more than a window's work.
        """
        room = self._room.get(job.id)
        if room is None:
            room = [
                agent
                for agent, count in self._board.room_ahead(job, kernel.resources, now)
                for _ in range(count)
            ]
            room = self._room[job.id] = room[::-1]
        return room


def cleaning_up(kernel_id: KernelId, live: Live) -> Reason:
    """Why a kernel of which processes are not proven gone has to wait."""
    agent = live.agents[live.rows_of[kernel_id][0].agent_id]
    return reason(ReasonCode.CLEANING_UP, agent=agent.name)
