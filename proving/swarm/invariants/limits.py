"""Times that are granted to work, and no more than these."""

from muster.control.session.cluster.guard import HELD_UP_S
from muster.core.ids import AgentId, KernelId
from muster.core.reasons import ReasonCode
from muster.core.specs import SessionType
from muster.core.states import KERNEL_TABLE, AgentBar, SessionStatus
from muster.store.records import LedgerKey
from muster.wire.messages import Commands, ControllerMessage, Stop
from proving.hollow.agent import HollowAgent
from proving.hollow.stages import Stage
from proving.hollow.supervisor import Kernel
from proving.swarm.judge import Invariant, Judge
from proving.swarm.oracle.room import spec_of

LATE_S = 1.0


class TimeLimitsHold(Invariant):
    """The state of each agent is judged when no message between it and control is on its way. The
    time of a gang is known once all its agents have told their clocks."""

    says = "nothing runs for longer than its time limit, once quiet"

    def between_steps(self) -> None:
        quiet = dict(self.world.quiet_agents())
        for agent in quiet.values():
            for kernel in agent.supervisor.kernels.values():
                record = self.world.store.live.kernels.get(kernel.start.kernel)
                if record is None or record.session.status is not SessionStatus.RUNNING:
                    continue
                agents = {
                    each.agent_id
                    for each in record.session.kernels
                    if each.status in KERNEL_TABLE.live
                }
                if not agents <= quiet.keys():
                    continue
                limit_s, began = record.session.timeout_s, record.session.started_at
                if limit_s is None or began is None or kernel.stage is not Stage.RUNNING:
                    continue
                ran_s = self.now - began
                self.expect(ran_s <= limit_s + LATE_S, f"{kernel.key} has run for {ran_s:.1f} s")


class DrainsEnd(Invariant):
    """Judged when no message between the agent and control is on its way. Replicas that serve may
    hold the machine up."""

    says = "nothing runs on a drained machine after its deadline, once quiet"

    def between_steps(self) -> None:
        for id_, agent in self.world.quiet_agents():
            record = self.world.store.live.agents.get(id_)
            if record is None or record.barred is not AgentBar.DRAINING or record.leave_by is None:
                continue
            late_s = self.now - record.leave_by
            if late_s > LATE_S:
                running = [
                    kernel.key
                    for kernel in agent.supervisor.kernels.values()
                    if kernel.stage is Stage.RUNNING
                    and kernel.start.template.service is None
                    and (late_s > HELD_UP_S + LATE_S or not self._is_replica(kernel.key[0]))
                ]
                self.expect(not running, f"{running} still run on {agent.name}")

    def _is_replica(self, kernel: KernelId) -> bool:
        """Whether its deployment's disruption may hold the machine up."""
        found = self.world.store.live.kernels.get(kernel)
        return found is not None and found.session.type is SessionType.INFERENCE


class WaitsEnd(Invariant):
    """Judged while the controller has nothing to do, of sessions that depend on no others and have
    not been placed before. All tasks and attempts of a job wait since it was handed in."""

    says = "nothing waits for longer than its scheduling timeout"

    def between_steps(self) -> None:
        controller = self.world.controller
        if controller is None or not controller.is_idle:
            return
        for session in controller.store.live.sessions.values():
            limit_s = session.scheduling_timeout_s
            if session.status is not SessionStatus.PENDING or limit_s is None:
                continue
            spec = spec_of(session)
            if spec.after or session.reason is not None:
                continue
            began = session.created_at if session.job is None else session.job.submitted_at
            waited_s = self.now - max(began, spec.not_before or 0.0)
            self.expect(waited_s <= limit_s + LATE_S, f"{session.id} has waited {waited_s:.1f} s")


class GraceIsGranted(Invariant):
    """A kernel that goes by SIGKILL alone is left its grace after it was first told to stop, unless
    somebody asked to cancel its work with force."""

    says = "a kernel that is told to stop has its grace"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._told_at: dict[LedgerKey, float] = {}
        self._forced: set[LedgerKey] = set()

    def sent(self, agent: AgentId, message: ControllerMessage) -> None:
        if isinstance(message, Commands):
            for each in message.commands:
                if isinstance(each, Stop):
                    key = each.kernel, each.generation
                    self._told_at.setdefault(key, self.now)
                    if self.scene.is_to_be_killed(each.kernel):
                        self._forced.add(key)

    def gone(self, agent: HollowAgent, kernel: Kernel) -> None:
        told_at, stops = self._told_at.get(kernel.key), kernel.stop_reason is ReasonCode.STOPPED
        is_judged = stops and kernel.key not in self._forced
        if kernel.killed_at is None or told_at is None or not is_judged:
            return
        had_s, grace_s = kernel.killed_at - told_at, kernel.start.template.grace_s
        self.expect(had_s >= grace_s - 0.001, f"{kernel.key} was killed after {had_s:.3f} s")
