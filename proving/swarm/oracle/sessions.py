"""Why sessions end, and with what codes their kernels do, compared with what happened."""

from collections import defaultdict

from sqlalchemy import select

from muster.control.pool.records import Slice
from muster.core import exit_codes
from muster.core.owner import Principal
from muster.core.reasons import ReasonCode
from muster.core.specs import ScalingGroup
from muster.core.states import SESSION_TABLE, SessionStatus, TaskState
from muster.store import schema
from muster.store.live import Live
from muster.store.queries.tasks import read_task
from muster.store.records import Agent, Session
from muster.store.unit import Unit
from proving.swarm.judge import Invariant, Judge
from proving.swarm.oracle.causes import Case, is_given_up, is_true
from proving.swarm.oracle.facts import Facts, Statuses
from proving.swarm.scene import ADMIN

_PREEMPTED = (ReasonCode.PREEMPTED, ReasonCode.PREEMPTED_FOR_GOOD)
_GIVEN_UP = (
    ReasonCode.RECOVERY_USED_UP,
    ReasonCode.RECOVERY_NOT_RETURNED,
    ReasonCode.RECOVERY_NOT_STARTED,
)


class SessionsEndForCause(Invariant):
    """The reason of a session's end is true: somebody asked, a time was over, a higher priority
    waited and its lease was over, all exited with 0."""

    says = "a session ends for the reason that it tells, and its kernels with their own codes"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._facts = judge.of(Facts)
        self._statuses = judge.of(Statuses)
        self._left_by: dict[str, float] = {}  # by the names of agents that were drained
        self._lowest: dict[str, int] = {}  # the lowest priority that each session had
        self._policies: dict[str, list[ScalingGroup]] = defaultdict(list)  # by the group's name

    def committed(self, unit: Unit) -> None:
        for name, group in unit.live.groups.items():
            policies = self._policies[name]
            if not policies or policies[-1] is not group:
                policies.append(group)
        for agent in unit.touched[Agent]:
            self._note_leave(agent.name, agent.leave_by)
        for slice_ in unit.touched[Slice]:
            for name in slice_.names:
                self._note_leave(name, slice_.leave_by)
        for session in (*unit.touched[Session], *unit.rewritten[Session]):
            lowest = self._lowest.get(session.id, session.priority)
            self._lowest[session.id] = min(lowest, session.priority)
        for session, stored in unit.touched[Session].items():
            if session.service is not None or is_given_up(session):
                continue
            if stored is SessionStatus.RUNNING and session.status is SessionStatus.TERMINATING:
                self._judge_lease(session, unit)
            if session.status in SESSION_TABLE.terminal:
                case = self.case(session, unit.live, unit.now)
                self._judge_codes(case)
                self.expect(is_true(case), f"{session.id} ended for {session.reason}: {case.ends}")

    def _note_leave(self, agent: str, leave_by: float | None) -> None:
        if leave_by is not None:
            self._left_by[agent] = min(self._left_by.get(agent, leave_by), leave_by)

    def _judge_lease(self, session: Session, unit: Unit) -> None:
        code = None if session.reason is None else session.reason.code
        preemption, began = unit.live.groups[session.group].preemption, session.started_at
        if code in _PREEMPTED and preemption is not None and began is not None:
            ran_s = unit.now - began
            right = ran_s >= preemption.minimum_lease
            self.expect(right, f"{session.id} was displaced after {ran_s:.3f} s")

    def case(self, session: Session, live: Live, now: float) -> Case:
        """The session with all that is known of it."""
        known = [
            [self._facts.known[kernel.id, each] for each in range(kernel.generation + 1)]
            for kernel in session.kernels
        ]
        work = session.id if session.job is None else session.job.id
        cancelled = work in self.scene.cancelled
        indexes = {kernel.task_index for kernel in session.kernels}
        stopped = not indexes.isdisjoint(self.scene.stopped.get(work, ()))
        lowest = self._lowest[session.id]
        return Case(
            session,
            live,
            now,
            known,
            cancelled,
            stopped,
            self._statuses.known,
            self._left_by,
            lowest,
            self._policies[session.group],
        )

    def _judge_codes(self, case: Case) -> None:
        for kernel, known, end in zip(case.session.kernels, case.known, case.ends, strict=True):
            if end is not None and kernel.ended_at is not None:
                told, true = (kernel.exit_code, kernel.signal), (end.exit_code, end.signal)
                self.expect(told == true, f"{kernel.id} ended with {told}, and not {true}")
            if end is not None and end.code is ReasonCode.AGENT_REBOOTED and known[-1].has_begun:
                why = None if kernel.reason is None else kernel.reason.code
                # The report of the next supervisor comes after the Hello of the new boot.
                is_late = why is ReasonCode.SUPERVISOR_LOST
                self.expect(
                    not is_late, f"{kernel.id} ended with its machine's boot, not for {why}"
                )


class TasksEndWithTheirCode(Invariant):
    """The exit code that is answered for a task is the one that a shell would give for its last
    attempt; not 0 where its gang was given up after it had ended."""

    says = "a task that ended by itself ends with its own exit code"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._facts = judge.of(Facts)

    def at_rest(self) -> None:
        tasks, kernels = schema.tasks, schema.kernels
        ended = select(tasks.c.job_id, tasks.c.idx, kernels.c.id, kernels.c.generation).join(
            kernels, kernels.c.id == tasks.c.kernel_id
        )
        by_itself = ended.where(
            tasks.c.status.in_([TaskState.SUCCEEDED, TaskState.FAILED]),
            kernels.c.exit_code.is_not(None),
        )
        with self.world.store.engine.connect() as connection:
            rows = connection.execute(by_itself.limit(MOST_ASKED)).all()
            for row in rows:
                known = self._facts.known[row.id, row.generation]
                if known.is_unsure or len(known.ends) != 1:
                    continue
                detail = read_task(connection, _READER, row.job_id, row.idx)
                true = known.ends[0].exit_code
                if true == 0 and detail.reason is not None and detail.reason.code in _GIVEN_UP:
                    true = exit_codes.FAILED
                if detail.reason is not None and detail.reason.code == ReasonCode.LEADER_ENDED:
                    true = 0
                told = exit_codes.of_task(detail)
                self.expect(
                    told == true,
                    f"task {row.idx} of {row.job_id} ends with {told}, and not as {known.ends}",
                )


MOST_ASKED = 8
"""Tasks that are asked about, of those that ended by themselves: each takes several queries."""
_READER = Principal(ADMIN.owner, ADMIN.role)
