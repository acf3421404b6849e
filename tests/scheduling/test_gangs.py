"""Sessions of several kernels: whole or not at all, on one agent or many, near each other."""

import pytest
from tests.scheduling.clusters import agent, ask, box, cluster, contents, places, put, workload

from muster.core.resources import DeviceShare, Resources
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.filling import Filling
from muster.scheduling.fitting.fit import Fit, fill, fit_session
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import KernelPlacement, WorkloadClass


def placed(snapshot: Snapshot, each: WorkloadClass) -> list[str] | int:
    """The agents of the kernels, or the number of kernels that found room."""
    before = contents(snapshot)
    with Statement(snapshot) as statement:
        fit = fit_session(statement, Concentrated(), each)
        if fit.kernels is None:
            assert contents(snapshot) == before
            return fit.placed
    return places(fit.kernels)


def test_kernels_that_fit_together_are_taken_together() -> None:
    snapshot = cluster(a=box(cpu=3), b=box(cpu=3))
    with Statement(snapshot) as statement:
        fit = fit_session(statement, Concentrated(), workload(*[ask(1)] * 5))
        assert fit == Fit(5, fit.kernels)
        statement.keep()
    assert snapshot.columns.free[:, 0].tolist() == [0, 1000]


def test_room_of_equal_kernels_is_counted_exactly() -> None:
    snapshot = cluster(a=box(cpu=7, gpus=3), b=box(cpu=2, gpus=4), c=box(cpu=9))
    snapshot.take(agent("a"), ask(0, gpu=0.5), (DeviceShare(1, 500),))
    assert placed(snapshot, workload(*[ask(1, gpu=1)] * 5)) == 4
    assert placed(snapshot, workload(*[ask(1, gpu=1)] * 4)) == ["a:0", "a:2", "b:0", "b:1"]
    assert placed(snapshot, workload(*[ask(1, gpu=0.4)] * 8)) == 7


# Unlike kernels


def test_most_demanding_kernels_are_placed_first() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=6, gpus=1))
    assert placed(snapshot, workload(ask(1), ask(6, gpu=1), ask(3))) == ["a", "b:0", "a"]


def test_second_order_is_tried_before_giving_up() -> None:
    """By processors, the first kernel takes the memory that only the second cannot do without."""
    snapshot = cluster(small=box(cpu=4, gib=4), large=box(cpu=4, gib=64))
    snapshot.take(agent("large"), ask(1))  # the fuller one
    assert placed(snapshot, workload(ask(3, 1), ask(2, 60))) == ["small", "large"]


def test_unlike_kernels_that_do_not_fit_together_hold_nothing() -> None:
    snapshot = cluster(a=box(cpu=4, gpus=1))
    assert placed(snapshot, workload(ask(1, gpu=1), ask(1), ask(3))) == 2


# One agent


def test_single_node_waits_for_an_agent_that_holds_all() -> None:
    snapshot = cluster(a=box(cpu=3), b=box(cpu=3), c=box(cpu=6))
    snapshot.take(agent("c"), ask(1))
    gang = [ask(2)] * 2
    assert placed(snapshot, workload(*gang)) == ["c", "c"]
    assert placed(snapshot, workload(*gang, mode="single-node")) == ["c", "c"]
    snapshot.take(agent("c"), ask(2))
    assert placed(snapshot, workload(*gang)) == ["c", "a"]
    assert placed(snapshot, workload(*gang, mode="single-node")) == 0


def test_single_node_of_unlike_kernels_counts_their_devices_together() -> None:
    snapshot = cluster(a=box(cpu=9, gpus=2), b=box(cpu=9, gpus=3), c=box(cpu=4, gpus=8))
    gang = workload(ask(2), ask(3, gpu=2), ask(1, gpu=0.5), mode="single-node")
    assert placed(snapshot, gang) == ["b", "b:0,1", "b:2=500"]


def test_single_node_keeps_to_its_ranks_and_then_to_the_best_agent() -> None:
    soft = [{"attribute": "ssd", "op": "EXISTS", "soft": True}]
    snapshot = cluster(a=box(), b=box(has={"ssd": "1"}), c=box(has={"ssd": "1"}), d=box())
    snapshot.take(agent("c"), ask(1))
    snapshot.take(agent("d"), ask(2))
    gang = [ask(1), ask(0.5)]
    assert placed(snapshot, workload(*gang, mode="single-node", constraints=soft)) == ["c", "c"]
    assert placed(snapshot, workload(*gang, mode="single-node")) == ["d", "d"]
    assert placed(snapshot, workload(*gang, mode="single-node", failed=["b", "c", "d"])) == [
        "a",
        "a",
    ]


def test_single_node_is_tried_on_all_agents_that_are_not_alike() -> None:
    """Of hundreds each request fits by itself, and both by their sums; on the last one together."""
    names = [f"n{number}" for number in range(300)]
    snapshot = cluster(**{name: box(gpus=3) for name in names}, last=box(gpus=3))
    part = tuple(DeviceShare(index, 600) for index in (1, 2))
    for name in names:
        snapshot.take(agent(name), ask(0, gpu=1.2), part)
    gang = workload(ask(1, gpu=1), ask(1, gpu=0.5), mode="single-node")
    assert placed(snapshot, gang) == ["last:0", "last:1=500"]


def test_single_node_with_fewer_kernels_an_agent_than_it_has_fits_nowhere() -> None:
    gang = workload(*[ask(1)] * 2, mode="single-node", max_kernels_per_agent=1)
    assert placed(cluster(a=box()), gang) == 0


# Kernels an agent


def test_agent_holds_no_more_of_a_sessions_kernels_than_allowed() -> None:
    snapshot = cluster(a=box(cpu=8), b=box(cpu=8), c=box(cpu=1))
    gang = [ask(1)] * 5
    assert placed(snapshot, workload(*gang)) == ["c", "a", "a", "a", "a"]
    assert placed(snapshot, workload(*gang, max_kernels_per_agent=2)) == ["c", "a", "a", "b", "b"]
    assert placed(snapshot, workload(*gang, max_kernels_per_agent=1)) == 3


def test_limit_counts_unlike_kernels_together() -> None:
    snapshot = cluster(a=box(cpu=8), b=box(cpu=8))
    gang = workload(ask(3), ask(2), ask(1), ask(1), max_kernels_per_agent=2)
    assert placed(snapshot, gang) == ["a", "a", "b", "b"]


def test_limit_does_not_bind_sessions_of_one_kernel_to_each_other() -> None:
    snapshot = cluster(a=box(cpu=2))
    with Statement(snapshot) as statement:
        each = workload(ask(1), max_kernels_per_agent=1)
        found = [fit_session(statement, Concentrated(), each).kernels for _ in range(2)]
    assert [places(kernels or ()) for kernels in found] == [["a"], ["a"]]


# Together


def racks(**cpu: tuple[str, float]) -> Snapshot:
    machines = {
        name: box(cpu=amount, has={"rack": rack} if rack else {})
        for name, (rack, amount) in cpu.items()
    }
    return cluster(**machines)


def test_gang_lies_within_one_value_the_one_with_the_least_room_that_holds_it() -> None:
    snapshot = racks(a=("r1", 4), b=("r1", 4), c=("r2", 2), d=("r2", 2), e=("r3", 2), f=("", 9))
    assert placed(snapshot, workload(*[ask(1)] * 2, together="rack")) == ["e", "e"]
    assert placed(snapshot, workload(*[ask(1)] * 3, together="rack")) == ["c", "c", "d"]
    assert placed(snapshot, workload(*[ask(1)] * 5, together="rack")) == ["a"] * 4 + ["b"]
    assert placed(snapshot, workload(*[ask(1)] * 9, together="rack")) == 0


def test_gang_of_unlike_kernels_tries_the_next_value_when_the_first_does_not_hold_it() -> None:
    """Each kernel fits into r1 by itself; not both."""
    snapshot = racks(a=("r1", 3), b=("r2", 3), c=("r2", 3))
    assert placed(snapshot, workload(ask(3), ask(2), together="rack")) == ["b", "c"]


def test_gang_of_unlike_kernels_is_tried_on_values_alone_that_have_enough_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each agent may have a value of its own: to try them one by one would take long."""
    tried: list[Resources] = []
    fill_ = Filling.fill

    def noted(self: Filling, request: Resources, count: int) -> list[KernelPlacement]:
        tried.append(request)
        return fill_(self, request, count)

    monkeypatch.setattr(Filling, "fill", noted)
    gang = workload(*[ask(2)] * 3, *[ask(1)] * 8, together="rack")
    hosts: dict[str, tuple[str, float]] = {f"n{host}": (f"r{host}", 13) for host in range(50)}
    assert placed(racks(**hosts), gang) == 0
    assert not tried
    assert placed(racks(**hosts, last=("last", 14)), gang) == ["last"] * 11
    assert len(tried) == 2
    tried.clear()
    devices = {f"n{host}": box(gpus=2, has={"rack": f"r{host}"}) for host in range(50)}
    assert placed(cluster(**devices), workload(ask(1, gpu=2), ask(1, gpu=1), together="rack")) == 0
    assert not tried


def test_agent_that_holds_too_much_takes_nothing_from_others_of_its_value() -> None:
    snapshot = racks(a=("r1", 8), b=("r1", 3))
    snapshot.take(agent("a"), ask(8))
    put(snapshot, "a", box(cpu=1, has={"rack": "r1"}))
    assert snapshot.columns.free.min() < 0
    assert placed(snapshot, workload(ask(2), ask(1), together="rack")) == ["b", "b"]


def test_values_keep_to_constraints_and_limits() -> None:
    snapshot = racks(a=("r1", 2), b=("r1", 2), c=("r2", 8), d=("r2", 8))
    gang = [ask(1)] * 4
    assert placed(snapshot, workload(*gang, together="rack")) == ["a", "a", "b", "b"]
    assert placed(snapshot, workload(*gang, together="rack", agents=["b", "c"])) == ["c"] * 4
    limited = workload(*gang[:2], together="rack", max_kernels_per_agent=1)
    assert placed(snapshot, limited) == ["a", "b"]


def test_no_agent_has_the_attribute() -> None:
    assert placed(cluster(a=box(), b=box()), workload(ask(1), ask(1), together="rack")) == 0


def test_sessions_of_one_kernel_keep_to_the_attribute_and_fill_one_value_after_the_other() -> None:
    snapshot = racks(a=("r1", 2), b=("r2", 1), c=("r1", 1), d=("", 9))
    each = workload(ask(1), together="rack")
    with Statement(snapshot) as statement:
        assert places(fill(statement, Concentrated(), each, 9)) == ["b", "c", "a", "a"]


def test_single_node_within_a_value() -> None:
    snapshot = racks(a=("r1", 2), b=("r1", 2), c=("r2", 4), d=("r3", 6))
    gang = workload(*[ask(1)] * 3, together="rack", mode="single-node")
    assert placed(snapshot, gang) == ["c", "c", "c"]


# Ranks


def ranked(*values: str) -> Snapshot:
    names = "abcdefgh"
    machines = {
        name: box(cpu=2, has={"rank": value} if value else {})
        for name, value in zip(names, values, strict=False)
    }
    return cluster(**machines)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["10", "9", "2"], "cba"),
        (["x10", "x9", "2"], "cab"),
        (["3", "", "1"], "cab"),
        (["1", "1", "0"], "cab"),
        (["", "", ""], "abc"),
        (["-1", "0.5", "nan"], "abc"),
    ],
    ids=["numbers", "text", "missing is last", "then by name", "none", "not all are numbers"],
)
def test_kernels_follow_the_rank_of_their_agents(values: list[str], expected: str) -> None:
    gang = workload(*[ask(2)] * 3, rank_by="rank")
    assert placed(ranked(*values), gang) == list(expected)


def test_only_kernels_that_ask_for_the_same_change_places() -> None:
    snapshot = ranked("4", "3", "2", "1")
    gang = workload(ask(2), ask(1), ask(2), ask(1), rank_by="rank")
    assert placed(snapshot, workload(ask(2), ask(1), ask(2), ask(1))) == ["a", "c", "b", "c"]
    assert placed(snapshot, gang) == ["b", "c", "a", "c"]


def test_equal_kernels_on_one_agent_keep_their_devices_in_order() -> None:
    snapshot = cluster(a=box(cpu=4, gpus=2, has={"rank": "2"}), b=box(gpus=2, has={"rank": "1"}))
    gang = workload(*[ask(1, gpu=1)] * 4, rank_by="rank")
    assert placed(snapshot, gang) == ["b:0", "b:1", "a:0", "a:1"]
