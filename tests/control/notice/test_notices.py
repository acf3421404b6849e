"""Notices under virtual time: the real control plane, hollow channels of which everything can be
lost, doubled, late or out of order."""

import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from proving.hollow.performers.notices import Faults
from proving.hollow.supervisor import Run
from sqlalchemy import select
from tests.control.driven_agent import task_index
from tests.control.world import ADA, World, state
from tests.databases import ON_BOTH

from muster.control.job.requests import JobRequests
from muster.control.notice.effects import NoticeOutcome
from muster.control.notice.entity import Notice, notices
from muster.control.notice.states import NOTICE_TABLE, NoticeStatus
from muster.control.notice.turns import MAX_SENDING_OF_ONE
from muster.core.owner import Owner, Principal, Role
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_notices import NoticeForbidden, NoticeRefused
from muster.core.resources import Resources
from muster.core.specs import JobSpec, SessionSpec
from muster.core.states import JOB_TABLE, JobState
from muster.store import schema
from muster.wire.messages import Start

pytestmark = ON_BOTH

TOKEN = "s3cr3t-t0ken"
CHANNEL = f"json://hooks.example.org/{TOKEN}"
CPUS = Resources(cpu_milli=8000, memory_bytes=2**34)
BOB = Principal(Owner("default", "default", "bob"), Role.USER)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, {"a": CPUS}, behaviour=ends_as_its_command_says)
    yield made
    made.close()


def ends_as_its_command_says(start: Start) -> Run:
    return Run(exit_code=int(start.template.command[0] == "fails" and task_index(start) == 0))


def job(command: str = "works", **fields: Any) -> JobSpec:
    return JobSpec.model_validate({"command": [command], **fields})


def rows(world: World) -> list[Any]:
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        return list(connection.execute(select(notices).order_by(notices.c.id)))


def history_of(world: World, subject: str) -> list[tuple[str, str]]:
    history = schema.history
    below = select(history.c.phase, history.c.to_status).where(
        history.c.entity.startswith(f"{subject}/ntc-")
    )
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        return [(row.phase, row.to_status) for row in connection.execute(below)]


def test_job_that_ends_tells_its_channel_what_became_of_it(world: World) -> None:
    spec = job("fails", name="train", tasks=3, notify=[CHANNEL], keep_going=True)
    ended = world.submit(spec)
    world.run(5.0)

    (row,) = rows(world)
    assert (row.subject, row.status, row.tone) == (ended.id, "SENT", "failure")
    assert row.title == "job train: FAILED"
    assert f"job train ({ended.id}) of default/default/ada: FAILED" in row.body
    assert "reason: task 0 failed" in row.body
    assert "tasks failed: 1 of 3" in row.body
    assert "ran 1" in row.body
    assert f"muster show {ended.id}" in row.body
    assert list(world.channels.sent.values()) == [1]
    assert history_of(world, ended.id) == [("TakeTurns", "SENDING"), ("SendNotices", "SENT")]


@pytest.mark.parametrize(
    ("on", "command", "told"),
    [
        ("end", "works", True),
        ("end", "fails", True),
        ("failure", "works", False),
        ("failure", "fails", True),
        ("success", "works", True),
        ("success", "fails", False),
    ],
)
def test_channel_is_told_of_the_ends_that_it_is_for(
    world: World, on: str, command: str, told: bool
) -> None:
    world.submit(job(command, notify=[{"url": CHANNEL, "on": on}]))
    world.run(5.0)
    assert len(rows(world)) == told


def test_job_that_is_cancelled_before_it_began_tells_of_a_failure(world: World) -> None:
    waiting = world.submit(job(resources={"cpu": 100}, notify={"url": CHANNEL, "on": "failure"}))
    world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, waiting.id))
    world.run(1.0)
    (row,) = rows(world)
    assert "cancelled by ada" in row.body
    assert "never started" in row.body


def test_job_whose_processes_outlive_it_tells_its_end_once(world: World) -> None:
    world.behaviour = lambda start: Run(
        1000.0, stubborn=task_index(start) == 0, outlives_kill_s=math.inf
    )
    ending = world.submit(job(tasks=3, notify=[CHANNEL]))
    world.run(1.0)
    world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, ending.id))
    world.restart_controller()
    world.run(200.0)
    assert len(rows(world)) == 1


def test_session_that_ends_tells_its_channel(world: World) -> None:
    kernels = [{"command": ["works"], "replicas": 2}]
    spec = {"name": "pair", "kernels": kernels, "notify": [{"url": CHANNEL, "on": "success"}]}
    world.behaviour = lambda start: Run()
    session = world.submit_session(SessionSpec.model_validate(spec))
    world.run(5.0)
    (row,) = rows(world)
    assert (row.subject, row.status, row.title) == (session.id, "SENT", "session pair: ended well")


def test_end_and_notices_are_one_commit_whenever_the_controller_is_killed(world: World) -> None:
    spec = job(notify=[CHANNEL, CHANNEL], tasks=4)
    jobs = [world.submit(spec) for _ in range(5)]
    world.channels.faults = Faults(late_s=3.0)
    for _ in range(12):
        world.run(0.5)
        world.restart_controller()
        ended = [each.id for each in jobs if each.id not in world.plane.live.jobs]
        assert sorted(row.subject for row in rows(world)) == sorted(ended * 2)
    world.run(120.0)
    assert {row.status for row in rows(world)} == {"SENT"}
    assert len(world.channels.sent) == 10


def test_outcome_of_an_earlier_attempt_changes_nothing(world: World) -> None:
    world.channels.faults = Faults(lost=1.0)
    world.submit(job(notify=CHANNEL))
    world.run(5.0)
    (notice,) = world.plane.live.of(Notice).values()
    assert (notice.status, notice.generation) == (NoticeStatus.SENDING, 1)
    world.run(90.0)
    assert notice.generation == 2

    for stale in (0, 1, 3):
        world.inbox.put(NoticeOutcome(notice.name, stale))
    world.inbox.put(NoticeOutcome("job-0000000000000000/ntc-0000000000000000", 1))
    world.settle()
    assert notice.status is NoticeStatus.SENDING
    world.inbox.put(NoticeOutcome(notice.name, 2))
    world.settle()
    assert [row.status for row in rows(world)] == ["SENT"]


def test_outcome_that_comes_late_counts_until_the_notice_is_handed_over_again(
    world: World,
) -> None:
    world.channels.faults = Faults(lost=1.0)
    world.submit(job(notify=CHANNEL))
    world.run(1.0)
    (notice,) = world.plane.live.of(Notice).values()
    world.run_until(lambda: notice.tries == 1, 100.0)
    refused = NoticeOutcome(notice.name, 1, NoticeRefused(answer=503))
    world.inbox.put(refused)
    world.settle()
    assert (notice.tries, notice.generation) == (1, 1), "that attempt was counted already"
    world.inbox.put(NoticeOutcome(notice.name, 1))
    world.settle()
    assert [(row.status, row.generation) for row in rows(world)] == [("SENT", 1)]


def test_attempt_under_way_when_the_controller_is_killed_is_made_again_from_state(
    world: World,
) -> None:
    world.channels.faults = Faults(mute=1.0)
    world.submit(job(notify=CHANNEL))
    world.run(5.0)
    world.channels.faults = Faults()
    world.restart_controller()
    world.run(1.0)
    (row,) = rows(world)
    assert (row.status, row.generation) == ("SENT", 2)
    assert list(world.channels.sent.values()) == [2]  # at least once: this time, twice


def test_channel_that_never_answers_fails_its_notice_and_nothing_else(world: World) -> None:
    world.channels.faults = Faults(mute=1.0)
    ended = world.submit(job(notify=CHANNEL))
    world.run(5.0)
    assert state(ended) is JobState.SUCCEEDED
    world.run(1200.0, step_s=5.0)
    (row,) = rows(world)
    assert (row.status, row.reason) == ("FAILED", ReasonCode.NOTICE_UNKNOWN)
    assert not world.plane.live.of(Notice)


def test_channel_that_can_never_be_used_is_tried_once(world: World) -> None:
    world.channels.faults = Faults(lost=1.0)
    world.submit(job(notify=CHANNEL))
    world.run(5.0)
    (notice,) = world.plane.live.of(Notice).values()
    why = NoticeForbidden(detail="the address is in a private network")
    world.inbox.put(NoticeOutcome(notice.name, 1, why))
    world.settle()
    (row,) = rows(world)
    assert (row.status, row.reason, row.generation) == ("FAILED", "NOTICE_FORBIDDEN", 1)


def test_notices_of_one_user_that_hang_do_not_delay_another_users(world: World) -> None:
    world.channels.faults = Faults(lost=1.0)
    for _ in range(10):
        world.submit(job(notify=[CHANNEL] * 8))
    world.run(30.0)
    sending = [n for n in world.plane.live.of(Notice).values() if n.handed_at is not None]
    assert len(sending) == MAX_SENDING_OF_ONE

    world.channels.faults = Faults()
    bobs = world.submit(job(notify=CHANNEL), BOB)
    world.run_until(lambda: state(bobs) in JOB_TABLE.terminal, 5.0)
    (row,) = [row for row in rows(world) if row.user == "bob"]
    assert row.status == "SENT"
    assert row.finished_at - row.created_at < 0.1


def test_notices_above_those_that_may_wait_fail_at_once_and_another_users_do_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.control.notice.ends.MAX_WAITING_OF_ONE", 10)
    world.channels.faults = Faults(lost=1.0)
    for _ in range(4):
        world.submit(job(notify=[CHANNEL] * 8))
    world.run(5.0)
    failed = [row for row in rows(world) if row.status == "FAILED"]
    assert {(row.reason, row.url) for row in failed} == {("NOTICES_TOO_MANY", "")}
    assert all(row.finished_at == row.created_at for row in failed)
    assert ("LimitNotices", "FAILED") in history_of(world, failed[0].subject)
    waiting = [n for n in world.plane.live.of(Notice).values() if n.handed_at is None]
    assert len(waiting) <= 10
    assert len(rows(world)) == 32

    world.channels.faults = Faults()
    world.submit(job(notify=CHANNEL), BOB)
    world.run(5.0)
    assert [row.status for row in rows(world) if row.user == "bob"] == ["SENT"]
    world.run(90.0)
    assert not world.plane.live.of(Notice)


def test_token_of_a_channel_is_in_its_row_until_it_ended_and_nowhere_else(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    world.channels.faults = Faults(refused=1.0)
    ended = world.submit(job(notify=CHANNEL))
    world.run(5.0)
    (notice,) = world.plane.live.of(Notice).values()
    assert TOKEN in rows(world)[0].url
    shown = [repr(notice), repr(ended.spec), repr(notice.outcome), caplog.text]
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        for table in (schema.history, schema.outbox):
            shown += [str(row) for row in connection.execute(select(table))]
    world.run(1200.0, step_s=5.0)
    (row,) = rows(world)
    assert row.status == "FAILED"
    assert row.shown == "json://hooks.example.org…"
    shown += [json.dumps([str(value) for value in row])]
    assert not [text for text in shown if TOKEN in text]


PART = st.floats(0.0, 0.6)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 2**16),
    faults=st.builds(
        Faults,
        lost=PART,
        doubled=PART,
        mute=PART,
        outcome_doubled=PART,
        late_s=st.floats(0.0, 90.0),
    ),
    restarts=st.lists(st.integers(1, 60), max_size=3),
)
def test_channel_gets_each_notice_at_least_once_whatever_goes_wrong(
    tmp_path_factory: pytest.TempPathFactory, seed: int, faults: Faults, restarts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("world")
    world = World(path, {"a": CPUS}, seed=seed, channels=faults)
    try:
        jobs = [world.submit(job(notify=[CHANNEL] * 2)) for _ in range(6)]
        for seconds in restarts:
            world.run(float(seconds), step_s=2.0)
            world.restart_controller()
        world.run(20.0, step_s=2.0)
        assert not world.plane.live.jobs, "no channel holds up work"
        world.channels.faults = Faults()
        world.run(1200.0, step_s=5.0)
        found = rows(world)
        assert sorted(row.subject for row in found) == sorted(each.id for each in jobs * 2)
        assert {row.status for row in found} <= set(NOTICE_TABLE.terminal)
        for row in found:
            times = world.channels.sent[f"{row.subject}/{row.id}"]
            assert times >= 1 if row.status == "SENT" else row.reason == ReasonCode.NOTICE_UNKNOWN
    finally:
        world.close()
