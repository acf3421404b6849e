"""The next try of a task that failed: on another machine where one has room, and after a wait that
grows with each failure."""

import itertools
from functools import partial

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.world import World
from tests.databases import ON_BOTH

from muster.control.job.explanation import explain_job
from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, JobState
from muster.store.records import Job
from muster.wire.messages import Start

pytestmark = ON_BOTH

CPUS = Resources(cpu_milli=4000, memory_bytes=2**33)
FLAKY = JobSpec(command=["flaky"], max_retries_failure=3)
FAILS = Run(seconds=0.0, exit_code=1)
STEP_S = 0.01
LATE_S = 0.2
"""By how much time may be ahead when something is noticed here."""
Begun = list[tuple[str, float]]
"""The machine of each attempt, in their order, and when it began."""


def observed(world: World, runs: dict[str, Run]) -> Begun:
    """Have the attempts on each machine run like this, and note them."""
    begun: Begun = []

    def run_on(name: str, start: Start) -> Run:
        begun.append((name, world.clock.now()))
        return runs[name]

    for agent in world.agents.values():
        agent.behaviour = partial(run_on, agent.name)
    return begun


def waits(begun: Begun) -> list[float]:
    """The seconds between the attempts."""
    moments = [at for _, at in begun]
    return [later - at for at, later in itertools.pairwise(moments)]


def about(*seconds: float) -> object:
    return pytest.approx(seconds, abs=LATE_S)


def end(world: World, spec: JobSpec) -> Job:
    """The job once it has ended."""
    job = world.submit(spec)
    world.run_until(lambda: job.status in JOB_TABLE.terminal, step_s=STEP_S)
    return job


def test_task_that_failed_is_tried_at_once_on_another_machine(worlds: MakeWorld) -> None:
    world = worlds({"a": CPUS, "b": CPUS})
    begun = observed(world, {"a": FAILS, "b": FAILS})
    job = end(world, JobSpec(command=["flaky"], max_retries_failure=1))

    assert {name for name, _ in begun} == {"a", "b"}
    assert waits(begun) == about(0)
    assert job.status is JobState.FAILED


def test_task_goes_back_to_the_machine_that_failed_it_where_no_other_has_room(
    worlds: MakeWorld,
) -> None:
    world = worlds({"a": CPUS})
    begun = observed(world, {"a": FAILS})
    end(world, FLAKY)

    assert [name for name, _ in begun] == ["a"] * 4
    assert waits(begun) == about(0, 1, 2)


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({"retry_backoff": 0}, (0, 0, 0)),
        ({"retry_backoff": "1s"}, (1, 2, 4)),
        ({"retry_backoff": "1s", "max_retry_backoff": "1500ms"}, (1, 1.5, 1.5)),
        ({"retry_backoff": "3s", "max_retry_backoff": "1s"}, (3, 3, 3)),
        ({"max_retry_backoff": "1s"}, (0, 1, 1)),
    ],
)
def test_waits_between_tries_are_those_that_the_job_asks_for(
    worlds: MakeWorld, spec: dict[str, object], seconds: tuple[float, ...]
) -> None:
    world = worlds({"a": CPUS})
    begun = observed(world, {"a": FAILS})
    end(world, JobSpec.model_validate({**FLAKY.model_dump(), **spec}))

    assert waits(begun) == about(*seconds)


def test_waits_and_machines_outlast_a_restart_of_the_controller(worlds: MakeWorld) -> None:
    world = worlds({"a": CPUS, "b": CPUS})
    begun = observed(world, {"a": FAILS, "b": FAILS})
    id_ = world.submit(JobSpec(command=["flaky"], max_retries_failure=1, retry_backoff=60)).id
    world.run(1.0)
    world.restart_controller()
    world.run(57.0)
    assert len(begun) == 1
    [task] = world.plane.live.jobs[id_].tasks.values()
    assert [world.plane.live.agents[each].name for each in task.failed_agents] == [begun[0][0]]

    world.run(5.0)
    assert {name for name, _ in begun} == {"a", "b"}


def test_why_tells_when_the_next_try_is(worlds: MakeWorld) -> None:
    world = worlds({"a": CPUS})
    observed(world, {"a": FAILS})
    job = world.submit(JobSpec(command=["flaky"], tasks=3, max_retries_failure=1, retry_backoff=60))
    world.run(10.0)
    answer = explain_job(world.plane.live, world.cluster, job.id, world.clock.now())

    (why,) = answer.reasons
    assert why.code is ReasonCode.TASK_RETRY_BACKOFF
    assert why.sentence == (
        "task 0 failed 1 time, the last time on agent a, and is tried again in 50.5 s; 2 more "
        "tasks wait to be tried again"
    )


def test_gang_of_which_one_failed_waits_and_goes_elsewhere_whole(worlds: MakeWorld) -> None:
    world = worlds({"a": CPUS, "b": CPUS})
    begun = observed(world, {"a": FAILS, "b": Run(seconds=1)})
    gang = {"command": ["gang"], "tasks": 2, "coscheduled": True, "resources": {"cpu": 2}}
    rule = {
        "placement": {"agents": ["a"], "agents_only": False},
        "max_retries_failure": 1,
        "retry_backoff": 2,
    }
    first = end(world, JobSpec.model_validate({**gang, **rule}))

    assert first.status is JobState.SUCCEEDED
    assert [name for name, _ in begun] == ["a", "a", "b", "b"]
    assert waits(begun) == about(0, 2, 0)


def test_machine_that_was_lost_is_avoided_too(worlds: MakeWorld) -> None:
    world = worlds({"a": CPUS, "b": CPUS})
    begun = observed(world, {"a": Run(seconds=1e9), "b": Run(seconds=1e9)})
    world.submit(FLAKY)
    world.run(1.0)
    [(first, _)] = begun
    world.agent(first).reboot()
    world.connect(world.agent(first))
    world.run(1.0)

    assert [name for name, _ in begun] == [first, "b" if first == "a" else "a"]


def test_job_begins_no_new_tasks_while_many_wait_to_be_tried_again(
    worlds: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.control.job.expand.MOST_WAITING", 10)
    world = worlds({"a": CPUS})
    observed(world, {"a": FAILS})
    sweep = JobSpec(
        command=["x"], tasks=1000, keep_going=True, max_retries_failure=1, retry_backoff=60
    )
    job = world.submit(sweep)
    world.run(30.0)

    assert 10 <= len(job.waiting) < 20
    assert job.next_task == len(job.waiting)
