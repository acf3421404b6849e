"""A group that no further agent will join refuses what it could never hold."""

from functools import partial

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld, cpus
from tests.control.world import ADA, state

from muster.control.agent.requests import AgentRequests
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.core.errors import InvalidSpec
from muster.core.ids import AgentId
from muster.core.specs import JobSpec
from muster.core.states import AgentBar, JobState


def asking(cpu: int, tasks: int = 1, **placement: object) -> JobSpec:
    spec = {"command": ["x"], "tasks": tasks, "coscheduled": tasks > 1, "resources": {"cpu": cpu}}
    return JobSpec.model_validate({**spec, "placement": placement})


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (asking(5), "none of 2 agents in group default is large enough"),
        (
            asking(2, tasks=5),
            "only 4 of 5 kernels would fit in group default even if it were empty",
        ),
        (
            asking(2, tasks=3, mode="single-node"),
            r"2 of 3 .* on one agent \(mode: single-node\). Ask for .* leave out mode: single-node",
        ),
    ],
)
def test_fixed_group_refuses_what_it_could_never_hold(
    group_world: MakeWorld, spec: JobSpec, sentence: str
) -> None:
    world = group_world({"a": 4, "b": 4}, fixed=True)
    with pytest.raises(InvalidSpec, match=sentence):
        world.submit(spec)
    assert not world.plane.live.jobs


def test_group_that_may_grow_lets_it_wait(group_world: MakeWorld) -> None:
    world = group_world({"a": 4}, lambda start: Run(50))
    job = world.submit(asking(5))
    assert state(job) is JobState.PENDING
    world.add_agent("b", cpus(8))
    assert state(job) is JobState.RUNNING


def test_fixed_group_lets_wait_what_fits_once_running_work_has_ended(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 4, "b": 4}, lambda start: Run(5), fixed=True)
    world.submit(asking(4))
    job = world.submit(asking(4, tasks=2))
    assert state(job) is JobState.PENDING
    world.run(6)
    assert state(job) is JobState.RUNNING


@pytest.mark.parametrize("absence", ["silent", "barred"])
@pytest.mark.parametrize("absent", ["ab", "b"])
def test_fixed_group_does_not_count_agents_out_that_may_come_back(
    group_world: MakeWorld, absence: str, absent: str
) -> None:
    world = group_world({"a": 4, "b": 8}, lambda start: Run(50), fixed=True)
    for id_ in [world.agent(name).id for name in absent]:
        if absence == "silent":
            world.desk.agent_left(id_)
        else:
            world.ask(partial(_cordon, id_=id_))
    job = world.submit(asking(8))
    assert state(job) is JobState.PENDING


def _cordon(work: Work, parts: Parts, id_: AgentId) -> None:
    parts[AgentRequests].bar(work, ADA, id_, AgentBar.CORDONED)
