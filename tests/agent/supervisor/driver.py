"""A real supervisor under test, and an agent's end of its socket."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.patience import until

from muster.agent.supervisor import __main__ as script
from muster.agent.supervisor.launch import LOG_NAME, connect, launch
from muster.agent.supervisor.process_tree import all_processes, kernel_tag
from muster.agent.supervisor.shutdown import shut_down

WAIT_S = 15.0
CGROUPS = Path("/sys/fs/cgroup")

Event = dict[str, Any]
Message = dict[str, Any]


class Driver:
    """Launches a supervisor on a directory and speaks to it; all that it hears is kept.

    `events` has each event once; `batches` are the messages as they came, repeated or not.
    `template` is what all templates have unless they say otherwise.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.events: list[Event] = []
        self.batches: list[list[Event]] = []
        self.errors: list[str] = []
        self._heard: set[int] = set()
        self.state: Message = {}
        self.template: Message = {}
        self._unread = b""
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            launch(directory)
            self.attach()
        except BaseException:  # nobody else would end it, however late it came up
            self._end()
            raise

    def attach(self) -> Message:
        """Connect (again) as the agent; returns the state."""
        self.socket.close()
        self.socket = connect(self.directory)
        self.socket.settimeout(0.05)
        credentials = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.pid: int = struct.unpack("3i", credentials)[0]
        self._unread = b""
        self.state = {}
        self.say(op="attach")
        self.until(lambda: bool(self.state))
        return self.state

    def detach(self) -> None:
        self.socket.close()

    def say(self, **message: Any) -> None:
        self.say_line(json.dumps(message).encode())

    def say_line(self, line: bytes) -> None:
        self.socket.settimeout(WAIT_S)
        self.socket.sendall(line + b"\n")
        self.socket.settimeout(0.05)

    def lease(self, *lefts_s: float | None) -> None:
        """Kernels may run for so long from now on, or for good; several leases come together."""
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        ends_s = [None if left_s is None else now_s + left_s for left_s in lefts_s]
        lines = [json.dumps({"op": "lease", "until_s": end_s}) for end_s in ends_s]
        self.say_line("\n".join(lines).encode())

    def start(self, *kernels: str | Message, command: list[str] | None = None, **more: Any) -> None:
        """Start kernels of one template; a name alone stands for generation 1 of it."""
        template = {"command": command or ["true"], **self.template, **more}
        orders = [{"id": kernel} if isinstance(kernel, str) else kernel for kernel in kernels]
        orders = [{"generation": 1, "template": 0, "shape": "s", **order} for order in orders]
        self.say(op="start", templates=[template], kernels=orders)

    def stop(self, kernel: str, grace_s: float = 10.0, generation: int = 1) -> None:
        order = {"id": kernel, "generation": generation, "grace_s": grace_s, "reason": "cancelled"}
        self.say(op="stop", kernels=[order])

    def run(self, command: list[str], kernel: str = "k", **more: Any) -> Event:
        """Start one kernel and wait for its end."""
        self.start(kernel, command=command, **more)
        return self.ended(kernel)

    def started(self, kernel: str, generation: int = 1) -> Event:
        return self.event(kernel, "started", generation)

    def ended(self, kernel: str, generation: int = 1) -> Event:
        return self.event(kernel, "ended", generation)

    def event(self, kernel: str, kind: str, generation: int = 1) -> Event:
        """The first event of this kind about a kernel, waited for."""
        found: list[Event] = []

        def search() -> bool:
            found.extend(
                event
                for event in self.events
                if (event["kernel"], event["generation"], event["kind"])
                == (kernel, generation, kind)
            )
            return bool(found)

        self.until(search)
        return found[0]

    def all_of(self, kernel: str) -> list[str]:
        """The kinds of all events heard about a kernel."""
        return [event["kind"] for event in self.events if event["kernel"] == kernel]

    def until_written(self, kernel: str, kind: str, generation: int = 1) -> None:
        """Wait until an event is in the journal, which the supervisor writes unheard, too."""
        told = f'"kernel":"{kernel}","generation":{generation},"kind":"{kind}"'
        until(lambda: told in (self.directory / "journal").read_text())

    def error(self) -> str:
        """The next complaint, waited for."""
        self.until(lambda: bool(self.errors))
        return self.errors.pop(0)

    def settle(self) -> Message:
        """A new state, after everything said so far was obeyed."""
        self.state = {}
        self.say(op="attach")
        self.until(lambda: bool(self.state))
        return self.state

    def status(self, kernel: str, generation: int = 1) -> str | None:
        """Of a kernel in a new state; None if the supervisor does not know it."""
        for entry in self.settle()["kernels"]:
            if (entry["id"], entry["generation"]) == (kernel, generation):
                return str(entry["status"])
        return None

    def acknowledge(self) -> None:
        self.say(op="ack", seq=max(event["seq"] for event in self.events))

    def until(self, condition: Callable[[], bool]) -> None:
        """Listen until something holds.

        Raises:
            ConnectionError: the supervisor hung up.
        """
        deadline_s = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline_s, f"in vain; heard {self.events} {self.errors}"
            if not self.listen():
                log = (self.directory / LOG_NAME).read_text()
                raise ConnectionError(f"the supervisor hung up: {log}")

    def until_hung_up(self) -> None:
        with suppress(ConnectionError):
            self.until(lambda: False)

    def listen(self) -> bool:
        """Take in what has come; False if the supervisor hung up."""
        try:
            data = self.socket.recv(1 << 16)
        except TimeoutError:
            return True
        except ConnectionError:
            return False
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            match json.loads(line):
                case {"events": list(events)}:
                    self.batches.append(events)
                    self.events += [e for e in events if e["seq"] not in self._heard]
                    self._heard.update(event["seq"] for event in events)
                case {"error": str(sentence)}:
                    self.errors.append(sentence)
                case {"state": dict(state)}:
                    self.state = state
        return bool(data)

    def log(self, kernel: str, generation: int = 1) -> str:
        return self.log_path(kernel, generation).read_text()

    def log_path(self, kernel: str, generation: int = 1) -> Path:
        return self.directory / "logs" / f"{kernel}.{generation}.log"

    def scratch(self, kernel: str, generation: int = 1) -> Path:
        return self.directory / "kernels" / f"{kernel}.{generation}"

    def kill(self) -> None:
        """Kill the supervisor as nothing else can, and wait until it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        self.detach()
        wait_gone(self.pid)

    def _end(self) -> None:
        """End the supervisor if it is still there, whatever it has to tell."""
        self.socket.close()
        shut_down(self.directory, grace_s=0.0, timeout_s=WAIT_S)

    def _acknowledge_on(self) -> bool:
        """Never true: the supervisor hangs up once all it had to tell was acknowledged."""
        if self.events:
            self.acknowledge()
        return False

    def close(self) -> None:
        """Stop everything, and make sure that nothing is left."""
        with suppress(OSError):
            self.socket.close()
        try:
            with suppress(FileNotFoundError, ConnectionError):
                self.attach()
                self.say(op="shutdown", grace_s=0)
                self.until(self._acknowledge_on)
        finally:
            self._end()
        wait_gone(self.pid)
        assert not list(tagged(self.directory)), "processes of kernels are left"


def launch_without_cgroups(directory: Path) -> bool:
    """Start a supervisor that finds none on its machine; whether this user can have it so."""
    supervisor = (sys.executable, "-I", "-S", str(script.__file__), "--detach", "--dir", directory)
    hide = 'umount -l -R /sys/fs/cgroup && exec "$@"'
    command = ("unshare", "--mount", "sh", "-c", hide, "sh", *map(str, supervisor))
    directory.mkdir(mode=0o700)
    with (directory / LOG_NAME).open("ab") as log:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=WAIT_S, check=False
        )
    return done.returncode == 0


def take_over(driver: Driver) -> None:
    """Kill the supervisor and launch the next."""
    driver.kill()
    launch(driver.directory)
    driver.attach()


def tagged(directory: Path) -> Iterator[int]:
    """The processes of a supervisor's kernels, by their environment."""
    for process in all_processes():
        if process.state != "Z" and kernel_tag(process.pid, str(directory)) is not None:
            yield process.pid


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    with suppress(FileNotFoundError, ProcessLookupError):
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat[stat.rindex(")") + 2] != "Z"
    return False


def cgroups_of(directory: Path) -> list[Path]:
    """Of the supervisor on a folder, after which they are named. Those of others may go
    meanwhile."""
    status = directory.stat()
    name = f"muster-{status.st_dev:x}-{status.st_ino:x}"
    return [Path(parent, name) for parent, children, _ in os.walk(CGROUPS) if name in children]


def wait_gone(pid: int) -> None:
    until(lambda: not alive(pid))


def read_when_there(path: Path) -> str:
    """The text of a file that a kernel writes, once it has a whole line."""
    until(lambda: path.exists() and path.read_text().endswith("\n"))
    return path.read_text()
