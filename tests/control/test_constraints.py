"""Attributes of agents, and agents that are barred from new work."""

import gc

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld, cpus
from tests.control.driven_agent import task_index
from tests.control.world import ADA, World

from muster.control.agent.requests import AgentRequests
from muster.core.errors import InvalidSpec
from muster.core.ids import AgentId, IdFactory, KernelId
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec, SessionSpec
from muster.core.states import JOB_TABLE, AgentBar, JobState

ZONES = {"a": {"zone": "north", "disk": "100"}, "b": {"zone": "south", "disk": "900"}, "c": {}}


def asking(*constraints: object, tasks: int = 1, **placement: object) -> JobSpec:
    spec = {"command": ["x"], "tasks": tasks}
    return JobSpec.model_validate(spec | {"placement": {"constraints": constraints, **placement}})


def bar(world: World, name: str, how: AgentBar | None) -> None:
    id_ = AgentId(world.agent(name).id)
    world.ask(lambda work, parts: parts[AgentRequests].bar(work, ADA, id_, how))


def busy(world: World) -> dict[str, int]:
    return {agent.name: len(agent.running) for agent in world.agents.values() if agent.running}


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ("zone=south", {"b": 2}),
        ("zone!=south", {"a": 2, "c": 2}),
        ("disk>=500", {"b": 2}),
        ("!zone", {"c": 2}),
        ("zone in north,south", {"a": 2, "b": 2}),
    ],
)
def test_work_runs_only_where_its_constraint_holds(
    group_world: MakeWorld, constraint: str, expected: dict[str, int]
) -> None:
    world = group_world({"a": 2, "b": 2, "c": 2}, lambda start: Run(50), ZONES)
    world.submit(asking(constraint, tasks=6))
    assert busy(world) == expected
    world.restart_controller()
    world.run(2)
    assert busy(world) == expected, "attributes are not forgotten"


def test_soft_constraint_ranks_and_excludes_nobody(group_world: MakeWorld) -> None:
    world = group_world({"a": 2, "b": 2, "c": 2}, lambda start: Run(50), ZONES)
    spec = asking({"attribute": "zone", "values": "south", "soft": True}, tasks=3)
    world.submit(spec)
    assert busy(world).pop("b") == 2
    assert sum(busy(world).values()) == 3


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (asking("zona=south"), "placement.constraints.0"),
        (asking("disk>1", "zona"), "placement.constraints.1"),
        (asking(together="zona"), "placement.together"),
        (asking(rank_by="zona"), "placement.rank_by"),
    ],
)
def test_attribute_that_no_agent_has_is_refused_with_the_nearest_name(
    group_world: MakeWorld, spec: JobSpec, field: str
) -> None:
    world = group_world({"a": 2, "b": 2}, attributes=ZONES)
    with pytest.raises(InvalidSpec) as caught:
        world.submit(spec)
    (problem,) = caught.value.problems
    assert (problem.field, problem.value) == (field, "'zona'")
    assert "did you mean 'zone'?" in problem.expected
    assert not world.plane.live.jobs


@pytest.mark.parametrize(
    ("agents", "value", "expected"),
    [
        (["nodeone"], "'nodeone'", "group default has no such agent; did you mean 'node-one'?"),
        (["x9"], "'x9'", "group default has no such agent; it has b, node-one"),
        (["x8", "x9"], "'x8, x9'", "group default has no such agent; it has b, node-one"),
    ],
)
def test_agents_that_the_group_does_not_have_are_refused_with_those_that_it_has(
    group_world: MakeWorld, agents: list[str], value: str, expected: str
) -> None:
    world = group_world({"node-one": 2, "b": 2})
    with pytest.raises(InvalidSpec) as caught:
        world.submit(asking(agents=agents))
    (problem,) = caught.value.problems
    assert (problem.field, problem.value, problem.expected) == ("placement.agents", value, expected)
    assert not world.plane.live.jobs


def test_agents_are_not_refused_where_one_is_there_or_others_will_do(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 2})
    assert world.submit(asking(agents=["a", "gone"])).status is JobState.RUNNING
    assert world.submit(asking(agents=["gone"], agents_only=False)).status is JobState.RUNNING


def test_part_of_a_gpu_is_refused_where_all_are_partitions(group_world: MakeWorld) -> None:
    world = group_world({})
    world.add_agent("a", cpus(4), gpus=2, model="A100 MIG 1g.5gb")
    half = JobSpec.model_validate({"command": ["x"], "resources": {"gpu": 0.5}})
    with pytest.raises(InvalidSpec) as caught:
        world.submit(half)
    (problem,) = caught.value.problems
    assert (problem.field, problem.value) == ("resources.gpu", "0.5")
    assert problem.expected == "MIG devices are not shared: ask for whole ones, as gpu: 1"
    whole = JobSpec.model_validate({"command": ["x"], "resources": {"gpu": 1}})
    assert world.submit(whole).status is JobState.RUNNING
    named = {"gpu": 1, "gpu_model": "MIG 1g.5gb"}
    by_name = JobSpec.model_validate({"command": ["x"], "resources": named})
    assert world.submit(by_name).status is JobState.RUNNING
    world.add_agent("b", cpus(4), gpus=1)
    assert world.submit(half).status is JobState.RUNNING


def test_refused_gang_costs_no_kernel(
    group_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many such requests may come in one wake."""
    made = []

    def kernel(ids: IdFactory) -> KernelId:
        made.append(ids)
        return KernelId("krn-none")

    monkeypatch.setattr(IdFactory, "kernel", kernel)
    world = group_world({"a": 2}, attributes=ZONES)
    gang = {"command": ["x"], "replicas": 10_000, "resources": {"cpu": 0.001}}
    placement = {"together": "zona"}
    with pytest.raises(InvalidSpec):
        world.submit_session(
            SessionSpec.model_validate({"kernels": [gang], "placement": placement})
        )
    assert not made
    gc.collect()  # the refusal's traceback holds the spec
    assert not world.plane.live.specs


def test_attribute_may_be_that_of_an_agent_that_has_not_said_hello_yet(
    group_world: MakeWorld,
) -> None:
    """Right after a first `muster up --attribute zone=a`."""
    world = group_world({"a": 2})
    (agent,) = world.plane.live.agents.values()
    boot_id, agent.boot_id = agent.boot_id, ""
    assert world.submit(asking("zone=south")).status is JobState.PENDING
    agent.boot_id = boot_id
    with pytest.raises(InvalidSpec):
        world.submit(asking("zone=south"))


def test_attribute_may_be_unknown_where_its_absence_is_what_is_asked(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 2}, attributes=ZONES)
    assert world.submit(asking("!spot")).status is JobState.RUNNING


def test_slip_in_a_constraint_that_every_agent_would_meet_is_refused(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 2}, attributes=ZONES)
    with pytest.raises(InvalidSpec) as refused:
        world.submit(asking("zoen!=south"))
    (problem,) = refused.value.problems
    assert "did you mean 'zone'?" in problem.expected


@pytest.mark.parametrize("how", list(AgentBar))
@pytest.mark.parametrize("restart", [False, True])
def test_barred_agent_takes_nothing_new_and_what_runs_there_goes_on(
    group_world: MakeWorld, how: AgentBar, restart: bool
) -> None:
    world = group_world({"a": 2, "b": 2}, lambda start: Run(5))
    first = world.submit(JobSpec(command=["x"], tasks=4))
    bar(world, "a", how)
    if restart:
        world.restart_controller()
    world.run(1)
    assert busy(world) == {"a": 2, "b": 2}
    second = world.submit(JobSpec(command=["x"], tasks=4))
    world.run_until(lambda: second.status in JOB_TABLE.terminal)
    assert first.id not in world.plane.live.jobs
    assert (len(world.agent("a").starts), len(world.agent("b").starts)) == (2, 6)


def test_bar_that_is_lifted_lets_waiting_work_start_at_once(group_world: MakeWorld) -> None:
    world = group_world({"a": 2}, lambda start: Run(5))
    bar(world, "a", AgentBar.CORDONED)
    job = world.submit(JobSpec(command=["x"]))
    (members,) = world.cluster.groups["default"].queue.classes
    assert [why.code for why in members.reasons] == [ReasonCode.NO_ALIVE_AGENTS]
    bar(world, "a", None)
    assert job.status is JobState.RUNNING


def test_prefilled_kernels_of_a_barred_agent_start_elsewhere(group_world: MakeWorld) -> None:
    world = group_world(
        {"a": 1, "b": 1},
        lambda start: Run(0.1 if task_index(start) < 20 else 30),
        backlog_window=1.0,
    )
    job = world.submit(JobSpec(command=["x"], tasks=60))
    world.run_until(lambda: bool(world.agent("a").queued))
    started = len(world.agent("a").starts)
    bar(world, "a", AgentBar.DRAINING)
    assert not world.agent("a").queued
    world.run(10, 0.1)
    assert len(world.agent("a").starts) == started
    world.agent("b").behaviour = lambda start: Run(0.1)
    world.run_until(lambda: job.status in JOB_TABLE.terminal)
    assert job.status is JobState.SUCCEEDED
    assert not world.plane.live.ledger
