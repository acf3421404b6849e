"""A controller that runs on without the process that started it, as that process sees it."""

import os
import subprocess
import sys
import time
from contextlib import suppress

import psutil

from muster.app.controller_config import ControllerConfig, dump_controller
from muster.app.home import Home, Running, open_log
from muster.core.errors import MusterError

READY_TIMEOUT_S = 30.0
END_TIMEOUT_S = 30.0
LOOK_AGAIN_S = 0.01

# Our processes start others, never by a bare fork: gRPC need not prepare for one, nor warn of it.
ENVIRONMENT = {"GRPC_ENABLE_FORK_SUPPORT": "false"}


class CannotStart(MusterError):
    """The controller did not come up; the text says why."""


class DetachedController:
    """A controller's process: nobody's child, of no terminal."""

    def __init__(self, home: Home, process: psutil.Process) -> None:
        self._home = home
        self._process = process

    @classmethod
    def start(cls, config: ControllerConfig) -> "DetachedController":
        """Start one; it is not ready yet.

        Raises:
            CannotStart: it ended at once, or cannot be started at all.
        """
        try:
            with open_log(config.home.log) as log:
                starter = subprocess.run(
                    [sys.executable, "-m", "muster.app.controller_process", "--detach"],
                    input=dump_controller(config).encode(),
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd="/",
                    env=os.environ | ENVIRONMENT,
                    start_new_session=True,
                    timeout=READY_TIMEOUT_S,
                    check=False,
                )
            return cls(config.home, psutil.Process(int(starter.stdout)))
        except (ValueError, psutil.NoSuchProcess):
            raise CannotStart(last_words(config.home)) from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotStart(f"the controller cannot be started: {error}") from None

    def has_ended(self) -> bool:
        return has_ended(self._process)

    def terminate(self) -> None:
        """Tell it to end; it stops its agents itself."""
        with suppress(psutil.NoSuchProcess):
            self._process.terminate()

    def end(self) -> None:
        """Have it end, and wait until it has."""
        self.terminate()
        deadline_s = time.monotonic() + END_TIMEOUT_S
        while not self.has_ended():
            if time.monotonic() > deadline_s:
                with suppress(psutil.NoSuchProcess):
                    self._process.kill()
                return
            time.sleep(LOOK_AGAIN_S)

    def wait_until_ready(self) -> Running:
        """What it says of itself once it accepts requests.

        Raises:
            CannotStart: it ended instead, or took too long.
        """
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline_s:
            running = self._home.running()
            if running is not None and running.pid == self._process.pid:
                return running
            if self.has_ended():
                raise CannotStart(last_words(self._home))
            time.sleep(LOOK_AGAIN_S)
        raise CannotStart(
            f"the controller does not answer after {READY_TIMEOUT_S:.0f} s; see {self._home.log}"
        )


def has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def last_words(home: Home) -> str:
    """The sentence with which a controller ended."""
    lines = home.log.read_text(errors="replace").strip().splitlines()
    last = lines[-1] if lines else ""
    prefix = "muster controller: "
    return last.removeprefix(prefix) if last.startswith(prefix) else f"{last}; see {home.log}"
