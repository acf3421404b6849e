"""Quotas by key, by group and by model of GPU: what falls back, what is counted, what is told."""

from collections import Counter
from typing import Any

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld, cpus
from tests.control.test_quotas import put, why
from tests.control.world import ADA, BOB, World

from muster.control.group.requests import GroupRequests
from muster.control.job.explanation import explain_job
from muster.core.errors import Conflict
from muster.core.reasons import ReasonCode
from muster.core.resources import Device, Resources
from muster.core.specs import JobSpec, Level, ScalingGroup
from muster.scheduling.accounting.usage import scopes
from muster.store.records import Job

ANYBODY, ANNS = "*/*/*", "default/default/ada"


def job(tasks: int, model: str | None = None, gpu: int = 1, **more: Any) -> JobSpec:
    resources: dict[str, Any] = {"cpu": 0, "gpu": gpu}
    if model is not None:
        resources["gpu_model"] = model
    spec = {"command": ["x"], "tasks": tasks, "resources": resources}
    return JobSpec.model_validate(spec | more)


def world_of(group_world: MakeWorld, **models: int) -> World:
    """Agents with so many GPUs, each of the model of its name."""
    world = group_world({}, lambda start: Run(1000))
    capacity = Resources(cpu_milli=64_000, memory_bytes=2**36)
    for model, number in models.items():
        devices = tuple(Device(index, f"NVIDIA {model} 80GB") for index in range(number))
        world._run_agent(world.join(model.lower()), capacity, devices, {})
    return world


def held(world: World) -> Counter[tuple[str, str]]:
    """The number of sessions that have a place, by user and agent."""
    live = world.plane.live
    return Counter(
        (session.owner.user, live.agents[session.kernels[0].agent_id].name)
        for session in world.cluster.placed.values()
        if session.kernels[0].agent_id is not None
    )


def sentence(world: World, of: Job) -> str:
    view = explain_job(world.plane.live, world.cluster, of.id, world.clock.now(), ADA)
    return "; ".join(reason.sentence for reason in view.reasons)


def test_own_quota_leaves_what_it_does_not_say_to_that_of_everybody(
    group_world: MakeWorld,
) -> None:
    world = world_of(group_world, H100=8)
    put(world, Level.USER, ANYBODY, limits={"gpu": 2}, largest={"gpu": 1}, pending_sessions=10)
    put(world, Level.USER, ANNS, weight=2.0)
    world.submit(job(5))
    assert held(world) == {("ada", "h100"): 2}, "a weight of her own lifts no limit"
    with pytest.raises(Conflict, match="limit 1 of one session"):
        world.submit(job(1, gpu=2))
    put(world, Level.USER, ANNS, limits={"cpu": 64}, largest={"gpu": 4})
    assert held(world) == {("ada", "h100"): 2}
    put(world, Level.USER, "default/default/*", limits={"gpu": 3})
    assert held(world) == {("ada", "h100"): 3}, "the nearest that says it counts"
    put(world, Level.USER, ANNS, limits={"gpu": "unlimited"})
    assert held(world) == {("ada", "h100"): 5}
    quota = world.cluster.accounting.quotas.of(scopes(ADA.owner)[0])
    assert quota is not None
    assert (quota.pending_sessions, dict(quota.limits.amounts)) == (10, {})


def test_limit_of_a_model_counts_those_of_that_model_alone(group_world: MakeWorld) -> None:
    world = world_of(group_world, H100=8, A100=8)
    put(world, Level.USER, ANYBODY, limits={"gpu": 10, "gpu_models": {"H100": 2}})
    first = world.submit(job(4, "H100"))
    world.submit(job(5, "A100"))
    world.submit(job(3, "H100"), BOB)
    assert held(world) == {("ada", "h100"): 2, ("ada", "a100"): 5, ("bob", "h100"): 2}
    assert sentence(world, first) == (
        "gpu (H100): used 2 + requested 1 > limit 2, over by 1 (quota of user default/default/ada)"
    )
    with pytest.raises(Conflict, match=r"gpu \(H100\): requested 4 > limit 2"):
        world.submit(job(1, "H100", gpu=4))
    world.restart_controller()
    world.run(5)
    assert held(world)["ada", "h100"] == 2


def test_work_that_names_no_model_does_not_get_past_the_limit_of_one(
    group_world: MakeWorld,
) -> None:
    world = world_of(group_world, H100=8)
    put(world, Level.USER, ANYBODY, limits={"gpu_models": {"H100": 2}})
    of_any = world.submit(job(3))
    named = world.submit(job(3, "80GB"))
    assert held(world) == {("ada", "h100"): 2}
    assert why(world, "ada") == {ReasonCode.MODEL_QUOTA_IN_USE}
    for each in (of_any, named):
        assert sentence(world, each).startswith("it may get gpu (H100): used 2 + requested 1 > ")


def test_work_that_names_no_model_is_not_counted_where_its_group_has_none_of_it(
    group_world: MakeWorld,
) -> None:
    world = world_of(group_world, A100=8)
    put(world, Level.USER, ANYBODY, limits={"gpu_models": {"H100": 2}})
    world.submit(job(5))
    assert held(world) == {("ada", "a100"): 5}


def test_limit_in_one_group_binds_there_alone_and_is_told_with_it(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 8}, lambda start: Run(1000))
    world.ask(lambda work, parts: parts[GroupRequests].put_group(work, ScalingGroup(name="big")))
    world.add_agent("b", cpus(8), group="big")
    put(world, Level.USER, ANYBODY, limits={"cpu": 7}, groups={"big": {"cpu": 2}})
    put(world, Level.USER, ANNS, groups={"big": {"memory": "1GiB"}})  # the cpu falls back
    several = {"command": ["x"], "tasks": 6}
    in_big = world.submit(JobSpec.model_validate({**several, "group": "big"}))
    world.submit(JobSpec.model_validate(several))
    assert held(world) == {("ada", "b"): 2, ("ada", "a"): 5}
    assert "cpu in group big: used 2 + requested 1 > limit 2, over by 1" in sentence(world, in_big)
    view = explain_job(world.plane.live, world.cluster, in_big.id, world.clock.now(), ADA)
    told = [each.sentence for each in view.held]
    assert any(each.startswith("2 of 2 cpu of user default/default/ada in group") for each in told)


def test_end_of_work_of_the_limited_model_lets_more_of_it_start(group_world: MakeWorld) -> None:
    world = group_world({}, lambda start: Run(10))
    world.add_agent("a", Resources(cpu_milli=64_000, memory_bytes=2**36), gpus=8)
    put(world, Level.USER, ANYBODY, limits={"gpu_models": {"H100": 2}})
    done = world.submit(job(6, "H100"))
    world.run(65)
    assert done.id not in world.plane.live.jobs
    usage = world.cluster.accounting.usage.of(scopes(ADA.owner)[0])
    assert (usage.amounts, usage.parts) == ({}, {}), "what was counted is given back"


def test_project_and_user_are_counted_by_themselves(group_world: MakeWorld) -> None:
    world = world_of(group_world, H100=8)
    put(world, Level.PROJECT, "default/default", limits={"gpu_models": {"H100": 5}})
    put(world, Level.USER, ANNS, limits={"gpu_models": {"H100": 3}})
    world.submit(job(8, "H100"))
    world.submit(job(8, "H100"), BOB)
    assert held(world) == {("ada", "h100"): 3, ("bob", "h100"): 2}
