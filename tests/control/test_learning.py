"""A selector that learns is told of each session on the live control plane, once and for long."""

from typing import Any

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld, cpus
from tests.control.strangers import CuriousSelector
from tests.control.world import ADA, World

from muster.control.group.requests import GroupRequests
from muster.control.job.explanation import explain_job
from muster.control.plan import plan_job
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec, SessionSpec
from muster.core.states import JOB_TABLE, SESSION_TABLE
from muster.scheduling.policy.selectors import Fragmentation
from muster.store.queries import workload_history

FRAGMENTATION = {"selector": "fragmentation", "options": {"fragmentation": {"seed": 3}}}


def job(tasks: int = 1, cpu: float = 1, **more: Any) -> JobSpec:
    return JobSpec.model_validate(
        {"command": ["x"], "tasks": tasks, "resources": {"cpu": cpu, **more}}
    )


def selector(world: World) -> Fragmentation:
    found = world.cluster.groups["default"].policy.selector
    assert isinstance(found, Fragmentation)
    return found


def write_group(world: World, **changes: Any) -> None:
    spec = world.plane.live.groups["default"].model_copy(update=changes)
    world.ask(lambda work, parts: parts[GroupRequests].put_group(work, spec))


def some_past(world: World) -> None:
    """Two jobs, a gang and a session that have ended, and a job that waits or runs."""
    ended = [world.submit(job(2)), world.submit(job(1, 2))]
    gang = {"command": ["x"], "tasks": 3, "coscheduled": True, "resources": {"cpu": 0.5}}
    ended.append(world.submit(JobSpec.model_validate(gang)))
    kernels = [{"command": ["x"], "replicas": 2, "resources": {"cpu": 3}}]
    alone = world.submit_session(SessionSpec.model_validate({"kernels": kernels}))
    world.run_until(
        lambda: (
            alone.status in SESSION_TABLE.terminal
            and all(each.status in JOB_TABLE.terminal for each in ended)
        )
    )
    world.behaviour = lambda start: Run(1000)
    world.submit(job(2, 4))


@pytest.mark.usefixtures("strangers")
def test_all_that_came_is_known_after_a_restart_too(
    group_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[int, int]] = []
    monkeypatch.setattr(CuriousSelector, "heard", heard)
    world = group_world({"a": 7}, selector="curious_selector")
    some_past(world)
    told = sorted(heard)
    assert told == [(0, 3), (1, 1), (1, 1), (2, 1), (3, 2), (4, 1), (4, 1)]
    heard.clear()
    world.restart_controller()
    assert sorted(heard) == told
    monkeypatch.setattr(workload_history, "MAX_LEARNT", 2)
    heard.clear()
    world.restart_controller()
    assert sorted(heard) == [(0, 3), (3, 2), (4, 1), (4, 1)], "the newest, and all that is live"


def test_group_that_begins_to_learn_knows_the_past(group_world: MakeWorld) -> None:
    world = group_world({"a": 7})
    some_past(world)
    write_group(world, **FRAGMENTATION)
    assert selector(world)._mix.kernels == 10


def test_selector_goes_on_when_other_things_of_its_group_change(group_world: MakeWorld) -> None:
    world = group_world({"a": 7}, **FRAGMENTATION)
    some_past(world)
    before = selector(world)
    write_group(world, starvation_after=301.0, sequencer="drf")
    assert selector(world) is before
    assert before._mix.kernels == 10
    write_group(world, options={"fragmentation": {"seed": 4}})
    assert selector(world) is not before
    assert selector(world)._mix.kernels == 10


@pytest.mark.usefixtures("strangers")
def test_selector_goes_on_when_another_plug_in_fails(group_world: MakeWorld) -> None:
    world = group_world({"a": 7}, **FRAGMENTATION, validators=["raising_validator"])
    before = selector(world)
    world.submit(job(3))
    assert world.cluster.groups["default"].policy.refused
    assert selector(world) is before
    assert before._mix.kernels == 3


def test_session_that_comes_back_to_the_queue_asks_for_nothing_new(
    group_world: MakeWorld,
) -> None:
    failures = [ReasonCode.DISK_FULL] * 3
    world = group_world(
        {"a": 7},
        lambda start: Run(create_failure=failures.pop()) if failures else Run(20.0),
        **FRAGMENTATION,
        max_tries=1,
    )
    world.submit(job())
    world.run(60)
    assert not failures
    assert selector(world)._mix.kernels == 1


def test_asking_why_and_planning_change_nothing_of_what_is_known(group_world: MakeWorld) -> None:
    world = group_world({}, lambda start: Run(1000), **FRAGMENTATION)
    world.add_agent("a", cpus(16), gpus=4)
    world.submit(job(2, gpu=1))
    waits = world.submit(job(60, gpu=3))
    learnt = selector(world)
    weights, prices = learnt._weights, learnt._prices
    live, cluster, now = world.plane.live, world.cluster, world.clock.now()
    assert learnt._table is not None
    assert learnt._is_refresh_due(learnt._table)
    explain_job(live, cluster, waits.id, now)
    plan_job(live, cluster, ADA, job(5, gpu=1), now)
    assert learnt._weights is weights
    assert learnt._prices is prices
