"""However little kernels ask for, an agent holds a number of them at most."""

from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.world import World

from muster.agent.supervisor.supervisor import MAX_KERNELS
from muster.control.group.requests import GroupRequests
from muster.control.session.cluster.shapes import MOST_KERNELS
from muster.control.session.explaining.explanation import explain_session
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec, ScalingGroup, SessionSpec
from muster.core.specs.amounts import ResourcesSpec
from muster.core.specs.group import MAX_KERNELS_PER_AGENT
from muster.core.states import JOB_TABLE, JobState, SessionStatus
from muster.store.records import Job, Session

NOTHING = ResourcesSpec(cpu=0)


def jobs(world: World, count: int) -> list[Job]:
    return [world.submit(JobSpec(command=["x"], resources=NOTHING)) for _ in range(count)]


def gang(world: World, kernels: int) -> Session:
    kernel = {"command": ["x"], "replicas": kernels, "resources": {"cpu": 0}}
    return world.submit_session(SessionSpec.model_validate({"kernels": [kernel]}))


def states(jobs: list[Job]) -> list[JobState]:
    return [job.status for job in jobs]


def why(world: World, session: Session) -> list[tuple[str, str]]:
    now = world.clock.now()
    told = explain_session(world.plane.live, world.cluster, session.id, now)
    return [(reason.code, reason.sentence) for reason in told.reasons]


def test_agent_that_holds_as_many_kernels_as_it_may_takes_no_more_that_ask_for_nothing(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 64}, lambda start: Run(10), kernels_per_agent=3)
    submitted = jobs(world, 4)
    world.run(1)
    assert states(submitted) == [JobState.RUNNING] * 3 + [JobState.PENDING]
    (waiting,) = (
        session
        for session in world.plane.live.sessions.values()
        if session.status is SessionStatus.PENDING
    )
    assert why(world, waiting) == [
        (
            ReasonCode.AGENTS_FULL,
            "agents of group default have what it asks for, but hold as many kernels as they may, "
            "3 each",
        )
    ]
    world.run_until(lambda: submitted[3].status in JOB_TABLE.terminal)
    assert states(submitted) == [JobState.SUCCEEDED] * 4


def test_kernels_are_counted_still_after_a_restart_of_the_controller(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 64}, lambda start: Run(10), kernels_per_agent=2)
    jobs(world, 2)
    world.run(1)
    world.restart_controller()
    (third,) = jobs(world, 1)
    world.run(1)
    assert states([third]) == [JobState.PENDING]


def test_agent_that_holds_more_kernels_than_it_may_by_now_is_said_to_be_full(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 64}, lambda start: Run(100), kernels_per_agent=3)
    jobs(world, 3)
    world.run(1)
    spec = ScalingGroup(name="default", kernels_per_agent=1)
    world.ask(lambda work, parts: parts[GroupRequests].put_group(work, spec))
    waiting = world.submit_session(
        SessionSpec.model_validate({"kernels": [{"command": ["x"], "resources": {"cpu": 1}}]})
    )
    world.run(1)
    assert [code for code, _ in why(world, waiting)] == [ReasonCode.AGENTS_FULL]


def test_group_written_with_more_kernels_for_each_agent_starts_what_waited(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 64}, lambda start: Run(100), kernels_per_agent=1)
    submitted = jobs(world, 2)
    spec = ScalingGroup(name="default", kernels_per_agent=2)
    world.ask(lambda work, parts: parts[GroupRequests].put_group(work, spec))
    assert states(submitted) == [JobState.RUNNING] * 2


def test_gang_of_more_kernels_than_the_agents_may_hold_is_told_so(group_world: MakeWorld) -> None:
    world = group_world({"a": 64, "b": 64}, lambda start: Run(10), kernels_per_agent=2)
    assert gang(world, 4).status is SessionStatus.RUNNING
    assert why(world, gang(world, 5)) == [
        (
            ReasonCode.GANG_NEVER_FITS,
            "only 4 of 5 kernels would fit in group default even if it were empty, as an agent may "
            "hold 2 (kernels_per_agent)",
        )
    ]
    assert [code for code, _ in why(world, gang(world, 3))] == [ReasonCode.AGENTS_FULL]


def test_supervisor_takes_all_that_a_controller_may_have_an_agent_hold() -> None:
    assert (MOST_KERNELS + 1) * MAX_KERNELS_PER_AGENT <= MAX_KERNELS
