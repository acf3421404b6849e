"""One machine of the local provider: a directory, and an agent's process on it.

    machine.json  how the agent is started, and in which boot it is
    machine.lock  locked by the process while there is one
    join-token    for its owner only, as all of these
    authority.pem
    agent.log     and agent.log.1, which was put aside because it was long
    agent/        the agent's own directory

The lock is on the open file, which the process inherits: it begins before the process does and ends
with it, so nothing has to be known of process ids, which the system uses again.
"""

import fcntl
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from muster.core.text import printable
from muster.files import PARENT_MODE, make_directory, write_whole
from muster.providers.provider import MachineState

ACCOUNTS_OPTION = "--accounts-file"
MACHINE_VARIABLE = "MUSTER_MACHINE"
"""In the environment of the process: the machine's directory, by which the process is found."""

_RECORD, _LOCK, _LOG = "machine.json", "machine.lock", "agent.log"
_AGENT = "agent"
_KEPT = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "MUSTER_USERS_DIR",
)
"""Variables that the process gets; a controller's others may be secrets."""
_FLOCK = struct.Struct("hhqqi")  # type, from where, start, length, process: 0 for these locks
_START_S = 10.0
_TERMINATING_S = 10.0  # an agent waits for a supervisor that it is just starting
_POLL_S = 0.02
_TAIL_BYTES = 2000
_MAX_LOG_BYTES = 1 << 20
_TOLD = 200


class NotEnded(Exception):
    """Something of the machine is left; the text says what. It may be tried again."""


class LocalMachine:
    """A machine in ``directory``. Its caller has locked the slice that it is of, unless it only
    looks."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.agent_directory = directory / _AGENT
        self.token_file = directory / "join-token"
        self.authority_file = directory / "authority.pem"

    def state(self) -> MachineState:
        if self._is_locked():
            return MachineState.RUNNING if self._was_up() else MachineState.COMING
        is_made = (self.directory / _RECORD).exists()
        return MachineState.STOPPED if is_made else MachineState.COMING

    def port_range(self) -> int | None:
        """The number of its range of ports; None if it has none yet."""
        found = self._record().get("ports")
        return found if isinstance(found, int) else None

    def log(self) -> str:
        """The end of its log."""
        try:
            with (self.directory / _LOG).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                return log.read(_TAIL_BYTES).decode(errors="replace")
        except OSError:
            return ""

    def last_words(self) -> str:
        """The last line of its log."""
        lines = self.log().split("\n")
        said = next((line for line in reversed(lines) if line.strip()), "")
        return printable(" ".join(said.split()))[-_TOLD:]

    def make(self, options: Sequence[str], ports: int, token: str, authority: str | None) -> None:
        """Start the machine in its first boot, unless it runs or has run.

        Args:
            options: of ``muster agent``.
            ports: the number of its range of ports.

        Raises:
            OSError: it cannot be made.
        """
        if self._is_locked() or self._was_up():
            return
        make_directory(self.directory)
        write_whole(self.token_file, token)
        if authority is not None:
            write_whole(self.authority_file, authority)
        self._start(options, ports)

    def revive(self) -> bool:
        """Start an agent that ended again, in the same boot: it finds the kernels that it left.
        Whether it was started.

        Raises:
            OSError: it cannot be started.
        """
        record = self._record()
        options, ports, boot = (record.get(key) for key in ("options", "ports", "boot"))
        if not isinstance(options, list) or not isinstance(ports, int) or not isinstance(boot, str):
            return False
        if self._is_locked():
            return False
        self._start([str(each) for each in options], ports, boot)
        return True

    def reboot(self, deadline_s: float, *, hard: bool) -> None:
        """End the agent and all its kernels, and start it in another boot.

        Raises:
            NotEnded: they did not end in time.
            OSError: it cannot be started.
        """
        record = self._record()
        options, ports = record.get("options"), record.get("ports")
        if not isinstance(options, list) or not isinstance(ports, int):
            raise NotEnded("the machine was never started")
        self._end_agent(deadline_s, hard=hard)
        self._end_rest(deadline_s, ["--grace", "0"] if hard else [])
        self._start([str(each) for each in options], ports)

    def stop(self, timeout_s: float) -> None:
        """End the agent; its kernels run on until they are ended, or their lease ends.

        Raises:
            NotEnded: it does not end in time.
        """
        self._end_agent(time.monotonic() + timeout_s, hard=False)

    def remove(self, deadline_s: float) -> None:
        """End all that runs on the machine, and remove its files.

        Raises:
            NotEnded: something is left.
            OSError: a file cannot be removed.
        """
        self._end_agent(deadline_s, hard=False)
        if self.agent_directory.exists():
            self._end_rest(deadline_s, ["--wipe"])
        if self.directory.exists():
            shutil.rmtree(self.directory)

    def _start(self, options: Sequence[str], ports: int, boot: str | None = None) -> None:
        """
        Args:
            boot: the one in which it is; None begins another.

        Raises:
            OSError: no process can be started, or it cannot be written down.
        """
        slice_ = self.directory.parent
        make_directory(slice_.parent, PARENT_MODE, is_set=True)
        for directory in slice_, self.directory:
            make_directory(directory, is_set=True)
        lock = os.open(self.directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _take(lock):
                return
            boot = boot or str(uuid.uuid4())
            # What it says of itself from now on, it says of this boot.
            (self.agent_directory / "agent.lock").unlink(missing_ok=True)
            record = {"options": [*options], "ports": ports, "boot": boot}
            write_whole(self.directory / _RECORD, json.dumps(record))
            words = [*_muster(), "agent", *options, "--boot-id", boot]
            self._put_log_aside()
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            log = os.open(self.directory / _LOG, flags, 0o600)
            try:
                # The shell leaves the process to itself: nobody here has to wait for its end.
                subprocess.run(
                    ["/bin/sh", "-c", '"$@" &', "sh", *words],
                    env=_environment() | {MACHINE_VARIABLE: str(self.directory)},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(lock,),
                    start_new_session=True,
                    timeout=_START_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise TimeoutError(f"no process starts within {_START_S:g} s") from None
            finally:
                os.close(log)
        finally:
            os.close(lock)

    def _put_log_aside(self) -> None:
        """Put a long log aside, in place of the former one: an agent that ends at once writes some
        at each start.

        Raises:
            OSError: it cannot be put aside.
        """
        log = self.directory / _LOG
        with suppress(FileNotFoundError):
            if log.stat().st_size >= _MAX_LOG_BYTES:
                log.replace(log.with_name(f"{_LOG}.1"))

    def _end_agent(self, deadline_s: float, *, hard: bool) -> None:
        """End the process, whatever it is doing.

        Raises:
            NotEnded: it does not end, or another process has the lock.
        """
        kill_s = time.monotonic() + (0.0 if hard else _TERMINATING_S)
        told: set[int] = set()
        while self._is_locked():
            now_s = time.monotonic()
            if now_s > deadline_s:
                raise NotEnded(f"the agent on {self.agent_directory} does not end")
            for descriptor, pid in self._processes():
                try:
                    if now_s >= kill_s:
                        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                    elif pid not in told:
                        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
                        told.add(pid)
                except (ProcessLookupError, PermissionError):
                    pass
                finally:
                    os.close(descriptor)
            time.sleep(_POLL_S)

    def _end_rest(self, deadline_s: float, options: Sequence[str]) -> None:
        """End supervisor and kernels, which outlive the agent's process.

        Raises:
            NotEnded: they do not end.
        """
        words = [*_muster(), "agent", "--end", "--dir", str(self.agent_directory), *options]
        given = self._record().get("options")
        if isinstance(given, list) and ACCOUNTS_OPTION in given:
            at = given.index(ACCOUNTS_OPTION)
            words += given[at : at + 2]
        try:
            done = subprocess.run(
                words,
                env=_environment(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=max(0.1, deadline_s - time.monotonic()),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotEnded(f"the kernels on {self.agent_directory} do not end in time") from None
        if done.returncode != 0:
            raise NotEnded(printable(done.stderr.decode(errors="replace").strip())[-_TOLD:])

    def _processes(self) -> Iterator[tuple[int, int]]:
        """The machine's processes: a descriptor of each, to be closed, and its id."""
        tag = f"{MACHINE_VARIABLE}={self.directory}".encode()
        for name in os.listdir("/proc"):  # noqa: PTH208
            if not name.isdigit():
                continue
            try:
                descriptor = os.pidfd_open(int(name))
            except OSError:
                continue
            # Looked at once the descriptor is open: it is of this process, and of no later one.
            with suppress(OSError):
                if tag in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    yield descriptor, int(name)
                    continue
            os.close(descriptor)

    def _is_locked(self) -> bool:
        try:
            descriptor = os.open(self.directory / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked)
        finally:
            os.close(descriptor)
        return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)

    def _was_up(self) -> bool:
        """Whether the agent has been up in this boot: it writes its process id into its lock."""
        try:
            return (self.agent_directory / "agent.lock").stat().st_size > 0
        except OSError:
            return False

    def _record(self) -> dict[str, object]:
        try:
            found = json.loads((self.directory / _RECORD).read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def machines_of_pools(directory: Path) -> list[LocalMachine]:
    """The machines of all pools whose directories are in this one."""
    return [LocalMachine(record.parent) for record in directory.glob(f"*/*/*/{_RECORD}")]


def _muster() -> list[str]:
    return [sys.executable, "-P", "-m", "muster.cli.main"]


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEPT if name in os.environ}


def _take(descriptor: int) -> bool:
    """Take the lock of an open file; false if another open file has it."""
    lock = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)
    except (BlockingIOError, PermissionError):
        return False
    return True
