"""Work that is cancelled with force: its processes are killed at once, and their room is theirs
until they are proven gone."""

import math

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.world import ADA, World

from muster.control.job.requests import JobRequests
from muster.control.session.lifecycle import STOP_AGAIN_AFTER_S
from muster.control.session.requests import SessionRequests
from muster.core.errors import NotFound
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec, SessionSpec
from muster.core.states import JobState, SessionStatus
from muster.store.records import Job, Session
from muster.wire.messages import Start, Stop

GRACE_S = 300.0
STUBBORN = Run(1e9, stubborn=True, outlives_kill_s=math.inf)


def job(world: World) -> Job:
    return world.submit(JobSpec(command=["x"], grace=GRACE_S))


def cancel(world: World, of: Job, *, force: bool = False) -> Job:
    found: Job = world.ask(
        lambda work, parts: parts[JobRequests].cancel(work, ADA, of.id, force=force)
    )
    return found


def stops(world: World) -> list[float]:
    """The graces of the Stops that came to the agent."""
    return [each.grace_s for each in world.agent("a").commands if isinstance(each, Stop)]


def state(of: Job) -> JobState:
    return of.status


def why(session: Session) -> str:
    assert session.reason is not None
    return session.reason.sentence()


def test_cancelled_work_has_its_grace_and_with_force_none(group_world: MakeWorld) -> None:
    world = group_world({"a": 2}, lambda start: STUBBORN)
    first, second = job(world), job(world)
    cancel(world, first)
    world.run(1)
    assert stops(world) == [GRACE_S]
    cancel(world, second, force=True)
    world.run(1)
    assert stops(world) == [GRACE_S, 0.0]
    assert second.reason is not None
    assert second.reason.sentence() == "cancelled by ada, with force"


def test_job_that_was_cancelled_before_is_killed_though_it_has_ended(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 1}, lambda start: STUBBORN)
    slow = job(world)
    session = world.only_session()
    cancel(world, slow)
    world.run(1)
    assert slow.status is JobState.KILLED
    assert session.status is SessionStatus.TERMINATING
    assert cancel(world, slow, force=True).status is JobState.KILLED
    world.run(1)
    assert stops(world) == [GRACE_S, 0.0]
    assert why(session) == "cancelled by ada, with force"
    cancel(world, slow, force=True)
    world.run(1)
    assert stops(world) == [GRACE_S, 0.0], "it is told once"


def test_killed_work_is_told_again_soon(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: STUBBORN)
    cancel(world, job(world), force=True)
    world.run(STOP_AGAIN_AFTER_S + 1)
    assert stops(world) == [0.0, 0.0]


def test_room_of_killed_work_is_free_once_its_agent_says_so(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: STUBBORN, terminate_timeout=10)
    cancel(world, job(world), force=True)
    following = job(world)
    world.run(GRACE_S + 60)
    assert world.plane.live.ledger, "its process may be alive"
    assert state(following) == JobState.PENDING
    world.agent("a").reboot()
    world.connect(world.agent("a"))
    world.run(5)
    assert state(following) == JobState.RUNNING


def test_killed_work_on_an_agent_that_is_away_is_killed_when_it_is_back(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 1}, lambda start: Run(1e9))
    away = job(world)
    world.run(1)
    world.disconnect(world.agent("a"))
    cancel(world, away, force=True)
    world.run(5)
    assert world.plane.live.ledger
    world.connect(world.agent("a"))
    world.run(1)
    assert stops(world) == [0.0]
    assert not world.plane.live.ledger


def test_session_that_ends_already_is_killed_too(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: STUBBORN)
    kernel = {"command": ["x"], "grace": GRACE_S}
    session = world.submit_session(SessionSpec.model_validate({"kernels": [kernel]}))
    world.ask(lambda work, parts: parts[SessionRequests].cancel(work, ADA, session.id))
    world.run(1)
    world.ask(lambda work, parts: parts[SessionRequests].cancel(work, ADA, session.id, force=True))
    world.run(1)
    assert stops(world) == [GRACE_S, 0.0]
    assert session.reason is not None
    assert session.reason.code is ReasonCode.CANCELLED


def test_force_survives_a_restart_of_the_controller(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: STUBBORN)
    cancel(world, job(world), force=True)
    world.restart_controller()
    world.connect_again()
    world.connect(world.agent("a"))
    world.run(1)
    assert set(stops(world)) == {0.0}


def test_nothing_is_killed_of_a_job_that_is_gone(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: Run(1))
    done = job(world)
    world.run(5)
    with pytest.raises(NotFound):
        cancel(world, done, force=True)


def test_kill_that_is_given_up_frees_no_room(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: STUBBORN, terminate_timeout=10)
    cancel(world, job(world), force=True)
    session = world.only_session()
    world.run(30)
    assert session.status is SessionStatus.TERMINATED
    assert world.plane.live.ledger, "the agent has not confirmed that its process is gone"


def test_stops_that_an_agent_cannot_hear_end_no_session(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: STUBBORN, terminate_timeout=10)
    away = job(world)
    session = world.only_session()
    world.disconnect(world.agent("a"))
    cancel(world, away, force=True)
    world.run(60)
    assert session.status is SessionStatus.TERMINATING
    assert session.tries == 0


def test_job_that_failed_by_itself_stays_failed_when_what_is_left_of_it_is_killed(
    group_world: MakeWorld,
) -> None:
    def first_fails(start: Start) -> Run:
        return Run(5, exit_code=1) if start.env["MUSTER_TASK_INDEX"] == "0" else STUBBORN

    world = group_world({"a": 4}, first_fails)
    failed = world.submit(JobSpec(command=["x"], tasks=2, grace=GRACE_S))
    world.run(10)
    (left,) = world.plane.live.sessions.values()
    assert (state(failed), left.status) == (JobState.FAILED, SessionStatus.TERMINATING)
    assert failed.reason is not None
    before, of_session = failed.reason.sentence(), why(left)
    answered = cancel(world, failed, force=True)
    world.run(1)
    assert answered.status is JobState.FAILED
    assert answered.reason is not None
    assert answered.reason.sentence() == before
    assert why(left) == of_session
    assert stops(world) == [GRACE_S, 0.0]


def test_session_that_ends_for_its_timeout_keeps_that_reason_when_it_is_killed(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 1}, lambda start: STUBBORN)
    kernel = {"command": ["x"], "grace": GRACE_S}
    spec = SessionSpec.model_validate({"type": "batch", "timeout": 10, "kernels": [kernel]})
    session = world.submit_session(spec)
    world.run(20)
    assert session.status is SessionStatus.TERMINATING
    world.ask(lambda work, parts: parts[SessionRequests].cancel(work, ADA, session.id, force=True))
    world.run(1)
    assert session.reason is not None
    assert session.reason.code is ReasonCode.TIMEOUT
    assert stops(world) == [GRACE_S, 0.0]
