"""Sessions that may use reserved room, and the start of the session for which it is reserved."""

import numpy as np
import pytest
from tests.scheduling.clusters import agent, ask, box, cluster, contents, put, running, session
from tests.scheduling.test_reservation import NOW, kept_for, occupied

from muster.core.resources import Resources
from muster.scheduling.cluster.columns import Floats, Ints, Shares
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.fit import fit_session
from muster.scheduling.making_room.bindings import Binding
from muster.scheduling.making_room.reservation import Reservation, reserve
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.policy.selectors import Concentrated, fullest_devices

# Who is bound by it


@pytest.fixture
def two_held() -> tuple[Snapshot, Reservation]:
    """Agent a with 8 processors, 4 of them free until 150, 2 of those held."""
    ends = running("ends", "a", kernels=[ask(4)], since=0, runs_s=150)
    snapshot = occupied(cluster(a=box(cpu=8)), ends)
    found = kept_for(session("head", ask(6)), snapshot, ends)
    assert found is not None
    return snapshot, found


def free_cpu(snapshot: Snapshot) -> float:
    return int(snapshot.columns.free[0][0]) / 1000


def test_work_that_ends_by_then_is_not_bound(two_held: tuple[Snapshot, Reservation]) -> None:
    _, reservation = two_held
    assert reservation.admits(session("s", ask(), runs_s=50).workload, NOW)
    assert not reservation.admits(session("s", ask(), runs_s=50.1).workload, NOW)
    assert not reservation.admits(session("s", ask()).workload, NOW)


def test_firm_reservation_binds_everybody() -> None:
    endless = running("endless", "a", kernels=[ask(3)], since=0)
    snapshot = occupied(cluster(a=box(cpu=4)), endless)
    found = kept_for(session("head", ask(4)), snapshot, endless, firm=True)
    assert found is not None
    assert not found.admits(session("s", ask(), runs_s=0.001).workload, NOW)


def test_holds_are_taken_and_given_back(two_held: tuple[Snapshot, Reservation]) -> None:
    snapshot, reservation = two_held
    before = contents(snapshot)
    binding = Binding(reservation, snapshot)
    binding.bind()
    binding.bind()
    assert free_cpu(snapshot) == 2
    binding.lift()
    binding.lift()
    assert contents(snapshot) == before


@pytest.mark.parametrize(("short_cpu", "left_for_long"), [(1, 2), (2, 2), (3, 1), (4, 0)])
def test_others_get_what_neither_the_holds_nor_those_on_them_need(
    two_held: tuple[Snapshot, Reservation], short_cpu: int, left_for_long: int
) -> None:
    """Of 4 free processors 2 are held from 150 on, and the short ones stand there until then: the
    larger of both is gone for those that stay longer."""
    snapshot, reservation = two_held
    binding = Binding(reservation, snapshot)
    binding.bind()
    binding.lift()
    short = session("short", ask(short_cpu), runs_s=10).workload
    with Statement(snapshot) as statement:
        kernels = fit_session(statement, Concentrated(), short).kernels
        assert kernels is not None
        statement.keep()
    binding.lend(short, kernels)
    binding.bind()
    assert free_cpu(snapshot) == left_for_long


def test_devices_lent_are_held_no_more() -> None:
    ends = running("ends", "a:2", kernels=[ask(1, gpu=1)], since=0, runs_s=150)
    snapshot = occupied(cluster(a=box(cpu=8, gpus=3)), ends)
    found = kept_for(session("head", ask(1, gpu=3)), snapshot, ends)
    assert found is not None
    binding = Binding(found, snapshot)
    binding.bind()
    assert snapshot.columns.device_free[0].tolist() == [0, 0, 0]
    binding.lift()
    short = session("short", ask(1, gpu=0.5), runs_s=10).workload
    with Statement(snapshot) as statement:
        kernels = fit_session(statement, Concentrated(), short).kernels
        assert kernels is not None
        statement.keep()
    binding.lend(short, kernels)
    binding.bind()
    assert snapshot.columns.device_free[0].tolist() == [0, 0, 0]
    binding.lift()
    assert sorted(snapshot.columns.device_free[0].tolist()) == [0, 500, 1000]


def test_what_stands_on_an_older_reservation_is_not_held_once_more(
    two_held: tuple[Snapshot, Reservation],
) -> None:
    """Another pass, the same reservation: work that ends in time was placed on it by the last."""
    snapshot, reservation = two_held
    snapshot.take(agent("a"), ask(3))
    binding = Binding(reservation, snapshot)
    binding.bind()
    assert free_cpu(snapshot) == 0
    assert snapshot.columns.fitting(ask(0, gib=1)).size, "the agent is not overbooked"
    binding.lift()
    assert free_cpu(snapshot) == 1


# Starting in what was kept


def test_session_starts_where_room_was_kept_once_all_of_it_is_free() -> None:
    ends = running("ends", "a:0", kernels=[ask(4, gpu=1)], since=0, runs_s=150)
    snapshot = occupied(cluster(a=box(cpu=4, gpus=2)), ends)
    found = kept_for(session("head", ask(4, gpu=1)), snapshot, ends)
    assert found is not None
    with Statement(snapshot) as statement:
        before = contents(snapshot)
        assert found.start(statement) is None
        assert contents(snapshot) == before
        snapshot.give_back(agent("a"), ask(4, gpu=1), ends.kernels[0].shares)
        assert found.start(statement) == found.kernels
        assert snapshot.columns.device_free[0].tolist() == [0, 1000]


def test_session_does_not_start_on_an_agent_that_takes_no_more_work() -> None:
    ends = running("ends", "a", kernels=[ask(4)], since=0, runs_s=150)
    snapshot = occupied(cluster(a=box(cpu=4)), ends)
    found = kept_for(session("head", ask(4)), snapshot, ends)
    assert found is not None
    snapshot.give_back(agent("a"), ask(4))
    put(snapshot, "a", box(cpu=4, status="DRAINING"))
    assert found.start(Statement(snapshot)) is None
    snapshot.remove_agent(agent("a"))
    assert found.start(Statement(snapshot)) is None


def test_head_is_tried_once_not_at_every_end() -> None:
    """As many ends as agents: what is counted first says when it will fit."""

    class Counting(AgentSelector):
        packs = True
        asked = 0

        def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
            Counting.asked += 1
            return -candidates.astype(np.float64)

        def devices(self, request: Resources, snapshot: Snapshot, slot: int) -> Shares:
            return fullest_devices(request, snapshot, slot)

    names = [f"n{number}" for number in range(200)]
    everybody = [
        running(name, f"{name}:0", kernels=[ask(1, gpu=1)], since=0, runs_s=200 + number)
        for number, name in enumerate(names)
    ]
    snapshot = occupied(cluster(**dict.fromkeys(names, box(cpu=4, gpus=1))), *everybody)
    by_id = {each.id: each for each in everybody}
    head = session("head", *[ask(1, gpu=1)] * 100)
    found = reserve(head, snapshot, by_id, Counting(), NOW, firm=False)
    assert found is not None
    assert (found.expected_at, Counting.asked) == (299, 1)
