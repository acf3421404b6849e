"""When kernels ended, compared with when that happened."""

from collections import Counter

from muster.core.ids import AgentId
from muster.core.reasons import ReasonCode
from muster.core.states import KERNEL_TABLE
from muster.store.records import Kernel, LedgerKey
from muster.store.unit import Unit
from muster.wire.messages import AgentMessage, Heartbeat, Hello, KernelReport, ReportKind
from proving.hollow.agent import HollowAgent
from proving.hollow.machine import Machine
from proving.swarm.judge import Invariant, Judge
from proving.swarm.oracle.facts import End, Facts, How
from proving.swarm.oracle.verdicts import UNSURE_S

_LOST = frozenset({ReasonCode.AGENT_LOST, ReasonCode.AGENT_REBOOTED, ReasonCode.KERNEL_VANISHED})
"""Ends of which nobody can tell more than that they were before somebody asked."""
SETTLED_AFTER = 10
"""Messages after which control has forgotten what a machine's clock said before it was set."""
MOST_LATE_S = 25.0
"""By how much control may take a machine's clock to be slow, because messages came late."""
EQUAL_S = 0.001


class EndsAreDated(Invariant):
    """An end is dated by the controller's clock, whatever the machine's says. What was lost with
    its machine, or with a boot of it, ended when that was last heard, and not when this was
    found.

    An end is not judged if the machine's clock was set between it and the commit that took its
    report: a report has the time of day alone.
    """

    says = "the end of a kernel is dated when it happened"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._facts = judge.of(Facts)
        self._ahead: dict[AgentId, float] = {}
        self._told: Counter[AgentId] = Counter()  # its time, since its clock was set
        self._made: dict[LedgerKey, tuple[Machine, float]] = {}  # reports, with their clocks
        self._dated: set[LedgerKey] = set()

    def between_steps(self) -> None:
        for agent in self.world.agents.values():
            if agent.identity is None:
                continue
            id_, ahead_s = agent.identity.id, agent.machine.clock_ahead_s
            if self._ahead.get(id_, 0.0) != ahead_s:
                self._ahead[id_], self._told[id_] = ahead_s, 0

    def journalled(self, agent: HollowAgent, report: KernelReport) -> None:
        if report.kind is ReportKind.ENDED:
            machine = agent.machine
            self._made[report.kernel, report.generation] = machine, machine.clock_ahead_s

    def heard(self, agent: AgentId, message: AgentMessage) -> None:
        if isinstance(message, Hello | Heartbeat):
            self._told[agent] += self._is_of_now(agent, message)

    def _is_of_now(self, agent: AgentId, message: Hello | Heartbeat) -> bool:
        """Whether the message was sent after the clock of its machine was set last."""
        for each in self.world.agents.values():
            if each.identity is not None and each.identity.id == agent:
                ahead_s = message.time_s - each.machine.moment_of(message.sent_s)
                return abs(ahead_s - each.machine.clock_ahead_s) < EQUAL_S
        return False

    def committed(self, unit: Unit) -> None:
        for kernel in unit.touched[Kernel]:
            key = kernel.id, kernel.generation
            if kernel.status not in KERNEL_TABLE.terminal or key in self._dated:
                continue
            self._dated.add(key)
            known = self._facts.known[key]
            if kernel.agent_id is not None and len(known.ends) == 1 and not known.is_unsure:
                self._judge(kernel, known.ends[0], kernel.agent_id)

    def _judge(self, kernel: Kernel, end: End, agent: AgentId) -> None:
        at, why = kernel.ended_at, kernel.reason
        if at is None or why is None or end.how is How.NEVER_BEGUN:
            return
        latest = max(end.at, kernel.started_at or 0.0)
        if end.code in _LOST:
            late = why.code in _LOST and at > latest + UNSURE_S
            self.expect(not late, f"{kernel.id} ended {at - end.at:.3f} s late")
        elif self._has_settled(agent, (kernel.id, kernel.generation)):
            earliest = end.at + min(0.0, self.controller_ahead_s)
            right = earliest - EQUAL_S <= at <= latest + MOST_LATE_S
            self.expect(right, f"{kernel.id} ended {at - end.at:.3f} s after {end}")

    def _has_settled(self, agent: AgentId, key: LedgerKey) -> bool:
        """Whether control knows the clock by which the end was reported."""
        machine, ahead_s = self._made[key]
        before_s = self._ahead.get(agent, 0.0)
        is_known = agent not in self._ahead or self._told[agent] > SETTLED_AFTER
        return ahead_s == machine.clock_ahead_s == before_s and is_known
