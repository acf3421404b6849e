"""Room is reserved for the first session that lacks it, in small clusters."""

from collections.abc import Iterable

from tests.scheduling.clusters import (
    AWAY,
    agent,
    ask,
    box,
    cluster,
    contents,
    put,
    running,
    session,
)

from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.making_room.reservation import OVERDUE_S, Reservation, reserve
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import KernelPlacement, RunningSession, SessionWorkload

NOW = 100.0


def kept_for(
    head: SessionWorkload,
    snapshot: Snapshot,
    *sessions: RunningSession,
    firm: bool = False,
    previous: Reservation | None = None,
    now: float = NOW,
    leaving: Iterable[RunningSession] = (),
) -> Reservation | None:
    """``reserve`` with ``sessions`` running."""
    by_id = {each.id: each for each in sessions}
    victims = {each.id for each in leaving}
    return reserve(head, snapshot, by_id, Concentrated(), now, firm, previous, victims)


def occupied(snapshot: Snapshot, *sessions: RunningSession) -> Snapshot:
    """The snapshot, with what the sessions hold taken."""
    for each in sessions:
        for request, kernel in zip(each.workload.kernels, each.kernels, strict=True):
            snapshot.take(kernel.agent_id, request, kernel.shares)
    return snapshot


def shown(kernels: Iterable[KernelPlacement]) -> list[str]:
    """ "a" is agent a, "a:0,1" its devices 0 and 1."""
    return [
        each.agent_id.removeprefix("agt-")
        + (":" + ",".join(str(share.index) for share in each.shares) if each.shares else "")
        for each in kernels
    ]


def held(reservation: Reservation | None) -> dict[str, object]:
    """By agent what is held: its processors and devices ("0", or "0=500" for a part)."""
    assert reservation is not None
    return {
        room.agent_id.removeprefix("agt-"): (
            room.resources.cpu_milli / 1000,
            [
                str(share.index) if share.milli == 1000 else f"{share.index}={share.milli}"
                for share in room.shares
            ],
        )
        for room in reservation.reserved
    }


def test_head_waits_for_the_first_end_that_makes_room() -> None:
    early = running("early", "b", kernels=[ask(4)], since=0, runs_s=150)
    late = running("late", "a", kernels=[ask(4)], since=0, runs_s=200)
    snapshot = occupied(cluster(a=box(cpu=4), b=box(cpu=4)), early, late)
    found = kept_for(session("head", ask(3)), snapshot, late, early)
    assert found is not None
    assert (found.expected_at, shown(found.kernels)) == (150, ["b"])
    assert found.waits_for == (early.id,)
    assert not found.reserved, "what ends there is enough"


def test_head_that_waits_for_agents_away_keeps_the_room_of_those_that_are_here() -> None:
    before = running("before", "a", kernels=[ask(1)])
    fullest = running("fullest", "away", kernels=[ask(2)])
    snapshot = cluster(a=box(cpu=1), away=box(cpu=4, status=AWAY), c=box(cpu=1))
    occupied(snapshot, before, fullest)
    head = session("head", ask(1), ask(1), ask(1))
    first = kept_for(head, snapshot, before, fullest)
    assert first is not None
    assert sorted(shown(first.kernels)) == ["away", "away", "c"]

    snapshot.give_back(agent("a"), ask(1))
    then = kept_for(head, snapshot, fullest, previous=first)
    assert then is not None
    assert then.expected_at == NOW
    assert sorted(shown(then.kernels)) == ["a", "away", "c"]


def test_only_what_ends_do_not_give_back_is_held() -> None:
    ends = running("ends", "a", kernels=[ask(4, 1)], since=0, runs_s=150)
    snapshot = occupied(cluster(a=box(cpu=8, gib=8)), ends)
    found = kept_for(session("head", ask(6, 1)), snapshot, ends)
    assert held(found) == {"a": (2, [])}


def test_gang_waits_for_its_last_agent_and_holds_the_others() -> None:
    ends = running("ends", "b", kernels=[ask(4)], since=0, runs_s=150)
    sooner = running("sooner", "c", kernels=[ask(2)], since=0, runs_s=110)
    endless = running("endless", "d", kernels=[ask(1)], since=0)
    boxes = {name: box(cpu=4) for name in "abcd"}
    snapshot = occupied(cluster(**boxes), ends, sooner, endless)
    found = kept_for(session("head", ask(4), ask(4), ask(4)), snapshot, ends, sooner, endless)
    assert found is not None
    assert found.expected_at == 150
    assert sorted(shown(found.kernels)) == ["a", "b", "c"]
    assert held(found) == {"a": (4, []), "c": (2, [])}
    assert set(found.waits_for) == {ends.id, sooner.id}


def test_equal_ends_are_one_step() -> None:
    ends = [running(f"r{n}", "a", kernels=[ask(1)], since=0, runs_s=150) for n in range(4)]
    snapshot = occupied(cluster(a=box(cpu=4)), *ends)
    found = kept_for(session("head", ask(1)), snapshot, *ends)
    assert found is not None
    assert (found.expected_at, len(found.waits_for)) == (150, 4)


def test_head_takes_the_devices_that_ending_sessions_hold() -> None:
    ends = running("ends", "a:2,3", kernels=[ask(1, gpu=2)], since=0, runs_s=150)
    endless = running("endless", "a:1", kernels=[ask(1, gpu=1)], since=0)
    snapshot = occupied(cluster(a=box(cpu=8, gpus=4)), ends, endless)
    found = kept_for(session("head", ask(1, gpu=2)), snapshot, ends, endless)
    assert found is not None
    assert shown(found.kernels) == ["a:2,3"]
    assert not found.reserved, "device 0 is free for whoever comes"


def test_free_device_that_the_head_needs_beside_ending_ones_is_held() -> None:
    ends = running("ends", "a:2,3", kernels=[ask(1, gpu=2)], since=0, runs_s=150)
    snapshot = occupied(cluster(a=box(cpu=8, gpus=4)), ends)
    found = kept_for(session("head", ask(1, gpu=3)), snapshot, ends)
    assert held(found) == {"a": (0, ["0"])}


def test_part_of_a_device_is_held_where_the_rest_comes_back() -> None:
    ends = running("ends", "a:0=600", kernels=[ask(1, gpu=0.6)], since=0, runs_s=150)
    snapshot = occupied(cluster(a=box(cpu=8, gpus=1)), ends)
    found = kept_for(session("head", ask(1, gpu=0.8)), snapshot, ends)
    assert held(found) == {"a": (0, ["0=200"])}


def test_kernels_of_several_sizes_share_devices_of_one_agent() -> None:
    ends = running("ends", "a:0,1", kernels=[ask(1, gpu=2)], since=0, runs_s=150)
    snapshot = occupied(cluster(a=box(cpu=8, gpus=3)), ends)
    head = session("head", ask(1, gpu=0.5), ask(1, gpu=2), ask(1, gpu=0.25))
    found = kept_for(head, snapshot, ends)
    assert found is not None
    assert shown(found.kernels) == ["a:2", "a:0,1", "a:2"]
    assert held(found) == {"a": (2, ["2=750"])}


def test_who_should_have_ended_is_taken_to_end_at_once() -> None:
    overdue = running("overdue", "a", kernels=[ask(4)], since=0, runs_s=50)
    late = running("late", "b", kernels=[ask(4)], since=0, runs_s=500)
    snapshot = occupied(cluster(a=box(cpu=4), b=box(cpu=4)), overdue, late)
    found = kept_for(session("head", ask(4)), snapshot, overdue, late)
    assert found is not None
    assert (found.expected_at, shown(found.kernels)) == (NOW + OVERDUE_S, ["a"])


def test_unknown_ends_keep_nothing_until_the_head_has_starved() -> None:
    endless = running("endless", "a", kernels=[ask(3)], since=0)
    snapshot = occupied(cluster(a=box(cpu=4)), endless)
    assert kept_for(session("head", ask(4)), snapshot, endless) is None
    found = kept_for(session("head", ask(4)), snapshot, endless, firm=True)
    assert found is not None
    assert (found.expected_at, held(found)) == (None, {"a": (1, [])})
    assert found.waits_for == (endless.id,)


def test_session_larger_than_the_group_keeps_nothing() -> None:
    ends = running("ends", "a", kernels=[ask(3)], since=0, runs_s=150)
    snapshot = occupied(cluster(a=box(cpu=4), b=box(cpu=64, status="LOST")), ends)
    for firm in (False, True):
        assert kept_for(session("head", ask(5)), snapshot, ends, firm=firm) is None


def test_firm_reservation_takes_agents_that_fewest_must_leave() -> None:
    crowd = [running(f"r{n}", "a", kernels=[ask(1)], since=0) for n in range(3)]
    pair = [running(f"p{n}", "b", kernels=[ask(1)], since=0) for n in range(2)]
    ends = running("ends", "c", kernels=[ask(2)], since=0, runs_s=150)
    large = running("large", "c", kernels=[ask(2)], since=0)
    everybody = [*crowd, *pair, ends, large]
    snapshot = occupied(cluster(**{name: box(cpu=4) for name in "abc"}), *everybody)
    found = kept_for(session("head", ask(4), ask(4)), snapshot, *everybody, firm=True)
    assert found is not None
    assert sorted(shown(found.kernels)) == ["b", "c"]
    assert held(found) == {"b": (2, [])}


def test_firm_reservation_takes_of_equals_the_agent_with_least_progress() -> None:
    old = running("old", "a", kernels=[ask(4)], since=0)
    young = running("young", "b", kernels=[ask(4)], since=90)
    snapshot = occupied(cluster(a=box(cpu=4), b=box(cpu=4)), old, young)
    found = kept_for(session("head", ask(4)), snapshot, old, young, firm=True)
    assert found is not None
    assert shown(found.kernels) == ["b"]


def test_firm_reservation_holds_the_freest_devices() -> None:
    half = running("half", "a:0=500", kernels=[ask(1, gpu=0.5)], since=0)
    most = running("most", "a:1=700", kernels=[ask(1, gpu=0.7)], since=0)
    snapshot = occupied(cluster(a=box(cpu=8, gpus=3)), half, most)
    found = kept_for(session("head", ask(1, gpu=2)), snapshot, half, most, firm=True)
    assert found is not None
    assert shown(found.kernels) == ["a:0,2"]
    assert held(found) == {"a": (1, ["0=500", "2"])}


def test_firm_reservation_stays_where_it_is() -> None:
    head = session("head", ask(4))
    first = [running("r", "a", kernels=[ask(2)], since=0)]
    other = [running(f"p{n}", "b", kernels=[ask(2)], since=0) for n in range(2)]
    snapshot = occupied(cluster(a=box(cpu=4), b=box(cpu=4)), *first, *other)
    found = kept_for(head, snapshot, *first, *other, firm=True)
    assert found is not None
    assert shown(found.kernels) == ["a"]
    # Now b has less to lose, and even an end that is known; the head stays at a.
    snapshot.give_back(agent("b"), ask(2))
    ends = running("p0", "b", kernels=[ask(2)], since=0, runs_s=500)
    again = kept_for(head, snapshot, *first, ends, firm=True, previous=found)
    assert again == found


def test_firm_reservation_moves_when_its_agent_takes_no_more_work() -> None:
    head = session("head", ask(4))
    stays = running("r", "a", kernels=[ask(2)], since=0)
    other = [running(f"p{n}", "b", kernels=[ask(2)], since=0) for n in range(2)]
    snapshot = occupied(cluster(a=box(cpu=4), b=box(cpu=4)), stays, *other)
    found = kept_for(head, snapshot, stays, *other, firm=True)
    put(snapshot, "a", box(cpu=4, status="CORDONED"))
    moved = kept_for(head, snapshot, stays, *other, firm=True, previous=found)
    assert moved is not None
    assert shown(moved.kernels) == ["b"]
    snapshot.remove_agent(agent("a"))
    assert kept_for(head, snapshot, *other, firm=True, previous=found) is not None


def test_reservation_of_another_session_is_not_followed() -> None:
    endless = running("r", "a", kernels=[ask(2)], since=0)
    snapshot = occupied(cluster(a=box(cpu=4)), endless)
    other = kept_for(session("other", ask(4)), snapshot, endless, firm=True)
    ends = running("r", "a", kernels=[ask(2)], since=0, runs_s=150)
    found = kept_for(session("head", ask(4)), snapshot, ends, firm=True, previous=other)
    assert found is not None
    assert found.expected_at == 150


def test_starved_head_stops_believing_those_who_overrun() -> None:
    overdue = running("overdue", "a", kernels=[ask(3)], since=0, runs_s=50)
    snapshot = occupied(cluster(a=box(cpu=4)), overdue)
    head = session("head", ask(4))
    patient = kept_for(head, snapshot, overdue)
    assert patient is not None
    assert patient.expected_at == NOW + OVERDUE_S
    starved = kept_for(head, snapshot, overdue, firm=True, previous=patient)
    assert starved is not None
    assert (starved.expected_at, held(starved)) == (None, {"a": (1, [])})


def test_starved_head_waits_no_longer_for_a_victim_that_nothing_can_kill() -> None:
    victim = running("victim", "a", kernels=[ask(3)], since=NOW - 10, runs_s=20)
    others = [running(name, "b", kernels=[ask(2)], since=0) for name in ("one", "two")]
    snapshot = occupied(cluster(a=box(cpu=4), b=box(cpu=4)), victim, *others)
    head = session("head", ask(4))

    def kept(previous: Reservation | None, now: float) -> Reservation:
        found = kept_for(
            head,
            snapshot,
            victim,
            *others,
            firm=True,
            previous=previous,
            now=now,
            leaving=[victim],
        )
        assert found is not None
        return found

    first = kept(None, NOW)
    assert (first.expected_at, shown(first.kernels)) == (NOW + 10, ["a"]), "it is to end by then"
    moved = kept(first, NOW + 11)
    assert (moved.expected_at, shown(moved.kernels)) == (None, ["b"])
    assert shown(kept(moved, NOW + 12).kernels) == ["b"], "it stays where it was moved to"


def test_plan_is_kept_unless_there_is_an_earlier_one() -> None:
    head = session("head", ask(4))
    slow = running("slow", "a", kernels=[ask(4)], since=0, runs_s=200)
    same = running("same", "b", kernels=[ask(4)], since=0, runs_s=200)
    boxes = {"a": box(cpu=4), "b": box(cpu=4)}
    first = kept_for(head, occupied(cluster(**boxes), slow), slow)
    assert first is not None
    assert (first.expected_at, shown(first.kernels)) == (NOW, ["b"]), "it has room there"
    full = occupied(cluster(**boxes), slow, same)
    again = kept_for(head, full, slow, same, previous=first)
    assert again is not None
    assert (again.expected_at, shown(again.kernels)) == (200, ["b"])
    sooner = running("slow", "a", kernels=[ask(4)], since=0, runs_s=150)
    moved = kept_for(head, full, sooner, same, previous=again)
    assert moved is not None
    assert (moved.expected_at, shown(moved.kernels)) == (150, ["a"])


def test_gang_that_must_be_together_waits_for_one_rack() -> None:
    snapshot = Snapshot("pool")
    for name, rack in {"a": "r1", "b": "r1", "c": "r2", "d": "r2"}.items():
        four = box(cpu=4)
        facts = (agent(name), name, four.capacity, four.devices)
        snapshot.upsert_agent(*facts, True, "ALIVE", {"rack": rack})
    soon = [running(f"{name}-soon", name, kernels=[ask(4)], runs_s=110) for name in "ac"]
    late = [running("b-late", "b", kernels=[ask(4)], runs_s=150)]
    later = [running("d-later", "d", kernels=[ask(4)], runs_s=200)]
    everybody = [*soon, *late, *later]
    occupied(snapshot, *everybody)
    apart = kept_for(session("head", ask(4), ask(4)), snapshot, *everybody)
    together = kept_for(session("head", ask(4), ask(4), together="rack"), snapshot, *everybody)
    assert apart is not None
    assert together is not None
    assert (apart.expected_at, together.expected_at) == (110, 150)
    assert sorted(shown(together.kernels)) == ["a", "b"]


def test_session_whose_agent_has_left_gives_nothing_back() -> None:
    ends = running("ends", "a", "gone", kernels=[ask(2), ask(2)], since=0, runs_s=150)
    snapshot = cluster(a=box(cpu=4))
    snapshot.take(agent("a"), ask(2))
    found = kept_for(session("head", ask(4)), snapshot, ends)
    assert found is not None
    assert found.expected_at == 150


def test_reserving_leaves_the_snapshot_as_it_was() -> None:
    ends = running("ends", "a:0,1", kernels=[ask(3, gpu=2)], since=0, runs_s=150)
    endless = running("endless", "b", kernels=[ask(3)], since=0)
    snapshot = occupied(cluster(a=box(cpu=4, gpus=2), b=box(cpu=4)), ends, endless)
    before = contents(snapshot)
    kept_for(session("head", ask(4), ask(4)), snapshot, ends, endless, firm=True)
    kept_for(session("head", ask(1, gpu=2)), snapshot, ends, endless)
    assert contents(snapshot) == before


def test_reservation_keeps_what_is_free_of_its_places_and_names_whose_end_it_counts_on() -> None:
    ends = running("ends", "a:2", kernels=[ask(1, gpu=1)], since=0, runs_s=150)
    snapshot = occupied(cluster(a=box(cpu=8, gpus=3)), ends)
    found = kept_for(session("head", ask(1, gpu=3)), snapshot, ends)
    assert found is not None
    assert (found.session, found.expected_at, found.waits_for) == ("ses-head", 150, ("ses-ends",))
    (place,), (reserved,) = found.kernels, found.reserved
    assert (place.agent_id, [share.index for share in place.shares]) == ("agt-a", [0, 1, 2])
    assert (reserved.agent_id, reserved.resources.as_dict()) == ("agt-a", {"gpu": 2000})
    assert [(share.index, share.milli) for share in reserved.shares] == [(0, 1000), (1, 1000)]
