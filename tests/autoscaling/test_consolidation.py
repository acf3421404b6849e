"""Slices and the work on them as data, and the slice that is emptied because its work has room
elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaling.fleets import NOW, pool
from tests.scheduling.clusters import agent, ask, box, cluster, policy, workload

from muster.autoscaling.consolidation import (
    MOST_MOVED,
    MOST_TRIED,
    QUIET_S,
    SETTLE_S,
    Consolidation,
    ConsolidationRules,
    PlacedWork,
    UsedSlice,
    consolidate,
    is_at_rest,
    slices_to_try,
)
from muster.autoscaling.slice_plan import SliceState
from muster.core.ids import SessionId
from muster.core.reasons import ReasonCode
from muster.core.reasons.catalogue import reason_of
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import SessionWorkload, WorkloadClass

RULES = ConsolidationRules(after_s=3600, saving=0.25, loss_s=600)
OLD_S = 9_000.0
ONE = workload(ask(cpu=1))
TWO = {"a": "p", "b": "p"}


def at(name: str, *on: str, its: WorkloadClass = ONE, ran_s: float | None = 60) -> PlacedWork:
    """Work of a job on the machines with these names."""
    return PlacedWork(SessionId(f"ses-{name}"), its, frozenset(map(agent, on)), True, ran_s)


@dataclass(frozen=True)
class Fleet:
    """Slices of one machine each, by the machine's name, with what runs on them."""

    machines: Mapping[str, Any]
    work: Sequence[PlacedWork]
    slices: Sequence[UsedSlice]
    specs: Mapping[str, Any]

    def snapshot(self) -> Snapshot:
        snapshot = cluster(**self.machines)
        for each in self.work:
            for request, id_ in zip(each.workload.kernels, sorted(each.agents), strict=True):
                snapshot.take(id_, request)
        return snapshot

    def to_try(self, emptied_s: float = OLD_S, **tried: float) -> list[str]:
        found = slices_to_try(self.specs, self.slices, RULES, emptied_s=emptied_s, tried=tried)
        return [each.state.id for each in found]

    def consolidated(self, rules: ConsolidationRules = RULES) -> Consolidation | None:
        def work_on(slice_: str) -> Sequence[PlacedWork]:
            return [each for each in self.work if agent(slice_) in each.agents]

        may_go = slices_to_try(self.specs, self.slices, rules, emptied_s=OLD_S, tried={})
        snapshot = self.snapshot()
        free = snapshot.columns.free.copy()
        found = consolidate(
            snapshot, Concentrated(), self.specs, self.slices, may_go, work_on, rules
        )
        assert (snapshot.columns.free == free).all(), "nothing is taken"
        return found

    def emptied(self, rules: ConsolidationRules = RULES) -> str | None:
        found = self.consolidated(rules)
        return None if found is None else found.slice


def fleet(
    *work: PlacedWork,
    slices: Mapping[str, str],
    pools: Mapping[str, Mapping[str, Any]] | None = None,
    held: str = "",
    young: str = "",
    lone: Sequence[str] = (),
    cpu: float = 4,
) -> Fleet:
    """``slices`` name their pools; ``lone`` are machines of no slice."""
    specs = {name: pool(name, cpu, **(pools or {}).get(name, {})).spec for name in slices.values()}
    busy = {id_ for each in work for id_ in each.agents}
    found = []
    for name, its in slices.items():
        in_use = agent(name) in busy
        since = None if in_use else 0.0
        state = SliceState(name, its, since, in_use, held_by="ann" if name == held else None)
        age_s = OLD_S if name != young else 1800.0
        found.append(UsedSlice(state, frozenset({agent(name)}), age_s, age_s + 60))
    machines = {name: box(cpu) for name in [*slices, *lone]}
    return Fleet(machines, work, found, specs)


# Which


def test_slice_is_emptied_whose_work_has_room_on_another_busy_one() -> None:
    found = fleet(at("x", "a"), at("y", "b"), slices=TWO).consolidated()
    assert found == Consolidation("a", sessions=1, saving=0.5, price=0.0)


def test_least_work_is_lost() -> None:
    assert fleet(at("x", "a"), at("y", "b", ran_s=5), slices=TWO).emptied() == "b"
    assert fleet(at("x", "a"), at("y", "b", ran_s=None), slices=TWO).emptied() == "b"


def test_work_that_has_no_room_elsewhere_stays() -> None:
    large = workload(ask(cpu=3))
    assert fleet(at("x", "a", its=large), at("y", "b", its=large), slices=TWO).emptied() is None


def test_work_does_not_move_to_an_idle_slice_that_would_go_by_itself() -> None:
    assert fleet(at("x", "a"), slices=TWO).emptied() is None


@pytest.mark.parametrize(
    ("spare", "emptied"),
    [({"min_slices": 1}, "a"), ({"min_slices": 1, "buffer_slices": 1}, None), ({}, None)],
)
def test_work_moves_to_an_idle_slice_that_stays_anyway(
    spare: dict[str, Any], emptied: str | None
) -> None:
    assert fleet(at("x", "a"), pools={"q": spare}, slices={"a": "p", "b": "q"}).emptied() == emptied


def test_work_moves_to_an_idle_slice_that_is_held_and_to_machines_of_no_slice() -> None:
    assert fleet(at("x", "a"), held="b", slices=TWO).emptied() == "a"
    found = fleet(at("x", "a"), lone=["c"], slices={"a": "p"}).consolidated()
    assert found == Consolidation("a", sessions=1, saving=1.0, price=0.0)


def test_neither_a_held_nor_a_young_slice_nor_one_of_the_minimum_is_emptied() -> None:
    work = at("x", "a"), at("y", "b")
    assert fleet(*work, held="a", slices=TWO).to_try() == ["b"]
    assert fleet(*work, young="a", slices=TWO).to_try() == ["b"]
    assert fleet(*work, pools={"p": {"min_slices": 2}}, slices=TWO).to_try() == []


def awaited(of: Fleet, name: str) -> Fleet:
    """A fleet where a job waits for this slice."""
    slices = [
        replace(each, state=replace(each.state, awaited="job-x")) if each.state.id == name else each
        for each in of.slices
    ]
    return replace(of, slices=slices)


def test_slice_for_which_a_job_waits_is_not_emptied_and_takes_nothing_in() -> None:
    two = fleet(at("x", "a"), at("y", "b"), slices=TWO)
    assert awaited(two, "a").to_try() == ["b"]
    held = fleet(at("x", "a"), held="b", slices=TWO)
    assert held.emptied() == "a"
    assert awaited(held, "b").emptied() is None


def test_nothing_is_emptied_after_a_slice_was_made_or_emptied() -> None:
    two = fleet(at("x", "a"), at("y", "b"), slices=TWO)
    assert two.to_try(emptied_s=QUIET_S - 1) == []
    assert two.to_try(emptied_s=QUIET_S) == ["a", "b"]
    first, second = two.slices
    made = replace(two, slices=[first, replace(second, made_s=QUIET_S - 1)])
    assert made.to_try() == []
    coming = replace(two, slices=[first, replace(second, age_s=None)])
    assert coming.to_try() == []


def test_slices_that_were_not_tried_for_longest_come_first() -> None:
    names = [f"s{number:02}" for number in range(MOST_TRIED + 5)]
    many = fleet(*(at(name, name) for name in names), slices=dict.fromkeys(names, "p"))
    assert many.to_try() == names[:MOST_TRIED]
    tried = dict.fromkeys(names[:MOST_TRIED], NOW)
    assert many.to_try(**tried)[:5] == names[MOST_TRIED:]


def test_sessions_have_room_in_whichever_order_they_come_back() -> None:
    """Machines b and c have 2 and 3 processors free. Two sessions of 2 and then one of 1 have room
    there; where that of 1 comes back first, one of 2 has none."""
    sizes = 2, 2, 1
    moved = [at(f"x{index}", "a", its=workload(ask(cpu=size))) for index, size in enumerate(sizes)]
    others = [
        at("y", "b", its=workload(ask(cpu=6)), ran_s=9_999),
        at("z", "c", its=workload(ask(cpu=5)), ran_s=9_999),
    ]
    assert fleet(*moved, *others, cpu=8, slices={"a": "p", "b": "p", "c": "p"}).emptied() is None
    assert fleet(*moved[:2], *others, cpu=8, slices={"a": "p", "b": "p", "c": "p"}).emptied() == "a"


# How much


def test_saving_is_told_by_prices_where_pools_have_them() -> None:
    prices = {"dear": {"price": 3.0, "min_slices": 0}, "cheap": {"price": 1.0, "min_slices": 1}}
    work = at("x", "a"), at("y", "b")
    found = fleet(*work, pools=prices, slices={"a": "dear", "b": "cheap"}).consolidated()
    assert found == Consolidation("a", sessions=1, saving=0.75, price=3.0)
    prices = {"dear": {"price": 3.0, "min_slices": 1}, "cheap": {"price": 1.0}}
    small = fleet(*work, pools=prices, slices={"a": "dear", "b": "cheap"})
    assert small.emptied(replace(RULES, saving=0.26)) is None
    assert small.emptied(replace(RULES, saving=0.25)) == "b"


def test_machines_without_a_price_save_nothing_among_those_with_one() -> None:
    free = {"own": {}, "cloud": {"price": 1.0, "min_slices": 1}}
    assert (
        fleet(at("x", "a"), at("y", "b"), pools=free, slices={"a": "own", "b": "cloud"}).emptied()
        is None
    )


def test_work_that_spreads_over_too_many_machines_stays() -> None:
    full = workload(ask(cpu=3))
    others = [at(name, name, its=full, ran_s=9_999) for name in "bcde"]
    moved = [at(f"x{number}", "a") for number in range(4)]
    pools = dict.fromkeys("abcde", "p")
    assert fleet(*others, *moved, slices=pools).emptied() is None
    found = fleet(*others, *moved[:3], slices=pools).consolidated()
    assert found is not None
    assert found.saving == 0.25


# Who


@pytest.mark.parametrize(
    ("change", "moves"),
    [
        ({}, True),
        ({"begins_anew": False}, False),
        ({"ran_s": RULES.loss_s + 1}, False),
        ({"ran_s": None}, True),
        ({"settled_s": SETTLE_S - 1}, False),
        ({"settled_s": SETTLE_S}, True),
        ({"workload": workload(ask(cpu=1), preemptible=False)}, False),
    ],
)
def test_only_work_is_moved_that_loses_little(change: dict[str, Any], moves: bool) -> None:
    stays = at("y", "b", ran_s=9_999)
    its = fleet(replace(at("x", "a"), **change), stays, slices=TWO)
    assert (its.emptied() == "a") == moves


def test_gang_moves_whole_or_not_at_all() -> None:
    pair = workload(ask(cpu=1), ask(cpu=1))
    stays = at("y", "c", ran_s=9_999)
    both = at("x", "a", "b", its=pair)
    assert fleet(both, stays, slices={"a": "p", "b": "p", "c": "p"}).emptied() is None
    whole = fleet(stays, slices={"a": "p", "c": "p"})
    here = [replace(each, state=replace(each.state, busy=True)) for each in whole.slices]
    gang = PlacedWork(SessionId("ses-x"), pair, frozenset({agent("a")}), True, 60)
    found = consolidate(
        whole.snapshot(), Concentrated(), whole.specs, here, here[:1], lambda _: [gang], RULES
    )
    assert found is not None
    assert found.slice == "a"


def test_slice_with_very_many_sessions_stays() -> None:
    many = [at(f"x{number}", "a", ran_s=None) for number in range(MOST_MOVED + 1)]
    stays = at("y", "b", ran_s=9_999)
    assert fleet(*many, stays, cpu=1000, slices=TWO).emptied() is None
    assert fleet(*many[1:], stays, cpu=1000, slices=TWO).emptied() == "a"


# When


def test_group_is_at_rest_while_nobody_waits_who_could_start() -> None:
    group = GroupState(cluster(a=box()), policy())
    group.due = False
    assert is_at_rest(group)
    group.submit(SessionWorkload(SessionId("ses-x"), 0.0, ONE))
    group.due = False
    (members,) = group.queue.classes
    for code, rests in (
        (ReasonCode.BEFORE_START_TIME, True),
        (ReasonCode.DEPENDENCY_NOT_MET, True),
        (ReasonCode.NO_ROOM, False),
        (ReasonCode.QUOTA_IN_USE, False),
    ):
        members.reasons = (reason_of(code, {}),)
        assert is_at_rest(group) == rests
    group.due = True
    assert not is_at_rest(group)


# What must never happen


def _kernels(sizes: Sequence[int]) -> WorkloadClass:
    return workload(*(ask(cpu=size) for size in sizes))


_sessions = st.lists(st.integers(1, 5), min_size=1, max_size=2)


def _group(machines: Mapping[str, Any]) -> GroupState:
    return GroupState(cluster(**machines), policy())


def _place(group: GroupState, now: float) -> None:
    for placed in group.run_pass(now).placed:
        group.start(placed, now)


@given(
    st.lists(st.integers(4, 8), min_size=2, max_size=5),
    st.lists(_sessions, min_size=1, max_size=12),
    st.data(),
)
def test_what_is_moved_has_room_at_once_and_nothing_is_made_and_emptied_in_turn(
    sizes: list[int], asked: list[list[int]], data: st.DataObject
) -> None:
    machines = {f"m{number}": box(size) for number, size in enumerate(sizes)}
    group = _group(machines)
    for age, kernels in enumerate(asked):
        its = SessionWorkload(SessionId(f"ses-{age:02}"), float(age), _kernels(kernels))
        group.submit(its)
    _place(group, NOW)
    # Some end, so that machines are left half empty.
    for id_ in data.draw(st.sets(st.sampled_from([*group.placed] or [SessionId("")]))):
        if id_ in group.placed:
            group.end(id_, NOW)
    for id_ in [each.id for each in group.queue]:
        group.withdraw(id_)
    work = [
        PlacedWork(
            id_,
            held.workload,
            frozenset(kernel.agent_id for kernel in held.kernels.values()),
            True,
            60,
        )
        for id_, held in group.placed.items()
    ]
    slices = fleet(*work, slices=dict.fromkeys(machines, "p")).slices
    if not work:
        return
    specs = {"p": pool("p").spec}
    may_go = slices_to_try(specs, slices, RULES, emptied_s=OLD_S, tried={})
    found = consolidate(
        group.snapshot,
        Concentrated(),
        specs,
        slices,
        may_go,
        lambda slice_: [each for each in work if agent(slice_) in each.agents],
        RULES,
    )
    if found is None:
        return
    moved = [each for each in work if agent(found.slice) in each.agents]
    assert len(moved) == found.sessions
    assert all(each.agents == {agent(found.slice)} for each in moved)
    idle = {each.state.id for each in slices if not each.state.busy}
    for name in {found.slice, *idle}:  # gone, or to go
        group.remove_agent(agent(name))
    back = data.draw(st.permutations(moved))
    for age, each in enumerate(back):
        group.end(each.id, NOW)
        group.submit(SessionWorkload(SessionId(f"{each.id}-2"), 100.0 + age, each.workload))
        if data.draw(st.booleans()):
            _place(group, NOW)
    _place(group, NOW)
    assert not group.waiting, "each has room at once, so no slice is made for it"
