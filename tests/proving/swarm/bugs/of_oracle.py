"""Bugs that the invariants of ``proving.swarm.oracle`` find."""

from dataclasses import replace
from typing import Any

import pytest
from proving.swarm.oracle import dates, explained, judgement, retries, sessions, starts
from tests.proving.swarm.bugs.registry import finds

from muster.control.agent import hello
from muster.control.agent.leases import LeaseBook
from muster.control.agent.lifecycle import lose_kernels
from muster.control.engine.retries import RetryPolicy
from muster.control.engine.work import Move
from muster.control.job import derive, settle
from muster.control.job.judge import TaskVerdict, derive_job, judge, judge_gang
from muster.control.session import lifecycle
from muster.control.session.handlers.promote import DetectTermination
from muster.control.session.lifecycle import SessionLifecycle
from muster.core import exit_codes
from muster.core.owner import Principal
from muster.core.reasons.of_kernels import AgentLost
from muster.core.reasons.of_sessions import KernelEnded
from muster.core.results import SchedulingResult
from muster.scheduling.fitting import feasibility
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.passes.placement import PlacementPass
from muster.store.records import Session


@finds(judgement.TasksAreJudged, first=2)
def failures_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    verdict = judge
    patch.setattr(settle, "judge", lambda *of: replace(verdict(*of), failure_count=0))


@finds(judgement.TasksAreJudged, first=3)
def the_last_of_a_gang_is_charged(patch: pytest.MonkeyPatch) -> None:
    verdicts = judge_gang

    def reversed_(gang: Any, budgets: Any, leader: int | None = None) -> list[TaskVerdict]:
        at = None if leader is None else len(gang) - 1 - leader
        return verdicts(gang[::-1], budgets[::-1], at)

    patch.setattr(settle, "judge_gang", reversed_)


@finds(judgement.JobsAreDerived, first=3)
def failed_tasks_are_tolerated(patch: pytest.MonkeyPatch) -> None:
    derived = derive_job
    patch.setattr(
        derive,
        "derive_job",
        lambda now, total, counts, most, **kw: derived(now, total, counts, most + 1, **kw),
    )


@finds(sessions.SessionsEndForCause, first=1)
def sessions_are_said_to_have_completed(patch: pytest.MonkeyPatch) -> None:
    promises = DetectTermination.reason
    handler = DetectTermination.__new__(DetectTermination)
    well = promises(handler, type("none", (), {"kernels": (), "leader": None}))  # type: ignore[arg-type]
    patch.setattr(DetectTermination, "reason", lambda self, record: well)


@finds(sessions.SessionsEndForCause)
def kernels_that_ended_well_are_said_to_be_at_fault(patch: pytest.MonkeyPatch) -> None:
    why = KernelEnded(index=0, how="it exited with 1")
    patch.setattr(DetectTermination, "reason", lambda self, record: why)


@finds(sessions.SessionsEndForCause, first=25)
def machines_that_rebooted_are_said_to_be_lost(patch: pytest.MonkeyPatch) -> None:
    lost = AgentLost(agent="a")
    lose = lose_kernels
    patch.setattr(
        hello,
        "lose_kernels",
        lambda work, agent, keys, why, *of: lose(work, agent, keys, lost, *of),
    )


@finds(sessions.TasksEndWithTheirCode, first=6)
def failed_tasks_end_with_two(patch: pytest.MonkeyPatch) -> None:
    code = exit_codes.of_task
    patch.setattr(exit_codes, "of_task", lambda task: 2 if code(task) else 0)


@finds(dates.EndsAreDated, first=1)
def clocks_of_machines_are_believed(patch: pytest.MonkeyPatch) -> None:
    news = LeaseBook.take_news
    patch.setattr(
        LeaseBook, "take_news", lambda self: {id_: (at, 0.0) for id_, (at, _) in news(self).items()}
    )


@finds(dates.EndsAreDated, first=16)
def losses_are_dated_when_they_are_found(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaseBook, "silent_since", lambda self, agent: self._clock.now())


@finds(starts.StartsAreCharged, first=1)
def whatever_is_taken_back_is_charged(patch: pytest.MonkeyPatch) -> None:
    back = SessionLifecycle._back_in_queue

    def charged(self: SessionLifecycle, session: Session, now: float, move: Move) -> None:
        back(self, session, now, move._replace(result=SchedulingResult.NEED_RETRY))

    patch.setattr(SessionLifecycle, "_back_in_queue", charged)


@finds(starts.StartsAreCharged, first=2)
def failed_placements_are_not_charged(patch: pytest.MonkeyPatch) -> None:
    back = SessionLifecycle._back_in_queue

    def uncharged(self: SessionLifecycle, session: Session, now: float, move: Move) -> None:
        charges = session.reschedules
        back(self, session, now, move)
        session.reschedules = charges

    patch.setattr(SessionLifecycle, "_back_in_queue", uncharged)


@finds(starts.StartsAreCharged, first=2)
def failures_that_nothing_cures_are_tried_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lifecycle, "_FINAL", frozenset())


@finds(explained.RefusalsHold, first=121)
def no_pass_follows_a_session_that_leaves_the_queue(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupState, "withdraw", GroupState.leave_queue)


@finds(explained.RefusalsHold, first=1)
def full_agents_are_said_to_be_silent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(feasibility, "_remedy_of", lambda status: "silent")


@finds(explained.RefusalsHold, first=2)
def agents_that_hold_as_many_kernels_as_they_may_are_said_to_lack_room(
    patch: pytest.MonkeyPatch,
) -> None:
    patch.setattr(feasibility.Feasibility, "most_kernels", lambda *of: 0)


@finds(explained.WhyIsAnswered, first=5)
def everybody_is_said_to_be_next(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PlacementPass, "ahead_of", lambda self, session: 0)


@finds(explained.WhyIsAnswered, first=1)
def everything_is_explained_to_everybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Principal, "is_admin", True)


@finds(retries.RetriesArePutOff)
def tasks_are_tried_again_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settle, "failure_backoff", lambda spec: RetryPolicy(9, 0.0))


@finds(retries.RetriesArePutOff)
def machines_that_failed_a_task_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settle, "_remember_agent", lambda task, kernel: None)


@finds(judgement.TasksAreJudged, first=28)
def time_limits_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    verdict = judge
    patch.setattr(settle, "judge", lambda *of: replace(verdict(*of), timed_out=False))


@finds(judgement.TasksAreJudged)
def followers_of_a_leader_are_said_to_have_failed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settle, "_leader", lambda session, kernels: None)
