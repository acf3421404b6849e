"""The performer of notices: its queue, its process, and what becomes of both."""

import itertools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert, update
from tests.control.notice.receiver import Receiver, receiving
from tests.databases import open_unsynced, url_at
from tests.patience import until

from muster.control.engine.effects import Surroundings
from muster.control.engine.inputs import Input
from muster.control.notice import performer
from muster.control.notice.addresses import Reach
from muster.control.notice.effects import NoticeOutcome, SendNotice
from muster.control.notice.entity import notices
from muster.control.notice.performer import NoticeSender
from muster.control.notice.settings import NoticeSettings
from muster.control.notice.turns import MAX_SENDING


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_unsynced(url_at(tmp_path))
    yield engine
    engine.dispose()


class Reported(list[Input]):
    """Outcomes, as they come in from the performer's thread."""

    def until(self, count: int) -> None:
        until(lambda: len(self) >= count)


@pytest.fixture
def reported() -> Reported:
    return Reported()


@pytest.fixture
def sender(engine: Engine, reported: Reported) -> Iterator[NoticeSender]:
    surroundings = Surroundings(engine, reported.append)
    sender = NoticeSender(surroundings, NoticeSettings(), Reach(loopback=True))
    yield sender
    sender.close()


def write(engine: Engine, id_: str, url: str) -> None:
    row = {
        **dict.fromkeys(("domain", "project", "user", "shown", "title", "body"), "x"),
        **dict.fromkeys(("status_changed_at", "created_at", "generation", "tries", "retry_at"), 0),
        "id": id_,
        "url": url,
        "tone": "info",
        "status": "SENDING",
    }
    with engine.begin() as connection:
        connection.execute(insert(notices), row)


def test_outcome_carries_the_key_of_its_effect(
    engine: Engine, receiver: Receiver, sender: NoticeSender, reported: Reported
) -> None:
    write(engine, "ntc-1", f"json://{receiver.host}/taken")
    sender.perform([SendNotice("job-7/ntc-1", 3)])
    reported.until(1)
    assert reported == [NoticeOutcome("job-7/ntc-1", 3)]
    assert [path for path, _ in receiver.got] == ["/taken"]


def test_notice_that_has_ended_is_sent_no_more(
    engine: Engine, receiver: Receiver, sender: NoticeSender, reported: Reported
) -> None:
    write(engine, "ntc-1", "")
    write(engine, "ntc-2", f"json://{receiver.host}/live")
    sender.perform([SendNotice("ntc-1", 1), SendNotice("ntc-0", 1), SendNotice("ntc-2", 1)])
    reported.until(1)
    assert reported == [NoticeOutcome("ntc-2", 1)]


def test_process_that_was_killed_is_replaced_for_the_next_notice(
    engine: Engine, receiver: Receiver, sender: NoticeSender, reported: Reported
) -> None:
    write(engine, "ntc-1", f"json://{receiver.host}/first")
    write(engine, "ntc-2", f"json://{receiver.host}/second")
    sender.perform([SendNotice("ntc-1", 1)])
    reported.until(1)
    killed = sender._process
    assert killed is not None
    killed.kill()
    until(lambda: killed.poll() is not None)
    sender.perform([SendNotice("ntc-2", 1)])
    reported.until(2)
    assert [path for path, _ in receiver.got] == ["/first", "/second"]


def test_perform_neither_waits_nor_raises_when_nothing_can_be_sent(
    engine: Engine, sender: NoticeSender, reported: Reported
) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE notices")
    began_s = time.monotonic()
    for _ in range(3):
        sender.perform([SendNotice(f"ntc-{n}", 1) for n in range(10 * MAX_SENDING)])
    assert time.monotonic() - began_s < 1.0
    assert reported == []


@pytest.mark.parametrize(("silent_s", "body"), [(0.3, "x"), (60.0, "x" * 60_000)])
def test_process_that_hangs_is_replaced(
    engine: Engine,
    receiver: Receiver,
    sender: NoticeSender,
    reported: Reported,
    monkeypatch: pytest.MonkeyPatch,
    silent_s: float,
    body: str,
) -> None:
    write(engine, "ntc-1", f"json://{receiver.host}/first")
    with engine.begin() as connection:
        connection.execute(update(notices).values(body=body))
    sender.perform([SendNotice("ntc-1", 1)])
    reported.until(1)
    hanging = sender._process
    assert hanging is not None
    os.kill(hanging.pid, signal.SIGSTOP)
    numbers = itertools.count(2)

    def is_replaced() -> bool:
        sender.perform([SendNotice("ntc-1", next(numbers))])
        return hanging.poll() is not None

    with monkeypatch.context() as impatient:  # but not with a process that is only starting
        impatient.setattr(performer, "SILENT_S", silent_s)
        impatient.setattr(performer, "WRITE_S", 0.3)
        until(is_replaced, pause_s=0.2)
    sender.perform([SendNotice("ntc-1", next(numbers))])
    reported.until(2)


def test_thread_that_could_not_begin_begins_with_a_later_notice(
    engine: Engine,
    receiver: Receiver,
    sender: NoticeSender,
    reported: Reported,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    write(engine, "ntc-1", f"json://{receiver.host}/later")
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        sender.perform([SendNotice("ntc-1", 1)])
    sender.perform([SendNotice("ntc-1", 2)])
    reported.until(1)
    assert reported == [NoticeOutcome("ntc-1", 2)]


@pytest.mark.parametrize(
    "line", ["[]", "7", '{"key": 7, "fate": "taken"}', '{"key": "1 ntc-1"}', "null", "nothing"]
)
def test_outcomes_are_heard_after_a_line_that_is_none(
    sender: NoticeSender, reported: Reported, line: str
) -> None:
    fate = '{"key": "1 ntc-1", "fate": "taken"}'
    process = subprocess.Popen(["printf", r"%s\n%s\n", line, fate], stdout=subprocess.PIPE)
    sender._listen(process)
    assert reported == [NoticeOutcome("ntc-1", 1)]


def test_nothing_of_the_performer_is_left_once_it_is_closed(
    engine: Engine, receiver: Receiver, sender: NoticeSender, reported: Reported
) -> None:
    write(engine, "ntc-1", f"json://{receiver.host}/drip?rto=600")
    sender.perform([SendNotice("ntc-1", 1)])
    until(lambda: bool(receiver.got))
    process = sender._process
    assert process is not None
    attempts = children_of(process.pid)
    assert len(attempts) == 1
    sender.close()
    until(lambda: process.poll() is not None)
    until(lambda: not any(Path(f"/proc/{pid}/stat").exists() for pid in attempts))
    assert reported == []


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
