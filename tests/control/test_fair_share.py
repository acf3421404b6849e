"""Fair share on the live control plane: what people have had of late is not forgotten."""

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.world import ADA, BOB, World

from muster.control.group.requests import GroupRequests
from muster.core.owner import Principal
from muster.core.specs import JobSpec, Level, ScalingGroup, SessionSpec
from muster.core.states import JOB_TABLE, JobState
from muster.wire.messages import Start

HOUR_S = 3600.0
FAIR = {"sequencer": "fair_share", "options": {"fair_share": {"half_life": HOUR_S}}}


def job(name: str, tasks: int = 1, **more: object) -> JobSpec:
    return JobSpec.model_validate({"name": name, "command": [name], "tasks": tasks} | more)


def had(world: World, who: Principal) -> dict[str, float]:
    """Amount-seconds that the user has had, as far as they count still."""
    fairness = world.cluster.groups["default"].fairness
    assert fairness is not None, "it is kept for a sequencer that asks"
    scope = (Level.USER, Level.USER.of(who.owner))
    return dict(fairness.used(scope, world.clock.now()))


def lengths(start: Start) -> Run:
    return Run({"past": 300, "gang": 100, "alone": 200}.get(start.template.command[0], 60))


def some_past(world: World) -> None:
    """Jobs, a gang and a session of Ada's that have ended, and one that runs."""
    ended = [
        world.submit(job("past", 2, resources={"cpu": 1.5})),
        world.submit(job("gang", 3, coscheduled=True)),
    ]
    kernels = [{"command": ["alone"], "replicas": 2}, {"command": ["alone"]}]
    world.submit_session(SessionSpec.model_validate({"kernels": kernels}))
    world.run_until(lambda: all(each.status in JOB_TABLE.terminal for each in ended))
    world.submit(job("more", resources={"memory": "1GiB"}))
    world.run(10)


def test_what_was_used_before_a_restart_counts_after_it(group_world: MakeWorld) -> None:
    world = group_world({"a": 16}, lengths, **FAIR)
    some_past(world)
    before = had(world, ADA)
    world.restart_controller()
    after = had(world, ADA)
    assert after == pytest.approx(before, rel=0.02), "but for the moments before they ran"
    expected = 300 * 2 * 1500 + 100 * 3 * 1000 + 200 * 3 * 1000
    assert expected * 0.8 < after["cpu"] < expected * 1.05


def test_who_has_had_less_goes_first_after_a_restart_too(group_world: MakeWorld) -> None:
    started: list[str] = []

    def behaviour(start: Start) -> Run:
        started.append(start.template.command[0])
        return Run(30)

    world = group_world({"a": 1}, behaviour, **FAIR)
    world.submit(job("past", 5))
    world.run(200)
    world.submit(job("now"), BOB)
    world.submit(job("ada", 2))
    world.submit(job("bob", 2), BOB)
    world.restart_controller()
    started.clear()
    world.run(150)
    assert started == ["bob", "bob", "ada", "ada"]


def test_group_that_begins_to_share_fairly_knows_the_past(group_world: MakeWorld) -> None:
    world = group_world({"a": 16}, lengths)
    some_past(world)
    spec = ScalingGroup.model_validate({"name": "default"} | FAIR)
    for _ in range(2):
        world.ask(lambda work, parts: parts[GroupRequests].put_group(work, spec))
    assert had(world, ADA)["cpu"] > 300 * 2 * 1500
    world.run(100)
    assert not world.plane.live.sessions
    assert not world.cluster.groups["default"].placed


def test_other_half_life_changes_what_counts_and_nothing_that_is_held(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 16}, lengths, **FAIR)
    some_past(world)
    before = had(world, ADA)["cpu"]
    options = {"fair_share": {"half_life": 60}}
    spec = ScalingGroup.model_validate({"name": "default"} | FAIR | {"options": options})
    world.ask(lambda work, parts: parts[GroupRequests].put_group(work, spec))
    assert 0 < had(world, ADA)["cpu"] < before / 5
    again = world.submit(job("again"))
    world.run_until(lambda: again.status in JOB_TABLE.terminal)
    assert again.status is JobState.SUCCEEDED
    assert not world.plane.live.ledger
