"""Work that starts after other work has come so far."""

import math

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld, cpus
from tests.control.world import ADA, World
from tests.databases import ON_BOTH

from muster.control.job.requests import JobRequests
from muster.control.session.requests import SessionRequests
from muster.core.errors import InvalidSpec
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec, SessionSpec
from muster.core.states import JOB_TABLE, JobState, SessionStatus
from muster.store.records import Job
from muster.wire.messages import Start

pytestmark = ON_BOTH


def named(name: str, *after: str, **more: object) -> JobSpec:
    return JobSpec.model_validate({"name": name, "command": [name], "after": after, **more})


class Script:
    """Programs by name: how long each runs and how it ends; and the order of their starts."""

    def __init__(self, **runs: Run) -> None:
        self._runs = runs
        self.started: list[str] = []

    def __call__(self, start: Start) -> Run:
        name = start.template.command[0]
        self.started.append(name)
        return self._runs.get(name, Run(1))


def finish(world: World, *jobs: Job) -> None:
    world.run_until(lambda: all(job.status in JOB_TABLE.terminal for job in jobs))


@pytest.mark.parametrize("restart", [False, True])
def test_chain_of_jobs_starts_in_its_order(group_world: MakeWorld, restart: bool) -> None:
    script = Script()
    world = group_world({"a": 8}, script)
    world.submit(named("prepare", tasks=3))
    world.submit(named("train", "prepare"))
    last = world.submit(named("report", "train:ended", "prepare"))
    assert script.started == ["prepare"] * 3
    if restart:
        world.restart_controller()
    world.run_until(lambda: last.id not in world.plane.live.jobs)
    assert script.started == ["prepare"] * 3 + ["train", "report"]


@pytest.mark.parametrize(
    ("condition", "starts_at_s"), [("running", 0.5), ("succeeded", 3.0), ("ended", 3.0)]
)
def test_condition_on_live_work_is_met_at_its_moment(
    group_world: MakeWorld, condition: str, starts_at_s: float
) -> None:
    script = Script(first=Run(3))
    world = group_world({}, script)
    first = world.submit(named("first"))
    second = world.submit(named("second", f"first:{condition}"))
    began = world.clock.now()
    world.add_agent("a", cpus(8))
    world.run_until(lambda: "second" in script.started)
    assert world.clock.now() - began <= starts_at_s
    assert script.started == ["first", "second"]
    finish(world, first, second)
    assert second.status is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("condition", "exit_code"),
    [("succeeded", 0), ("running", 0), ("ended", 0), ("ended", 1), ("failed", 1)],
)
def test_condition_that_work_which_has_ended_meets_holds_up_nothing(
    group_world: MakeWorld, condition: str, exit_code: int
) -> None:
    script = Script(first=Run(1, exit_code=exit_code))
    world = group_world({"a": 2}, script)
    first = world.submit(named("first"))
    finish(world, first)
    second = world.submit(named("second", f"{first.id}:{condition}"))
    finish(world, second)
    assert second.status is JobState.SUCCEEDED


@pytest.mark.parametrize("condition", ["succeeded", "running"])
def test_condition_that_work_which_has_failed_cannot_meet_is_refused_at_submission(
    group_world: MakeWorld, condition: str
) -> None:
    world = group_world({"a": 2}, Script(first=Run(1, exit_code=1)))
    finish(world, world.submit(named("first")))
    with pytest.raises(InvalidSpec, match=r"after\.0 .*ended without success"):
        world.submit(named("second", f"first:{condition}"))
    assert not world.plane.live.jobs


def test_failure_of_work_that_has_succeeded_is_not_waited_for(group_world: MakeWorld) -> None:
    world = group_world({"a": 2}, Script())
    finish(world, world.submit(named("first")))
    with pytest.raises(InvalidSpec, match=r"after\.0 .*first has failed.*: it succeeded"):
        world.submit(named("cleanup", "first:failed"))
    assert not world.plane.live.jobs


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("end", "cleaned_up"), [("fails", True), ("cancelled", True), ("succeeds", False)]
)
def test_cleanup_starts_once_the_other_has_not_succeeded_and_ends_unscheduled_if_it_has(
    group_world: MakeWorld, end: str, cleaned_up: bool, restart: bool
) -> None:
    script = Script(first=Run(5, exit_code=int(end == "fails")))
    world = group_world({"a": 8}, script)
    first = world.submit(named("first"))
    cleanup = world.submit(named("cleanup", "first:failed"))
    alone = {"kernels": [{"command": ["session"]}], "after": ["first:failed"]}
    session = world.submit_session(SessionSpec.model_validate(alone))
    world.run(1)
    assert script.started == ["first"]
    if restart:
        world.restart_controller()
        cleanup, session = world.plane.live.jobs[cleanup.id], world.plane.live.sessions[session.id]
    if end == "cancelled":
        world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, first.id))
    finish(world, cleanup)
    world.run_until(lambda: session.id not in world.plane.live.sessions)

    if cleaned_up:
        assert sorted(script.started) == ["cleanup", "first", "session"]
        assert (cleanup.status, session.status) == (JobState.SUCCEEDED, SessionStatus.TERMINATED)
        return
    assert script.started == ["first"]
    assert (cleanup.status, session.status) == (JobState.UNSCHEDULABLE, SessionStatus.CANCELLED)
    for record in (cleanup, session):
        assert record.reason is not None
        assert record.reason.code is ReasonCode.DEPENDENCY_SUCCEEDED
        assert record.reason.sentence() == (
            "waits until first has failed, which can no longer be: it succeeded"
        )


@pytest.mark.parametrize("by", ["cancel", "timeout"])
@pytest.mark.parametrize("restart", [False, True])
def test_session_that_was_stopped_has_not_succeeded_though_it_exits_with_0(
    group_world: MakeWorld, by: str, restart: bool
) -> None:
    world = group_world({"a": 8}, Script(serve=Run(1e9, stopped_exit_code=0)))
    spec = {"name": "server", "kernels": [{"command": ["serve"]}]}
    limit = {"timeout": 3.0} if by == "timeout" else {}
    first = world.submit_session(SessionSpec.model_validate(spec | limit))
    second = world.submit(named("second", "server:succeeded"))
    if restart:
        world.restart_controller()
        second = world.plane.live.jobs[second.id]
    if by == "cancel":
        world.ask(lambda work, parts: parts[SessionRequests].cancel(work, ADA, first.id))
    finish(world, second)
    assert second.status is JobState.UNSCHEDULABLE
    with pytest.raises(InvalidSpec, match="ended without success"):
        world.submit(named("third", f"{first.id}:succeeded"))


def test_job_whose_only_task_is_being_started_does_not_run_yet(group_world: MakeWorld) -> None:
    script = Script(first=Run(5, creating_s=4.0))
    world = group_world({"a": 8}, script)
    first = world.submit(named("first"))
    world.submit(named("second", "first:running"))
    world.run(3.0)
    assert first.status is JobState.RUNNING, "a task is assigned"
    assert script.started == ["first"]
    world.run(1.5)
    assert script.started == ["first", "second"]
    assert first.started_at == world.clock.now() - 0.5


@pytest.mark.parametrize("condition", ["ended", "failed"])
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_work_after_the_end_waits_until_no_process_is_left(
    group_world: MakeWorld, alone: bool, restart: bool, condition: str
) -> None:
    script = Script(first=Run(1e9, stubborn=True, outlives_kill_s=math.inf))
    world = group_world({"a": 8}, script, terminate_timeout=5.0)
    if alone:
        session = {"name": "first", "kernels": [{"command": ["first"], "grace": 1}]}
        id_ = world.submit_session(SessionSpec.model_validate(session)).id
        world.ask(lambda work, parts: parts[SessionRequests].cancel(work, ADA, id_))
    else:
        job_id = world.submit(named("first", grace=1)).id
        world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, job_id))
    world.submit(named("second", f"first:{condition}"))
    world.run(20.0)  # longer than termination may take: it counts as ended, and still runs
    assert world.plane.live.ledger
    if restart:
        world.restart_controller()
    late = world.submit(named("third", "second:ended", "first:ended"))
    world.run(5.0)
    assert script.started == ["first"]
    world.agent("a").reboot()
    world.connect(world.agent("a"))
    finish(world, late)
    assert script.started == ["first", "second", "third"]


def test_missing_work_is_refused_with_the_field_and_nothing_is_written(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 2})
    there = world.submit(named("there"))
    with pytest.raises(InvalidSpec) as caught:
        world.submit(named("second", "there", "nowhere"))
    assert "after.1.on" in str(caught.value)
    assert "'nowhere'" in str(caught.value)
    assert list(world.plane.live.jobs) == [there.id]


@pytest.mark.parametrize("restart", [False, True])
def test_work_whose_dependency_fails_later_is_unschedulable_and_says_why(
    group_world: MakeWorld, restart: bool
) -> None:
    script = Script(first=Run(5, exit_code=3))
    world = group_world({"a": 8}, script)
    world.submit(named("first"))
    second = world.submit(named("second", "first", tasks=4))
    third = world.submit(named("third", "second:ended"))
    if restart:
        world.restart_controller()
        second, third = (world.plane.live.jobs[each.id] for each in (second, third))
    finish(world, second, third)

    assert second.status is JobState.UNSCHEDULABLE
    assert second.reason is not None
    assert second.reason.code is ReasonCode.DEPENDENCY_FAILED
    assert second.reason.sentence().startswith("waits until first has succeeded, which can no long")
    assert third.status is JobState.SUCCEEDED, "it waited for the end, however that came"
    assert script.started == ["first", "third"]


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_session_may_be_waited_for_and_may_wait(
    group_world: MakeWorld, by_name: bool, restart: bool
) -> None:
    script = Script(serve=Run(2))
    world = group_world({"a": 8}, script)
    spec = {"name": "server", "kernels": [{"command": ["serve"]}]}
    first = world.submit_session(SessionSpec.model_validate(spec))
    if restart:
        world.restart_controller()
        first = world.plane.live.sessions[first.id]
    after = [f"{'server' if by_name else first.id}:succeeded"]
    second = world.submit_session(
        SessionSpec.model_validate({"kernels": [{"command": ["use"]}], "after": after})
    )
    world.run(1)
    assert (first.status, second.status) == (SessionStatus.RUNNING, SessionStatus.PENDING)
    world.run_until(lambda: second.status is SessionStatus.TERMINATED)
    assert script.started == ["serve", "use"]


def test_nothing_is_followed_that_nobody_waits_for_any_more(group_world: MakeWorld) -> None:
    world = group_world({"a": 8})
    first = world.submit(named("first"))
    second = world.submit(named("second", "first", first.id))
    assert list(world.cluster.dependencies._progress) == [first.id]
    finish(world, first, second)
    assert not world.cluster.dependencies._progress
