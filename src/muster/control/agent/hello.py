"""Hello: an agent tells its identity and all kernels that it holds; the answer starts and stops
kernels until it holds exactly those that it should.

This is where the two sides agree again after anything was lost between them (design: Agents):
commands that did not arrive are sent again, kernels that nobody wants are stopped, kernels of
another boot or that the agent no longer knows are gone.
"""

from collections.abc import Mapping, Sequence

from muster.control.agent.leases import LeaseBook
from muster.control.agent.lifecycle import AgentLifecycle, lose_kernels
from muster.control.agent.offered import note_offer, offered
from muster.control.engine.work import Work
from muster.control.session.cluster.state import ClusterState
from muster.control.session.handlers.barrier import note_ready
from muster.control.session.handlers.environment import preparation
from muster.control.session.handlers.start import send_starts
from muster.control.session.kernel_reports import KernelReports
from muster.control.session.lifecycle import is_asked_back, stop_asked_back
from muster.control.tell_agent import TellAgent
from muster.core.clock import LEAP_S
from muster.core.reasons import Reason
from muster.core.reasons.of_agents import AgentReturned
from muster.core.reasons.of_kernels import AgentRebooted, KernelVanished
from muster.core.specs.pool import RESERVED
from muster.core.states import KERNEL_TABLE, KernelStatus
from muster.store.records import Agent, Kernel, LedgerKey
from muster.wire.messages import HeldStatus, Hello, Stop

PHASE = "AgentHello"
_PREPARING = frozenset({KernelStatus.PREPARING, KernelStatus.PULLING})
_NOT_STARTED = frozenset({None, HeldStatus.PREPARED, HeldStatus.QUEUED})
_GONE = frozenset({HeldStatus.ENDED, HeldStatus.LOST})
_MAY_STOP = frozenset(HeldStatus) - _GONE
_ON_AGENT = frozenset({KernelStatus.RUNNING, KernelStatus.TERMINATING})


def _own(told: Mapping[str, str]) -> dict[str, str]:
    """The attributes that a machine may claim by itself: not those of a pool's machines, which are
    known by the token with which they joined."""
    return {name: value for name, value in told.items() if name not in RESERVED}


class Greeter:
    """Brings the records of an agent and its kernels in line with its Hello."""

    def __init__(
        self,
        agents: AgentLifecycle,
        kernel_reports: KernelReports,
        cluster: ClusterState,
        leases: LeaseBook,
    ) -> None:
        self._agents = agents
        self._kernel_reports = kernel_reports
        self._cluster = cluster
        self._leases = leases

    def greet(self, work: Work, agent: Agent, hello: Hello) -> None:
        """Take note of the machine as it is now, and settle its kernels."""
        rebooted = bool(agent.boot_id) and agent.boot_id != hello.boot_id
        before = offered(agent) if agent.boot_id else None  # its first Hello tells it all
        if agent.left_at is not None:
            agent.absences.append((agent.left_at, work.now))
            agent.left_at = None
        agent.connected = True
        agent.connected_at = work.now
        agent.silent_since = self._leases.silent_since(agent.id)
        agent.foreign_reports = 0
        self._note_boot(work, agent, hello.boot_id)
        agent.boot_id = hello.boot_id
        agent.instance = hello.instance
        agent.supervisor = hello.supervisor
        agent.disk_full = hello.disk_full
        agent.checks = hello.checks
        agent.probes = hello.probes
        agent.health_commands = hello.health_commands
        agent.sees_ports = hello.ports
        agent.version = hello.version
        agent.host = hello.host
        agent.capacity = hello.capacity
        agent.devices = hello.devices
        agent.attributes = {**_own(hello.attributes), **agent.fixed}
        work.unit.touch(agent)
        self._agents.revive(work, agent, PHASE, AgentReturned())
        if before is not None:
            note_offer(work, agent, before, PHASE)
        work.mark(agent)
        self._cluster.agent_changed(agent)
        if rebooted:
            why = AgentRebooted(agent=agent.name)
            # Those that ended before the reboot keep their rows until their reports, which follow.
            ended = {
                (each.kernel, each.generation)
                for each in hello.kernels
                if each.status is HeldStatus.ENDED
            }
            former = [
                row
                for row in work.live.allocations_on.get(agent.id, {}).values()
                if row.boot_id != hello.boot_id
            ]
            for row in former:
                if row.key in ended:
                    work.unit.keep(row, hello.boot_id)
            self._lose(work, agent, [row.key for row in former if row.key not in ended], why)
        self._settle(work, agent, hello)

    def _note_boot(self, work: Work, agent: Agent, boot_id: str) -> None:
        """Note when the agent's boot clock was 0. A controller's time that has gone ahead of that
        clock has passed a leap, which counts for no kernel that ran before (design: Time); each
        leap is noted while kernels are there."""
        booted_at = self._leases.booted_at(agent.id)
        if booted_at is None:
            return
        knows = agent.boot_id == boot_id and agent.booted_at > 0
        if not (knows and work.live.allocations_on.get(agent.id)):
            agent.booted_at = booted_at
            agent.leaps.clear()
            return
        ahead_s = booted_at - agent.booted_at
        before_s = agent.leaps[-1][1] if agent.leaps else 0.0
        if abs(ahead_s - before_s) >= LEAP_S:
            agent.leaps.append((work.now, ahead_s))
        elif not agent.leaps:
            agent.booted_at = booted_at

    def _lose(self, work: Work, agent: Agent, keys: Sequence[LedgerKey], why: Reason) -> None:
        """Count these kernels as lost at the moment when the agent was last heard before its Hello,
        because nothing later is known of them."""
        lose_kernels(work, agent, keys, why, self._kernel_reports, agent.silent_since)

    def _settle(self, work: Work, agent: Agent, hello: Hello) -> None:
        held: dict[LedgerKey, HeldStatus] = {
            (kernel.kernel, kernel.generation): kernel.status for kernel in hello.kernels
        }
        for key in list(work.live.allocations_on.get(agent.id, ())):
            kernel = work.live.kernels.get(key[0])
            if kernel is None or kernel.generation != key[1] or kernel.agent_id != agent.id:
                if key not in held:
                    work.unit.release(key)
                    if kernel is not None:
                        work.mark(kernel.session)
            else:
                self._settle_kernel(work, agent, kernel, held.get(key))
        for key, status in held.items():
            kernel = work.live.kernels.get(key[0])
            wanted = (
                kernel is not None
                and kernel.generation == key[1]
                and kernel.agent_id == agent.id
                and kernel.status in KERNEL_TABLE.live
            )
            if not wanted and status not in _GONE:
                grace_s = kernel.process.grace if kernel is not None else 0.0
                work.emit(TellAgent(agent.id, Stop(*key, grace_s, "not wanted")))

    def _settle_kernel(
        self, work: Work, agent: Agent, kernel: Kernel, held: HeldStatus | None
    ) -> None:
        work.mark(kernel.session)
        if kernel.status in _PREPARING:
            if held is not HeldStatus.PREPARED:
                work.emit(TellAgent(agent.id, preparation(kernel)))
        elif kernel.status is KernelStatus.CREATING and is_asked_back(kernel.session):
            if held not in _GONE:
                stop_asked_back(work, kernel)  # the Stop may have been lost
        elif kernel.status is KernelStatus.CREATING:
            # A Recall, or the Start of a kernel that is only queued there, may have been lost.
            kernel.recalled = False
            if held is HeldStatus.CREATED:
                note_ready(kernel, work)
            elif held is HeldStatus.CREATE_FAILED:
                # If the report, which the agent repeats next, is of a failure that was charged, the
                # next try was sent in vain.
                kernel.next_try_may_be_lost = kernel.failure is None
            elif held in _NOT_STARTED and kernel.failure is None:
                send_starts(kernel.session, [kernel], work, self._cluster)
        elif kernel.status is KernelStatus.TERMINATING and held in _MAY_STOP:
            # A Stop may have been lost: the kernel gets its grace from the next one.
            kernel.stop_sent_at = None
            kernel.session.stop_at = 0.0
        elif kernel.status in _ON_AGENT and held is None:
            why = KernelVanished(agent=agent.name)
            self._lose(work, agent, [(kernel.id, kernel.generation)], why)
