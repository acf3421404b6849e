"""Agents that are emptied: what they run has a while to end, then it runs elsewhere."""

import math

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.scenarios import deaf_to
from tests.control.world import ADA, World

from muster.control.agent.requests import AgentRequests
from muster.control.job.explanation import explain_job
from muster.control.job.requests import JobRequests
from muster.control.session.lifecycle import SessionLifecycle
from muster.core.errors import Conflict
from muster.core.ids import AgentId
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_sessions import Preempted
from muster.core.specs import JobSpec, SessionSpec
from muster.core.states import AgentBar, JobState, SessionStatus, TaskState
from muster.store.queries.tasks import read_task
from muster.store.records import Job, Session, Task
from muster.wire.messages import Commands, ControllerMessage, Start, Stop

WORK = JobSpec(command=["work"])
BATCH = SessionSpec.model_validate({"type": "batch", "kernels": [{"command": ["work"]}]})


def drain(world: World, name: str, within_s: float | None) -> None:
    id_ = world.agent(name).id
    world.ask(
        lambda work, parts: parts[AgentRequests].bar(
            work, ADA, id_, AgentBar.DRAINING, "new disk", within_s
        )
    )


def remove(world: World, id_: AgentId) -> None:
    world.ask(lambda work, parts: parts[AgentRequests].remove(work, ADA, id_))


def where(world: World, job: Job) -> set[str]:
    """The agents on which its kernels run."""
    running = {key for agent in world.agents.values() for key in agent.running}
    found = [
        kernel.agent_id
        for session in world.plane.live.sessions.values()
        for kernel in session.kernels
        if session.job is job and (kernel.id, kernel.generation) in running and kernel.agent_id
    ]
    return {world.agents[id_].name for id_ in found}


def test_work_that_ends_before_the_deadline_is_left_alone(group_world: MakeWorld) -> None:
    world = group_world({"a": 2}, lambda start: Run(20.0))
    job = world.submit(WORK)
    drain(world, "a", 60.0)
    world.run(70.0)
    assert job.status is JobState.SUCCEEDED
    assert len(world.agent("a").starts) == 1


def test_work_past_the_deadline_runs_elsewhere_and_charges_no_failure(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 1, "b": 1}, lambda start: Run(1000.0))
    first, second = world.submit(WORK), world.submit(WORK)
    world.run(1.0)
    (at,) = where(world, first)
    other = {"a": "b", "b": "a"}[at]
    drain(world, at, 60.0)
    world.run(50.0)
    assert where(world, first) == {at}
    world.run(20.0)
    task = first.tasks[0]
    assert (task.status, task.failure_count, task.preemption_count) == (TaskState.PENDING, 0, 1)
    assert where(world, second) == {other}
    world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, second.id))
    world.run(5.0)
    assert where(world, first) == {other}
    assert task.attempt == 2
    with world.store.engine.connect() as connection:
        former, _ = read_task(connection, ADA, first.id, 0).attempts
    assert former.reason is not None
    assert former.reason.code == ReasonCode.DRAINED, "and not that somebody stopped it"


def test_agent_is_told_in_words_why_it_is_to_stop_a_kernel(group_world: MakeWorld) -> None:
    world = group_world({"a": 1, "b": 1}, behaviour=lambda start: Run(1e9))
    job = world.submit(JobSpec(command=["x"]))
    world.run(2.0)
    (name,) = where(world, job)
    told: list[str] = []
    obey = world.agent(name).hear

    def receive(message: ControllerMessage) -> None:
        if isinstance(message, Commands):
            told.extend(each.reason for each in message.commands if isinstance(each, Stop))
        obey(message)

    world.agent(name).hear = receive  # type: ignore[method-assign]
    drain(world, name, 0.0)
    world.run(2.0)
    assert told[0].startswith(f"agent {name} was drained (new disk)")


def test_drain_at_once_empties_the_agent_and_it_can_be_removed(group_world: MakeWorld) -> None:
    world = group_world({"a": 4}, lambda start: Run(1000.0))
    jobs = [world.submit(WORK) for _ in range(3)]
    world.run(1.0)
    id_ = world.agent("a").id
    with pytest.raises(Conflict, match="is alive: stop it, or empty it with `muster drain a`"):
        remove(world, id_)
    drain(world, "a", 0.0)
    world.run(2.0)
    assert not world.plane.live.ledger
    assert all(job.tasks[0].status is TaskState.PENDING for job in jobs)
    remove(world, id_)
    assert id_ not in world.plane.live.agents


def test_agent_whose_processes_are_not_proven_gone_is_never_removed(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 4}, lambda start: Run(1e9, stubborn=True, outlives_kill_s=math.inf))
    world.submit(WORK)
    world.run(1.0)
    drain(world, "a", 0.0)
    world.run(100.0)
    with pytest.raises(Conflict, match="may still run 1 kernel:"):
        remove(world, world.agent("a").id)


def drain_once_it_is_creating(world: World, during_s: float) -> Session:
    """Have the agent's reports be late, and drain it at once after this time; the session that was
    being started there."""
    agent = world.agent("a")
    session = world.only_session()
    world.disconnect(agent)
    world.plane.step()
    assert session.status is SessionStatus.CREATING
    world.run(during_s)
    drain(world, "a", 0.0)
    return session


def late_starter(group_world: MakeWorld, seconds: float) -> World:
    world = group_world({"a": 1, "b": 1}, lambda start: Run(seconds, creating_s=1.0))
    drain(world, "b", None)
    return world


def leave_b_to_work(world: World) -> None:
    world.connect(world.agent("a"))
    id_ = world.agent("b").id
    world.ask(lambda work, parts: parts[AgentRequests].bar(work, ADA, id_, None, "", None))


def displaced_task(
    group_world: MakeWorld, seconds: float, during_s: float
) -> tuple[World, Job, Task]:
    """A job and its task, which runs for ``seconds`` on a machine that is away and drained
    ``during_s`` later, a minute after that machine is back and the other one takes work.
    """
    world = late_starter(group_world, seconds)
    job = world.submit(WORK)
    task = job.tasks[0]
    drain_once_it_is_creating(world, during_s)
    leave_b_to_work(world)
    world.run(60.0)
    return world, job, task


def test_task_that_had_ended_well_before_it_was_displaced_does_not_run_again(
    group_world: MakeWorld,
) -> None:
    world, job, task = displaced_task(group_world, seconds=1.0, during_s=3.3)
    assert job.status is JobState.SUCCEEDED
    assert (task.attempt, task.preemption_count) == (1, 0)
    assert [len(world.agent(name).starts) for name in "ab"] == [1, 0]


def test_task_that_had_ended_well_before_it_was_preempted_does_not_run_again(
    group_world: MakeWorld,
) -> None:
    world = late_starter(group_world, seconds=1.0)
    job = world.submit(WORK)
    session = world.only_session()
    world.disconnect(world.agent("a"))
    world.run(3.3)
    assert session.status is SessionStatus.CREATING
    why = Preempted(priority=99)
    world.ask(
        lambda work, parts: parts[SessionLifecycle].preempt(work, session, "Test", why, again=True)
    )
    leave_b_to_work(world)
    world.run(60.0)
    assert job.status is JobState.SUCCEEDED
    assert [len(world.agent(name).starts) for name in "ab"] == [1, 0]


def test_batch_session_that_had_ended_well_before_it_was_displaced_does_not_run_again(
    group_world: MakeWorld,
) -> None:
    world = late_starter(group_world, seconds=1.0)
    world.submit_session(BATCH)
    session = drain_once_it_is_creating(world, during_s=3.3)
    leave_b_to_work(world)
    world.run(60.0)
    assert (session.status, session.kernels[0].exit_code) == (SessionStatus.TERMINATED, 0)
    assert [len(world.agent(name).starts) for name in "ab"] == [1, 0]


def displaced_session(
    group_world: MakeWorld, seconds: float, during_s: float
) -> tuple[World, Session]:
    """The same of a batch session without a job, which nobody would begin anew."""
    world = late_starter(group_world, seconds)
    world.submit_session(BATCH)
    session = drain_once_it_is_creating(world, during_s)
    leave_b_to_work(world)
    world.run(60.0)
    return world, session


def test_batch_session_that_never_began_before_it_was_displaced_runs_elsewhere(
    group_world: MakeWorld,
) -> None:
    world, session = displaced_session(group_world, seconds=1.0, during_s=0.5)
    assert (session.status, session.kernels[0].exit_code) == (SessionStatus.TERMINATED, 0)
    assert len(world.agent("b").starts) == 1


def test_batch_session_that_ran_when_it_was_displaced_ends_and_says_why(
    group_world: MakeWorld,
) -> None:
    world, session = displaced_session(group_world, seconds=1000.0, during_s=3.3)
    assert session.status is SessionStatus.TERMINATED
    assert session.reason is not None
    assert session.reason.code is ReasonCode.DRAINED
    assert [len(world.agent(name).starts) for name in "ab"] == [1, 0]


@pytest.mark.parametrize("restart", [False, True])
def test_batch_session_whose_start_was_lost_runs_elsewhere_once_its_agent_says_so(
    group_world: MakeWorld, restart: bool
) -> None:
    world = group_world({"a": 1, "b": 1}, lambda start: Run(1.0))
    drain(world, "b", None)
    deaf_to(Start, world.agent("a"))
    world.submit_session(BATCH)
    world.plane.step()
    session = world.only_session()
    assert session.status is SessionStatus.CREATING
    if restart:  # with the Stop on its way
        world.disconnect(world.agent("a"))
        drain(world, "a", 0.0)
        world.restart_controller()
        session = world.only_session()
    else:
        drain(world, "a", 0.0)
    leave_b_to_work(world)
    world.run(60.0)
    assert (session.status, session.kernels[0].exit_code) == (SessionStatus.TERMINATED, 0)
    assert [len(world.agent(name).starts) for name in "ab"] == [0, 1]


def test_task_that_never_began_before_it_was_displaced_runs_elsewhere_and_is_charged_nothing(
    group_world: MakeWorld,
) -> None:
    world, job, task = displaced_task(group_world, seconds=1.0, during_s=0.5)
    assert job.status is JobState.SUCCEEDED
    assert (task.failure_count, task.preemption_count) == (0, 0)
    assert len(world.agent("b").starts) == 1


def test_task_that_ran_on_when_it_was_displaced_runs_elsewhere_and_charges_a_preemption(
    group_world: MakeWorld,
) -> None:
    world, job, task = displaced_task(group_world, seconds=30.0, during_s=3.3)
    assert job.status is JobState.SUCCEEDED
    assert (task.failure_count, task.preemption_count) == (0, 1)
    assert [len(world.agent(name).starts) for name in "ab"] == [1, 1]


def test_gang_leaves_whole_and_starts_again_whole(group_world: MakeWorld) -> None:
    world = group_world({"a": 1, "b": 1, "c": 1}, lambda start: Run(1000.0))
    gang = world.submit(JobSpec(command=["gang"], tasks=2, coscheduled=True))
    world.run(1.0)
    drain(world, next(iter(where(world, gang))), 0.0)
    world.run(10.0)
    assert gang.counts[TaskState.RUNNING] == 2
    assert len(where(world, gang)) == 2


def test_session_of_its_own_ends_with_the_agent_as_reason(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: Run(1000.0))
    spec = SessionSpec.model_validate({"kernels": [{"command": ["notebook"]}]})
    session = world.submit_session(spec)
    world.run(1.0)
    drain(world, "a", 5.0)
    world.run(10.0)
    assert session.status is SessionStatus.TERMINATED
    assert session.reason is not None
    assert session.reason.code is ReasonCode.DRAINED
    assert "agent a was drained (new disk)" in session.reason.sentence()


def test_deadline_holds_over_a_restart_of_the_controller(group_world: MakeWorld) -> None:
    def behaviour(start: Start) -> Run:
        return Run(1000.0)

    world = group_world({"a": 1}, behaviour)
    world.submit(WORK)
    world.run(1.0)
    drain(world, "a", 30.0)
    world.restart_controller()
    world.run(10.0)
    assert world.agent("a").running
    world.run(30.0)
    assert not world.agent("a").running


def test_cordoned_agent_keeps_its_work(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: Run(1000.0))
    world.submit(WORK)
    world.run(1.0)
    id_ = world.agent("a").id
    world.ask(
        lambda work, parts: parts[AgentRequests].bar(work, ADA, id_, AgentBar.CORDONED, "looks odd")
    )
    waiting = world.submit(WORK)
    world.run(500.0)
    assert len(world.agent("a").running) == 1
    assert waiting.status is JobState.PENDING
    status = world.cluster.groups["default"].snapshot.facts(0).status
    assert status == "cordoned: looks odd"
    why = explain_job(world.plane.live, world.cluster, waiting.id, world.clock.now())
    assert "1 cordoned: looks odd" in why.reasons[0].sentence
    assert "muster uncordon" in why.reasons[0].remedy
    assert "silent" not in why.reasons[0].remedy


def test_why_of_running_work_tells_that_its_machine_is_being_emptied(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 1}, lambda start: Run(1000.0))
    job = world.submit(WORK)
    world.run(1.0)
    drain(world, "a", 60.0)
    world.run(10.0)
    why = explain_job(world.plane.live, world.cluster, job.id, world.clock.now())
    (told,) = why.reasons
    assert told.sentence == (
        "agent a is being drained (new disk): what still runs there in 50s is stopped"
    )
    assert "start again on another agent" in told.remedy
