"""The board: what placement looks at, derived from the mirror and kept current by deltas.

For each scaling group a snapshot of its agents and the queue of its PENDING sessions; what owners
hold, and whose room others get. Nothing here is stored: it is rebuilt from the mirror.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from muster.control.session.backlogs import Backlogs
from muster.control.session.learning import Asked, Learner
from muster.control.session.running import STAYING, Place, Running, StartTimes, placed_since
from muster.control.session.targets import Targets
from muster.control.session.workloads import workload_class
from muster.core.ids import JobId, KernelId, SessionId
from muster.core.reasons import DISPLACED, ReasonCode
from muster.core.resources import DeviceShare
from muster.core.specs import Level, SessionType
from muster.core.specs.placement import ANYWHERE
from muster.core.states import (
    JOB_TABLE,
    SESSION_TABLE,
    AgentStatus,
    SessionStatus,
)
from muster.scheduling.fairness import DecayedUsage, Stay
from muster.scheduling.guard import PluginFault
from muster.scheduling.hooks import BatchHook
from muster.scheduling.plugins import AgentSelector, LearningSelector, PassContext
from muster.scheduling.policy import Policy, missing_parts
from muster.scheduling.queue import AGE, Queue
from muster.scheduling.sequencers import FairShare
from muster.scheduling.snapshot import Snapshot
from muster.scheduling.usage import Quotas, Usage, scopes
from muster.scheduling.workload import SessionWorkload, WorkloadClass
from muster.store.live import Live
from muster.store.records import Agent, Allocation, Job, LedgerKey, Session

_NO_USAGE = DecayedUsage()
log = logging.getLogger(__name__)

HALF_LIVES = 5
"""How far back usage is read after a start: what is older weighs a thirtieth at most."""
Past = Callable[[str, float], Iterable[Stay]]
"""What has run in a group, by its name, in the last so many seconds."""
_DISPLACED = frozenset({ReasonCode.PREEMPTED, ReasonCode.PREEMPTED_FOR_GOOD})


@dataclass(slots=True)
class Remains:
    """Of a session that is PENDING again: how many ``rows`` of the ledger earlier generations of
    its kernels have. It may be placed once there are none: never two live attempts."""

    what: WorkloadClass
    rows: dict[KernelId, int]


@dataclass(slots=True)
class GroupBoard:
    """One scaling group. ``stirred`` says that something changed that placement should see."""

    snapshot: Snapshot
    policy: Policy
    queue: Queue = field(default_factory=Queue)
    placed: dict[SessionId, Session] = field(default_factory=dict)  # those that hold a place
    cleaning: dict[SessionId, Remains] = field(default_factory=dict)
    fairness: DecayedUsage | None = None  # kept where the sequencer asks for it
    learner: Learner | None = None  # where the selector learns what is asked for
    start_times: StartTimes = field(default_factory=StartTimes)
    stirred: bool = True

    @property
    def waiting(self) -> int:
        """How many sessions are PENDING."""
        return len(self.queue) + len(self.cleaning)


class Board:
    """Follows the mirror; the unit of work tells it of the ledger, the engine of sessions."""

    def __init__(self, live: Live, past: Past, asked: Asked) -> None:
        self._live = live
        self._past = past
        self._asked = asked
        self.groups: dict[str, GroupBoard] = {}
        self.candidates: dict[JobId, int] = {}  # PENDING sessions of a job
        self.backlogs = Backlogs(live)
        self.usage = Usage()
        self.quotas = Quotas(live.quotas.values())
        self._class_of_job: dict[JobId, WorkloadClass] = {}
        self._placed_as: dict[SessionId, Place] = {}
        self._ahead_as: dict[LedgerKey, WorkloadClass] = {}  # of rows not charged yet
        self._session_of: dict[LedgerKey, Session] = {}  # of charged rows
        self._to_come: dict[JobId, int] = {}  # sessions of a job that are not in the queue yet
        self.targets = Targets(live)
        self.displacing: dict[SessionId, set[SessionId]] = {}  # who leaves for whom
        for name, spec in live.groups.items():
            self._use(name, Policy.of(spec, missing_parts(spec)))
        for agent in live.agents.values():
            self.agent_changed(agent)
        for row in live.ledger.values():
            self.held(row)
            if row.charged:
                snapshot = self._group_of(row).snapshot
                snapshot.take(row.agent_id, row.resources, row.shares, force=True)
                self._join_set(row, +1)
        for session in live.sessions.values():
            self.session_changed(session)
        for job in live.jobs.values():
            self.expanded(job)
        self._follow_displaced()

    def _group_of(self, row: Allocation) -> GroupBoard:
        return self.groups[self._live.agents[row.agent_id].group]

    # -- groups, agents, queue -----------------------------------------------------------------

    def group_changed(self, name: str) -> None:
        """A group is new, or has another policy."""
        board = self.groups.get(name)
        before = None if board is None else board.policy
        self._use(name, Policy.of(self._live.groups[name], before=before))
        for agent in self._live.agents.values():
            if agent.group == name:
                self.agent_changed(agent)  # it may hold more kernels now, or fewer

    def plugin_failed(self, name: str, fault: PluginFault) -> None:
        """Go on without a plug-in of the group; a built-in part serves in its place."""
        log.error("group %s goes on without a plug-in: %s", name, fault)
        before = self.groups[name].policy
        self._use(name, Policy.of(self._live.groups[name], (*before.refused, fault), before))

    def _use(self, name: str, policy: Policy) -> None:
        board = self.groups.get(name)
        before = None if board is None else board.policy
        if board is None:
            board = self.groups[name] = GroupBoard(Snapshot(name), policy)
        else:
            hooks, board.policy = board.policy.hooks, policy
            board.queue.forget()
            board.stirred = True
            if hooks != policy.hooks:
                self._hook_anew(board)
        earlier, after = before and before.sequencer, policy.sequencer
        if isinstance(after, FairShare) and not (
            isinstance(earlier, FairShare) and earlier.half_life_s == after.half_life_s
        ):
            board.fairness = self._fairness(name, after.half_life_s)
        if before is None or before.selector is not policy.selector:
            self._teach(board, policy.selector)

    def _teach(self, board: GroupBoard, selector: AgentSelector) -> None:
        """Have a selector that learns know of all that has come before it."""
        board.learner, name = None, board.snapshot.group
        if not isinstance(selector, LearningSelector):
            return
        try:
            board.learner = Learner(selector, self._asked(name))
        except PluginFault as fault:
            self.plugin_failed(name, fault)
        for session in self._live.sessions.values():
            if session.group == name:
                self._learn(board, session)

    def _fairness(self, name: str, half_life_s: float) -> DecayedUsage:
        """What owners have used of late, and hold now."""
        fairness = DecayedUsage.of_past(self._past(name, HALF_LIVES * half_life_s), half_life_s)
        for id_ in self.groups[name].placed:
            place = self._placed_as[id_]
            fairness.placed(place.owner, place.what.total, place.since)
        return fairness

    def quotas_changed(self) -> None:
        """Somebody's limits are other ones."""
        self.quotas = Quotas(self._live.quotas.values())
        self._stir_all()

    def _stir_all(self) -> None:
        for board in self.groups.values():
            board.stirred = True

    def agent_changed(self, agent: Agent) -> None:
        board = self.groups[agent.group]
        if agent.status is AgentStatus.REMOVED:
            board.snapshot.remove_agent(agent.id)
        else:
            alive = agent.status is AgentStatus.ALIVE
            able = alive and agent.connected
            status = agent.status if agent.connected else "not connected"
            board.snapshot.upsert_agent(
                agent.id,
                agent.name,
                replace(agent.capacity, kernels=self._live.groups[agent.group].kernels_per_agent),
                agent.devices,
                accepting=able and agent.barred is None and not agent.disk_full,
                status=_bar_of(agent) or status if able else status,
                attributes=agent.attributes,
                returning=alive and not agent.connected and agent.barred is None,
            )
        board.stirred = True

    def session_changed(self, session: Session) -> None:
        """Keep the queue: a PENDING session is in it, any other is not."""
        board = self.groups[session.group]
        if self.targets.changed(session):
            self._stir_all()
        if session.status in SESSION_TABLE.terminal:
            self.targets.ended(session)
            self._after_end(session, board)
            if board.learner is not None:
                board.learner.ended(session)
        if session.status is SessionStatus.RUNNING and session.id in self._placed_as:
            started_at = placed_since(session)
            took_s = started_at - self._placed_as[session.id].since
            board.start_times.saw(took_s, started_at)
        if session.status is not SessionStatus.PENDING:
            self.withdraw(session)
        elif session.id not in board.queue and session.id not in board.cleaning:
            self._enqueue(session, self._arriving(session), board)
            self._waits(session, +1)

    def withdraw(self, session: Session) -> None:
        """The session is to be placed no more; nothing happens if it does not wait."""
        board = self.groups[session.group]
        if session.id in board.queue or session.id in board.cleaning:
            board.queue.remove(session.id)
            board.cleaning.pop(session.id, None)
            self.displacing.pop(session.id, None)
            self._waits(session, -1)

    def _waits(self, session: Session, sign: int) -> None:
        self.usage.waits(session.owner, sign)
        job = session.job
        if job is not None:
            count = self.candidates.pop(job.id, 0) + sign
            if count:
                self.candidates[job.id] = count

    def _enqueue(self, session: Session, what: WorkloadClass, board: GroupBoard) -> None:
        rows_of = self._live.rows_of
        rows = {k.id: len(rows_of[k.id]) for k in session.kernels if k.id in rows_of}
        if rows:
            board.cleaning[session.id] = Remains(what, rows)
            return
        what = board.queue.known(what)
        board.queue.add(SessionWorkload(session.id, session.created_at, what))
        self._learn(board, session)
        board.stirred = True

    def _learn(self, board: GroupBoard, session: Session) -> None:
        """Have a selector that learns know that the session has come."""
        if board.learner is None:
            return
        try:
            board.learner.came(session)
        except PluginFault as fault:
            self.plugin_failed(board.snapshot.group, fault)

    def what(self, session: Session) -> WorkloadClass:
        """A session's class as placement sees it: as it waits, or as it was placed. Whoever looks
        asks no hook."""
        return self._known(session) or workload_class(session)

    def _known(self, session: Session) -> WorkloadClass | None:
        board = self.groups[session.group]
        if session.id in board.queue:
            return board.queue.class_of(session.id).what
        known = board.cleaning.get(session.id) or self._placed_as.get(session.id)
        return None if known is None else known.what

    def _arriving(self, session: Session) -> WorkloadClass:
        """The class of a session that enters the queue, as its hook wants it."""
        job = session.job
        if job is None or session.failed_agents or len(session.kernels) != 1:
            return self._hooked(workload_class(session))
        known = self._class_of_job.get(job.id)
        if known is None:
            known = self._class_of_job[job.id] = self._hooked(workload_class(session))
        return known

    def _follow_displaced(self) -> None:
        """Who leaves for others does so still, after the mirror was read. For whom is not known but
        by priority: nobody of that one displaces more until they are gone."""
        for board in self.groups.values():
            leaving: dict[int, set[SessionId]] = {}
            for id_, session in board.placed.items():
                why = session.reason
                if why is not None and why.code in _DISPLACED and session.status not in STAYING:
                    leaving.setdefault(dict(why.numbers)["priority"], set()).add(id_)
            for waiting in board.queue if leaving else ():
                if waiting.what.priority in leaving:
                    self.displacing[waiting.id] = set(leaving[waiting.what.priority])

    def changes_environments(self, session: Session) -> bool:
        """Whether its hook may change what its kernels are started with; built-in ones do not."""
        hook = self.groups[session.group].policy.hooks[session.type]
        return type(hook).before_start is not BatchHook.before_start

    def before_start(self, session: Session, environment: Mapping[str, str]) -> Mapping[str, str]:
        """The environment of one of its kernels that is about to start, as its hook wants it."""
        try:
            return self.groups[session.group].policy.hooks[session.type].before_start(environment)
        except PluginFault as fault:
            self.plugin_failed(session.group, fault)
            return self.before_start(session, environment)

    def _hooked(self, what: WorkloadClass) -> WorkloadClass:
        try:
            return self.groups[what.group].policy.hooks[what.type].on_schedule(what)
        except PluginFault as fault:
            self.plugin_failed(what.group, fault)
            return self._hooked(what)

    def _hook_anew(self, board: GroupBoard) -> None:
        """Other hooks: what waits enters the queue once more."""
        policy, name, sessions = board.policy, board.snapshot.group, self._live.sessions
        of_job = self._class_of_job.items()
        self._class_of_job = {id_: what for id_, what in of_job if what.group != name}
        queue = Queue()
        for each in sorted(board.queue, key=AGE):
            what = queue.known(self._arriving(sessions[each.id]))
            queue.add(SessionWorkload(each.id, each.submitted_at, what))
        cleaning = {
            id_: Remains(self._arriving(sessions[id_]), remains.rows)
            for id_, remains in board.cleaning.items()
        }
        if board.policy is policy:  # else one has failed, and this was done under the next policy
            board.queue, board.cleaning = queue, cleaning

    def _after_end(self, session: Session, board: GroupBoard) -> None:
        succeeded = all(kernel.exit_code == 0 for kernel in session.kernels)
        try:
            board.policy.hooks[session.type].after_end(session.id, succeeded)
        except PluginFault as fault:
            self.plugin_failed(session.group, fault)

    def expanded(self, job: Job) -> None:
        """It is new, or other tasks of it have become candidates: those to come wait as well."""
        to_come = 0 if job.status in JOB_TABLE.terminal else job.tasks_total - job.next_task
        if job.spec.coscheduled:
            to_come = min(to_come, 1)
        before = self._to_come.pop(job.id, 0)
        if to_come:
            self._to_come[job.id] = to_come
        if to_come != before:
            self.usage.waits(job.owner, to_come - before)

    def eligible_at(self, session: Session) -> float:
        """From when on the session could have started, had there been room: it was handed in, its
        start time had come and what it waits for had come so far; never, while one is missing.

        A job's later attempts count from there too, and so do its later tasks. Only what others
        displaced begins to wait anew: it lost its place by no fault of its own.
        """
        if session.reason is not None and session.reason.code in DISPLACED:
            return session.queued_at
        what = self.what(session)
        handed_in = session.created_at if session.job is None else session.job.submitted_at
        met_at = self.targets.met_at(session.owner, what.after) if what.after else 0.0
        return max(handed_in, what.not_before or 0.0, met_at)

    def take_stirred(self) -> list[Session]:
        """The waiting sessions that look anew at their time: what they wait for has come further
        since the last call."""
        news = self.targets.take_news()
        return [
            self._live.sessions[waiting.id]
            for group in (self.groups.values() if news else ())
            for members in group.queue.classes
            if any(each.on in news for each in members.what.after)
            for waiting in members
        ]

    def job_ended(self, job: Job) -> None:
        self.expanded(job)
        self.targets.ended(job)
        self.backlogs.job_ended(job)
        self._class_of_job.pop(job.id, None)

    # -- what other work waits for -------------------------------------------------------------

    def job_changed(self, job: Job) -> None:
        if self.targets.changed(job):
            self._stir_all()

    # -- passes --------------------------------------------------------------------------------

    def context(self, group: GroupBoard, now: float) -> PassContext:
        """What a pass over the group's queue looks at."""
        start_s = group.start_times.at(now)
        return PassContext(
            group.snapshot,
            now,
            self.usage,
            self.quotas,
            group.fairness or _NO_USAGE,
            Running(group.placed, self._placed_as, group.policy.preemption, start_s),
            self.targets.state,
            self.displacing,
            start_s,
        )

    # -- the ledger (store.unit.LedgerWatch) ---------------------------------------------------

    def held(self, row: Allocation) -> None:
        kernel = self._live.kernels.get(row.kernel_id)
        priority = 0
        if not row.charged and kernel is not None:
            session = kernel.session
            what = self._known(session) or self._arriving(session)
            self._ahead_as[row.key] = what
            priority = what.priority
        self.backlogs.held(row, priority)
        if row.charged:
            self._take_place(row, row.since)

    def charged(self, row: Allocation, before: tuple[DeviceShare, ...] | None, now: float) -> None:
        group = self._group_of(row)
        if before is None:
            self.backlogs.charged(row, now)
            self._take_place(row, now)
        else:
            group.snapshot.give_back(row.agent_id, row.resources, before)
            session = self._session_of.get(row.key)
            if session is not None:
                self._placed_as[session.id].seen = None
        # What the agent says is a fact, even where it is more than there was room for.
        group.snapshot.take(row.agent_id, row.resources, row.shares, force=True)

    def released(self, row: Allocation, now: float) -> None:
        group = self._group_of(row)
        self.backlogs.released(row)
        if row.charged:
            group.snapshot.give_back(row.agent_id, row.resources, row.shares)
            self._leave_place(row, now)
        else:
            self._ahead_as.pop(row.key, None)
        group.stirred = True
        if row.kernel_id not in self._live.rows_of and self.targets.released(row.kernel_id):
            self._stir_all()
        kernel = self._live.kernels.get(row.kernel_id)
        remains = group.cleaning.get(kernel.session.id) if kernel is not None else None
        if kernel is not None and remains is not None:
            remains.rows[kernel.id] -= 1
            if not remains.rows[kernel.id]:
                del remains.rows[kernel.id]
            if not remains.rows:
                del group.cleaning[kernel.session.id]
                self._enqueue(kernel.session, remains.what, group)

    def _take_place(self, row: Allocation, now: float) -> None:
        """A row is charged: from the first on, its session counts as placed with all it asks for,
        until the last is gone."""
        kernel = self._live.kernels.get(row.kernel_id)
        if kernel is None:
            return  # its session has ended, and its agent has not confirmed that yet
        session = kernel.session
        ahead_as = self._ahead_as.pop(row.key, None)
        place = self._placed_as.get(session.id)
        if place is None:
            what = ahead_as or self._known(session) or self._arriving(session)
            place = self._placed_as[session.id] = Place(session.owner, what)
            group = self.groups[session.group]
            self.usage.placed(session.owner, place.what.total)
            if group.fairness is not None:
                group.fairness.placed(session.owner, place.what.total, now)
            group.placed[session.id] = session
        place.rows[row.key] = row
        place.seen = None
        self._session_of[row.key] = session

    def _join_set(self, row: Allocation, kernels: int) -> None:
        """A kernel of a set is on the agent, or no longer; a pass has counted what it placed."""
        session = self._session_of.get(row.key)
        name = self._placed_as[session.id].what.placement.set if session is not None else None
        if session is not None and name is not None:
            snapshot = self.groups[session.group].snapshot
            snapshot.set_joined(row.agent_id, (session.owner, name), kernels)

    def _leave_place(self, row: Allocation, now: float) -> None:
        self._join_set(row, -1)
        session = self._session_of.pop(row.key, None)
        if session is None:
            return
        place = self._placed_as[session.id]
        del place.rows[row.key]
        place.seen = None
        if not place.rows:
            del self._placed_as[session.id]
            group = self.groups[session.group]
            del group.placed[session.id]
            self.usage.placed(place.owner, place.what.total, -1)
            if group.fairness is not None:
                group.fairness.released(place.owner, place.what.total, now)
            for preemptor, victims in list(self.displacing.items()):
                victims.discard(session.id)
                if not victims:
                    del self.displacing[preemptor]

    def placed_of(self, level: Level, name: str) -> Iterator[tuple[Session, WorkloadClass]]:
        """The sessions that hold a place of somebody at a level, with what they count as."""
        for group in self.groups.values():
            for id_, session in group.placed.items():
                if level.of(session.owner) == name:
                    yield session, self._placed_as[id_].what

    def may_wait_ahead(self, session: Session) -> bool:
        """Whether an agent may hold the session in its backlog: short batch work of one kernel that
        needs nothing but its allocation, may go anywhere, and has no quota to exceed."""
        if (
            session.job is None
            or len(session.kernels) != 1
            or session.type is not SessionType.BATCH
            or session.kernels[0].process.ports
            or not self._may_go_anywhere(session)
        ):
            return False
        return not any(map(self.quotas.of, scopes(session.owner)))

    def _may_go_anywhere(self, session: Session) -> bool:
        placement = self.what(session).placement
        return placement is ANYWHERE or placement == ANYWHERE


def _bar_of(agent: Agent) -> str:
    """Why an agent that can be reached takes nothing new, as people are told; empty if it does."""
    if agent.disk_full:
        return "out of disk (DISK_FULL)"
    return ": ".join(filter(None, (agent.barred or "", agent.bar_note)))
