"""The victims of a session of higher priority, in small clusters and in any."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import ANN, BOB, agent, ask, box, cluster, contents, running, session

from muster.core.ids import SessionId
from muster.core.owner import Owner
from muster.core.resources import Resources
from muster.core.specs.group import PreemptionSpec, VictimScope
from muster.scheduling.budgets import DisruptionBudget, within
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.fit import fit_session
from muster.scheduling.making_room.freed_room import fits
from muster.scheduling.making_room.preemption import Preemption, find_victims
from muster.scheduling.policy.plugins import PassContext
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import RunningSession, SessionWorkload

NOW = 1000.0
LEASE_S = 60.0
SELECTOR = Concentrated()
OTHER_PROJECT = Owner("default", "teaching", "eve")
OTHER_DOMAIN = Owner("abroad", "research", "kim")


def displaced(
    preemptor: SessionWorkload,
    snapshot: Snapshot,
    *sessions: RunningSession,
    **policy: object,
) -> Preemption | None:
    """``find_victims`` with ``sessions`` running and taken."""
    for each in sessions:
        for request, kernel in zip(each.workload.kernels, each.kernels, strict=True):
            snapshot.take(kernel.agent_id, request, kernel.shares)
    spec = PreemptionSpec.model_validate({"minimum_lease": LEASE_S, **policy})
    before = contents(snapshot)
    by_id = {each.id: each for each in sessions}
    found = find_victims(preemptor, snapshot, by_id, SELECTOR, spec, PassContext(snapshot, NOW))
    assert contents(snapshot) == before
    return found


def names(found: Preemption | None) -> list[str]:
    return [] if found is None else [each.id.removeprefix("ses-") for each in found.victims]


def urgent(*kernels: Resources, **rest: Any) -> SessionWorkload:
    return session("urgent", *kernels, priority=80, **rest)


def test_lowest_priority_goes_first() -> None:
    low = running("low", "a", kernels=[ask(4)], priority=10)
    middle = running("middle", "b", kernels=[ask(4)], since=900, priority=40)
    found = displaced(urgent(ask(4)), cluster(a=box(cpu=4), b=box(cpu=4)), middle, low)
    assert found is not None
    assert names(found) == ["low"]
    assert [each.agent_id for each in found.kernels] == [agent("a")]


def test_of_equal_priority_least_work_is_lost() -> None:
    old = running("old", "a", kernels=[ask(4)], priority=10)
    young = running("young", "b", kernels=[ask(4)], since=900, priority=10)
    found = displaced(urgent(ask(4)), cluster(a=box(cpu=4), b=box(cpu=4)), old, young)
    assert names(found) == ["young"]


def test_work_lost_is_run_time_times_size() -> None:
    """Two that have run as long together as the one, but hold half of what it holds."""
    one = running("one", "a", kernels=[ask(8)], since=500, priority=10)
    small = [running(f"s{n}", "b", kernels=[ask(2)], since=500, priority=10) for n in range(2)]
    boxes = {"a": box(cpu=8), "b": box(cpu=4)}
    found = displaced(urgent(ask(4)), cluster(**boxes), one, *small)
    assert names(found) == ["s0", "s1"]


def test_one_of_middling_priority_is_dearer_than_many_of_low() -> None:
    middle = running("middle", "a", kernels=[ask(4)], since=900, priority=40)
    low = [running(f"low{n}", "b", kernels=[ask(1)], priority=10) for n in range(4)]
    found = displaced(urgent(ask(4)), cluster(a=box(cpu=4), b=box(cpu=4)), middle, *low)
    assert names(found) == ["low0", "low1", "low2", "low3"]


@pytest.mark.parametrize(
    ("difference", "victims"), [(1, ["v"]), (30, ["v"]), (31, [])], ids=["1", "equal", "more"]
)
def test_priority_must_be_lower_by_the_least_difference(
    difference: int, victims: list[str]
) -> None:
    victim = running("v", "a", kernels=[ask(4)], priority=50)
    found = displaced(urgent(ask(4)), cluster(a=box(cpu=4)), victim, least_difference=difference)
    assert names(found) == victims


def test_equal_priority_is_never_displaced() -> None:
    victim = running("v", "a", kernels=[ask(4)], priority=80)
    assert displaced(urgent(ask(4)), cluster(a=box(cpu=4)), victim) is None


def test_who_says_no_is_not_displaced() -> None:
    victim = running("v", "a", kernels=[ask(4)], priority=10, preemptible=False)
    assert displaced(urgent(ask(4)), cluster(a=box(cpu=4)), victim) is None


@pytest.mark.parametrize(("ran_s", "victims"), [(59.9, []), (60, ["v"])])
def test_nobody_is_displaced_before_the_lease_is_over(ran_s: float, victims: list[str]) -> None:
    victim = running("v", "a", kernels=[ask(4)], since=NOW - ran_s, priority=10)
    assert names(displaced(urgent(ask(4)), cluster(a=box(cpu=4)), victim)) == victims


@pytest.mark.parametrize(
    ("scope", "reached"),
    [("user", "u"), ("project", "up"), ("domain", "upd"), ("group", "updg")],
)
def test_scope_says_whose_work_may_be_displaced(scope: str, reached: str) -> None:
    owners = {"u": ANN, "p": BOB, "d": OTHER_PROJECT, "g": OTHER_DOMAIN}
    everybody = [
        running(name, "a", kernels=[ask(1)], priority=10, owner=owner)
        for name, owner in owners.items()
    ]
    for wanted in range(1, 5):
        kernels = ask(wanted)
        found = displaced(urgent(kernels), cluster(a=box(cpu=4)), *everybody, scope=scope)
        assert (found is not None) == (wanted <= len(reached))
        assert set(names(found)) <= set(reached)


def test_gang_goes_whole() -> None:
    gang = running("gang", "a", "b", kernels=[ask(4), ask(4)], priority=10)
    found = displaced(urgent(ask(4)), cluster(a=box(cpu=4), b=box(cpu=4)), gang)
    assert found is not None
    assert found.victims == (gang,)


def test_gang_of_victims_is_dearer_than_one_of_its_kernels() -> None:
    gang = running("gang", "a", "b", "c", kernels=[ask(4)] * 3, since=500, priority=10)
    alone = running("alone", "d", kernels=[ask(4)], since=400, priority=10)
    boxes = {name: box(cpu=4) for name in "abcd"}
    assert names(displaced(urgent(ask(4)), cluster(**boxes), gang, alone)) == ["alone"]


def test_gang_of_one_victim_makes_room_for_a_gang() -> None:
    gang = running("gang", "a", "b", kernels=[ask(4), ask(4)], since=500, priority=10)
    single = [running(f"s{n}", n, kernels=[ask(4)], since=100, priority=10) for n in "cd"]
    boxes = {name: box(cpu=4) for name in "abcd"}
    found = displaced(urgent(ask(4), ask(4)), cluster(**boxes), gang, *single)
    assert names(found) == ["gang"]


def test_nobody_is_displaced_where_there_is_room() -> None:
    victim = running("v", "a", kernels=[ask(4)], priority=10)
    assert displaced(urgent(ask(4)), cluster(a=box(cpu=4), b=box(cpu=4)), victim) is None


def test_nobody_is_displaced_in_vain() -> None:
    victim = running("v", "a", kernels=[ask(4)], priority=10)
    stays = running("stays", "b", kernels=[ask(4)], priority=90)
    boxes = {"a": box(cpu=4), "b": box(cpu=4)}
    assert displaced(urgent(ask(4), ask(4)), cluster(**boxes), victim, stays) is None
    assert displaced(urgent(ask(5)), cluster(**boxes), victim) is None


def test_only_those_on_needed_devices_go() -> None:
    on = [
        running(f"g{n}", f"a:{n}", kernels=[ask(1, gpu=1)], since=100 * n, priority=10)
        for n in range(4)
    ]
    cpu_only = running("cpu", "a", kernels=[ask(1)], since=900, priority=10)
    found = displaced(urgent(ask(1, gpu=2)), cluster(a=box(cpu=8, gpus=4)), *on, cpu_only)
    assert found is not None
    assert names(found) == ["g3", "g2"]
    assert [share.index for share in found.kernels[0].shares] == [2, 3]


def test_fractions_of_one_device_go_rather_than_of_several() -> None:
    """Emptied halves of two devices would be as much, and no use."""
    halves = {"p": "a:0=500", "q": "a:0=500", "r": "a:1=500", "s": "a:1=500"}
    since = {"p": 900, "q": 100, "r": 800, "s": 700}
    everybody = [
        running(name, place, kernels=[ask(1, gpu=0.5)], since=since[name], priority=10)
        for name, place in halves.items()
    ]
    found = displaced(urgent(ask(1, gpu=1)), cluster(a=box(cpu=8, gpus=2)), *everybody)
    assert sorted(names(found)) == ["r", "s"]


def test_kernels_of_one_agent_need_room_on_one_agent() -> None:
    spread = [running(f"a{n}", "a", kernels=[ask(2)], since=900, priority=10) for n in range(2)]
    other = [running(f"b{n}", "b", kernels=[ask(2)], since=100, priority=10) for n in range(2)]
    boxes = {"a": box(cpu=6), "b": box(cpu=8)}
    boxes_taken = [running("stays", "a", kernels=[ask(2)], priority=90)]
    everybody = [*spread, *other, *boxes_taken]
    multi = displaced(urgent(*[ask(2)] * 4), cluster(**boxes), *everybody)
    assert names(multi) == ["a0", "a1"], "4 are free on b"
    single = displaced(urgent(*[ask(2)] * 4, mode="single-node"), cluster(**boxes), *everybody)
    assert sorted(names(single)) == ["b0", "b1"]


def test_constraints_of_the_preemptor_are_respected() -> None:
    snapshot = Snapshot("pool")
    for name, zone in {"a": "west", "b": "east"}.items():
        four = box(cpu=4)
        facts = (agent(name), name, four.capacity, four.devices)
        snapshot.upsert_agent(*facts, True, "ALIVE", {"zone": zone})
    cheap = running("cheap", "a", kernels=[ask(4)], since=900, priority=10)
    dear = running("dear", "b", kernels=[ask(4)], since=100, priority=40)
    found = displaced(urgent(ask(4), constraints=["zone=east"]), snapshot, cheap, dear)
    assert names(found) == ["dear"]


def test_models_of_the_preemptor_are_respected() -> None:
    h100 = running("h100", "a:0", kernels=[ask(1, gpu=1)], since=900, priority=10)
    a100 = running("a100", "b:0", kernels=[ask(1, gpu=1)], since=100, priority=40)
    boxes = {"a": box(cpu=4, gpus=1), "b": box(cpu=4, gpus=1, model="A100")}
    wants = Resources.with_extra(1000, 0, 0, 1000, {}, ["A100"])
    assert names(displaced(urgent(wants), cluster(**boxes), h100, a100)) == ["a100"]


def test_agents_that_take_no_work_are_not_cleared() -> None:
    on_a = running("a", "a", kernels=[ask(4)], since=900, priority=10)
    on_b = running("b", "b", kernels=[ask(4)], since=100, priority=40)
    boxes = {"a": box(cpu=4, status="CORDONED"), "b": box(cpu=4)}
    assert names(displaced(urgent(ask(4)), cluster(**boxes), on_a, on_b)) == ["b"]


def test_sessions_on_agents_that_have_left_make_no_room() -> None:
    victim = running("v", "gone", kernels=[ask(4)], priority=10)
    spec = PreemptionSpec(minimum_lease=0)
    by_id = {victim.id: victim}
    for snapshot in (cluster(), cluster(a=box(cpu=2))):
        assert (
            find_victims(
                urgent(ask(4)), snapshot, by_id, SELECTOR, spec, PassContext(snapshot, NOW)
            )
            is None
        )


def test_preemption_says_what_it_frees_on_each_agent() -> None:
    victim = running("v", "a:0", kernels=[ask(3, gpu=1)], since=900, priority=10)
    found = displaced(urgent(ask(2, gpu=1)), cluster(a=box(cpu=4, gpus=1)), victim)
    assert found is not None
    assert (found.session, found.priority, found.victims) == ("ses-urgent", 80, (victim,))
    (place,), (gain,) = found.kernels, found.gains
    assert (place.agent_id, [share.index for share in place.shares]) == ("agt-a", [0])
    assert gain.agent_id == "agt-a"
    assert [each.as_dict() for each in (gain.asked, gain.free, gain.freed)] == [
        {"cpu": 2000, "gpu": 1000},
        {"cpu": 1000, "memory": 17179869184},
        {"cpu": 3000, "gpu": 1000},
    ]


# Any cluster


@dataclass
class World:
    snapshot: Snapshot
    running: dict[SessionId, RunningSession]
    preemptor: SessionWorkload
    policy: PreemptionSpec
    budgets: dict[SessionId, DisruptionBudget]


def world_of(seed: int) -> World:
    """A cluster that is mostly full, of work that is mostly of lower priority.

    From a seed, not drawn piece by piece: those would mostly be too simple to need several victims.
    """
    draw = random.Random(seed)
    boxes = [
        box(cpu=draw.randint(3, 8), gpus=draw.choice([0, 1, 2, 4]), licence=draw.randint(0, 2))
        for _ in range(draw.randint(1, 5))
    ]
    shapes = [
        ask(
            draw.choice([0.5, 1, 2, 3]),
            gpu=draw.choice([0, 0, 0.25, 0.5, 0.7, 1, 2]),
            licence=draw.choice([0, 0, 0, 1]),
        )
        for _ in range(draw.randint(1, 4))
    ]
    snapshot, by_id = cluster(**dict(zip("abcde", boxes, strict=False))), {}
    with Statement(snapshot) as statement:
        for number in range(draw.randint(5, 20)):
            each = session(
                f"{number:02}",
                *draw.choices(shapes, k=draw.choice([1, 1, 1, 2, 3])),
                owner=draw.choice([ANN, ANN, BOB, OTHER_PROJECT, OTHER_DOMAIN]),
                priority=draw.choice([10, 10, 19, 20, 50]),
                preemptible=draw.random() < 0.9,
            )
            kernels = fit_session(statement, SELECTOR, each.workload).kernels
            if kernels is not None:
                since = draw.choice([0.0, 500.0, 800.0, 900.0, 950.0])
                by_id[each.id] = RunningSession(each.id, each.workload, kernels, since)
        statement.keep()
    mode = draw.choice(["multi-node", "multi-node", "single-node"])
    kernels_of = draw.choices(shapes, k=draw.choice([1, 2, 2, 3, 4, 6]))
    policy = PreemptionSpec(
        scope=draw.choice([*VictimScope, VictimScope.GROUP, VictimScope.GROUP]),
        minimum_lease=LEASE_S,
        least_difference=draw.choice([1, 1, 31]),
    )
    services = [DisruptionBudget(name, partial(int, draw.randint(0, 2))) for name in "xyz"]
    budgets = {id_: draw.choice(services) for id_ in by_id if draw.random() < 0.4}
    return World(
        snapshot, by_id, session("p", *kernels_of, priority=50, mode=mode), policy, budgets
    )


worlds = st.integers(0, 2**32).map(world_of)


def without(snapshot: Snapshot, sessions: Iterable[RunningSession]) -> Snapshot:
    """The snapshot once these have left."""
    twin = snapshot.copy()
    for each in sessions:
        for request, kernel in zip(each.workload.kernels, each.kernels, strict=True):
            twin.give_back(kernel.agent_id, request, kernel.shares)
    return twin


def allowed(world: World) -> list[RunningSession]:
    """The sessions that may be displaced, by a second and plainer rule."""
    parts = {"user": 3, "project": 2, "domain": 1, "group": 0}[world.policy.scope]

    def whose(owner: Owner) -> Sequence[str]:
        return (owner.domain, owner.project, owner.user)[:parts]

    return [
        each
        for each in world.running.values()
        if each.workload.priority <= 50 - world.policy.least_difference
        and each.workload.preemptible
        and NOW - each.started_at >= LEASE_S
        and whose(each.workload.owner) == whose(ANN)
    ]


@settings(max_examples=300, deadline=None)
@given(world=worlds)
def test_victims_are_allowed_needed_and_enough(world: World) -> None:
    before = contents(world.snapshot)
    workload = world.preemptor.workload
    context = PassContext(world.snapshot, NOW, budgets=world.budgets.get)
    found = find_victims(
        world.preemptor, world.snapshot, world.running, SELECTOR, world.policy, context
    )
    assert contents(world.snapshot) == before
    if found is None:
        return  # whether rightly is the next test's
    assert found.victims
    may = {each.id for each in allowed(world)}
    assert {each.id for each in found.victims} <= may
    counted = filter(None, (world.budgets.get(each.id) for each in found.victims))
    for budget, taken in Counter(counted).items():
        assert taken <= budget.left()
    assert all(each is world.running[each.id] for each in found.victims), "whole sessions"
    assert fits(world.snapshot, SELECTOR, workload) is None
    assert fits(without(world.snapshot, found.victims), SELECTOR, workload) == found.kernels
    for spared in found.victims:
        others = [each for each in found.victims if each is not spared]
        assert fits(without(world.snapshot, others), SELECTOR, workload) is None
    for gain in found.gains:
        asked, free, freed = (each.as_dict() for each in (gain.asked, gain.free, gain.freed))
        assert all(free.get(name, 0) + freed.get(name, 0) >= asked[name] for name in asked)


@settings(max_examples=300, deadline=None)
@given(world=worlds)
def test_victims_are_found_exactly_where_displacing_helps(world: World) -> None:
    workload = world.preemptor.workload
    found = find_victims(
        world.preemptor,
        world.snapshot,
        world.running,
        SELECTOR,
        world.policy,
        PassContext(world.snapshot, NOW),
    )
    fits_now = fits(world.snapshot, SELECTOR, workload) is not None
    emptied = without(world.snapshot, allowed(world))
    could_fit = fits(emptied, SELECTOR, workload) is not None
    if (
        len(workload.requests) == 1
    ):  # otherwise kernels are placed greedily, where more room may harm
        assert (found is not None) == (could_fit and not fits_now)
    elif could_fit and not fits_now:
        assert found is not None


def test_budget_of_a_service_is_counted_once_for_all_its_sessions() -> None:
    world = world_of(0)
    asked: list[str] = []

    def left() -> int:
        asked.append("x")
        return 1

    running = [*world.running.values()]
    assert len(running) > 2
    kept = within(running, (), (), lambda session: DisruptionBudget("x", left))
    assert (len(kept), asked) == (1, ["x"])
