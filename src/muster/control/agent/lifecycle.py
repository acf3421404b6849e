"""An agent that falls silent is UNREACHABLE; when its leases have ended, LOST (design: Leases)."""

import math
from collections.abc import Iterable, Sequence

from muster.control.agent.leases import (
    DEFAULT_TERM_S,
    HEARTBEATS_A_TERM,
    LEASE_MARGIN_S,
    LeaseBook,
)
from muster.control.engine.handler import (
    DerivationHandler,
    FollowingHandler,
    Stage,
    TransitionStatus,
)
from muster.control.engine.lifecycle import Lifecycle
from muster.control.engine.work import Move, Work
from muster.control.session.cluster.state import ClusterState
from muster.control.session.heard_time import LOOK_AGAIN_S, Unheard
from muster.control.session.kernel_reports import KernelReports
from muster.core.reasons import Reason
from muster.core.reasons.of_agents import AgentSilent
from muster.core.reasons.of_kernels import AgentLost
from muster.core.results import SchedulingResult
from muster.core.states import AGENT_TABLE, AgentStatus
from muster.store.records import Agent, LedgerKey

_AWAY = frozenset({AgentStatus.UNREACHABLE, AgentStatus.LOST})


class AgentLifecycle(Lifecycle[Agent]):
    """Keeps placement's view of an agent in line with its status, and moves agents on behalf of
    other modules."""

    entity = Agent

    def __init__(self, cluster: ClusterState, leases: LeaseBook) -> None:
        self._cluster = cluster
        self._leases = leases

    def moved(self, work: Work, record: Agent, move: Move) -> None:
        record.reason = None if record.status is AgentStatus.ALIVE else move.reason
        self._cluster.agent_changed(record)

    # -- what others have agents do ------------------------------------------------------------

    def add(self, work: Work, agent: Agent, phase: str, why: Reason) -> None:
        """Take in an agent that has just joined."""
        work.unit.add(agent)
        work.unit.note(agent, phase, SchedulingResult.SUCCESS, why)
        work.mark(agent)
        self._cluster.agent_changed(agent)

    def revive(self, work: Work, agent: Agent, phase: str, why: Reason) -> None:
        """Have an agent that spoke be ALIVE, if it was UNREACHABLE or LOST."""
        to = TransitionStatus(AgentStatus.ALIVE)
        self.move(work, [agent], _AWAY, to, Move(phase, reason=why))

    def remove(self, work: Work, agent: Agent, phase: str, why: Reason) -> None:
        """Forget an agent; its name becomes free."""
        to = TransitionStatus(AgentStatus.REMOVED)
        self.move(work, [agent], AGENT_TABLE.live, to, Move(phase, reason=why))

    # -- time ----------------------------------------------------------------------------------

    def deadlines(self, record: Agent, work: Work) -> Iterable[float]:
        if record.leave_by is not None:
            yield record.leave_by
            if record.leave_by <= work.now and work.live.allocations_on.get(record.id):
                yield work.now + LOOK_AGAIN_S  # a deployment may hold it up
        match record.status:
            case AgentStatus.ALIVE:
                yield _at_or_again(_silent_at(record, work, self._leases), work)
            case AgentStatus.UNREACHABLE:
                yield _at_or_again(self._leases.until(record.id) + LEASE_MARGIN_S, work)


class GrantLeases(FollowingHandler[Agent]):
    """Sets the term of an agent's renewals, and how often the agent asks for one, as its group
    says.

    A longer term is stored before it is granted, so that after a restart the controller knows the
    longest lease that the agent may have. A shorter term is stored once the longer lease is over.
    """

    name = "GrantLeases"
    stage = Stage.OBSERVE
    entity = Agent
    statuses = frozenset({AgentStatus.ALIVE, AgentStatus.UNREACHABLE})

    def __init__(self, leases: LeaseBook) -> None:
        self._leases = leases

    def follow(self, record: Agent, work: Work) -> None:
        leased_until = self._leases.until(record.id)
        record.lost_at = leased_until + LEASE_MARGIN_S
        term_s = work.live.groups[record.group].kernel_lease
        if term_s is None:
            term_s = math.inf if self._leases.is_beside(record.id) else DEFAULT_TERM_S
        over = leased_until <= work.now + term_s
        lease_s = term_s if over else max(term_s, record.lease_s)
        silence_s = self._longest_silence_s(record, work)
        machine = record.machine
        if record.connected:
            machine = self._leases.machine if self._leases.is_beside(record.id) else ""
        terms = term_s, lease_s, silence_s, machine
        if terms != (record.term_s, record.lease_s, record.silence_s, record.machine):
            record.term_s, record.lease_s, record.silence_s, record.machine = terms
            work.unit.touch(record)

    def _longest_silence_s(self, record: Agent, work: Work) -> float:
        """How long the agent may have been silent when its silence is judged next. This is longer
        than its group says where this controller has not heard it yet, where it waited for the
        answer to its Hello, and where the verdict is put off."""
        if record.status is not AgentStatus.ALIVE:
            return record.silence_s
        leases, id_ = self._leases, record.id
        due_at = _silent_at(record, work, leases)
        put_off_s = _at_or_again(due_at, work) - due_at
        waited_s = _counts_since(record, leases) - leases.heard_at(id_)
        longest_s = _silence_s(record, work, leases) + leases.unheard_s(id_) + waited_s + put_off_s
        is_known = longest_s <= record.silence_s < longest_s + LOOK_AGAIN_S
        return record.silence_s if is_known else longest_s  # a little less is worth no commit


class DetectSilence(DerivationHandler[Agent]):
    """ALIVE → UNREACHABLE: the agent's kernels are unknown and stay charged; it gets no new
    work."""

    name = "DetectSilence"
    stage = Stage.OBSERVE
    entity = Agent
    statuses = frozenset({AgentStatus.ALIVE})

    def __init__(self, leases: LeaseBook, unheard: Unheard) -> None:
        self._leases = leases
        self._unheard = unheard

    def derive(self, record: Agent, work: Work) -> tuple[TransitionStatus, Reason | None] | None:
        # Heartbeats that came while the controller was busy count.
        if work.now < _silent_at(record, work, self._leases) or record.id in self._unheard():
            return None
        return TransitionStatus(AgentStatus.UNREACHABLE), _silence(record, work)


class DetectLoss(DerivationHandler[Agent]):
    """UNREACHABLE → LOST: the agent's supervisor has stopped its kernels by now, so they are
    gone."""

    name = "DetectLoss"
    stage = Stage.OBSERVE
    entity = Agent
    statuses = frozenset({AgentStatus.UNREACHABLE})

    def __init__(self, kernel_reports: KernelReports, leases: LeaseBook, unheard: Unheard) -> None:
        self._kernel_reports = kernel_reports
        self._leases = leases
        self._unheard = unheard

    def derive(self, record: Agent, work: Work) -> tuple[TransitionStatus, Reason | None] | None:
        """The agent is LOST if its leases have ended. They are revoked in the same step, so that
        none is renewed between the decision and its commit."""
        if record.id in self._unheard() or not self._leases.revoke(record.id):
            return None
        return TransitionStatus(AgentStatus.LOST), _silence(record, work)

    def derived(self, record: Agent, work: Work) -> None:
        why = AgentLost(agent=record.name)
        held = list(work.live.allocations_on.get(record.id, ()))
        lose_kernels(work, record, held, why, self._kernel_reports, record.seen_at)


def _silent_at(agent: Agent, work: Work, leases: LeaseBook) -> float:
    """When the agent counts as silent, unless it is heard before."""
    return _counts_since(agent, leases) + _silence_s(agent, work, leases)


def _counts_since(agent: Agent, leases: LeaseBook) -> float:
    """Since when the agent's silence counts. One that waited for the answer to its Hello, and had
    no lease to renew, could not speak meanwhile."""
    heard_at = max(agent.seen_at, leases.heard_at(agent.id))
    return max(heard_at, agent.connected_at) if agent.connected else heard_at


def _at_or_again(moment: float, work: Work) -> float:
    """The moment of a verdict, or of the next look if that verdict is overdue: it was put off."""
    return moment if moment > work.now else work.now + LOOK_AGAIN_S


def _silence_s(agent: Agent, work: Work, leases: LeaseBook) -> float:
    """How long the agent may be silent. A shorter limit counts only once the agent knows that it
    has to speak more often."""
    silence_s = work.live.groups[agent.group].agent_silence
    return max(silence_s, HEARTBEATS_A_TERM * leases.pace_s(agent.id))


def _silence(agent: Agent, work: Work) -> Reason:
    return AgentSilent(silent_s=round(work.now - agent.seen_at, 1))


def lose_kernels(
    work: Work,
    agent: Agent,
    keys: Sequence[LedgerKey],
    why: Reason,
    kernel_reports: KernelReports,
    lost_at: float,
) -> None:
    """Free the rows of these kernels of the agent, which are proven gone as of ``lost_at``, and
    have their sessions follow."""
    for kernel_id, generation in keys:
        kernel = work.live.kernels.get(kernel_id)
        if kernel is not None and kernel.generation == generation and kernel.agent_id == agent.id:
            kernel_reports.lose(work, kernel, why, lost_at)
        else:
            kernel_reports.lose_old(work, (kernel_id, generation), why)
