"""The performer of notices: hands errands to a process that sends, beside the controller."""

import json
import logging
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from muster.control.engine.effects import Performer, Surroundings
from muster.control.notice.addresses import Reach
from muster.control.notice.effects import ATTEMPT_S, NoticeOutcome, SendNotice
from muster.control.notice.queries import read_errand
from muster.control.notice.sending import Fate
from muster.control.notice.settings import NoticeSettings
from muster.control.notice.turns import MAX_SENDING
from muster.core.reasons import Reason
from muster.core.reasons.of_notices import (
    NoticeForbidden,
    NoticeNotUnderstood,
    NoticeRefused,
    NoticesNotInstalled,
    NoticeTimedOut,
    NoticeUnreachable,
)

log = logging.getLogger(__name__)

PAUSE_S = 0.1
"""The time between two notices: ten a second, however many there are."""
IDLE_S = 120.0
"""Seconds without an errand after which the process ends; the next errand starts another
process."""
SILENT_S = ATTEMPT_S + 20.0
"""Seconds without an outcome, while errands are under way, after which the process counts as
hanging and is replaced."""
WRITE_S = 5.0
"""Seconds for which the process may leave an errand unread while the pipe is full."""
_KEPT = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables that the process gets. No proxy is among them, because only the proxy would see the
addresses; nor a home, whose .netrc has passwords for other purposes."""
_NO_HOME = {"HOME": "/nonexistent"}


class NoticeSender(Performer[SendNotice]):
    """Sends notices. Its thread and its process begin with the first one.

    Errands wait in a queue that holds as many as control has sent at a time; an errand that does
    not fit is dropped and comes again.
    """

    kind = SendNotice

    def __init__(self, surroundings: Surroundings, settings: NoticeSettings, reach: Reach) -> None:
        self._surroundings = surroundings
        self._told = {
            "attempt_s": int(ATTEMPT_S),
            "schemes": list(settings.schemes),
            "loopback": reach.loopback,
            "private": reach.private,
        }
        self._queue: queue.Queue[SendNotice | None] = queue.Queue(MAX_SENDING)  # None: closed
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._handed = 0  # errands of this process, counted by the performer's thread alone
        self._heard = 0  # their outcomes, counted by the listening thread alone
        self._heard_at_s = 0.0
        self._closed = threading.Event()

    def perform(self, effects: Sequence[SendNotice]) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="notices", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the machine has no thread left
                log.warning("notices have to wait: %s", error)
                return
            self._thread = thread
        for effect in effects:
            try:
                self._queue.put_nowait(effect)
            except queue.Full:
                log.warning("notice %s has to wait: too many are being sent", effect.name)

    def close(self) -> None:
        self._closed.set()
        if self._process is not None:
            _kill(self._process)
        with suppress(queue.Full):
            self._queue.put_nowait(None)

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                effect = self._queue.get(timeout=IDLE_S)
            except queue.Empty:
                self._end_process()
                continue
            if effect is None:
                break
            try:
                self._hand_over(effect)
            except Exception:
                # The error's text is left out, because it could contain the errand.
                log.error("notice %s was not handed over; it comes again", effect.name)
                self._end_process()
            self._closed.wait(PAUSE_S)
        self._end_process()

    def _hand_over(self, effect: SendNotice) -> None:
        engine = self._surroundings.engine
        with engine.connect().execution_options(readonly=True) as connection:
            errand = read_errand(connection, effect.id)
        if errand is None:
            return  # the notice has ended meanwhile
        process = self._process
        if process is not None and self._hangs():
            _kill(process)
            process = None
        if process is None or process.poll() is not None:
            self._end_process()
            process = self._start()
        message = errand.message
        line = {
            "key": f"{effect.generation} {effect.name}",
            "url": errand.url,
            "title": message.title,
            "body": message.body,
            "tone": message.tone,
        }
        if self._handed == self._heard:
            self._heard_at_s = time.monotonic()
        self._handed += 1
        _write(process, line)

    def _hangs(self) -> bool:
        silent_s = time.monotonic() - self._heard_at_s
        return self._handed > self._heard and silent_s > SILENT_S

    def _start(self) -> subprocess.Popen[bytes]:
        whose = str(self._surroundings.settings or "")  # for those who look at processes
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "muster.control.notice.sending", whose],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _KEPT if name in os.environ} | _NO_HOME,
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )
        self._process = process
        self._handed = self._heard = 0
        _write(process, self._told)
        if self._closed.is_set():
            _kill(process)
        threading.Thread(
            target=self._listen, args=(process,), name="outcomes of notices", daemon=True
        ).start()
        return process

    def _end_process(self) -> None:
        """Have the process end once its attempts have ended."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            try:
                process.stdin.close()
            except OSError:
                process.kill()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Report the outcomes of one process's errands, until the process ends."""
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                try:
                    told = json.loads(line)
                    generation, _, name = told["key"].partition(" ")
                    outcome = NoticeOutcome(name, int(generation), _reason(told))
                except (ValueError, KeyError, TypeError, AttributeError):
                    log.error("the process that sends notices said what cannot be understood")
                    continue
                if process is self._process:
                    self._heard += 1
                    self._heard_at_s = time.monotonic()
                self._surroundings.report(outcome)
        if process.wait() != 0 and not self._closed.is_set():
            log.error("the process that sends notices ended with %s", process.returncode)


def _write(process: subprocess.Popen[bytes], line: object) -> None:
    """Write a line to the process, which is killed if it does not read.

    Raises:
        OSError: it has ended, or was killed.
    """
    assert process.stdin is not None
    pipe = process.stdin.fileno()
    os.set_blocking(pipe, False)
    rest = json.dumps(line).encode() + b"\n"
    until_s = time.monotonic() + WRITE_S
    while rest:
        left_s = until_s - time.monotonic()
        if left_s <= 0 or not select.select((), (pipe,), (), left_s)[1]:
            _kill(process)
            raise TimeoutError("the process that sends notices does not read")
        rest = rest[os.write(pipe, rest) :]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and its attempts: it leads a group of its own."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _answer(told: dict[str, object]) -> int | str:
    """The status with which a channel answered, where that is known."""
    status = told.get("status", "no more")
    return status if isinstance(status, int) else str(status)


def _reason(told: dict[str, object]) -> Reason | None:
    match Fate(str(told["fate"])):
        case Fate.TAKEN:
            return None
        case Fate.REFUSED:
            return NoticeRefused(answer=_answer(told))
        case Fate.UNREACHABLE:
            return NoticeUnreachable()
        case Fate.TIMED_OUT:
            return NoticeTimedOut(timeout_s=ATTEMPT_S)
        case Fate.FORBIDDEN:
            return NoticeForbidden(detail=str(told.get("detail", ""))[:200])
        case Fate.NOT_UNDERSTOOD:
            return NoticeNotUnderstood()
        case Fate.NOT_INSTALLED:
            return NoticesNotInstalled()
