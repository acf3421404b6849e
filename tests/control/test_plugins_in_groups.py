"""A plug-in that fails does not hold up its group: a built-in part serves, and that is told."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.strangers import CuriousSelector
from tests.control.world import BOB, World

from muster.control.group.requests import GroupRequests
from muster.core.errors import InvalidSpec, MusterError
from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.specs import JobSpec, ScalingGroup
from muster.core.states import JOB_TABLE, JobState

BROKEN: list[tuple[dict[str, Any], str, str]] = [
    ({"validators": ["raising_validator"]}, "validator", r"raised KeyError\('weather'\)"),
    ({"validators": ["looping_validator"]}, "validator", "ran for more than"),
    ({"validators": ["babbling_validator"]}, "validator", "must answer reasons"),
    ({"sequencer": "raising_sequencer"}, "sequencer", "raised ZeroDivisionError"),
    ({"sequencer": "looping_sequencer"}, "sequencer", "ran for more than"),
    ({"sequencer": "babbling_sequencer"}, "sequencer", "must answer a tuple of numbers"),
    ({"selector": "raising_selector"}, "selector", "raised RuntimeError"),
    ({"selector": "looping_selector"}, "selector", "ran for more than"),
    ({"selector": "babbling_selector"}, "selector", "must answer a finite number"),
    ({"selector": "dull_selector"}, "selector", "raised MemoryError"),
    ({"allocator": "raising_allocator"}, "allocator", "raised BlockingIOError"),
    ({"allocator": "looping_allocator"}, "allocator", "ran for more than"),
    ({"allocator": "babbling_allocator"}, "allocator", "must answer an AllocationResult"),
    ({"allocator": "wordless_allocator"}, "allocator", "must give a reason"),
    ({"allocator": "moving_allocator"}, "allocator", "as many devices on the same agents"),
    ({"hooks": {"batch": "raising_hook"}}, "hook", "raised LookupError"),
    ({"hooks": {"batch": "looping_hook"}}, "hook", "ran for more than"),
    ({"hooks": {"batch": "stealing_hook"}}, "hook", "must answer a workload with the same"),
    ({"hooks": {"batch": "babbling_hook"}}, "hook", "must answer an environment"),
    ({"hooks": {"batch": "late_hook"}}, "hook", "raised OSError"),
]

pytestmark = pytest.mark.usefixtures("strangers")


def refused(world: World) -> list[tuple[str, str, str]]:
    """The plug-ins that the group says do not serve, and why."""
    policy = world.cluster.groups["default"].policy
    return [(fault.kind, fault.name, fault.why) for fault in policy.refused]


def name_of(policy: dict[str, Any]) -> str:
    (value,) = policy.values()
    while not isinstance(value, str):
        value = next(iter(value.values() if isinstance(value, dict) else value))
    return value


@pytest.mark.parametrize(("policy", "kind", "why"), BROKEN, ids=[name_of(p) for p, *_ in BROKEN])
def test_group_goes_on_without_a_plug_in_that_fails(
    group_world: MakeWorld, policy: dict[str, Any], kind: str, why: str
) -> None:
    world = group_world({"a": 2, "b": 2}, **policy)
    jobs = [world.submit(JobSpec(command=["x"], tasks=3)) for _ in range(2)]
    gang = world.submit(JobSpec(command=["x"], tasks=2, coscheduled=True))
    world.run_until(lambda: all(job.status in JOB_TABLE.terminal for job in (*jobs, gang)))
    assert {job.status for job in (*jobs, gang)} == {JobState.SUCCEEDED}
    ((told_kind, name, told),) = refused(world)
    assert (told_kind, name) == (kind, name_of(policy))
    assert re.search(why, told)
    usage = world.cluster.accounting.usage
    assert not any(holding.amounts for holding in usage._entries.values())


def test_selector_that_takes_every_device_is_refused(group_world: MakeWorld) -> None:
    world = group_world({}, lambda start: Run(50), selector="greedy_selector")
    agent = world.add_agent("a", Resources(cpu_milli=8000, memory_bytes=2**40), gpus=4)
    world.submit(JobSpec.model_validate({"command": ["x"], "tasks": 2, "resources": {"gpu": 1}}))
    taken = [share.index for kernel in agent.running.values() for share in kernel.shares]
    assert sorted(taken) == [0, 1]
    assert [(kind, name) for kind, name, _ in refused(world)] == [("selector", "greedy_selector")]


def test_allocator_chooses_devices_and_has_the_last_word(group_world: MakeWorld) -> None:
    options = {"last_device": {"user": "bob"}}
    world = group_world({}, lambda start: Run(50), allocator="last_device", options=options)
    agent = world.add_agent("a", Resources(cpu_milli=8000, memory_bytes=2**40), gpus=4)
    spec = JobSpec.model_validate({"command": ["x"], "resources": {"gpu": 1}})
    of_ada, of_bob = world.submit(spec), world.submit(spec, BOB)
    assert (of_ada.status, of_bob.status) == (JobState.PENDING, JobState.RUNNING)
    (kernel,) = agent.running.values()
    assert [share.index for share in kernel.shares] == [3]
    (row,) = world.plane.live.ledger.values()
    assert [share.index for share in row.shares] == [3], "the ledger has what the kernel has"
    assert refused(world) == []
    (waiting,) = world.cluster.groups["default"].queue.classes
    assert [why.code for why in waiting.reasons] == [ReasonCode.NO_AGENTS]


def test_allocator_that_allocates_what_is_held_is_refused(group_world: MakeWorld) -> None:
    options = {"last_device": {"user": "ada"}}
    world = group_world({}, lambda start: Run(50), allocator="last_device", options=options)
    agent = world.add_agent("a", Resources(cpu_milli=8000, memory_bytes=2**40), gpus=2)
    spec = JobSpec.model_validate({"command": ["x"], "resources": {"gpu": 1}})
    for _ in range(2):
        world.submit(spec)
    taken = [share.index for kernel in agent.running.values() for share in kernel.shares]
    assert taken == [1, 0]
    ((kind, name, why),) = refused(world)
    assert (kind, name) == ("allocator", "last_device")
    assert why == "allocates devices [1] of an agent, of which [0] can be had"


def test_selector_that_learns_hears_of_all_that_came_again_after_a_start(
    group_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CuriousSelector, "heard", [])
    world = group_world({"a": 4}, lambda start: Run(50), selector="curious_selector")
    for cpus in (3, 2, 2):
        world.submit(JobSpec.model_validate({"command": ["x"], "resources": {"cpu": cpus}}))
    assert CuriousSelector.heard == [(3, 1), (2, 1), (2, 1)]
    CuriousSelector.heard.clear()
    world.restart_controller()
    assert sorted(CuriousSelector.heard) == [(2, 1), (2, 1), (3, 1)]


def test_one_plug_in_that_fails_leaves_the_others_in_place(group_world: MakeWorld) -> None:
    world = group_world(
        {"a": 2}, lambda start: Run(50), validators=["sober_validator", "raising_validator"]
    )
    unlucky = world.submit(JobSpec(command=["x"], priority=13))
    other = world.submit(JobSpec(command=["x"]))
    assert (unlucky.status, other.status) == (JobState.PENDING, JobState.RUNNING)
    assert [name for _, name, _ in refused(world)] == ["raising_validator"]


def test_group_written_again_tries_its_plug_ins_again(group_world: MakeWorld) -> None:
    world = group_world({"a": 2}, selector="raising_selector")
    world.submit(JobSpec(command=["x"]))
    assert refused(world)
    spec = world.plane.live.groups["default"]
    world.ask(lambda work, parts: parts[GroupRequests].put_group(work, spec))
    assert not refused(world)
    world.submit(JobSpec(command=["x"]))
    assert refused(world)


def test_unknown_plug_in_is_refused_and_the_group_stays_as_it_was(group_world: MakeWorld) -> None:
    world = group_world({"a": 2})
    before = world.plane.live.groups["default"]
    spec = ScalingGroup.model_validate({"name": "default", "selector": "unheard"})
    with pytest.raises(MusterError, match="no selector named 'unheard'"):
        world.ask(lambda work, parts: parts[GroupRequests].put_group(work, spec))
    assert world.plane.live.groups["default"] == before
    world.restart_controller()
    assert world.plane.live.groups["default"] == before


def test_options_that_nobody_reads_are_refused_and_the_group_stays_as_it_was(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 2})
    before = world.plane.live.groups["default"]
    options = {"fragmentatoin": {"seed": 1}}
    spec = ScalingGroup.model_validate(
        {"name": "default", "selector": "fragmentation", "options": options}
    )
    with pytest.raises(InvalidSpec, match=r"options\.fragmentatoin is .*mean 'fragmentation'"):
        world.ask(lambda work, parts: parts[GroupRequests].put_group(work, spec))
    assert world.plane.live.groups["default"] == before


def test_controller_starts_though_a_plug_in_is_gone_and_says_so(
    group_world: MakeWorld, strangers: Path
) -> None:
    world = group_world(
        {"a": 2}, lambda start: Run(50), validators=["sober_validator"], selector="greedy_selector"
    )
    shutil.rmtree(strangers)
    world.restart_controller()
    job = world.submit(JobSpec(command=["x"]))
    assert job.status is JobState.RUNNING
    assert [(kind, name) for kind, name, _ in refused(world)] == [
        ("validator", "sober_validator"),
        ("selector", "greedy_selector"),
    ]
