"""The history of refusals: equal ones are one row, however they alternate."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from proving.hollow.virtual_clock import VirtualClock
from sqlalchemy import select
from tests.databases import ON_BOTH, open_unsynced, url_at
from tests.store.watching import Watch

from muster.core.ids import IdFactory, SessionId
from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.core.reasons.of_queue import BehindStarving
from muster.core.reasons.of_sessions import CleaningUp, RoomTakenMeanwhile
from muster.core.results import SchedulingResult
from muster.core.specs import SessionSpec, SessionType
from muster.core.states import SessionStatus
from muster.store import schema
from muster.store.history import MAX_REPEATS
from muster.store.records import Session
from muster.store.store import Store

pytestmark = ON_BOTH

IDS = IdFactory(VirtualClock(), random.Random(1))
PHASE = "ScheduleNewSessions"
STARVING = BehindStarving(group="pool", session=SessionId("ses-1"), after_s=60)
RACE = RoomTakenMeanwhile()
REFUSALS: list[tuple[Reason, ...]] = [(STARVING,), (RACE,), (STARVING, RACE), (RACE, STARVING)]


def cleaning_up(agent: str) -> tuple[Reason, ...]:
    return (CleaningUp(agent=agent),)


class Kept(NamedTuple):
    """A row of refusals, with the moments of the first and the last of them."""

    reasons: str
    times: int
    first_at: float
    last_at: float


class Waiting:
    """A session that waits, refused once a second."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.session = Session(
            id=IDS.session(),
            job=None,
            name="x",
            type=SessionType.BATCH,
            owner=Owner("default", "default", "ada"),
            group="default",
            priority=0,
            spec=SessionSpec.model_validate({"kernels": [{"command": ["x"]}]}),
            status=SessionStatus.PENDING,
            status_changed_at=0.0,
            created_at=0.0,
            queued_at=0.0,
        )
        self.now = 0.0
        unit = store.unit(self.now, Watch())
        unit.add(self.session)
        store.commit(unit)

    def refuse(self, reasons: tuple[Reason, ...]) -> None:
        self.now += 1.0
        unit = self.store.unit(self.now, Watch())
        unit.skip(self.session, PHASE, reasons)
        self.store.commit(unit)

    def cancel(self) -> None:
        unit = self.store.unit(self.now, Watch())
        unit.move(self.session, {SessionStatus.PENDING}, SessionStatus.CANCELLED, PHASE)
        self.store.commit(unit)

    def refusals(self) -> list[Kept]:
        history = schema.history
        rows = (
            select(history.c.reasons, history.c.times, history.c.first_at, history.c.last_at)
            .where(history.c.entity == self.session.id)
            .where(history.c.result == SchedulingResult.SKIPPED)
            .order_by(history.c.seq)
        )
        with self.store.engine.connect().execution_options(readonly=True) as connection:
            return [Kept(*row) for row in connection.execute(rows)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(open_unsynced(url_at(tmp_path)))
    yield opened
    opened.close()


def test_reasons_that_alternate_are_a_row_each_with_count_and_last_time(
    store: Store,
) -> None:
    session = Waiting(store)
    for _ in range(50):
        session.refuse((STARVING,))
        session.refuse(cleaning_up("a"))
    assert len(session.refusals()) == 2
    session.refuse(cleaning_up("b"))  # the same code: the newest numbers are kept
    session.cancel()

    starving, cleaning = session.refusals()
    assert starving[1:] == (50, 1.0, 99.0)
    assert cleaning[1:] == (51, 2.0, 101.0)
    assert '"b"' in cleaning.reasons


def test_refusal_is_on_record_at_once_and_its_count_once_the_session_moves(store: Store) -> None:
    session = Waiting(store)
    session.refuse((RACE,))
    session.refuse((RACE,))
    assert [row.times for row in session.refusals()] == [1]
    session.cancel()
    assert [row.times for row in session.refusals()] == [2]


def test_refusal_that_many_others_followed_begins_another_row(
    store: Store,
) -> None:
    session = Waiting(store)
    for reasons in (*REFUSALS, REFUSALS[0], cleaning_up("a"), REFUSALS[0]):
        session.refuse(reasons)
    session.cancel()

    counts = [row.times for row in session.refusals()]
    assert counts == [2, *[1] * (MAX_REPEATS - 1), 1, 1]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(REFUSALS), max_size=30))
def test_no_order_of_a_few_refusals_makes_more_rows_than_there_are_kinds_or_loses_one(
    store: Store, refusals: list[tuple[Reason, ...]]
) -> None:
    assert len(REFUSALS) == MAX_REPEATS
    session = Waiting(store)
    for reasons in refusals:
        session.refuse(reasons)
    session.cancel()

    rows = session.refusals()
    assert len(rows) == len(set(refusals))
    assert sum(row.times for row in rows) == len(refusals)
    assert max([row.last_at for row in rows], default=0.0) == len(refusals)
