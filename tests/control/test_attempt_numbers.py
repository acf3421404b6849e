"""An attempt that ran, or may have run, is not run again: the next one has another number."""

from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import attempt
from tests.control.world import ADA, World, state

from muster.control.job.requests import JobRequests
from muster.core.specs import JobSpec
from muster.core.states import JobState
from muster.store.records import Job
from muster.wire.messages import Start


class Attempts:
    """A behaviour that notes which attempts have begun."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begun: list[int] = []

    def __call__(self, start: Start) -> Run:
        self.begun.append(attempt(start))
        return Run(self.seconds)


def test_attempt_that_began_unheard_before_its_machine_booted_again_is_over(
    group_world: MakeWorld,
) -> None:
    attempts = Attempts(5.0)
    world = group_world({"a": 1}, attempts)
    job = cut_off_at_its_start(world, JobSpec(command=["x"]))
    agent = world.agent("a")
    agent.reboot()
    world.run(1)
    world.connect(agent)
    world.run(20)
    assert state(job) is JobState.SUCCEEDED
    assert attempts.begun == [1, 2]


def test_attempt_whose_place_was_taken_before_it_was_heard_to_run_is_over(
    group_world: MakeWorld,
) -> None:
    attempts = Attempts(5.0)
    world = group_world({"a": 1}, attempts, preemption={"minimum_lease": 0}, create_timeout=60)
    low = cut_off_at_its_start(world, JobSpec(command=["low"], priority=10))
    world.submit(JobSpec(command=["high"], priority=90))
    agent = world.agent("a")
    world.connect(agent)
    world.run(30)
    assert state(low) is JobState.SUCCEEDED
    told = [each for each in agent.commands if isinstance(each, Start) and not each.queued]
    assert len(agent.starts) == len(told)
    assert [attempt(each) for each in told] == [1, 1, 2]  # the low, the high, and the low again


def cut_off_at_its_start(world: World, spec: JobSpec) -> Job:
    """Submit; the agent gets the Start and begins, and is cut off before it can say so."""
    agent = world.agent("a")
    world.plane.ask(lambda work, parts: parts[JobRequests].submit(work, ADA, spec), lambda *_: None)
    world.plane.step()
    for _, message in world.outgoing:
        agent.hear(message)
    world.outgoing.clear()
    assert agent.running
    world.disconnect(agent)
    world.settle()
    return next(iter(world.plane.live.jobs.values()))
