"""The agent that each selector prefers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import Box, agent, ask, box, cluster, places, put, workload

from muster.core.errors import MusterError
from muster.core.resources import DeviceShare, Resources
from muster.scheduling.cluster.columns import Columns, Ints
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.fit import fill
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.policy.selectors import (
    Concentrated,
    Dispersed,
    Fragmentation,
    RoundRobin,
    resource_priority,
)
from muster.scheduling.policy.selectors.resource_priority import Fullness

SELECTORS = [Concentrated, Dispersed, RoundRobin, Fragmentation]


def placed(
    snapshot: Snapshot, selector: AgentSelector, request: Resources, count: int = 1
) -> list[str]:
    """The agents to which kernels went; they stay there."""
    with Statement(snapshot) as statement:
        found = fill(statement, selector, workload(request), count)
        statement.keep()
    return places(found)


def test_concentrated_takes_the_fullest_agent_then_the_smaller() -> None:
    snapshot = cluster(a=box(cpu=8), b=box(cpu=8), c=box(cpu=4))
    snapshot.take(agent("b"), ask(2))
    assert placed(snapshot, Concentrated(), ask(3), 4) == ["b", "b", "c", "a"]


def test_dispersed_takes_the_emptiest_agent_then_the_larger() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=8), c=box(cpu=4))
    snapshot.take(agent("c"), ask(2))
    assert placed(snapshot, Dispersed(), ask(1), 3) == ["b", "a", "b"]


def counted(cpu: float, kernels: int = 10) -> Box:
    """A machine that holds so many kernels, however little they ask for."""
    machine = box(cpu=cpu, gib=0)
    return replace(machine, capacity=replace(machine.capacity, kernels=kernels))


@pytest.mark.parametrize(
    ("held", "preferred"),
    [
        # Half of each is held, by more kernels on the larger one or on the smaller one.
        ({"small": 1, "large": 4}, {"concentrated": "small", "dispersed": "large"}),
        ({"small": 4, "large": 1}, {"concentrated": "small", "dispersed": "large"}),
        ({"small": 2, "large": 2}, {"concentrated": "small", "dispersed": "large"}),
    ],
)
@pytest.mark.parametrize("resources", [[], ["cpu"]])
def test_among_equally_full_agents_size_decides_and_not_the_number_of_kernels(
    held: dict[str, int], preferred: dict[str, str], resources: list[str]
) -> None:
    one = replace(ask(0.5), kernels=1)
    for first in ("small", "large"):
        machines = {"small": counted(4), "large": counted(8)}
        last = ({*machines} - {first}).pop()
        snapshot = cluster(**{first: machines[first], last: machines[last]})
        for name, number in held.items():
            each = replace(ask(machines[name].capacity.cpu_milli / 2000 / number), kernels=1)
            for _ in range(number):
                snapshot.take(agent(name), each)
        selectors = {"concentrated": Concentrated(resources), "dispersed": Dispersed(resources)}
        assert {
            name: placed(snapshot.copy(), selector, one)[0] for name, selector in selectors.items()
        } == preferred


def test_number_of_kernels_that_an_agent_may_hold_makes_it_no_larger_and_no_fuller() -> None:
    snapshot = cluster(few=counted(4, kernels=10), many=counted(4, kernels=1000))
    for name in ("few", "many"):
        snapshot.take(agent(name), replace(ask(1), kernels=1))
    columns = snapshot.columns
    assert columns.utilisation.tolist() == [0.25, 0.25]
    assert columns.size[0] == columns.size[1]
    need = columns.need(replace(ask(1), kernels=1))
    assert need is not None
    slots = np.arange(2)
    assert columns.step(slots, need).tolist() == [250_000, 250_000]
    assert columns.steps_after(slots, need, np.array([2, 2])).tolist() == [750_000, 750_000]
    assert [columns.measure(slot)[0] for slot in (0, 1)] == [250_000, 250_000]


def test_dispersed_puts_a_fraction_on_the_freest_device() -> None:
    snapshot = cluster(a=box(gpus=2))
    snapshot.take(agent("a"), ask(0, gpu=0.2), (DeviceShare(0, 200),))
    assert placed(snapshot, Dispersed(), ask(0, gpu=0.3)) == ["a:1=300"]


def test_round_robin_goes_round_and_passes_over_what_is_full() -> None:
    snapshot = cluster(a=box(cpu=2), b=box(cpu=1), c=box(cpu=2))
    assert placed(snapshot, RoundRobin(), ask(1), 6) == ["a", "b", "c", "a", "c"]


def test_round_robin_turn_is_given_back_with_the_statement() -> None:
    snapshot = cluster(a=box(), b=box())
    with Statement(snapshot) as statement:
        fill(statement, RoundRobin(), workload(ask(1)), 1)
    assert placed(snapshot, RoundRobin(), ask(1)) == ["a"]


def half_used() -> Snapshot:
    """``memory`` is fuller of memory, ``cpu`` of CPUs and a little more on the whole."""
    snapshot = cluster(memory=box(cpu=10, gib=100), cpu=box(cpu=10, gib=100))
    snapshot.take(agent("memory"), ask(1, gib=60))
    snapshot.take(agent("cpu"), ask(7, gib=10))
    return snapshot


@pytest.mark.parametrize(
    ("resources", "fullest"),
    [
        ([], "cpu"),
        (["memory"], "memory"),
        (["cpu", "memory"], "cpu"),
        (["gpu", "memory", "cpu"], "memory"),
        (["unheard-of"], "memory"),
    ],
)
def test_resources_are_compared_in_the_order_that_is_given(
    resources: list[str], fullest: str
) -> None:
    emptiest = {"cpu": "memory", "memory": "cpu"}[fullest]
    if resources == ["unheard-of"]:
        emptiest = fullest  # all are equal, so the first
    assert placed(half_used(), Concentrated(resources), ask(1)) == [fullest]
    assert placed(half_used(), Dispersed(resources), ask(1)) == [emptiest]


def test_concentrated_by_gpu_fills_the_agent_whose_gpus_are_in_use() -> None:
    snapshot = cluster(a=box(cpu=8, gpus=2), b=box(cpu=8, gpus=2))
    snapshot.take(agent("a"), ask(7))
    snapshot.take(agent("b"), ask(0, gpu=1), (DeviceShare(0, 1000),))
    assert placed(snapshot, Concentrated(["gpu", "cpu"]), ask(1, gpu=1), 3) == ["b:1", "a:0"]


@pytest.mark.parametrize("resources", ["cpu", ["cpu", "cpu"], [1]])
@pytest.mark.parametrize("selector", [Concentrated, Dispersed])
def test_resources_that_are_no_list_of_names_are_refused(
    selector: type[Concentrated] | type[Dispersed], resources: list[str]
) -> None:
    with pytest.raises(MusterError, match="resources"):
        selector(resources)


def fullness_by_definition(
    snapshot: Snapshot, resources: list[str], slot: int
) -> tuple[float, ...]:
    """As the docstring says it, in plain Python."""
    columns, parts = snapshot.columns, []
    for name in resources:
        if name == "gpu":
            capacity, free = columns.device_capacity[slot].sum(), columns.device_free[slot].sum()
        elif name in columns.dimensions:
            dimension = columns.dimensions.index(name)
            capacity, free = columns.capacity[slot, dimension], columns.free[slot, dimension]
        else:
            capacity = free = 0
        parts.append(round((capacity - free) / capacity * 1e6) if capacity else 0)
    return (*parts, -columns.size[slot])


machines = st.builds(box, cpu=st.integers(0, 8), gib=st.integers(1, 9), gpus=st.integers(0, 3))
events = st.tuples(st.sampled_from(["take"] * 4 + ["leave", "join"]), st.integers(0, 99), machines)


@settings(deadline=None)
@given(
    resources=st.permutations(["gpu", "cpu", "memory", "disk", "licences"]),
    count=st.integers(1, 5),
    boxes=st.lists(machines, min_size=2, max_size=40),
    changes=st.lists(events, max_size=15),
)
def test_fullness_is_that_of_the_first_resource_that_differs_then_of_the_smaller(
    resources: list[str], count: int, boxes: list[Box], changes: list[tuple[str, int, Box]]
) -> None:
    chosen = resources[:count]
    snapshot = cluster(**{f"n{n}": machine for n, machine in enumerate(boxes)})
    fullness = Fullness(chosen)
    requests = [ask(1), ask(0.3, gib=1), ask(0, gpu=0.31), ask(1, gib=2, gpu=1), ask(0.001)]
    for kind, number, machine in changes:
        if kind == "join":
            put(snapshot, f"n{number}", machine)
        elif kind == "leave":
            snapshot.remove_agent(agent(f"n{number}"))
        else:
            with Statement(snapshot) as statement:
                fill(statement, Concentrated(), workload(requests[number % 5]), 1)
                statement.keep()
        slots = snapshot.columns.fitting(ask(0))
        full = fullness.of(snapshot.columns, slots)
        expected = [fullness_by_definition(snapshot, chosen, slot) for slot in slots.tolist()]
        for one, its in zip(full.tolist(), expected, strict=True):
            assert [one < other for other in full] == [its < other for other in expected]


def test_a_decision_by_chosen_resources_looks_anew_at_what_has_changed_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[int] = []
    utilisation = resource_priority._utilisation

    def counted(columns: Columns, name: str, slots: Ints) -> Ints:
        looked_at.append(slots.size)
        return utilisation(columns, name, slots)

    monkeypatch.setattr(resource_priority, "_utilisation", counted)
    snapshot = cluster(**{f"n{n}": box(cpu=4, gpus=2) for n in range(50)})
    selector = Dispersed(["gpu", "cpu"])
    assert placed(snapshot, selector, ask(1, gpu=1), 3) == ["n0:0", "n1:0", "n2:0"]
    assert looked_at == [50, 50] + [1, 1] * 2


def test_packing_by_chosen_resources_keeps_its_promise() -> None:
    """Taking lowers no score, and changes that of the agent taken from only."""
    snapshot = cluster(a=box(cpu=8, gpus=2), b=box(cpu=5, gpus=3), c=box(cpu=16, gib=9, gpus=1))
    selector, slots = Concentrated(["gpu", "cpu"]), np.arange(3)
    assert selector.packs
    for request, slot in [(ask(1, gpu=1), 1), (ask(2), 0), (ask(1, gpu=0.5), 2), (ask(3), 1)]:
        before = selector.score(request, snapshot, slots)
        with Statement(snapshot) as statement:
            shares = selector.devices(request, snapshot, slot) if request.gpu_milli else ()
            statement.take(slot, request, shares)
            statement.keep()
        after = selector.score(request, snapshot, slots)
        assert (after >= before).all()
        assert np.flatnonzero(after != before).tolist() == [slot]


@pytest.mark.parametrize("selector", SELECTORS)
def test_work_without_gpus_goes_to_agents_without_gpus_first(
    selector: type[AgentSelector],
) -> None:
    snapshot = cluster(gpus=box(cpu=4, gpus=1), plain=box(cpu=2))
    assert placed(snapshot, selector(), ask(1), 3) == ["plain", "plain", "gpus"]


@pytest.mark.parametrize("selector", [Concentrated, Dispersed])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("gpus", "no resource 'gpus'; did you mean 'gpu'?"),
        ("GPU", "did you mean 'gpu'?"),
        ("mem", "did you mean 'memory'?"),
        ("memroy", "did you mean 'memory'?"),
        ("My disk", "'My disk', which no agent can have"),
    ],
)
def test_resource_that_nobody_can_have_meant_is_refused(
    selector: type[Concentrated | Dispersed], name: str, told: str
) -> None:
    with pytest.raises(MusterError) as caught:
        selector(resources=["cpu", name])
    assert told in str(caught.value)


def test_resources_that_agents_may_have_some_day_are_taken() -> None:
    Concentrated(resources=["tpu", "vgpu", "gpu_memory", "licence", "scratch", "ram"])
