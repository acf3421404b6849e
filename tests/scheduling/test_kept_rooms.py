"""Room that work keeps which can use no other machines, while those before it wait for theirs."""

from tests.scheduling.clusters import (
    agent,
    ask,
    box,
    cluster,
    context,
    occupy,
    policy,
    reservation,
    running,
    session,
    where,
)

from muster.core.resources import DeviceShare
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.passes.pass_result import PassResult
from muster.scheduling.passes.placement import place
from muster.scheduling.passes.queue import Queue
from muster.scheduling.workload import KernelPlacement, SessionWorkload

FLEXIBLE = session("flexible", ask(4), at=0)
NARROW = session("narrow", ask(4), at=1, constraints=["zone=x"])


def passed_keeping(
    snapshot: Snapshot, kept: dict[SessionWorkload, str], *waiting: SessionWorkload, queue: str
) -> PassResult:
    """A pass that keeps the agents of these names for sessions even from those before them that are
    not bound to a zone."""
    sessions = Queue(waiting)
    promised = {
        each.id: (each.workload, (KernelPlacement(agent(name), ()),)) for each, name in kept.items()
    }
    elsewhere = {each.workload for each in waiting if not each.workload.placement.constraints}
    sessions.promises.keep(promised, list(promised), frozenset(elsewhere))
    return place(sessions, snapshot, policy(queue=queue), context(snapshot))


def test_work_behind_gets_the_machine_that_only_it_can_use() -> None:
    snapshot = cluster(a=box(cpu=4, has={"zone": "x"}))
    result = passed_keeping(snapshot, {NARROW: "a"}, FLEXIBLE, NARROW, queue="backfill")
    assert where(result) == {"narrow": ["a"], "flexible": ["BEHIND_PROMISE"]}


def test_work_before_that_can_use_no_other_machine_either_is_not_made_to_wait() -> None:
    head = session("head", ask(2), at=0, constraints=["zone=x"])
    snapshot = cluster(a=box(cpu=4, has={"zone": "x"}))
    result = passed_keeping(snapshot, {NARROW: "a"}, FLEXIBLE, head, NARROW, queue="backfill")
    assert where(result)["head"] == ["a"]
    assert where(result)["flexible"] == ["BEHIND_PROMISE"]


def test_in_strict_order_the_first_gets_it_all_the_same() -> None:
    snapshot = cluster(a=box(cpu=4, has={"zone": "x"}))
    result = passed_keeping(snapshot, {NARROW: "a"}, FLEXIBLE, NARROW, queue="strict")
    assert where(result) == {"flexible": ["a"], "narrow": ["NO_ROOM"]}


def test_room_that_was_kept_and_used_counts_once_for_those_who_come_next() -> None:
    first = session("first", ask(4), at=0, priority=90, constraints=["zone=x"], runs_s=100)
    head = session("head", ask(6), at=1)
    snapshot = cluster(a=box(cpu=8, has={"zone": "x"}))
    result = passed_keeping(snapshot, {first: "a"}, first, head, queue="backfill")
    assert where(result)["first"] == ["a"]
    kept = reservation(result)
    assert kept is not None
    assert kept.expected_at is not None, "once the first has left there is room"


def test_each_session_of_a_class_uses_up_one_of_its_rooms() -> None:
    one, two = (session(f"n{n}", ask(4), at=n, constraints=["zone=x"]) for n in (1, 2))
    snapshot = cluster(a=box(cpu=8, has={"zone": "x"}))
    flexible = session("flexible", ask(4), at=1.5)
    result = passed_keeping(snapshot, {one: "a", two: "a"}, one, flexible, two, queue="backfill")
    assert where(result) == {"n1": ["a"], "n2": ["a"], "flexible": ["BEHIND_PROMISE"]}


def test_room_left_over_by_a_gang_that_found_other_room_is_kept_for_the_next_of_its_class() -> None:
    """Gang 1 was promised a and b, and runs on a and c, which were promised to gang 2."""
    kernels = (ask(4), ask(4))
    first = running("one", "a", "c", kernels=kernels)
    second = session("two", *kernels, at=1)
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4), c=box(cpu=4))
    occupy(snapshot, first)
    single = session("single", ask(4), at=2)
    waiting = Queue([second, single])
    waiting.promises.keep(
        {
            first.id: (first.workload, places("a", "b")),
            second.id: (second.workload, places("c", "d")),
        }
    )
    result = place(waiting, snapshot, policy(queue="backfill"), context(snapshot, first))
    assert where(result) == {"two": ["GANG_NO_ROOM"], "single": ["BEHIND_PROMISE"]}


def places(*names: str) -> tuple[KernelPlacement, ...]:
    return tuple(KernelPlacement(agent(name), ()) for name in names)


def test_machine_that_came_without_the_devices_that_were_promised_keeps_no_room() -> None:
    gang = session("gang", ask(1, gpu=1), ask(1, gpu=1), at=0)
    snapshot = cluster(a=box(cpu=4))
    waiting = Queue([gang])
    on_devices = tuple(
        KernelPlacement(agent(name), (DeviceShare(0, 1000),)) for name in ("a", "coming")
    )
    waiting.promises.keep({gang.id: (gang.workload, on_devices)})
    result = place(waiting, snapshot, policy(queue="backfill"), context(snapshot))
    assert where(result) == {"gang": ["GANG_NEVER_FITS"]}
