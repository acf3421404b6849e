"""The threads of the performers of effects on machines: calls that wait, hang, or are many."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.control.pool.performing import (
    Cloud,
    Performers,
    Reported,
    made,
    making,
    performing,
    threads,
)
from tests.patience import until

from muster.autoscaling.standing import CreateOutcome
from muster.control.engine.inputs import Input
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.pool.effects import (
    MAX_CALLS,
    DeleteSlice,
    ListMachines,
    SliceDeleted,
    SliceMade,
)
from muster.control.pool.listed import MachinesListed
from muster.control.pool.performing import lines
from muster.control.pool.performing.lines import Begin, Errand, Lines
from muster.control.pool.records import SliceId

HANGS_S = 0.2
"""How long a call may last where a test has one hang."""


@pytest.fixture
def performers(tmp_path: Path) -> Iterator[Performers]:
    with performing(tmp_path) as performers:
        yield performers


@pytest.fixture
def cloud(performers: Performers) -> Cloud:
    return performers.cloud


def test_calls_about_one_slice_are_made_one_after_the_other(
    performers: Performers, cloud: Cloud
) -> None:
    spec = performers.pool("a")
    performers.slice("sl-1", spec)
    performers.slice("sl-2", spec)
    gate = cloud.shut_for("sl-1")
    performers.make(making(1))
    until(lambda: cloud.asked)
    performers.delete([DeleteSlice(SliceId("sl-1"), "a", 2)])
    performers.make(making(2))
    assert performers.reported.until(1) == [made(2)]
    assert cloud.told("delete") == []
    gate.set()
    performers.reported.until(3)
    assert performers.reported[1:] == [made(1), SliceDeleted(SliceId("sl-1"), 2, gone=True)]


def test_call_that_hangs_is_given_up_and_its_late_answer_dropped(
    performers: Performers, cloud: Cloud
) -> None:
    performers.restart(call_s=HANGS_S)
    performers.slice("sl-1", performers.pool("a"))
    gate = cloud.shut_for("sl-1")
    performers.make(making(1))
    told = "no answer within 0.2 s"
    hung = SliceMade(SliceId("sl-1"), 1, CreateOutcome.UNKNOWN, told=told)
    assert performers.reported.until(1) == [hung]
    performers.delete([DeleteSlice(SliceId("sl-1"), "a", 2)])
    performers.list([ListMachines("a", 1)])
    performers.reported.until(2)
    assert cloud.told("delete") == []  # the create may make machines yet
    gate.set()
    performers.reported.until(3)
    assert performers.reported[2] == SliceDeleted(SliceId("sl-1"), 2, gone=True)
    assert len(performers.reported) == 3


def test_deletions_and_lists_that_hang_are_given_up_too(
    performers: Performers, cloud: Cloud
) -> None:
    performers.restart(call_s=HANGS_S)
    performers.slice("sl-1", performers.pool("a"))
    cloud.shut_for("sl-1", "here")
    performers.delete([DeleteSlice(SliceId("sl-1"), "a", 2)])
    performers.reported.until(1)
    performers.list([ListMachines("a", 5)])
    told = "no answer within 0.2 s"
    assert performers.reported.until(2) == [
        SliceDeleted(SliceId("sl-1"), 2, gone=False, told=told),
        MachinesListed("a", 5, None, told),
    ]


def test_call_that_hangs_does_not_keep_its_effect_from_coming_again(
    performers: Performers, cloud: Cloud
) -> None:
    performers.restart(call_s=HANGS_S)
    performers.pool("a")
    gate = cloud.shut_for("here")
    performers.list([ListMachines("a", 1)])
    performers.reported.until(1)
    del cloud.shut["here"]
    performers.list([ListMachines("a", 1)])
    listing = performers.reported.until(2)[1]
    gate.set()
    assert isinstance(listing, MachinesListed)
    assert listing.listing is not None


def test_others_of_the_pool_go_on_in_the_place_of_a_call_that_hangs(
    performers: Performers, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_CALLS", 1)
    performers.restart(call_s=HANGS_S)
    performers.pool("a")
    cloud.shut_for("sl-0")
    performers.delete([DeleteSlice(SliceId(f"sl-{number}"), "a", 1) for number in range(3)])
    outcomes = performers.reported.until(3)
    assert outcomes[1:] == [SliceDeleted(SliceId(f"sl-{number}"), 1, True) for number in (1, 2)]


def test_threads_that_were_written_off_are_no_more_than_the_others_may_be(
    performers: Performers, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_THREADS", 1)
    performers.restart(call_s=HANGS_S)
    gate = cloud.shut_for("a", "b")
    for pool in "abc":
        performers.pool(pool)
    performers.delete([DeleteSlice(SliceId(pool), pool, 0) for pool in "abc"])
    performers.reported.until(2)
    time.sleep(0.05)
    assert cloud.told("delete") == ["a", "b"]
    gate.set()
    performers.reported.until(3)
    assert cloud.told("delete") == ["a", "b", "c"]


def test_pool_whose_calls_hang_is_asked_no_more_until_one_returns(
    performers: Performers, cloud: Cloud
) -> None:
    performers.restart(call_s=HANGS_S)
    spec = performers.pool("a")
    for number in range(20):
        performers.slice(f"sl-{number}", spec)
    gate = cloud.shut_for(*(f"sl-{number}" for number in range(18)))
    performers.make(making(*range(18)))
    told = Counter(
        each.told for each in performers.reported.until(18) if isinstance(each, SliceMade)
    )
    calls = told.pop("no answer within 0.2 s")
    assert calls == len(cloud.asked) < 2 * MAX_CALLS  # one hangs, the next begins, until 4 hang
    assert {each.partition(" ")[2] for each in told} == {"calls hang"}
    performers.delete([DeleteSlice(SliceId("sl-18"), "a", 1)])
    hang = SliceDeleted(SliceId("sl-18"), 1, False, f"{calls} calls hang")
    assert performers.reported[18] == hang
    gate.set()
    until(lambda: not written_off(performers))
    performers.make(making(19))
    assert performers.reported.until(20)[19] == made(19)


def written_off(performers: Performers) -> int:
    return performers._calls[-1].lines._written_off


def test_calls_of_one_pool_do_not_delay_those_of_another(
    performers: Performers, cloud: Cloud
) -> None:
    slow, quick = performers.pool("slow"), performers.pool("quick")
    for number in range(9):
        performers.slice(f"sl-{number}", slow)
    performers.slice("sl-9", quick)
    gate = cloud.shut_for(*(f"sl-{number}" for number in range(9)))
    performers.make(making(*range(9)))
    until(lambda: len(cloud.asked) == MAX_CALLS)
    performers.make(making(9))
    assert performers.reported.until(1) == [made(9)]
    assert len(cloud.told("create")) == MAX_CALLS + 1
    gate.set()
    performers.reported.until(10)


def test_pools_take_turns_where_there_are_more_than_threads(
    performers: Performers, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_THREADS", 1)
    ids = [f"{pool}{number}" for pool in "abc" for number in range(3)]
    gate = cloud.shut_for("a0")
    for pool in "abc":
        performers.pool(pool)
    performers.delete([DeleteSlice(SliceId(id_), id_[0], 0) for id_ in ids])
    until(lambda: cloud.asked)
    gate.set()
    performers.reported.until(9)
    assert cloud.told("delete") == ["a0", "a1", "b0", "c0", "a2", "b1", "c1", "b2", "c2"]


def test_effect_that_comes_twice_is_carried_out_once(performers: Performers, cloud: Cloud) -> None:
    spec = performers.pool("a")
    for number in range(6):
        performers.slice(f"sl-{number}", spec)
    gate = cloud.shut_for("sl-0", "sl-1", "sl-2", "sl-3")
    performers.make(making(0, 1, 2, 3))
    until(lambda: len(cloud.asked) == 4)
    for generation in (1, 1, 2, 3):
        performers.make(making(0, 1, 2, 3, 4))
        performers.delete([DeleteSlice(SliceId("sl-5"), "a", generation)])
    until(lambda: waiting(performers, "a") == 2)
    gate.set()
    performers.reported.until(6)
    performers.list([ListMachines("a", 1)])
    performers.reported.until(7)
    assert sorted(cloud.told("create")) == [f"sl-{number}" for number in range(5)]
    assert cloud.told("delete") == ["sl-5"]
    assert SliceDeleted(SliceId("sl-5"), 3, gone=True) in performers.reported


def waiting(performers: Performers, pool: str) -> int:
    lines = performers._calls[-1].lines
    line = lines._lines.get(pool)
    return 0 if line is None or lines._lines[""].calls else len(line.waiting)


def test_more_than_fits_is_dropped_and_comes_again(
    performers: Performers,
    cloud: Cloud,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(lines, "MAX_WAITING", 3)
    performers.pool("a")
    gate = cloud.shut_for(*(f"sl-{number}" for number in range(20)))
    effects = [DeleteSlice(SliceId(f"sl-{number}"), "a", 0) for number in range(20)]
    performers.delete(effects)
    until(lambda: len(cloud.asked) == MAX_CALLS)
    gate.set()
    performers.reported.until(7)
    told = "deleting slice sl-7 has to come again, and others: too many wait"
    assert caplog.messages == [told]
    performers.delete(effects[7:9])
    performers.reported.until(9)
    assert sorted(cloud.told("delete")) == sorted(f"sl-{number}" for number in range(9))


def test_perform_neither_waits_nor_raises_when_nothing_can_be_read(
    performers: Performers, cloud: Cloud
) -> None:
    with performers.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE slices")
        connection.exec_driver_sql("DROP TABLE pools")
    began_s = time.monotonic()
    performers.make(making(*range(3_000)))
    performers.delete([DeleteSlice(SliceId(f"sl-{n}"), "a", 1) for n in range(3_000)])
    performers.list([ListMachines(f"p{number}", 1) for number in range(50)])
    assert time.monotonic() - began_s < 10.0
    assert not performers.reported


def test_effect_for_which_there_is_no_thread_is_carried_out_when_it_comes_again(
    performers: Performers, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_to(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    performers.pool("a")
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse_to)
        performers.list([ListMachines("a", 1)])
    performers.list([ListMachines("a", 1)])
    performers.reported.until(1)
    assert cloud.told("list") == ["here"]


def test_threads_end_without_work_and_begin_anew(
    performers: Performers, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "IDLE_S", 0.05)
    performers.pool("a")
    for generation in (1, 2):
        performers.list([ListMachines("a", generation)])
        performers.reported.until(generation)
        until(lambda: threads() == ["time of providers"])
    assert len(cloud.made) == 1


def test_close_waits_for_no_call_and_leaves_no_thread_that_works(
    performers: Performers, cloud: Cloud
) -> None:
    performers.restart(call_s=HANGS_S)
    spec = performers.pool("a")
    for number in range(9):
        performers.slice(f"sl-{number}", spec)
    gate = cloud.shut_for(*(f"sl-{number}" for number in range(9)))
    performers.make(making(0))
    performers.reported.until(1)  # it hangs
    performers.make(making(*range(1, 9)))
    until(lambda: len(cloud.asked) == 5)
    began_s = time.monotonic()
    performers.close()
    assert time.monotonic() - began_s < 1.0
    gate.set()
    until(lambda: not threads())
    assert len(cloud.asked) == 5
    assert len(performers.reported) == 1
    assert cloud.closed == cloud.made
    performers.make(making(8))
    assert not threads()


@dataclass
class Overlaps:
    """How many errands are under way at a moment, and how many were at most."""

    now: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, *names: str, by: int) -> None:
        with self.lock:
            for name in names:
                self.now[name] += by
                self.most[name] = max(self.most[name], self.now[name])


@dataclass(frozen=True)
class Answered(Input):
    key: str
    generation: int

    def take(self, work: Work, parts: Parts) -> None:
        raise NotImplementedError

    def refuse(self, error: Exception) -> None:
        raise NotImplementedError


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.sampled_from([0.0, 0.001, 0.04])),
        max_size=40,
    )
)
def test_calls_about_a_slice_never_overlap_and_the_last_of_each_is_answered(
    calls: list[tuple[str, int, float]],
) -> None:
    overlaps, reported = Overlaps(), Reported()
    lines = Lines(reported.append, lambda pool: None, call_s=0.02)

    def carry_out(slice_: str, answer: Answered, takes_s: float, begin: Begin) -> Input:
        begin()
        overlaps.count(slice_, slice_[0], by=1)
        time.sleep(takes_s)
        overlaps.count(slice_, slice_[0], by=-1)
        return answer

    def give_up(answer: Answered, told: str) -> Input:
        return answer

    last: dict[str, Answered] = {}
    for generation, (pool, number, takes_s) in enumerate(calls):
        slice_, key = f"{pool}{number}", f"{'making' if takes_s else 'deleting'} {pool}{number}"
        answer = last[key] = Answered(key, generation)
        call = partial(carry_out, slice_, answer, takes_s)
        lines.add(pool, Errand(key, generation, slice_, call, partial(give_up, answer)))
    until(lambda: set(last.values()) <= set(reported))
    lines.close()
    assert len(reported) == len(set(reported))
    assert all(most == 1 for name, most in overlaps.most.items() if len(name) == 2)
    assert all(overlaps.most[pool] <= 2 * MAX_CALLS - 1 for pool in "ab")
