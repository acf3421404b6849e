"""The ends of kernels as the controller knows them, and as supervisors wrote them down."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import Enum

from muster.core.ids import AgentId
from muster.core.reasons import ReasonCode
from muster.core.states import AgentStatus
from muster.store.records import Agent, LedgerKey
from muster.store.unit import Unit
from muster.wire.messages import (
    AgentMessage,
    HeldStatus,
    Hello,
    KernelReport,
    ReportKind,
    Reports,
)
from proving.swarm.judge import Judge, Observer

_MACHINES = frozenset(
    {ReasonCode.SUPERVISOR_LOST, ReasonCode.LEASE_EXPIRED, ReasonCode.KERNEL_VANISHED}
)
_PROVEN_GONE = frozenset({AgentStatus.LOST, AgentStatus.REMOVED})


class How(Enum):
    """How the processes of a kernel came to their end."""

    BY_ITSELF = "by itself"
    STOPPED = "stopped, because it was asked for"
    WITH_MACHINE = "with its machine"
    NEVER_BEGUN = "it had none"


@dataclass(frozen=True, slots=True)
class End:
    """News of an end: ``at`` is when it happened, or when the machine was last heard of before."""

    how: How
    code: ReasonCode
    at: float
    exit_code: int | None = None
    signal: int | None = None


@dataclass(slots=True)
class Known:
    """Known facts about one generation of a kernel: ``failures`` are the reasons why it failed to
    start, by what failed and the moments at which it did; ``ends`` are the reports of its end, in
    the order in which the controller got them. ``is_unsure`` says that a controller was killed
    while it had such reports, and that it is unknown whether it had applied them."""

    has_begun: bool = False
    failures: dict[tuple[ReportKind, float], ReasonCode | None] = field(default_factory=dict)
    ends: list[End] = field(default_factory=list)
    is_unsure: bool = False

    @property
    def tries(self) -> int:
        """How often it failed in the phase in which it failed most: tries belong to a phase."""
        return max(Counter(kind for kind, _ in self.failures).values(), default=0)


class Statuses(Observer):
    """The statuses of jobs and sessions as last committed, by their ids."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self.known: dict[str, str] = {}

    def committed(self, unit: Unit) -> None:
        self.known |= {
            id_: status for kind, id_, status in unit.events() if kind in ("job", "session")
        }


class Facts(Observer):
    """News as the controller takes them: news of a wake are known once the wake is committed; a
    controller that is killed forgets the news that it had not committed."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self.known: dict[LedgerKey, Known] = defaultdict(Known)
        self._pending: list[tuple[float, AgentId, AgentMessage, float]] = []
        self._rows: dict[LedgerKey, tuple[AgentId, str]] = {}  # with the boot of each
        self._heard_at: dict[AgentId, float] = {}
        self._boots: dict[AgentId, tuple[str, float]] = {}  # by the last Hello, and heard before it
        self._true_at: dict[tuple[LedgerKey, ReportKind, float], float] = {}

    def journalled(self, agent: object, report: KernelReport) -> None:
        key = report.kernel, report.generation
        self._true_at[key, report.kind, report.at] = self.now

    def controller_died(self) -> None:
        self._pending.clear()
        for key in self._rows:
            known = self.known[key]
            known.is_unsure = known.is_unsure or known.has_begun or bool(known.ends)
            known.ends.clear()

    def heard(self, agent: AgentId, message: AgentMessage) -> None:
        before = self._heard_at.get(agent, self.now)
        self._heard_at[agent] = self.now
        if isinstance(message, Hello | Reports):
            self._pending.append((self.now, agent, message, before))

    def committed(self, unit: Unit) -> None:
        heard, self._pending = self._pending, []
        began_at = unit.now - self.controller_ahead_s
        greeted: dict[AgentId, float] = {}
        for at, agent, message, before in heard:
            if at > began_at:  # while the wake waited for its commit; the next wake takes it
                self._pending.append((at, agent, message, before))
                continue
            if isinstance(message, Hello):
                greeted[agent] = before
                self._boots[agent] = message.boot_id, before
                self._reboot(agent, message, before)
            elif isinstance(message, Reports):
                for report in message.reports:
                    self._take(report)
        rows = {key: (row.agent_id, row.boot_id) for key, row in unit.live.ledger.items()}
        lost = {agent.id for agent in unit.touched[Agent] if agent.status in _PROVEN_GONE}
        for key, (agent, boot_id) in self._rows.items():
            if key not in rows and not self.known[key].ends:
                # A Hello whose wake was undone is taken by a later one than the next.
                booted, before = self._boots.get(agent, (boot_id, 0.0))
                before_hello = before if booted != boot_id else greeted.get(agent)
                self._lose(key, agent, agent in lost, before_hello)
        self._rows = rows

    def _reboot(self, agent: AgentId, hello: Hello, before: float) -> None:
        """The kernels of an earlier boot are gone with it, but for those that had ended by then:
        their reports follow."""
        ended = {
            (each.kernel, each.generation)
            for each in hello.kernels
            if each.status is HeldStatus.ENDED
        }
        for key, (on, boot_id) in self._rows.items():
            gone = on == agent and boot_id != hello.boot_id and key not in ended
            if gone and not self.known[key].ends:
                end = End(How.WITH_MACHINE, ReasonCode.AGENT_REBOOTED, before)
                self.known[key].ends.append(end)

    def _take(self, report: KernelReport) -> None:
        key = report.kernel, report.generation
        known = self.known[key]
        if report.kind is ReportKind.STARTED:
            known.has_begun = True
        elif report.kind in (ReportKind.CREATE_FAILED, ReportKind.PREPARE_FAILED):
            known.failures[report.kind, report.at] = report.reason
        elif report.kind is ReportKind.ENDED:
            at = self._true_at.get((key, report.kind, report.at), self.now)
            code = report.reason or ReasonCode.EXITED
            end = End(_how(code), code, at, report.exit_code, report.signal)
            rebooted = any(each.code is ReasonCode.AGENT_REBOOTED for each in known.ends)
            if end not in known.ends and not rebooted:
                known.ends.append(end)

    def _lose(self, key: LedgerKey, agent: AgentId, silent: bool, greeted: float | None) -> None:
        """A row is gone without the news of an end: the machine is proven gone, or has booted, or
        does not know the kernel.

        Args:
            greeted: when the agent was last heard before it said Hello, if it said so now.
        """
        if silent:
            end = End(How.WITH_MACHINE, ReasonCode.AGENT_LOST, self._heard_at.get(agent, 0.0))
        elif greeted is not None:
            end = End(How.WITH_MACHINE, ReasonCode.AGENT_REBOOTED, greeted)
        else:
            return
        self.known[key].ends.append(end)


def _how(code: ReasonCode) -> How:
    if code in _MACHINES:
        return How.WITH_MACHINE
    if code is ReasonCode.STOPPED:
        return How.STOPPED
    if code is ReasonCode.NEVER_STARTED:
        return How.NEVER_BEGUN
    return How.BY_ITSELF
