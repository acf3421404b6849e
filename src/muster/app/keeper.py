"""Keeping a controller alive: a small process of its own that starts it again after a crash.

A controller that ends by itself (code 0, as after SIGTERM), or because another one has taken its
database over, is not started again. One that crashes
again and again is given up after ``MAX_CRASHES``, so that a defect does not spin for ever; one that
something outside hinders, as a full disk does, is started again until it is not. The keeper imports
nothing large, and a controller whose keeper is killed runs on.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from muster.agent.supervisor import lock_file
from muster.app.home import Home, RunningController, write_private
from muster.app.own_log import log_to_stderr, say_last
from muster.core.errors import Conflict, Hindered, MusterError, Superseded

log = logging.getLogger("muster.keeper")

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0
"""Seconds after which a run counts as steady: the count of crashes in a row begins again."""
MAX_CRASHES = 10
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class KeeperRecord:
    """A keeper's account: the number of crashes, the end and the moment of the last one.
    ``gave_up``: the keeper started no other controller after it."""

    pid: int
    crashes: int = 0
    last_end: str = ""
    last_at: float = 0.0
    gave_up: bool = False


def keep(settings: str) -> int:
    """Run a controller with these settings until it ends with code 0, or this process is told to
    end; the answer is the exit code.

    A first start that fails is not repeated: the person who waits for it is told. Later starts take
    the ports that the first one found.
    """
    log_to_stderr()
    home = Home(Path(json.loads(settings)["home"]))
    stop = threading.Event()
    try:
        with _locked(home):
            return _Keeper(home, settings, stop).run()
    except Conflict as error:
        say_last(f"muster controller: {error}")
        return 1


def ended_with(code: int) -> str:
    """How a process ended, by its exit code as in ``subprocess``."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _killed(code: int) -> str:
    """Why a first start failed that ended with this code, as in ``subprocess``."""
    why = "for want of memory, or by somebody" if code == -signal.SIGKILL else "by somebody"
    return f"the controller was killed while it started ({ended_with(code)}), {why}"


def keeper_of(home: Home) -> int | None:
    """The process that keeps the home's controller alive; None if none does."""
    return lock_file.holder_of(_lock_file(home))


def is_kept(home: Home) -> bool:
    """Whether a process keeps the home's controller alive."""
    return lock_file.is_held(_lock_file(home))


def terminate_keeper(home: Home) -> None:
    """Tell the process that keeps the home's controller alive to end, with that controller."""
    lock_file.signal_holder(_lock_file(home), signal.SIGTERM)


def last_kept(home: Home) -> KeeperRecord | None:
    """The account that the last keeper wrote."""
    try:
        return KeeperRecord(**json.loads(_state_file(home).read_text()))
    except (OSError, ValueError, TypeError):
        return None


class _Keeper:
    def __init__(self, home: Home, settings: str, stop: threading.Event) -> None:
        self._home = home
        self._settings = settings
        self._stop = stop
        self._controller: subprocess.Popen[bytes] | None = None
        self._kept = KeeperRecord(os.getpid())
        self._was_ready = False  # of the present controller, or the last one

    def run(self) -> int:
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._told_to_end)
        self._note(self._kept)
        crashes, pause_s, started = 0, FIRST_PAUSE_S, False
        while True:
            began_s = time.monotonic()
            code = self._run_once()
            started = started or self._was_ready
            if self._stop.is_set() or code == 0:
                return 0
            if code == Superseded.exit_code:
                end = "another controller works on its database"
                self._note(
                    KeeperRecord(os.getpid(), self._kept.crashes, end, time.time(), gave_up=True)
                )
                log.error("the controller is not started again: %s", end)
                return code
            if not started:
                if code < 0:  # one that was killed has said nothing
                    say_last(f"muster controller: {_killed(code)}")
                return 1
            if time.monotonic() - began_s >= STEADY_S:
                crashes, pause_s = 0, FIRST_PAUSE_S
            is_hindered = code == Hindered.exit_code
            crashes += not is_hindered
            end = "a trouble that may pass" if is_hindered else ended_with(code)
            crashed = self._kept.crashes + (not is_hindered)
            gives_up = crashes > MAX_CRASHES
            self._note(KeeperRecord(os.getpid(), crashed, end, time.time(), gives_up))
            if gives_up:
                log.error("the controller ended with %s, %s times in a row: given up", end, crashes)
                return 1
            log.warning("the controller ended with %s, again in %.1f s", end, pause_s)
            if self._stop.wait(pause_s):
                return 0
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _run_once(self) -> int:
        """Run a controller once; the answer is its exit code as in ``subprocess``, or 1 if it could
        not be started."""
        self._was_ready = False
        try:
            self._controller = controller = subprocess.Popen(
                [sys.executable, "-m", "muster.app.controller_process"], stdin=subprocess.PIPE
            )
        except OSError as error:
            log.error("a controller cannot be started: %s", error)
            return 1
        if self._stop.is_set():  # told to end before there was a controller to tell
            controller.terminate()
        assert controller.stdin is not None, "it is a pipe"
        with suppress(BrokenPipeError), controller.stdin:
            controller.stdin.write(self._settings.encode())
        while not self._was_ready:
            with suppress(subprocess.TimeoutExpired):
                code = controller.wait(LOOK_S)
                self._look(controller.pid)  # it may have become ready since the last look
                return code
            self._look(controller.pid)
        return controller.wait()

    def _look(self, controller: int) -> None:
        """Note whether the controller has been ready, and where it listens."""
        running = self._home.running()
        if running is not None and running.pid == controller:
            self._was_ready = True
            self._settings = _at_the_same_ports(self._settings, running)

    def _told_to_end(self, _signum: int, _frame: object) -> None:
        self._stop.set()
        if self._controller is not None:
            self._controller.terminate()

    def _note(self, kept: KeeperRecord) -> None:
        self._kept = kept
        try:
            write_private(_state_file(self._home), json.dumps(asdict(kept)))
        except MusterError as error:  # a full disk ends controllers; their keeper goes on
            log.error("%s", error)


def _at_the_same_ports(settings: str, running: RunningController) -> str:
    """The settings of a controller that takes the place of ``running``: agents and clients look for
    it there, and nowhere else."""
    same = {
        "port": running.port,
        "agent_port": running.agent_port,
        "ports_tried": 1,
        "agent_ports_tried": 1,
        "waits": True,  # for these ports, and for the server of its database
    }
    return json.dumps(json.loads(settings) | same)


@contextmanager
def _locked(home: Home) -> Iterator[None]:
    """
    Raises:
        Conflict: another keeper is there.
    """
    try:
        lock = lock_file.take(_lock_file(home))
    except lock_file.Taken:
        raise Conflict(home.already_running()) from None
    try:
        yield
    finally:
        os.close(lock)


def _lock_file(home: Home) -> Path:
    return home.path / "keeper.lock"


def _state_file(home: Home) -> Path:
    return home.path / "keeper.json"
