"""ScheduleNewSessions: PENDING → SCHEDULED, a scaling group's queue at a time."""

import logging
from collections.abc import Iterable, Mapping, Sequence

from muster.control.engine.defects import FailedOn
from muster.control.engine.handler import (
    HandlerResult,
    LifecycleHandler,
    StatusTransitions,
    TransitionStatus,
)
from muster.control.engine.work import Work
from muster.control.session.cluster.eligibility import eligible_at, take_unblocked
from muster.control.session.cluster.state import ClusterState
from muster.control.session.cluster.workloads import placed_since
from muster.control.session.handlers.prefill import (
    BacklogRoom,
    grant_prefilled,
    lacks_room,
    outranked,
)
from muster.control.session.handlers.start import recall
from muster.control.session.lifecycle import CANCEL, SessionLifecycle, why_given_up
from muster.core.ids import KernelId, SessionId
from muster.core.reasons import QUOTA_WAITS, Reason, ReasonCode
from muster.core.reasons.of_sessions import (
    CleaningUp,
    HandlerError,
    NoAgentAble,
    Preempted,
    PreemptedForGood,
    SchedulingTimeout,
)
from muster.core.specs.group import PreemptionMode
from muster.core.states import KernelStatus, SessionStatus
from muster.scheduling.making_room.preemption import Preemption
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.passes.pass_result import Placed, is_behind
from muster.scheduling.passes.placement import never_fits
from muster.scheduling.policy.guard import PluginFault
from muster.scheduling.policy.validators import NEVER
from muster.store.live import Live
from muster.store.records import Kernel, Session

log = logging.getLogger(__name__)


TOLD_AT_ONCE = 100
"""Sessions of a class whose histories tell new reasons at once; the histories of the others tell
them at the next sweep, if they still hold. A change of the reason for which a hundred thousand
sessions wait must not write as many rows at once."""

_MAY_RETURN = frozenset({ReasonCode.NO_ALIVE_AGENTS, ReasonCode.NEEDS_ABSENT_AGENTS})
"""Reasons of a session that no agent can hold now, although an absent or cordoned agent could."""


class ScheduleNewSessions(LifecycleHandler[Session]):
    """Places sessions that fit, prefills short work where a kernel of its shape will soon end, and
    gives the reasons for which the others wait.

    Waiting is *skipped*, not failed: time can cure it (design: Skipped or failed).
    """

    name = "ScheduleNewSessions"
    between_tries = True
    entity = Session
    statuses = frozenset({SessionStatus.PENDING})
    target_kernel_statuses = frozenset({KernelStatus.PENDING})
    transitions = StatusTransitions(
        success=TransitionStatus(SessionStatus.SCHEDULED, TransitionStatus(KernelStatus.SCHEDULED)),
        expired=CANCEL,
        give_up=CANCEL,
    )

    def __init__(self, cluster: ClusterState, sessions: SessionLifecycle) -> None:
        self._cluster = cluster
        self._sessions = sessions

    def gather(self, candidates: Sequence[Session], work: Work) -> Sequence[Session]:
        """The sessions that are new, and the sessions whose time may be over; others wait in their
        classes."""
        targets = super().gather(candidates, work)
        self._cluster.ports.expire(work.now)
        for record in take_unblocked(self._cluster, work.live):
            work.mark(record)
        for session in targets:
            if session.created_at < work.now:
                self._cluster.groups[session.group].due = True
        for group in self._cluster.groups.values():
            if group.policy.preemption is not None and not group.due:
                lease_s = group.policy.preemption.minimum_lease
                group.due = any(
                    session.id in group.placed and placed_since(session) + lease_s <= work.now
                    for session in candidates
                )
        return targets

    def is_due(self, targets: Sequence[Session]) -> bool:
        return bool(targets) or any(group.due for group in self._cluster.groups.values())

    def execute(self, targets: Sequence[Session], work: Work) -> HandlerResult[Session]:
        result: HandlerResult[Session] = HandlerResult()
        for session in targets:
            try:
                self._give_up(session, result, work)
            except Exception as error:
                raise FailedOn(session) from error
        for group in self._cluster.groups.values():
            if group.due:
                self._serve_by_itself(group, result, work)
        for session in targets:
            try:
                self._say_why(session, result, work)
            except Exception as error:
                raise FailedOn(session) from error
        return result

    def _give_up(self, session: Session, result: HandlerResult[Session], work: Work) -> None:
        given_up = self._unfit_everywhere(session) or why_given_up(
            session, work.live.groups[session.group].max_reschedules
        )
        if given_up is not None:
            result.failures[session] = given_up
            self._cluster.withdraw(session)

    def _serve_by_itself(
        self, group: GroupState, result: HandlerResult[Session], work: Work
    ) -> None:
        """Serve a group. If that fails, and no single session is the cause, the group rests, and
        the other groups go on."""
        part = f"{self.name} in group {group.snapshot.group}"
        if work.defects.any(work.now) and work.defects.rests(part, work.now):
            group.due = False  # its sessions make a pass due again in the next sweep
            return
        try:
            aside = self._set_aside(group, work)
            self._serve(group, result, work)
            self._take_back(aside, group, work)
        except FailedOn:
            raise
        except Exception as error:
            raise work.defects.rest(part, error, work.now) from error

    def _unfit_everywhere(self, session: Session) -> Reason | None:
        """The reason to give a session up, once every agent that could ever hold it has reported
        that it cannot run the session, and no pool may make others."""
        if not session.unfit:
            return None
        group, workload = self._cluster.groups[session.group], self._cluster.workload(session)
        try:
            never = never_fits(workload, group.snapshot, group.policy)
        except PluginFault as fault:
            self._cluster.plugin_failed(session.group, fault)
            return self._unfit_everywhere(session)  # each time with one plug-in less
        if never is None or never.code in _MAY_RETURN:
            return None
        if group.outlook is not None and group.outlook.may_make_others(workload):
            return None
        _, said = session.unfit[-1]
        return NoAgentAble(how=said.sentence())

    def _set_aside(self, group: GroupState, work: Work) -> Mapping[Session, float]:
        """Put sessions aside that sit out because their room was found taken at a commit, or
        because a handler failed on them, so that they do not delay other sessions. The answer says
        until when."""
        if not work.some_sit_out(self.name):
            return {}
        waiting = [work.live.sessions[each.id] for each in group.queue]
        aside = {
            session: until
            for session in waiting
            if (until := work.sits_out_until(session, self.name)) is not None
        }
        for session in aside:
            group.set_aside(session.id)
        return aside

    def _take_back(self, aside: Mapping[Session, float], group: GroupState, work: Work) -> None:
        due = group.due
        for session, until in aside.items():
            try:
                group.readmit(session.id)
            except PluginFault as fault:  # it is in the queue; the selector failed to learn
                self._cluster.plugin_failed(group.snapshot.group, fault)
            work.try_later(session, until)
        group.due = due  # readmission makes a pass due, in this wake

    def _say_why(self, session: Session, result: HandlerResult[Session], work: Work) -> None:
        group, remains = self._cluster.groups[session.group], self._cluster.remains_of(session)
        if remains is not None:
            result.skipped[session] = (cleaning_up(remains, work.live),)
        elif session.id in group.queue:
            reasons = group.queue.class_of(session.id).reasons
            if reasons:
                result.skipped[session] = reasons

    def _serve(self, group: GroupState, result: HandlerResult[Session], work: Work) -> None:
        try:
            grant_prefilled(group, work, self._cluster)
            self._place(group, result, work)
        except PluginFault as fault:
            self._cluster.plugin_failed(group.snapshot.group, fault)
            self._serve(group, result, work)  # each time with one plug-in less

    def _place(self, group: GroupState, result: HandlerResult[Session], work: Work) -> None:
        before = {members: members.reasons for members in group.queue.classes}
        try:
            decided = group.run_pass(work.now)
        except PluginFault:
            raise
        except Exception as error:
            # Nothing is held yet: the sessions wait, and the other groups go on.
            log.exception("placement in group %s failed", group.snapshot.group)
            work.defects.note(f"placement in group {group.snapshot.group} failed: {error!r}")
            failure = HandlerError(handler=self.name, error=repr(error)[:200])
            for members in group.queue.classes:
                members.reasons = (failure,)
            return
        self._note_quotas(group.snapshot.group, decided.refused.values())
        for placed in decided.placed:
            try:
                result.successes.append(self._start(placed, work))
            except Exception as error:  # the wake is undone, and all room with it
                raise FailedOn(work.live.sessions[placed.session.id]) from error
        for preemption in decided.displaced:
            self._displace(preemption, group, work)
        lacking = [each.workload for each, why in decided.refused.items() if lacks_room(why)]
        self._give_way(outranked(group, lacking, work, self._cluster), work)
        backlogs, prefilled = BacklogRoom(self._cluster), set[SessionId]()
        for members, reasons in decided.refused.items():
            if any(each.code in NEVER for each in reasons):
                why = next(each for each in reasons if each.code in NEVER)
                for waiting in members:
                    result.failures[work.live.sessions[waiting.id]] = why
                continue
            changed = _codes(before.get(members, ())) != _codes(reasons)
            told = 0
            for waiting in members:
                session = work.live.sessions[waiting.id]
                if backlogs.take(session, reasons, work):
                    prefilled.add(session.id)
                    result.successes.append(session)
                elif changed and told < TOLD_AT_ONCE:
                    told += 1
                    result.skipped[session] = reasons
                else:
                    break
        if prefilled and any(is_behind(each, prefilled) for each in decided.refused.values()):
            group.due = True  # sessions that waited behind these may start now

    def _note_quotas(self, group: str, refused: Iterable[Sequence[Reason]]) -> None:
        """Note whether ends in other groups may let sessions of this one start."""
        if any(each.code in QUOTA_WAITS for reasons in refused for each in reasons):
            self._cluster.quota_waits.add(group)
        else:
            self._cluster.quota_waits.discard(group)

    def _start(self, placed: Placed, work: Work) -> Session:
        """Have a session take the room that the pass has found, and write the ledger."""
        session = self._cluster.start(placed, work.now)
        for kernel, placement in zip(session.kernels, placed.kernels, strict=True):
            agent = work.live.agents[placement.agent_id]
            kernel.agent_id = agent.id
            kernel.shares = placement.shares
            work.unit.allocate(kernel, agent, placement.shares, charged=True)
        return session

    def _displace(self, preemption: Preemption, group: GroupState, work: Work) -> None:
        """Have the victims leave; the displacing session is placed once they are gone."""
        policy = group.policy.preemption
        assert policy is not None, "a group without preemption displaces nobody"
        again = policy.mode is PreemptionMode.RESCHEDULE
        kind = Preempted if again else PreemptedForGood
        why = kind(priority=preemption.priority)
        group.displace(preemption)
        for victim in [work.live.sessions[victim.id] for victim in preemption.victims]:
            self._sessions.preempt(work, victim, self.name, why, again=again)

    def _give_way(self, kernels: Sequence[Kernel], work: Work) -> None:
        """Take prefilled kernels back; an agent that was sent one is asked to give it back."""
        for kernel in kernels:
            if kernel.status is KernelStatus.CREATING:
                recall(kernel, work)
            else:
                self._sessions.reschedule(work, kernel.session, self.name, None)

    def timeout_s(self, record: Session, work: Work) -> float | None:
        if self._cluster.guard.waits_without_limit(record.id):
            return None
        return record.scheduling_timeout_s or work.live.groups[record.group].pending_timeout

    def since(self, record: Session, work: Work) -> float:
        return eligible_at(self._cluster, record)

    def expiry_reason(self, record: Session, work: Work, timeout_s: float) -> Reason:
        return SchedulingTimeout(timeout_s=timeout_s)


def _codes(reasons: Sequence[Reason]) -> list[ReasonCode]:
    return [each.code for each in reasons]


def cleaning_up(kernel_id: KernelId, live: Live) -> Reason:
    """The reason why a kernel waits, some former processes of which are not proven gone."""
    agent = live.agents[live.allocations_of[kernel_id][0].agent_id]
    return CleaningUp(agent=agent.name)
