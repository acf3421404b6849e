"""Agents' reports about kernels. Each is applied once, however often and in whichever order reports
come.

A report of an old generation changes only that generation's row of the ledger (design: Generation);
a report about a kernel of another agent is refused (design: Access).
"""

import logging

from muster.control.engine.work import Work
from muster.control.session.cluster.state import ClusterState
from muster.control.session.handlers.barrier import is_closed, may_have_run, note_ready
from muster.control.session.handlers.environment import fixed_port, keeps_result
from muster.control.session.handlers.start import send_starts
from muster.control.session.lifecycle import LOST_CODES, SessionLifecycle, is_asked_back
from muster.control.tell_agent import TellAgent
from muster.core.health.verdict import MAX_TOLD, bounded
from muster.core.ids import AgentId
from muster.core.reasons import DISPLACED, Reason, ReasonCode
from muster.core.reasons.catalogue import reason_of
from muster.core.reasons.of_agents import ForeignReport
from muster.core.reasons.of_kernels import (
    AgentRebooted,
    Exited,
    LeaseExpired,
    PortInUseOnAgent,
    Signaled,
    Stopped,
)
from muster.core.resources import GPU_WHOLE, DeviceShare
from muster.core.results import SchedulingResult
from muster.core.states import KERNEL_TABLE, PLACED_SESSION, KernelStatus, SessionStatus
from muster.store.records import Agent, Kernel
from muster.wire.messages import KernelKey, KernelReport, ReportKind, Stop

log = logging.getLogger(__name__)

PHASE = "AgentReport"


class KernelReports:
    """Applies reports to kernels and to the ledger."""

    def __init__(self, lifecycle: SessionLifecycle, cluster: ClusterState) -> None:
        self._lifecycle = lifecycle
        self._cluster = cluster

    def apply(self, work: Work, agent_id: AgentId, report: KernelReport) -> None:
        """Take a report into the records, unless it is about a kernel of another agent: that one
        counts among the agent's ``foreign_reports``."""
        key = (report.kernel, report.generation)
        allocation = work.live.ledger.get(key)
        kernel = work.live.kernels.get(report.kernel)
        if allocation is not None and allocation.agent_id != agent_id:
            self._refuse(work, agent_id, report, allocation.agent_id)
            return
        current = (
            kernel is not None
            and kernel.generation == report.generation
            and kernel.agent_id == agent_id
        )
        if kernel is None or not current:
            self._apply_old(work, report, kernel)
            return
        work.mark(kernel.session)
        match report.kind:
            case ReportKind.PREPARED:
                waiting = (KernelStatus.PREPARING, KernelStatus.PULLING)
                if work.unit.move(kernel, waiting, KernelStatus.PREPARED, PHASE):
                    kernel.ports = report.ports
                    work.unit.fail(kernel, None)
                    if (port := fixed_port(kernel)) is not None:
                        self._cluster.ports.found_free(work.live.agents[agent_id], port)
            case ReportKind.CREATED:
                note_ready(kernel, work)
            case ReportKind.STARTED:
                self._started(work, work.live.agents[agent_id], kernel, report)
            case ReportKind.PREPARE_FAILED | ReportKind.CREATE_FAILED:
                may_be_lost, kernel.next_try_may_be_lost = kernel.next_try_may_be_lost, False
                if kernel.started_at is not None:
                    pass  # the kernel was tried once more since, and runs
                elif _told_before(kernel, report):
                    if may_be_lost and kernel.status is KernelStatus.CREATING:
                        send_starts(kernel.session, [kernel], work, self._cluster)
                elif (
                    report.reason is ReasonCode.PORT_IN_USE
                    and kernel.session.status in PLACED_SESSION
                    and self._note_taken_port(work, agent_id, kernel)
                ):
                    # No failure of its own, and time may cure it.
                    why = self._why(work, agent_id, report)
                    self._lifecycle.reschedule(work, kernel.session, PHASE, why)
                elif is_asked_back(kernel.session):
                    self._lifecycle.reschedule(work, kernel.session, PHASE, kernel.session.reason)
                elif kernel.status in KERNEL_TABLE.live and kernel.session.status in PLACED_SESSION:
                    work.unit.fail(kernel, self._why(work, agent_id, report))
                    kernel.failed_at = report.at
                    work.unit.touch(kernel)
                elif kernel.status in KERNEL_TABLE.live:
                    if kernel.stop_sent_at is None:
                        # A Stop was lost. The agent keeps what it prepared until the next one.
                        stop = Stop(kernel.id, kernel.generation, 0.0, "not wanted")
                        work.emit(TellAgent(agent_id, stop))
                    self._end(work, kernel, report)
            case ReportKind.ENDED:
                self._end(work, kernel, report)

    def _note_taken_port(self, work: Work, agent_id: AgentId, kernel: Kernel) -> bool:
        """Have nobody who listens on the kernel's port placed on the agent for a while. False if
        that cannot be noted, so that the session would come back at once, and again."""
        port = fixed_port(kernel)
        agent = work.live.agents[agent_id]
        alone = len(work.live.allocations_on.get(agent_id, ())) <= 1
        return port is not None and self._cluster.ports.told(agent, port, work.now, alone=alone)

    def _refuse(self, work: Work, agent_id: AgentId, report: KernelReport, of: AgentId) -> None:
        """Refuse a report about another agent's kernel (design: Access); history tells of it once a
        connection."""
        agent = work.live.agents[agent_id]
        agent.foreign_reports += 1
        if agent.foreign_reports == 1:
            log.warning("agent %s reports kernel %s, which is on %s", agent_id, report.kernel, of)
            why = ForeignReport(kernel=report.kernel, agent=of)
            work.unit.note(agent, PHASE, SchedulingResult.SKIPPED, why)

    def _apply_old(self, work: Work, report: KernelReport, kernel: Kernel | None) -> None:
        key = (report.kernel, report.generation)
        if report.kind is ReportKind.ENDED:
            _release(work, key, report.heir)
            if kernel is not None:
                work.mark(kernel.session)
        elif report.kind is ReportKind.STARTED and kernel is not None:
            # It was told to stop when its session left it, or at its agent's Hello, and has its
            # grace since then.
            self._end_attempt(work, kernel, Stopped(detail="superseded"))

    def _started(self, work: Work, agent: Agent, kernel: Kernel, report: KernelReport) -> None:
        if kernel.status is KernelStatus.RUNNING and kernel.shares == report.shares:
            return  # the report is repeated
        if is_asked_back(kernel.session):
            self._lifecycle.terminate(work, [kernel.session], PHASE, kernel.session.reason)
        key = (kernel.id, kernel.generation)
        allocation = work.live.ledger.get(key)
        shares = self._devices_of(
            agent, report, kernel.shares if allocation is None else allocation.shares
        )
        if allocation is not None and (not allocation.charged or shares != allocation.shares):
            work.unit.charge(allocation, shares)
        kernel.shares = shares
        if kernel.started_at is None:
            kernel.started_at = report.at + agent.clock_offset_s
        work.unit.fail(kernel, None)
        kernel.session.tally.note_ready(kernel, False)
        kernel.recalled = False
        work.unit.move(kernel, (KernelStatus.CREATING,), KernelStatus.RUNNING, PHASE)
        work.unit.touch(kernel)

    def _devices_of(
        self, agent: Agent, report: KernelReport, chosen: tuple[DeviceShare, ...]
    ) -> tuple[DeviceShare, ...]:
        """The devices on which a kernel runs: those of the agent's report, or, if the agent has no
        such devices, those ``chosen`` for the kernel."""
        has = {device.index for device in agent.devices}
        if all(each.index in has and 0 < each.milli <= GPU_WHOLE for each in report.shares):
            return report.shares
        if report.shares != chosen:
            log.warning(
                "agent %s reports kernel %s on devices that it does not have: %s",
                agent.id,
                report.kernel,
                report.shares,
            )
        return chosen

    def _end(self, work: Work, kernel: Kernel, report: KernelReport) -> None:
        key = (kernel.id, kernel.generation)
        session = kernel.session
        agent_id = kernel.agent_id
        assert agent_id is not None, "a kernel that an agent reports has an agent"
        agent = work.live.agents[agent_id]
        why, at = self._why(work, agent_id, report), report.at + agent.clock_offset_s
        if why.code is ReasonCode.SUPERVISOR_LOST and key not in work.live.ledger:
            # It was proven gone with its machine's boot, and that it had begun was told after that.
            why, at = AgentRebooted(agent=agent.name), agent.silent_since
        _release(work, key, report.heir)
        if is_asked_back(session):
            self._end_asked_back(work, kernel, why)
        elif session.status in PLACED_SESSION and why.code is ReasonCode.NEVER_STARTED:
            # The kernel never ran: its session goes back to the queue, and nobody is to blame; but
            # a gang that was let go ends. A lost kernel may have run unreported, so its attempt
            # must not run again.
            work.unit.fail(kernel, why)
            self._lifecycle.reschedule(work, session, PHASE, why)
        if session.status is SessionStatus.PENDING:
            return
        if report.result is not None and keeps_result(session):
            kernel.result = report.result
            work.unit.rewrite(kernel)
        self.end(work, kernel, why, at, report.exit_code, report.signal)

    def _end_asked_back(self, work: Work, kernel: Kernel, why: Reason) -> None:
        """Have a session that had to leave while it was being started be placed anew if its agent
        never started it. The agent vouches for that also where it does not know the kernel: it
        knows those whose end was not acknowledged. Any other session ends."""
        session = kernel.session
        if why.code in (ReasonCode.NEVER_STARTED, ReasonCode.KERNEL_VANISHED):
            self._lifecycle.reschedule(work, session, PHASE, session.reason)
        else:
            self._lifecycle.terminate(work, [session], PHASE, session.reason)

    def end(
        self,
        work: Work,
        kernel: Kernel,
        why: Reason,
        at: float,
        exit_code: int | None = None,
        signal: int | None = None,
    ) -> None:
        """End the kernel, as of ``at`` by the controller's clock; the caller releases its row of
        the ledger."""
        if kernel.status not in KERNEL_TABLE.live:
            return
        if kernel.session.status in PLACED_SESSION and kernel.status in _NOT_ON_AGENT:
            return
        stopping = kernel.session.status is SessionStatus.TERMINATING
        stop_reason = kernel.session.reason
        lost = why.code in LOST_CODES or why.code is ReasonCode.STOPPED
        if stopping and why.code in (ReasonCode.STOPPED, ReasonCode.KERNEL_VANISHED):
            lost = False
        if stopping and why.code is ReasonCode.STOPPED and stop_reason is not None:
            says_more = stop_reason.code in _SAYS_MORE
            why = stop_reason if says_more else why
        to = KernelStatus.ERROR if lost else KernelStatus.TERMINATED
        # The clocks' difference may have been measured anew since the start.
        kernel.ended_at = max(at, kernel.started_at or at)
        kernel.exit_code = exit_code
        kernel.signal = signal
        kernel.reason = why
        work.unit.move(kernel, KERNEL_TABLE.live, to, PHASE)
        work.mark(kernel.session)
        self._cluster.shapes.kernel_ended(kernel)
        if kernel.session.status in PLACED_SESSION and is_closed(kernel.session):
            # The gang's other kernels wait for this one at the barrier, in vain: it runs whole or
            # not at all (design: Gang barrier).
            self._lifecycle.terminate(work, [kernel.session], PHASE, why)

    def lose(self, work: Work, kernel: Kernel, why: Reason, lost_at: float) -> None:
        """End a kernel that is proven gone with its agent, or have it placed anew."""
        work.unit.release((kernel.id, kernel.generation))
        work.mark(kernel.session)
        session = kernel.session
        if session.status in PLACED_SESSION and not may_have_run(kernel):
            work.unit.fail(kernel, why)
        else:
            self.end(work, kernel, why, lost_at)
            if session.status in PLACED_SESSION:
                self._lifecycle.terminate(work, [session], PHASE, why)

    def lose_old(self, work: Work, key: KernelKey, why: Reason) -> None:
        """Take note that an old generation of a kernel, or a forgotten kernel, is proven gone with
        its agent."""
        kernel = work.live.kernels.get(key[0])
        work.unit.release(key)
        if kernel is not None:
            work.mark(kernel.session)
            self._end_attempt(work, kernel, why)

    def _end_attempt(self, work: Work, kernel: Kernel, why: Reason) -> None:
        """End the attempt of a kernel that waits to be placed anew although an earlier generation
        of it has run, or may have run: the next attempt gets another number. A gang that waits has
        not run, because its barrier was closed."""
        session = kernel.session
        waits = session.status is SessionStatus.PENDING and session.job is not None
        if waits and len(session.kernels) == 1:
            if session.reason is not None and session.reason.code in DISPLACED:
                why = session.reason
            self._lifecycle.terminate(work, [session], PHASE, why)

    def _why(self, work: Work, agent_id: AgentId, report: KernelReport) -> Reason:
        agent: Agent | None = work.live.agents.get(agent_id)
        name = agent.name if agent else agent_id
        told = bounded(report.detail, MAX_TOLD) or None
        oom_kills = report.oom_kills or None
        lost_output_bytes = report.lost_output_bytes or None
        match report.reason:
            case None | ReasonCode.EXITED:
                return Exited(
                    exit_code=report.exit_code,
                    told=told,
                    oom_kills=oom_kills,
                    lost_output_bytes=lost_output_bytes,
                )
            case ReasonCode.SIGNALED:
                return Signaled(
                    signal=report.signal,
                    told=told,
                    oom_kills=oom_kills,
                    lost_output_bytes=lost_output_bytes,
                )
            case ReasonCode.PORT_IN_USE:
                kernel = work.live.kernels.get(report.kernel)
                port = None if kernel is None else fixed_port(kernel)
                return PortInUseOnAgent(port=port, agent=name)
            case ReasonCode.LEASE_EXPIRED:
                lease_s = f"{agent.lease_s:g}" if agent else "?"
                return LeaseExpired(lease_s=lease_s, agent=name)
            case code:
                return reason_of(code, {"agent": name, "detail": report.detail})


_SAYS_MORE = DISPLACED | {ReasonCode.CANCELLED, ReasonCode.TASK_STOPPED}
"""Reasons of sessions that say more of a kernel's end than that it was stopped."""


def _release(work: Work, key: KernelKey, heir: KernelKey | None) -> None:
    """Release the allocation of ``key``, and charge its heir's with its devices, in one commit."""
    allocation = work.live.ledger.get(key)
    heir_row = work.live.ledger.get(heir) if heir else None
    work.unit.release(key)
    if allocation is not None and heir_row is not None and heir_row.agent_id == allocation.agent_id:
        work.unit.charge(heir_row, allocation.shares)


def _told_before(kernel: Kernel, report: KernelReport) -> bool:
    """Whether the reported failure of a try was charged before: an agent repeats a report until it
    is acknowledged. Before the next try is sent there is no other failure to report; after that a
    repeated report has the time of the charged failure. An earlier time is no sign of a repeated
    report, because the agent's clock may have been set back."""
    return kernel.failure is not None or report.at == kernel.failed_at


_NOT_ON_AGENT = frozenset({KernelStatus.PENDING, KernelStatus.SCHEDULED})
