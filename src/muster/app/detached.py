"""A detached controller, from the view of the process that started it."""

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil

from muster.app.controller_config import ControllerConfig, dump_controller
from muster.app.home import Home, RunningController, open_log
from muster.app.keeper import is_kept
from muster.app.own_log import said_in
from muster.core.errors import Conflict, MusterError
from muster.core.log_options import LogOptions

SPAWN_TIMEOUT_S = 30.0
READY_TIMEOUT_S = 300.0
"""How long a live process may take to be ready: one that has much state to read, on a busy machine,
takes long. One that cannot start ends, which is noticed at once."""
END_TIMEOUT_S = 30.0
LOOK_AGAIN_S = 0.01

# Muster's processes never fork without an exec, so gRPC need not prepare for one, nor warn of it.
# Its errors come as answers; its own lines would only stand beside Muster's in the log.
ENVIRONMENT = {"GRPC_ENABLE_FORK_SUPPORT": "false", "GRPC_VERBOSITY": "NONE"}


class CannotStart(MusterError):
    """The controller did not come up; the text says why."""


class ToldToStop(MusterError):
    """A signal came before the controller was ready."""


class DetachedController:
    """A controller's process, or its keeper's, without a parent and a terminal."""

    def __init__(self, home: Home, process: psutil.Process, since: int = 0) -> None:
        self._home = home
        self._process = process
        self._since = since  # the length of the log, in bytes, when it was started

    @classmethod
    def start(
        cls, config: ControllerConfig, log_options: LogOptions, *, kept: bool
    ) -> "DetachedController":
        """Start a controller, which logs as the options say; it is not ready yet. ``kept``: a
        keeper starts it again whenever it crashes.

        Raises:
            CannotStart: it ended at once, or could not be started at all.
        """
        words = [sys.executable, "-m", "muster.app.controller_process"]
        since = 0
        try:
            with open_log(config.home.log) as log:
                since = os.fstat(log.fileno()).st_size
                starter = subprocess.run(
                    [*words, "--detach", *(["--keep"] if kept else [])],
                    input=dump_controller(config).encode(),
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd="/",
                    env=os.environ | ENVIRONMENT | log_options.environment,
                    start_new_session=True,
                    timeout=SPAWN_TIMEOUT_S,
                    check=False,
                )
            return cls(config.home, psutil.Process(int(starter.stdout)), since)
        except (ValueError, psutil.NoSuchProcess):
            raise CannotStart(last_words(config.home, since)) from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotStart(f"the controller cannot be started: {error}") from None

    def has_ended(self) -> bool:
        return has_ended(self._process)

    def terminate(self) -> None:
        """Tell the process to end; it stops its agents itself."""
        with suppress(psutil.NoSuchProcess):
            self._process.terminate()

    def end(self) -> None:
        """Tell the process to end, and wait until it has."""
        self.terminate()
        deadline_s = time.monotonic() + END_TIMEOUT_S
        while not self.has_ended():
            if time.monotonic() > deadline_s:
                with suppress(psutil.NoSuchProcess):
                    self._process.kill()
                return
            time.sleep(LOOK_AGAIN_S)

    def wait_until_ready(self, told_to_stop: threading.Event) -> RunningController:
        """The controller's description of itself, once it accepts requests.

        Raises:
            ToldToStop: the event was set meanwhile.
            CannotStart: it ended instead, or took too long.
            Conflict: somebody else started one at the same time, and was faster.
        """
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline_s:
            running = self._home.running()
            if running is not None and self._is_ours(running.pid):
                return running
            if self.has_ended():
                if self._home.is_running() or is_kept(self._home):
                    raise Conflict(_faster(self._home))
                raise CannotStart(last_words(self._home, self._since))
            if told_to_stop.wait(LOOK_AGAIN_S):
                raise ToldToStop("told to stop before the cluster was ready; nothing of it is left")
        raise CannotStart(
            f"the controller does not answer after {READY_TIMEOUT_S:.0f} s; see {self._home.log}"
        )

    def _is_ours(self, pid: int) -> bool:
        with suppress(psutil.NoSuchProcess):
            return self._process.pid in (pid, psutil.Process(pid).ppid())
        return False


def _faster(home: Home) -> str:
    running = home.running()
    where = f" at {running.url} (process {running.pid})" if running is not None else ""
    return f"another `muster up` was faster: its cluster runs on {home.path}{where}, not this one"


def has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def last_words(home: Home, since: int = 0) -> str:
    """The sentence with which a controller ended.

    Args:
        since: the length of the log, in bytes, when it was started.
    """
    lines = _lines(home.log, since)
    last = said_in(lines[-1]) if lines else ""
    prefix = "muster controller: "
    if last.startswith(prefix):
        return last.removeprefix(prefix)
    told = f", and last said: {last}" if last else ""
    return f"the controller ended without a reason{told}; see {home.log}"


def _lines(log: Path, since: int) -> list[str]:
    """The lines of a log from a position on; all of them if it has been put aside since."""
    try:
        with log.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(since if since <= size else 0)
            return file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return []
