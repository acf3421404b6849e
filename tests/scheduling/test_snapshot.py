"""The snapshot follows its deltas exactly and is never over capacity."""

import copy
from collections.abc import Callable

import pytest
from tests.scheduling.clusters import GIB, agent, ask, box, cluster, contents, places, put, workload

from muster.core.errors import MusterError, NotFound
from muster.core.resources import MAX_DEVICES, Device, DeviceShare, Resources
from muster.scheduling.cluster.columns import MAX_DIMENSIONS
from muster.scheduling.cluster.snapshot import NotHeld, OverCapacity, Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.fit import fill
from muster.scheduling.policy.selectors import Concentrated

WHOLE_0 = (DeviceShare(0, 1000),)
HALF_1 = (DeviceShare(1, 500),)


def fitting(snapshot: Snapshot, request: Resources) -> list[str]:
    return [snapshot.facts(slot).name for slot in snapshot.columns.fitting(request).tolist()]


def free_milli(snapshot: Snapshot, name: str) -> list[int]:
    devices: list[int] = snapshot.columns.device_free[snapshot.slot(agent(name))].tolist()
    return devices


def test_take_holds_resources_and_devices_until_given_back() -> None:
    snapshot = cluster(a=box(cpu=4, gib=16, gpus=2))
    snapshot.take(agent("a"), ask(3, 8, 1), WHOLE_0)
    snapshot.take(agent("a"), ask(1, 0, 0.5), HALF_1)

    assert snapshot.columns.free.tolist() == [[0, 8 * GIB, 0]]
    assert free_milli(snapshot, "a") == [0, 500]

    snapshot.give_back(agent("a"), ask(3, 8, 1), WHOLE_0)
    assert snapshot.columns.free.tolist() == [[3000, 16 * GIB, 0]]
    assert free_milli(snapshot, "a") == [1000, 500]


@pytest.mark.parametrize(
    ("request_", "shares"),
    [
        (ask(5), ()),
        (ask(1, 17), ()),
        (ask(1, licence=1), ()),
        (ask(1, gpu=1), (DeviceShare(1, 1000),)),
        (ask(1, gpu=0.6), (DeviceShare(1, 600),)),
        (ask(1, gpu=1), (DeviceShare(7, 1000),)),
        (ask(1, gpu=2), (DeviceShare(0, 600), DeviceShare(0, 600))),
    ],
    ids=["cpu", "memory", "extra", "held device", "fraction", "no such device", "device twice"],
)
def test_take_that_does_not_fit_raises_and_takes_nothing(
    request_: Resources, shares: tuple[DeviceShare, ...]
) -> None:
    snapshot = cluster(a=box(cpu=4, gib=16, gpus=2))
    snapshot.take(agent("a"), ask(0, gpu=0.5), HALF_1)
    before = contents(snapshot)

    with pytest.raises(OverCapacity, match="agent a has no room"):
        snapshot.take(agent("a"), request_, shares)
    assert contents(snapshot) == before


@pytest.mark.parametrize(
    ("resources", "shares"),
    [
        (ask(2), ()),
        (ask(1, licence=1), ()),
        (ask(1, gpu=1), WHOLE_0),
        (ask(1, gpu=1), (DeviceShare(9, 1000),)),
        (ask(1, gpu=1), (DeviceShare(1, 300), DeviceShare(1, 300))),
    ],
    ids=["cpu", "extra", "free device", "no such device", "device twice"],
)
def test_give_back_of_more_than_is_held_raises_and_frees_nothing(
    resources: Resources, shares: tuple[DeviceShare, ...]
) -> None:
    snapshot = cluster(a=box(gpus=2))
    snapshot.take(agent("a"), ask(1, gpu=0.5), HALF_1)
    before = contents(snapshot)

    with pytest.raises(NotHeld):
        snapshot.give_back(agent("a"), resources, shares)
    assert contents(snapshot) == before


def test_forced_take_may_overbook_and_then_nothing_new_fits_there() -> None:
    snapshot = cluster(a=box(cpu=4, gib=16), b=box(cpu=4))
    snapshot.take(agent("a"), ask(5), force=True)

    assert snapshot.columns.free[0, 0] == -1000
    assert fitting(snapshot, ask(0, gib=1)) == ["b"]  # a has memory, but is overbooked

    snapshot.give_back(agent("a"), ask(5))
    assert fitting(snapshot, ask(0, gib=1)) == ["a", "b"]


def test_forced_take_of_what_the_agent_does_not_have_closes_it() -> None:
    snapshot = cluster(a=box(gpus=1))
    snapshot.take(agent("a"), ask(1, gpu=1), (DeviceShare(3, 1000),), force=True)
    assert free_milli(snapshot, "a") == [1000, 0, 0, -1000]
    assert fitting(snapshot, ask(1)) == []

    snapshot.give_back(agent("a"), ask(1, gpu=1), (DeviceShare(3, 1000),))
    snapshot.take(agent("a"), ask(1, licence=2), force=True)
    assert snapshot.columns.dimensions == ("cpu", "memory", "disk", "licence")
    assert fitting(snapshot, ask(1)) == []


def test_change_of_capacity_keeps_what_is_held() -> None:
    snapshot = cluster(a=box(cpu=4, gpus=2))
    snapshot.take(agent("a"), ask(3, gpu=1.0), (DeviceShare(1, 1000),))

    put(snapshot, "a", box(cpu=8, gpus=3))
    assert snapshot.columns.free[0, 0] == 5000
    assert free_milli(snapshot, "a") == [1000, 0, 1000]

    put(snapshot, "a", box(cpu=2, gpus=1))  # came back smaller, its kernels still run
    assert snapshot.columns.free[0, 0] == -1000
    assert free_milli(snapshot, "a") == [1000, -1000, 0]
    assert fitting(snapshot, ask(0)) == []

    snapshot.give_back(agent("a"), ask(3, gpu=1.0), (DeviceShare(1, 1000),))
    assert free_milli(snapshot, "a") == [1000, 0, 0]
    assert fitting(snapshot, ask(2, gpu=1)) == ["a"]


def test_removed_agent_is_forgotten_and_its_slot_used_again() -> None:
    snapshot = cluster(a=box(), b=box(gpus=1), c=box())
    snapshot.take(agent("b"), ask(2, gpu=1), WHOLE_0)
    snapshot.remove_agent(agent("b"))
    snapshot.remove_agent(agent("b"))

    assert len(snapshot) == 2
    assert fitting(snapshot, ask(1)) == ["a", "c"]
    with pytest.raises(NotFound):
        snapshot.take(agent("b"), ask(1))
    snapshot.give_back(agent("b"), ask(2, gpu=1), WHOLE_0)  # left with it

    put(snapshot, "d", box(cpu=9))
    assert (snapshot.slot(agent("a")), snapshot.slot(agent("d"))) == (0, 1)
    assert snapshot.columns.free[1].tolist() == [9000, 16 * GIB, 0]
    assert free_milli(snapshot, "d") == [0]


def test_agent_that_does_not_accept_work_gets_none_but_stays_charged() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4))
    snapshot.take(agent("a"), ask(1))
    put(snapshot, "a", box(cpu=4, status="UNREACHABLE"))

    assert fitting(snapshot, ask(1)) == ["b"]
    put(snapshot, "a", box(cpu=4))
    assert fitting(snapshot, ask(4)) == ["b"]


def test_version_moves_with_what_could_make_room_only() -> None:
    snapshot = cluster(a=box())
    versions = [snapshot.version]
    put(snapshot, "a", box())
    snapshot.take(agent("a"), ask(1))
    versions.append(snapshot.version)
    assert versions[0] == versions[1]

    changes: list[Callable[[], None]] = [
        lambda: snapshot.give_back(agent("a"), ask(1)),
        lambda: put(snapshot, "a", box(cpu=5)),
        lambda: put(snapshot, "b", box()),
        lambda: put(snapshot, "b", box(status="LOST")),
        lambda: snapshot.remove_agent(agent("b")),
    ]
    for change in changes:
        versions.append(snapshot.version)
        change()
        assert snapshot.version > versions[-1]


def test_many_agents_keep_their_amounts_as_the_columns_grow() -> None:
    snapshot = Snapshot("pool")
    for number in range(100):
        put(snapshot, f"n{number}", box(cpu=number, gpus=number % 3, licence=number % 2))
        snapshot.take(agent(f"n{number}"), ask(number / 2))

    columns = snapshot.columns
    assert columns.free[:, 0].tolist() == [500 * number for number in range(100)]
    assert columns.free[:, 3].tolist() == [1000 * (number % 2) for number in range(100)]
    assert columns.device_count.tolist() == [number % 3 for number in range(100)]
    assert columns.whole_free.tolist() == [number % 3 for number in range(100)]
    assert fitting(snapshot, ask(49, gpu=2)) == ["n98"]


def test_device_models_are_known_by_device() -> None:
    snapshot = cluster(a=box(gpus=1, model="H100"), b=box(gpus=2, model="L4"), c=box())
    names = [
        [snapshot.columns.models[code] if code >= 0 else "-" for code in row]
        for row in snapshot.columns.device_model.tolist()
    ]
    assert names == [["H100", "-"], ["L4", "L4"], ["-", "-"]]


@pytest.mark.parametrize(
    "devices",
    [
        (Device(0, "H100"), Device(0, "H100")),
        (Device(MAX_DEVICES, "H100"),),
        (Device(-1, "H100"),),
    ],
    ids=["same index", "too large an index", "negative index"],
)
def test_absurd_devices_are_refused_and_nothing_changes(devices: tuple[Device, ...]) -> None:
    snapshot = cluster(a=box())
    before = contents(snapshot)
    with pytest.raises(MusterError):
        snapshot.upsert_agent(agent("a"), "a", ask(9), devices, accepting=True, status="ALIVE")
    assert contents(snapshot) == before


def test_absurd_number_of_named_resources_is_refused_and_nothing_changes() -> None:
    snapshot = cluster(a=box())
    before = contents(snapshot)
    extra = {f"extra{number}": 1000 for number in range(MAX_DIMENSIONS)}
    capacity = Resources.with_extra(1000, 0, 0, 0, extra)
    with pytest.raises(MusterError, match="at most"):
        snapshot.upsert_agent(agent("b"), "b", capacity, (), accepting=True, status="ALIVE")
    assert contents(snapshot) == before


def test_columns_cannot_be_written_from_outside() -> None:
    columns = cluster(a=box(gpus=1)).columns
    for array in (columns.free, columns.device_free, columns.utilisation, columns.accepting):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


# What changed


def test_changes_are_told_since_a_mark() -> None:
    snapshot = cluster(a=box(gpus=1), b=box(), c=box())
    columns = snapshot.columns
    mark = columns.changes_mark
    assert columns.changed_since(mark) == []
    snapshot.take(agent("c"), ask(1))
    snapshot.take(agent("a"), ask(1, gpu=1), WHOLE_0)
    assert columns.changed_since(mark) == [2, 0]
    mark = columns.changes_mark
    put(snapshot, "b", box(status="LOST"))
    assert set(columns.changed_since(mark) or ()) == {1}


def test_changes_of_long_ago_are_forgotten_and_it_is_told() -> None:
    snapshot = cluster(a=box(cpu=1))
    columns = snapshot.columns
    first = columns.changes_mark
    for _ in range(5000):
        snapshot.take(agent("a"), ask(1))
        snapshot.give_back(agent("a"), ask(1))
    late = columns.changes_mark
    snapshot.take(agent("a"), ask(1))
    assert columns.changed_since(first) is None
    assert columns.changed_since(late) == [0]
    assert columns.free[0, 0] == 0


def test_capacity_version_moves_with_what_agents_have_only() -> None:
    snapshot = cluster(a=box(), b=box())
    columns = snapshot.columns
    version = columns.capacity_version
    snapshot.take(agent("a"), ask(1))
    put(snapshot, "a", box(status="LOST", has={"zone": "x"}))
    assert columns.capacity_version == version
    put(snapshot, "b", box(gpus=1))
    assert columns.capacity_version > version


def test_facts_version_moves_with_names_and_attributes_only() -> None:
    snapshot = cluster(a=box(has={"zone": "x"}))
    version = snapshot.facts_version
    put(snapshot, "a", box(cpu=9, status="LOST", has={"zone": "x"}))
    assert snapshot.facts_version == version
    put(snapshot, "a", box(has={"zone": "y"}))
    assert snapshot.facts_version > version
    assert snapshot.facts(0).attributes == {"zone": "y"}


def test_attributes_are_those_that_were_said_whatever_becomes_of_the_mapping() -> None:
    said = {"zone": "x"}
    snapshot = cluster(a=box(has=said))
    said["zone"] = "y"
    put(snapshot, "a", box(has=said))
    codes, values = snapshot.attribute("zone")
    assert values[codes[0]] == "y"


# Copies


@pytest.mark.parametrize("make", [Snapshot.copy, copy.deepcopy, Snapshot.emptied])
def test_copy_is_placed_on_by_itself(make: Callable[[Snapshot], Snapshot]) -> None:
    snapshot = cluster(a=box(cpu=4, gpus=1), b=box(cpu=8))
    key = workload(ask(1)).owner, "set"
    with Statement(snapshot) as statement:
        fill(statement, Concentrated(), workload(ask(1, gpu=1)), 1)
        statement.join_set(0, key)
        statement.keep()
    before = contents(snapshot)
    twin = make(snapshot)
    with Statement(twin) as statement:
        found = [fill(statement, Concentrated(), workload(ask(4)), 1) for _ in range(4)]
        assert found[-1] == []
        assert (twin.columns.free >= 0).all()
        assert fitting(twin, ask(4)) == []
        statement.join_set(1, key)
        statement.keep()
    assert contents(snapshot) == before
    assert snapshot.in_set(key) == {0: 1}
    put(snapshot, "c", box(licence=1, gpus=2, model="L4"))
    assert fitting(snapshot, ask(1, licence=1)) == ["c"]
    assert fitting(twin, ask(1, licence=1)) == []
    with Statement(snapshot) as statement:
        assert places(fill(statement, Concentrated(), workload(ask(1)), 1)) == ["b"]


def test_emptied_copy_holds_nothing() -> None:
    snapshot = cluster(a=box(cpu=4, gpus=1), b=box(cpu=8, status="LOST"))
    snapshot.take(agent("a"), ask(3, gpu=1), WHOLE_0)
    snapshot.take(agent("b"), ask(9), force=True)
    snapshot.set_joined(agent("a"), (workload(ask(1)).owner, "set"), 1)
    twin = snapshot.emptied()
    assert fitting(twin, ask(4, gpu=1)) == ["a"]
    assert twin.in_set((workload(ask(1)).owner, "set")) == {}
    assert fitting(snapshot.emptied(all_accept=True), ask(4)) == ["a", "b"]
    assert free_milli(snapshot, "a") == [0]
