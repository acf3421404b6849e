"""From failed attempts to rounds: which end of a session leads to a check, and of which
machines."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from muster.control.engine.handler import (
    DerivationHandler,
    FollowingHandler,
    Stage,
    TransitionStatus,
)
from muster.control.engine.work import Work
from muster.control.health.conditions import is_known_faulty, waits_for_turn
from muster.control.health.entity import Incident
from muster.control.health.incidents import Incidents
from muster.control.health.lifecycle import IncidentLifecycle
from muster.control.job.derive import live_attempts
from muster.control.recovery.asked import AskedChecks
from muster.control.recovery.book import Recoveries
from muster.control.recovery.entity import Recovery
from muster.control.recovery.rounds import MAX_TASKS, AgentResult, Round, RoundAgent, RoundTask
from muster.control.recovery.rules import first_index
from muster.control.session.lifecycle import STOP
from muster.core.health.verdict import CheckResult
from muster.core.ids import AgentId
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_health import HealthTaskFailed
from muster.core.reasons.of_recovery import (
    RecoveryMachineLeft,
    RecoveryStopsAll,
    RecoveryTaskFailed,
)
from muster.core.reasons.stored import StoredReason
from muster.core.specs import RecoverySpec
from muster.core.states import KERNEL_TABLE, SESSION_TABLE, AgentStatus, SessionStatus
from muster.core.states.health import HealthStatus
from muster.core.states.recovery import RecoveryStatus
from muster.store.records import Agent, Job, Kernel, Session

_OWN_ENDS = frozenset({ReasonCode.EXITED, ReasonCode.SIGNALED})
"""Ends of a kernel that a broken machine may have caused. Of others Muster knows the cause: a limit
of the spec, a missing command, a stop."""
_NOT_STOPPED = frozenset({ReasonCode.KERNEL_ENDED, *_OWN_ENDS})
"""Reasons of sessions that end because a kernel did."""
_LEFT = frozenset({ReasonCode.HEALTH_HEALS})
"""Reasons of sessions that leave a machine for the sake of its health."""
_LOST = frozenset({AgentStatus.LOST, AgentStatus.REMOVED})
_RETURNED = frozenset({ReasonCode.HEALTH_RETURNED_BY})
"""Reasons of machines that take work again because an operator says so."""
MAX_LEAVES = 100
"""Rounds of one recovery in which no task failed. What has to leave after them is judged as without
recovery: it costs a try of ``max_retries_preemption``, so that machines that fall ill again and
again make no job begin for ever."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """The trigger of a round: the first kernel that ended, and whether it had to leave its
    machine."""

    kernel: Kernel
    had_to_leave: bool


def trigger_of(session: Session, spec: RecoverySpec) -> Trigger | None:
    """The part of a session's end that leads to a check; None if nothing does. A gang is judged by
    the kernel that failed first."""
    code = session.reason.code if session.reason is not None else None
    if code in _LEFT:
        began = (kernel for kernel in session.kernels if kernel.started_at is not None)
        kernel = next(began, None)
        return None if kernel is None else Trigger(kernel, had_to_leave=True)
    if code is not None and code not in _NOT_STOPPED:
        return None
    failed = [
        kernel
        for kernel in session.kernels
        if kernel.status in KERNEL_TABLE.terminal and not kernel.ended_well
    ]
    if not failed:
        return None
    first = min(failed, key=_ended_at)
    if first.reason is None or first.reason.code not in _OWN_ENDS:
        return None
    return Trigger(first, False) if spec.covers(first.exit_code, first.signal) else None


def _ended_at(kernel: Kernel) -> tuple[float, int]:
    return math.inf if kernel.ended_at is None else kernel.ended_at, kernel.index


def devices_of(session: Session) -> dict[AgentId, tuple[int, ...]]:
    """The agents on which a session had a place, with the indexes of its GPUs there."""
    found: dict[AgentId, set[int]] = {}
    for kernel in session.kernels:
        if kernel.agent_id is not None:
            indexes = found.setdefault(kernel.agent_id, set())
            indexes.update(share.index for share in kernel.shares)
    return {agent: tuple(sorted(indexes)) for agent, indexes in found.items()}


def as_seen(seen: RoundAgent, incident: Incident, agent: Agent | None) -> RoundAgent:
    """A machine of a round, as its incident tells.

    Args:
        agent: the machine; None if there is none any more.
    """
    return RoundAgent(
        id=seen.id,
        name=seen.name,
        devices=seen.devices,
        incident=incident.id,
        result=_result_of(seen, incident, agent),
        heals=incident.progress.rounds,
        said=_said(incident) or seen.said,
    )


def _result_of(seen: RoundAgent, incident: Incident, agent: Agent | None) -> AgentResult:
    """The state of a machine. It was found faulty if a check or the hardware said so; one that was
    lost before that is a lost machine."""
    is_known = is_known_faulty(incident) or seen.is_fault
    is_away = agent is None or agent.status is not AgentStatus.ALIVE
    match incident.status:
        case HealthStatus.HEALTHY:
            return _result_of_healthy(incident, is_known)
        case HealthStatus.GONE:
            return AgentResult.GONE if is_known else AgentResult.LOST
        case _ if is_away and not is_known:
            is_lost = agent is None or agent.status in _LOST
            return AgentResult.LOST if is_lost else AgentResult.AWAITED
        case HealthStatus.ISOLATED:
            return AgentResult.ISOLATED
        case HealthStatus.RESETTING | HealthStatus.REBOOTING | HealthStatus.VERIFYING:
            return AgentResult.FAULTY
        case _ if is_known and waits_for_turn(incident):
            return AgentResult.WAITING
        case _:
            return AgentResult.FAULTY if is_known else AgentResult.AWAITED


def _result_of_healthy(incident: Incident, is_known: bool) -> AgentResult:
    """The state of a machine that takes work again."""
    is_returned = incident.reason is not None and incident.reason.code in _RETURNED
    if not _was_found_healthy(incident) and not (is_known and is_returned):
        return AgentResult.UNCHECKED
    was_faulty = is_known or incident.progress.rounds
    return AgentResult.HEALED if was_faulty else AgentResult.HEALTHY


def _was_found_healthy(incident: Incident) -> bool:
    return bool(incident.checks) and incident.checks[-1].result is CheckResult.HEALTHY


def _said(incident: Incident) -> str:
    """The fault of a machine, as far as it is known: by the last check that found one, else by the
    last check, else by the suspicion."""
    bad = [each for each in incident.checks if each.result is not CheckResult.HEALTHY]
    told = bad or incident.checks
    if told:
        return told[-1].sentence
    return "" if incident.why.code is ReasonCode.HEALTH_TASK_FAILED else incident.why.sentence()


class NoteFailures(FollowingHandler[Session]):
    """Notes a round for a failed attempt of a job that opted in, as soon as its first task fails,
    and has all machines of the attempt under suspicion, side by side. The others of a gang are
    being stopped meanwhile; an independent task is an attempt by itself, and others go on."""

    name = "NoteFailures"
    stage = Stage.ADVANCE
    entity = Session
    statuses = frozenset({SessionStatus.TERMINATING, SessionStatus.TERMINATED})
    narrows = True

    def __init__(
        self,
        recoveries: Recoveries,
        incidents: Incidents,
        lifecycle: IncidentLifecycle,
        asked: AskedChecks,
    ) -> None:
        self._recoveries = recoveries
        self._incidents = incidents
        self._lifecycle = lifecycle
        self._asked = asked

    def gather(self, candidates: Sequence[Session], work: Work) -> Sequence[Session]:
        if not self._recoveries:
            return ()
        mine = [
            each
            for each in candidates
            if each.job is not None and each.job.spec.recovery is not None
        ]
        return super().gather(mine, work) if mine else mine

    def follow(self, record: Session, work: Work) -> None:
        job = record.job
        recovery = None if job is None else self._recoveries.of(job)
        if job is None or job.spec.recovery is None or recovery is None:
            return
        if not _is_current(record) or _is_noted(recovery, record):
            return
        trigger = trigger_of(record, job.spec.recovery)
        if trigger is None or _is_full(recovery):
            return
        if trigger.had_to_leave and recovery.leaves >= MAX_LEAVES:
            return
        self._note(recovery, record, trigger, work)

    def _note(self, recovery: Recovery, session: Session, trigger: Trigger, work: Work) -> None:
        first, devices = trigger.kernel, devices_of(session)
        if trigger.had_to_leave:
            how = session.reason
            agents = tuple(self._ill(devices, work))
        else:
            how = first.reason
            agents = tuple(self._suspected(devices, first, session, work))
        if not agents:
            return
        said = "" if how is None else how.sentence()
        kind = RecoveryMachineLeft if trigger.had_to_leave else RecoveryTaskFailed
        why = kind(index=first.task_index or 0, how=said, agents=len(agents))
        round_ = Round(
            number=recovery.rounds + 1,
            why=StoredReason.of(why),
            tasks=(
                RoundTask(
                    first.task_index or 0,
                    first.attempt,
                    had_to_leave=trigger.had_to_leave,
                    agent=None if recovery.is_whole else first.agent_id,
                ),
            ),
            agents=agents,
            gpu_milli=sum(kernel.resources.gpu_milli for kernel in session.kernels),
            began_at=work.now,
            leaves_before=recovery.leaves,
        )
        if recovery.status is RecoveryStatus.PENDING_HEALTHCHECK and recovery.open is not None:
            recovery.open = recovery.open.joined(round_)
        elif recovery.next is not None:
            recovery.next = recovery.next.joined(round_)
        else:
            recovery.next = round_
            recovery.rounds += 1
        self._recoveries.changed(recovery)
        work.unit.touch(recovery)
        work.mark(recovery)
        if stops_others(recovery.job):
            for attempt in live_attempts(recovery.job, work.live):
                work.mark(attempt)

    def _ill(self, devices: dict[AgentId, tuple[int, ...]], work: Work) -> Iterator[RoundAgent]:
        """The machines that have an incident already, for which the work had to leave; the others
        of the attempt are not in question."""
        for id_, indexes in devices.items():
            agent, incident = work.live.agents.get(id_), self._incidents.of(id_)
            if agent is not None and incident is not None:
                yield as_seen(RoundAgent(id_, agent.name, indexes), incident, agent)

    def _suspected(
        self,
        devices: dict[AgentId, tuple[int, ...]],
        first: Kernel,
        session: Session,
        work: Work,
    ) -> Iterator[RoundAgent]:
        why = HealthTaskFailed(exit_code=first.exit_code)
        for id_, indexes in devices.items():
            agent = work.live.agents.get(id_)
            if agent is None:
                yield RoundAgent(id_, id_, indexes, result=AgentResult.LOST)
                continue
            found = RoundAgent(id_, agent.name, indexes)
            incident = self._suspect(agent, indexes, why, session, work)
            if incident is None:
                yield _unchecked(found, agent)
            else:
                yield as_seen(found, incident, agent)

    def _suspect(
        self,
        agent: Agent,
        indexes: tuple[int, ...],
        why: Reason,
        session: Session,
        work: Work,
    ) -> Incident | None:
        """The incident of a machine that is suspected for a failed task. Where such tasks had it
        checked often enough for nothing, the one that it has anyway, if it does."""
        if not self._asked.may_ask(session.owner, agent.id, work.now):
            return self._incidents.of(agent.id)
        job = session.job
        incident = self._lifecycle.suspect(
            work,
            agent,
            self.name,
            why,
            devices=indexes,
            job=None if job is None else job.id,
            at_once=job is not None and self._may_go_first(agent, job, work),
        )
        if incident is not None and not incident.has_turn:
            asked = incident.id, incident.leave_by or 0.0
            self._asked.note(session.owner, agent.id, asked, work.now)
        return incident

    def _may_go_first(self, agent: Agent, job: Job, work: Work) -> bool:
        """Whether one more machine of the agent's group may be checked without a turn for this
        user's jobs: of a gang as many at a time as have turns, of tasks that fail each by itself
        one. The others wait for turns or until nothing runs there, and take work meanwhile, so that
        a program that merely fails takes few machines out of work."""
        most = self._lifecycle.most_out(agent.group) if job.spec.coscheduled else 1
        return self._checked_for_user(agent.group, job, work) < most

    def _checked_for_user(self, group: str, job: Job, work: Work) -> int:
        """How many machines of a group are checked without a turn for jobs of the job's user."""
        beside = self._incidents.in_group(group).beside
        jobs = (work.live.jobs.get(each.job) for each in beside if each.job is not None)
        owners = [each.owner for each in jobs if each is not None]
        user = (job.owner.domain, job.owner.user)
        return sum((owner.domain, owner.user) == user for owner in owners)


def _unchecked(found: RoundAgent, agent: Agent) -> RoundAgent:
    """A machine that nobody checks: it is out of work already, or its group has no checks."""
    result = AgentResult.ISOLATED if agent.ill else AgentResult.UNCHECKED
    return RoundAgent(found.id, found.name, found.devices, result=result, said=agent.ill)


def _is_current(session: Session) -> bool:
    """Whether the session is the present attempt of a task, which its verdict has not ended."""
    job = session.job
    if job is None:
        return False
    indexes = (kernel.task_index for kernel in session.kernels[:1])
    tasks = (job.tasks.get(index) for index in indexes if index is not None)
    return any(task is not None and task.session_id == session.id for task in tasks)


def _is_noted(recovery: Recovery, session: Session) -> bool:
    """Whether a round is about this attempt already."""
    rounds = [each for each in (recovery.open, recovery.next) if each is not None]
    return any(
        each.has(kernel.task_index or 0, kernel.attempt)
        for each in rounds
        for kernel in session.kernels
    )


def _is_full(recovery: Recovery) -> bool:
    """Whether so many tasks failed at once that further ones are judged without a check."""
    rounds = [each for each in (recovery.open, recovery.next) if each is not None]
    return any(len(each.tasks) >= MAX_TASKS for each in rounds)


def stops_others(job: Job) -> bool:
    """Whether a failed attempt has attempts of other tasks stopped; those of a gang end anyway."""
    return job.spec.recovers_whole and not job.spec.coscheduled


class StopOthers(DerivationHandler[Session]):
    """Stops the attempts of a job that recovers whole while the machines of one are checked or
    healed (source: ECS GPU Recovery), a bounded number a wake. They are charged nothing."""

    name = "StopOthers"
    stage = Stage.ADVANCE
    entity = Session
    statuses = SESSION_TABLE.live - {SessionStatus.TERMINATING}
    narrows = True

    def __init__(self, recoveries: Recoveries) -> None:
        self._recoveries = recoveries

    def gather(self, candidates: Sequence[Session], work: Work) -> Sequence[Session]:
        if not self._recoveries:
            return ()
        mine = [each for each in candidates if each.job is not None and stops_others(each.job)]
        return super().gather(mine, work) if mine else mine

    def derive(self, record: Session, work: Work) -> tuple[TransitionStatus, Reason | None] | None:
        job = record.job
        if job is None or not self._recoveries.holds_job(job):
            return None
        if record.tally.among(KERNEL_TABLE.terminal):
            return None  # it has ended by itself
        recovery = self._recoveries.of(job)
        round_ = None if recovery is None else recovery.open or recovery.next
        if round_ is None:
            return None
        if work.is_full:
            work.look_later([record])
            return None
        return STOP, RecoveryStopsAll(index=first_index(round_))


class FollowIncidents(FollowingHandler[Incident]):
    """Takes note in rounds of what becomes of their machines; of all machines of a round at once,
    so that a large gang costs no more than its size."""

    name = "FollowIncidents"
    stage = Stage.SETTLE
    entity = Incident
    statuses = frozenset(HealthStatus)

    def __init__(self, recoveries: Recoveries, asked: AskedChecks) -> None:
        self._recoveries = recoveries
        self._asked = asked
        self._news: Mapping[str, Incident] = {}

    def gather(self, candidates: Sequence[Incident], work: Work) -> Sequence[Incident]:
        """One of the incidents for each recovery."""
        for each in candidates:
            if each.confirmed:
                self._asked.found_faulty(each.agent_id)
        if not self._recoveries:
            return ()
        self._news = {each.id: each for each in candidates}
        first: dict[Recovery, Incident] = {}
        for each in candidates:
            for recovery in self._recoveries.watching(each.agent_id):
                first.setdefault(recovery, each)
        return [*dict.fromkeys(first.values())]

    def follow(self, record: Incident, work: Work) -> None:
        for recovery in self._recoveries.watching(record.agent_id):
            before = recovery.open, recovery.next
            recovery.open = _told(recovery.open, self._news, work)
            recovery.next = _told(recovery.next, self._news, work)
            if (recovery.open, recovery.next) != before:
                work.unit.touch(recovery)
                work.mark(recovery)


def _told(round_: Round | None, news: Mapping[str, Incident], work: Work) -> Round | None:
    """The round with its machines as the incidents tell that it waits for."""
    if round_ is None:
        return None
    agents = (
        as_seen(each, news[each.incident], work.live.agents.get(each.id))
        if each.incident in news
        else each
        for each in round_.agents
    )
    return replace(round_, agents=tuple(agents))
