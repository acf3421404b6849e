"""Gangs and sessions whose leader decides when they are over: leader."""

import pytest
from proving.hollow.supervisor import Behaviour, Run
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import kernel_index
from tests.control.world import World
from tests.databases import ON_BOTH

from muster.control.job.explanation import explain_job
from muster.control.session.explaining.explanation import explain_session
from muster.core.errors import InvalidSpec
from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.specs import JobSpec, SessionSpec
from muster.core.specs.load import load_spec
from muster.core.states import JOB_TABLE, SESSION_TABLE, JobState, SessionStatus, TaskState
from muster.store.records import Job

pytestmark = ON_BOTH

CPUS = Resources(cpu_milli=4000, memory_bytes=2**33)
GANG = {"command": ["train"], "tasks": 3, "coscheduled": True, "grace": 1}
FOR_EVER = Run(seconds=1e9)


def leads(code: int = 0, at: float = 10.0, other: Run = FOR_EVER) -> Behaviour:
    """Kernel 0 ends so, and the others run on."""
    return lambda start: Run(at, exit_code=code) if kernel_index(start) == 0 else other


def gang(world: World, **spec: object) -> Job:
    return world.submit(JobSpec.model_validate({**GANG, **spec}))


def test_good_end_of_the_leader_is_that_of_its_gang(worlds: MakeWorld) -> None:
    world = worlds({"a": CPUS}, behaviour=leads())
    job = gang(world, leader=0)
    tasks = dict(job.tasks)
    world.run_until(lambda: job.status in JOB_TABLE.terminal)

    assert job.status is JobState.SUCCEEDED
    assert [task.status for task in tasks.values()] == [TaskState.SUCCEEDED] * 3
    codes = [task.reason.code for task in tasks.values() if task.reason]
    assert codes == [ReasonCode.EXITED, ReasonCode.LEADER_ENDED, ReasonCode.LEADER_ENDED]
    assert not world.plane.live.ledger, "nothing of it is left"


def test_gang_without_a_leader_is_over_once_all_have_ended_and_why_says_so(
    worlds: MakeWorld,
) -> None:
    world = worlds({"a": CPUS}, behaviour=leads())
    job = gang(world)
    world.run(70.0)
    answer = explain_job(world.plane.live, world.cluster, job.id, world.clock.now())
    (why,) = answer.reasons
    assert why.code is ReasonCode.OTHERS_RUN_ON
    assert "1 of its 3 kernels ended well, kernel 0 first, " in why.sentence
    assert why.sentence.endswith(" ago; it is over once 2 others ended too")
    assert "`leader: 0`" in why.remedy

    assert job.status not in JOB_TABLE.terminal


@pytest.mark.parametrize("leader", [0, 1])
def test_failure_of_any_task_ends_the_gang_as_ever(worlds: MakeWorld, leader: int) -> None:
    world = worlds({"a": CPUS}, behaviour=leads(code=3))
    job = gang(world, leader=leader)
    world.run_until(lambda: job.status in JOB_TABLE.terminal)

    assert job.status is JobState.FAILED


def test_others_that_fail_because_their_leader_left_have_succeeded(worlds: MakeWorld) -> None:
    world = worlds({"a": CPUS}, behaviour=leads(at=10.0, other=Run(10.0, exit_code=1)))
    job = gang(world, leader=0)
    world.run_until(lambda: job.status in JOB_TABLE.terminal)

    assert job.status is JobState.SUCCEEDED


def test_good_end_of_the_leader_is_that_of_its_session(worlds: MakeWorld) -> None:
    world = worlds({"a": CPUS}, behaviour=leads())
    spec = {"kernels": [{"command": ["x"], "replicas": 2, "grace": 1}, {"command": ["y"]}]}
    led = world.submit_session(SessionSpec.model_validate({**spec, "leader": 0, "name": "led"}))
    after = {"command": ["z"], "after": [{"on": "led", "condition": "succeeded"}]}
    then = world.submit(JobSpec.model_validate(after))
    world.run_until(lambda: led.status in SESSION_TABLE.terminal)
    world.run(1.0)

    assert led.status is SessionStatus.TERMINATED
    assert led.reason is not None
    assert led.reason.code is ReasonCode.LEADER_ENDED
    assert then.status is not JobState.PENDING, "work may wait for its success"


def test_why_tells_what_a_session_without_a_leader_waits_for(worlds: MakeWorld) -> None:
    world = worlds({"a": CPUS}, behaviour=leads())
    spec = {"kernels": [{"command": ["x"], "replicas": 2}]}
    session = world.submit_session(SessionSpec.model_validate(spec))
    world.run(20.0)
    answer = explain_session(world.plane.live, world.cluster, session.id, world.clock.now())
    assert [why.code for why in answer.reasons] == [ReasonCode.OTHERS_RUN_ON]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("{command: x, leader: 0}", "leader is 0: this is for gangs"),
        ("{command: x, tasks: 2, coscheduled: true, leader: 2}", "leader is 2: expected one below"),
        ("{kernels: [{command: x}], kind: session, leader: 1}", "leader is 1: expected the index"),
        (
            "{kernels: [{command: x, replicas: 2}], kind: session, type: interactive, leader: 0}",
            "leader is 0: a session of type interactive is over with its first kernel",
        ),
    ],
)
def test_leader_that_cannot_lead_is_refused(spec: str, problem: str) -> None:
    with pytest.raises(InvalidSpec, match=problem):
        load_spec(spec)
