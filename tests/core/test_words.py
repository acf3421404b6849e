"""Identifiers, amounts, reasons and state tables."""

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proving.hollow.virtual_clock import VirtualClock

from muster.control.modules import cluster_entities
from muster.core.ids import IdFactory, prefix_range
from muster.core.resources import (
    Resources,
    format_bytes,
    format_milli,
    parse_bytes,
    parse_gpu,
    parse_milli,
)
from muster.core.states import (
    SESSION_TABLE,
    IllegalTransition,
    SessionStatus,
    StateTable,
    TaskState,
)
from muster.core.states.deployment import EndpointLifecycle
from muster.core.views.work import TaskView

TABLES: list[StateTable[Any]] = [entity.states for entity in cluster_entities().values()]


@given(st.lists(st.floats(0, 2), max_size=50), st.integers(0, 1000))
def test_identifiers_sort_in_the_order_of_their_making(pauses: list[float], seed: int) -> None:
    clock = VirtualClock()
    ids = IdFactory(clock, random.Random(seed))
    made = []
    for pause in pauses:
        clock.advance(pause)
        made += [ids.session(), ids.session()]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_prefix_is_taken_with_and_without_kind_and_in_any_case() -> None:
    id_ = IdFactory(VirtualClock(), random.Random(1)).job()
    for typed in (id_, id_[4:], id_[4:12].upper(), id_[:9]):
        low, high = prefix_range("job", typed)
        assert low <= id_ < high


@pytest.mark.parametrize(
    ("text", "milli"), [("4", 4000), ("500m", 500), (0.5, 500), ("0.25", 250), (3, 3000), ("0", 0)]
)
def test_processors_are_parsed_to_thousandths(text: str | float, milli: int) -> None:
    assert parse_milli(text) == milli


@pytest.mark.parametrize("text", ["-1", "x", "", "1e3", "4 cores", "0.0001", True, "nan", -0.5])
def test_what_is_no_amount_is_refused(text: str | float) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_milli(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("16GiB", 16 * 2**30), ("16Gi", 16 * 2**30), ("16G", 16 * 10**9), ("16GB", 16 * 10**9),
     ("512 MiB", 512 * 2**20), ("0", 0), ("1.5k", 1500), ("7B", 7), ("4kb", 4000),
     ("16g", 16 * 10**9), ("4kib", 4096), (2**20, 2**20), ("1048576", 2**20), (0, 0)],
)  # fmt: skip
def test_sizes_are_parsed_to_bytes(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size


def test_gpus_are_whole_or_one_fraction() -> None:
    assert parse_gpu(2) == 2000
    assert parse_gpu(0.5) == 500
    with pytest.raises(ValueError, match="fractions of several devices"):
        parse_gpu(1.5)


@given(st.integers(0, 2**40))
def test_what_is_shown_of_thousandths_is_read_back(milli: int) -> None:
    assert parse_milli(f"{milli}m") == milli
    if milli < 10**6:
        assert parse_milli(format_milli(milli)) == milli


def test_sizes_are_shown_in_the_largest_unit() -> None:
    assert format_bytes(16 * 2**30) == "16GiB"
    assert format_bytes(1536) == "1.5KiB"
    assert format_bytes(0) == "0B"


def test_equal_requests_share_a_shape() -> None:
    one = Resources.with_extra(1000, 0, 0, 500, {"b": 1, "a": 2, "none": 0})
    other = Resources.with_extra(1000, 0, 0, 500, {"a": 2, "b": 1})
    assert one == other
    assert one.shape == other.shape
    assert one.gpu_devices == 1


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_state_is_reached_and_every_live_one_can_end(table: StateTable[Any]) -> None:
    reached = {table.initial}
    while True:
        more = {end for start, end in table.allowed if start in reached} - reached
        if not more:
            break
        reached |= more
    unused = {TaskState.UNSPECIFIED, EndpointLifecycle.CREATED}
    assert reached == set(table.live | table.terminal) - unused
    ending = set(table.terminal)
    while True:
        more = {start for start, end in table.allowed if end in ending} - ending
        if not more:
            break
        ending |= more
    assert ending == set(table.live | table.terminal)


def test_terminal_states_cannot_be_left() -> None:
    with pytest.raises(IllegalTransition):
        SESSION_TABLE.check(SessionStatus.TERMINATED, SessionStatus.PENDING)


def test_task_numbers_are_those_of_the_reference() -> None:
    assert {state.name: state.number for state in TaskState} == {
        "UNSPECIFIED": 0,
        "PENDING": 1,
        "BUILDING": 2,
        "RUNNING": 3,
        "SUCCEEDED": 4,
        "FAILED": 5,
        "KILLED": 6,
        "WORKER_FAILED": 7,
        "UNSCHEDULABLE": 8,
        "ASSIGNED": 9,
    }


def test_view_of_a_task_tells_the_number_of_its_state() -> None:
    told = b'{"job_id":"job-1","index":0,"state":"KILLED","state_changed_at":0.0}'
    view = msgspec.json.decode(told, type=TaskView)
    assert json.loads(msgspec.json.encode(view))["state_number"] == view.state_number == 6
