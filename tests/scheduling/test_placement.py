"""Small clusters with the placement expected of each session."""

from collections.abc import Sequence

import pytest
from tests.scheduling.clusters import (
    agent,
    ask,
    box,
    cluster,
    passed,
    sentences,
    session,
    where,
)

from muster.core.reasons import ReasonCode, ReasonKind
from muster.core.resources import DeviceShare, Resources
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.workload import SessionWorkload


def placed(
    snapshot: Snapshot, *queue: SessionWorkload, now: float = 10, starvation_after: float = 300
) -> dict[str, list[str]]:
    return where(passed(snapshot, *queue, now=now, starvation_after=starvation_after))


def sentence(snapshot: Snapshot, *queue: SessionWorkload) -> list[str]:
    return sentences(passed(snapshot, *queue))


# Order


def test_higher_priority_goes_first_then_age_then_identifier() -> None:
    queue = [
        session("d", ask(), at=2),
        session("c", ask(), at=1),
        session("b", ask(), at=1),
        session("a", ask(), at=9, priority=60),
    ]
    assert list(placed(cluster(x=box(cpu=4)), *queue)) == ["a", "b", "c", "d"]


def test_what_fits_overtakes_what_does_not() -> None:
    queue = [session("big", ask(4), at=1), session("small", ask(1), at=2)]
    snapshot = cluster(a=box(cpu=4))
    snapshot.take(agent("a"), ask(1))
    assert placed(snapshot, *queue) == {"big": ["NO_ROOM"], "small": ["a"]}


def test_placed_sessions_are_taken_from_the_snapshot() -> None:
    snapshot = cluster(a=box(cpu=4, gpus=1))
    assert placed(snapshot, session("one", ask(3, gpu=1))) == {"one": ["a:0"]}
    assert placed(snapshot, session("two", ask(2))) == {"two": ["NO_ROOM"]}
    assert snapshot.columns.free[0, 0] == 1000


# Concentrated: which agent


def test_fullest_agent_that_fits_is_filled_first() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4), c=box(cpu=4))
    snapshot.take(agent("b"), ask(2))
    snapshot.take(agent("c"), ask(3))
    queue = [session(str(n), ask(1), at=n) for n in range(5)]
    assert placed(snapshot, *queue) == {
        "0": ["c"],
        "1": ["b"],
        "2": ["b"],
        "3": ["a"],
        "4": ["a"],
    }


def test_smaller_agent_wins_among_equally_full_ones_then_the_first() -> None:
    snapshot = cluster(a=box(cpu=8), b=box(cpu=4), c=box(cpu=4))
    queue = [session(str(n), ask(4), at=n) for n in range(3)]
    assert placed(snapshot, *queue) == {"0": ["b"], "1": ["c"], "2": ["a"]}


def test_agents_without_gpus_are_smaller_and_take_cpu_work_first() -> None:
    snapshot = cluster(gpu=box(cpu=8, gpus=8), plain=box(cpu=8))
    assert placed(snapshot, session("s", ask(2))) == {"s": ["plain"]}


def test_agents_that_failed_the_session_come_last_but_count() -> None:
    snapshot = cluster(a=box(cpu=2), b=box(cpu=2))
    queue = [session(str(n), ask(1), at=n, failed=["a"]) for n in range(4)]
    assert placed(snapshot, *queue) == {"0": ["b"], "1": ["b"], "2": ["a"], "3": ["a"]}
    assert placed(cluster(a=box(cpu=2)), session("s", ask(1), failed=["a", "gone"])) == {"s": ["a"]}


def test_agents_without_gpus_take_cpu_work_first_among_those_that_did_not_fail_it() -> None:
    snapshot = cluster(gpu=box(cpu=4, gpus=1), failed=box(cpu=4), plain=box(cpu=8))
    snapshot.take(agent("gpu"), ask(2))  # the fullest
    assert placed(snapshot, session("s", ask(2), failed=["failed"])) == {"s": ["plain"]}


@pytest.mark.parametrize("status", ["UNREACHABLE", "LOST"])
def test_agents_that_are_not_alive_get_nothing(status: str) -> None:
    snapshot = cluster(a=box(cpu=4, status=status), b=box(cpu=8))
    assert placed(snapshot, session("s", ask(1))) == {"s": ["b"]}


def test_named_resources_are_counted() -> None:
    snapshot = cluster(a=box(), b=box(licence=2))
    queue = [session(str(n), ask(1, licence=1), at=n) for n in range(3)]
    assert placed(snapshot, *queue) == {"0": ["b"], "1": ["b"], "2": ["NO_ROOM"]}
    assert placed(snapshot, session("s", ask(1, unheard=1))) == {"s": ["NEVER_FITS"]}


def test_request_for_nothing_fits_anywhere() -> None:
    queue = [session(str(n), ask(0), at=n) for n in range(3)]
    assert placed(cluster(a=box(cpu=0)), *queue) == {"0": ["a"], "1": ["a"], "2": ["a"]}


# Devices


def test_whole_gpus_take_wholly_free_devices_from_the_lowest_index() -> None:
    snapshot = cluster(a=box(cpu=16, gpus=4))
    snapshot.take(agent("a"), ask(0, gpu=0.5), (DeviceShare(1, 500),))
    assert placed(snapshot, session("s", ask(1, gpu=2)), session("t", ask(1, gpu=2))) == {
        "s": ["a:0,2"],
        "t": ["NO_ROOM"],
    }


def test_fraction_goes_to_the_fullest_device_that_still_has_it() -> None:
    snapshot = cluster(a=box(cpu=16, gpus=3))
    snapshot.take(agent("a"), ask(0, gpu=0.25), (DeviceShare(1, 250),))
    snapshot.take(agent("a"), ask(0, gpu=0.75), (DeviceShare(2, 750),))
    queue = [session(str(n), ask(1, gpu=0.5), at=n) for n in range(4)]
    assert placed(snapshot, *queue) == {
        "0": ["a:1=500"],
        "1": ["a:0=500"],
        "2": ["a:0=500"],
        "3": ["NO_ROOM"],
    }


def test_fractions_free_on_several_devices_do_not_add_up() -> None:
    snapshot = cluster(a=box(cpu=16, gpus=2))
    for index in (0, 1):
        snapshot.take(agent("a"), ask(0, gpu=0.5), (DeviceShare(index, 500),))
    queue = [session("whole", ask(1, gpu=1)), session("most", ask(1, gpu=0.6))]
    assert placed(snapshot, *queue) == {"whole": ["NO_ROOM"], "most": ["NO_ROOM"]}


# Gangs


def test_gang_starts_whole_with_equal_kernels_side_by_side() -> None:
    snapshot = cluster(a=box(cpu=4, gpus=2), b=box(cpu=4, gpus=2))
    assert placed(snapshot, session("g", *[ask(1, gpu=1)] * 4)) == {
        "g": ["a:0", "a:1", "b:0", "b:1"]
    }


def test_gang_that_does_not_fit_whole_holds_nothing_and_is_overtaken() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4))
    snapshot.take(agent("a"), ask(2))
    queue = [session("gang", *[ask(2)] * 4, at=1), session("one", ask(4), at=2)]
    assert placed(snapshot, *queue) == {"gang": ["GANG_NO_ROOM"], "one": ["b"]}
    assert snapshot.columns.free[:, 0].tolist() == [2000, 0]


def test_gang_of_unlike_kernels_places_the_demanding_ones_first() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=6))
    gang = session("g", ask(1), ask(6), ask(3))
    assert placed(snapshot, gang) == {"g": ["a", "b", "a"]}


def test_gang_of_unlike_kernels_is_undone_when_one_is_missing() -> None:
    snapshot = cluster(a=box(cpu=4, gpus=1))
    snapshot.take(agent("a"), ask(1))
    before = snapshot.columns.free.tolist()
    assert sentence(snapshot, session("g", ask(1, gpu=1), ask(1), ask(2))) == [
        "2 of 3 kernels fit in group pool now; a gang starts whole or not at all"
    ]
    assert snapshot.columns.free.tolist() == before
    assert snapshot.columns.device_free.tolist() == [[1000]]


# Reasons


def test_group_without_agents_says_so() -> None:
    snapshot = cluster()
    assert sentence(snapshot, session("s", ask(1))) == ["group pool has no agents"]


def test_group_without_live_agents_says_so() -> None:
    snapshot = cluster(a=box(status="lost"), b=box(status="unreachable"))
    assert sentence(snapshot, session("s", ask(1))) == [
        "none of 2 agents in group pool takes new work: 1 lost, 1 unreachable"
    ]


def test_waiting_for_room_is_told_with_what_was_asked() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4))
    snapshot.take(agent("a"), ask(3))
    snapshot.take(agent("b"), ask(3))
    assert sentence(snapshot, session("s", ask(2, 4))) == [
        "none of 2 agents in group pool has 2 cpu, 4GiB memory free now"
    ]


def test_request_larger_than_any_agent_is_the_requests_fault() -> None:
    result = passed(cluster(a=box(gpus=4), b=box(gpus=8)), session("s", ask(1, gpu=9)), now=0)
    ((why,),) = result.refused.values()
    assert (why.code, why.kind) == (ReasonCode.NEVER_FITS, ReasonKind.REQUEST)
    assert why.sentence() == (
        "none of 2 agents in group pool is large enough for 1 cpu, 9 gpu, even when empty"
    )


def test_gang_larger_than_the_group_is_told_how_much_would_fit() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4))
    snapshot.take(agent("a"), ask(4))
    assert sentence(snapshot, session("g", *[ask(3)] * 3)) == [
        "only 2 of 3 kernels would fit in group pool even if it were empty"
    ]


@pytest.mark.parametrize("kernels", [[ask(6)], [ask(4)] * 3], ids=["single", "gang"])
def test_request_that_needs_silent_agents_is_the_operators_matter(
    kernels: Sequence[Resources],
) -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=8, status="UNREACHABLE"))
    gang = session("s", *kernels)
    ((why,),) = passed(snapshot, gang, now=1e6).refused.values()
    assert (why.code, why.kind) == (ReasonCode.NEEDS_ABSENT_AGENTS, ReasonKind.OPERATOR)


# -- partitions of GPUs --------------------------------------------------------------------------

SLICE = "A100 MIG 1g.5gb"


def test_part_of_a_gpu_is_never_one_of_a_partition() -> None:
    snapshot = cluster(a=box(gpus=2, model=[SLICE, SLICE]), b=box(gpus=2, model=[SLICE, "A100"]))
    halves = [session(f"s{n}", ask(0, gpu=0.5)) for n in range(3)]
    assert placed(snapshot, *halves) == {
        "s0": ["b:1=500"],
        "s1": ["b:1=500"],
        "s2": [ReasonCode.NO_ROOM],
    }


def test_partitions_are_given_whole_and_by_names_with_mig() -> None:
    snapshot = cluster(a=box(gpus=3, model=[SLICE, "A100", SLICE]))
    asked = [
        session("1-slice", ask(0, gpu=1, models=["MIG 1g.5gb"])),
        session("2-gpu", ask(0, gpu=1, models=["A100"])),
        session("3-another", ask(0, gpu=1, models=["A100"])),
        session("4-any", ask(0, gpu=1)),
    ]
    assert placed(snapshot, *asked) == {
        "1-slice": ["a:0"],
        "2-gpu": ["a:1"],
        "3-another": [ReasonCode.NO_ROOM],
        "4-any": ["a:2"],
    }


def test_part_of_a_gpu_where_all_are_partitions_is_told_what_they_are() -> None:
    snapshot = cluster(a=box(gpus=2, model=[SLICE, SLICE]))
    assert sentence(snapshot, session("s", ask(0, gpu=0.5))) == [
        "none of 1 agent in group pool meets a gpu that is shared (MIG devices are given whole)"
    ]
