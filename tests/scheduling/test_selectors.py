"""Which agent each selector prefers."""

import pytest
from tests.scheduling.clusters import agent, ask, box, cluster, places, what

from muster.core.errors import MusterError
from muster.core.resources import DeviceShare, Resources
from muster.scheduling.fit import fill
from muster.scheduling.plugins import AgentSelector
from muster.scheduling.selectors import Concentrated, Dispersed, Fragmentation, RoundRobin
from muster.scheduling.snapshot import Snapshot
from muster.scheduling.statement import Statement

SELECTORS = [Concentrated, Dispersed, RoundRobin, Fragmentation]


def placed(
    snapshot: Snapshot, selector: AgentSelector, request: Resources, count: int = 1
) -> list[str]:
    """Where kernels went; they stay there."""
    with Statement(snapshot) as statement:
        found = fill(statement, selector, what(request), count)
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
        fill(statement, RoundRobin(), what(ask(1)), 1)
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


@pytest.mark.parametrize("selector", SELECTORS)
def test_work_without_gpus_goes_to_agents_without_gpus_first(
    selector: type[AgentSelector],
) -> None:
    snapshot = cluster(gpus=box(cpu=4, gpus=1), plain=box(cpu=2))
    assert placed(snapshot, selector(), ask(1), 3) == ["plain", "plain", "gpus"]
