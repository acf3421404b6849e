"""The process of a supervisor: its folder, its lock, its signals, its loop."""

# os and not pathlib: see the docstring of the package.
# ruff: noqa: PTH101, PTH103, PTH108, PTH110, PTH123

import fcntl
import gc
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import assert_never

from muster.agent.supervisor import clock, disk_usage, spawner_process
from muster.agent.supervisor.cgroup_places import cgroups_name, find_cgroups
from muster.agent.supervisor.cgroups import Cgroups
from muster.agent.supervisor.disk_watch import DiskWatch
from muster.agent.supervisor.journal import Journal, Replay
from muster.agent.supervisor.known_kernels import KnownKernels
from muster.agent.supervisor.link import AgentSocket
from muster.agent.supervisor.loop import Loop
from muster.agent.supervisor.orphans import OrphanProcesses
from muster.agent.supervisor.output import OutputPipes
from muster.agent.supervisor.own_log import rotate_stderr
from muster.agent.supervisor.process_priority import raise_priority
from muster.agent.supervisor.process_tree import Children
from muster.agent.supervisor.protocol import (
    SOCKET_NAME,
    AcknowledgeEvents,
    Forget,
    GoKernels,
    Key,
    Lease,
    Order,
    RecallKernels,
    Shutdown,
    StartKernels,
    StopKernels,
    file_name,
)
from muster.agent.supervisor.reaper import Reaper
from muster.agent.supervisor.recovery import kill_leftovers, remember, report_lost
from muster.agent.supervisor.scratch import ScratchDirectories, remove_empty
from muster.agent.supervisor.signals import SignalFd
from muster.agent.supervisor.spawner import Spawner
from muster.agent.supervisor.starter import Starter, default_environment, raise_open_files
from muster.agent.supervisor.supervisor import Supervisor
from muster.agent.supervisor.user_spawners import UserSpawners

_ALONE_S = 600.0  # the life of a supervisor without an agent and a kernel
_TERMINATION_GRACE_S = 5.0
_LONGEST_WAIT_S = 10.0  # epoll counts no time asleep, deadlines do
_JOURNAL_RETRY_S = 1.0
_TERMINATIONS = frozenset({signal.SIGTERM, signal.SIGINT})
_BUSY_KERNELS = 2
# How long a report waits for further reports that share its message. A message costs as much as two
# tasks.
_BATCHING_S = 0.002
_BATCHING_WITH_HEIRS_S = 0.02  # room is not idle meanwhile
_FORGET_AT_ONCE = 500  # kernels for one `rm`, which takes four paths for each


def main(arguments: list[str]) -> None:
    """`[--detach] --dir DIR`: be the supervisor on DIR until there is no more need for one.

    `--spawner SETTINGS` and `--measure TREES` are how a supervisor starts a process to spawn the
    kernels of a user, and one to measure scratch directories.
    """
    match arguments:
        case ["--dir", directory]:
            detach = False
        case ["--detach", "--dir", directory]:
            detach = True
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # nor may it hold files of others open
        case ["--measure", *trees]:
            disk_usage.main(trees)
            return
        case ["--spawner", settings]:
            spawner_process.main(settings)
            return
        case _:
            sys.exit("usage: supervisor [--detach] --dir DIR")
    directory = os.path.realpath(directory)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    os.chmod(directory, 0o700)
    os.chdir(directory)
    lock_fd = os.open("supervisor.lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _log("another supervisor has this folder")
        return
    # The lock comes first, so that whoever waited for the launch never leaves one behind that takes
    # the folder later, when the supervisor that had it has ended.
    if detach:
        if os.fork():
            os._exit(0)
        os.setsid()
    raise_priority()
    cgroups = find_cgroups(cgroups_name(directory))
    try:
        process = SupervisorParts(directory, cgroups)
    except BaseException:
        if cgroups is not None:
            cgroups.close()  # there may be no next supervisor to remove them
        raise
    process.run()


class SupervisorParts:
    """The parts of one supervisor, and the loop that drives them."""

    def __init__(self, directory: str, cgroups: Cgroups | None) -> None:
        """Take over from a dead supervisor, whose processes have left `cgroups`, and listen.

        Raises:
            OSError: the folder cannot be used, or the machine lacks what is needed.
        """
        self._directory = directory
        self._signals = SignalFd((signal.SIGCHLD, *_TERMINATIONS))
        children = Children()
        for name in ("kernels", "logs"):
            os.makedirs(f"{directory}/{name}", mode=0o700, exist_ok=True)
            os.chmod(f"{directory}/{name}", 0o700)
        self._loop = Loop()
        self._outputs = OutputPipes(self._loop, f"{directory}/logs")
        self._scratch = ScratchDirectories()
        remove_empty(f"{directory}/kernels")
        self._cgroups = cgroups
        boot_id = _boot_id()
        self._journal, replay = Journal.open(f"{directory}/journal", boot_id)
        open_files = raise_open_files()
        homes = {} if cgroups is None else cgroups.homes
        self._spawners = UserSpawners(self._loop, homes, open_files)
        starter = Starter(
            directory, self._outputs, self._scratch, Spawner(open_files), self._spawners, cgroups
        )
        self._reaper = Reaper(OrphanProcesses(directory, children) if cgroups is None else None)
        self._known = KnownKernels()
        self._supervisor = Supervisor(self._known, self._journal, starter, self._reaper)
        self._spawners.listener = self._supervisor
        self._disk_watch = DiskWatch(
            self._loop,
            self._supervisor.live.values,
            self._reaper.add_helper,
            self._supervisor.exceed_disk,
        )
        self._take_over(directory, replay, same_boot=replay.boot_id == boot_id)
        # Deaths come first, because an idle core or GPU waits, and a message may take long to read.
        self._loop.watch_first(self._signals.fd, self._on_signals)
        self._link = AgentSocket(
            self._loop,
            _listen(),
            self._journal,
            default_environment(os.environ),
            self._obey,
            self._supervisor.state,
        )

    def run(self) -> None:
        """Run the loop until there is nothing left to do."""
        gc.freeze()
        live = self._supervisor.live
        now_s = clock.now_s()
        while live or not self._done(now_s):
            self._loop.run_once(self._wait_s(now_s))
            now_s = clock.now_s()
            self._supervisor.tick(now_s)
            written = self._journal.write()
            self._link.deliver(written, now_s, self._batching_s())
            self._journal.compact_if_due(live.values())
            self._spawners.close_idle(now_s)
            if live:
                self._disk_watch.look(now_s)
            if not live:
                self._scratch.remove_spare()
        # The link closes last, so that a peer that waits for this finds nothing left.
        with suppress(FileNotFoundError):  # somebody took the folder away
            os.unlink(SOCKET_NAME)
        if self._cgroups is not None:
            self._cgroups.close()
        self._link.close()

    def _take_over(self, directory: str, replay: Replay, *, same_boot: bool) -> None:
        left = kill_leftovers(directory, replay.survivors.values(), same_boot=same_boot)
        detail = "" if same_boot else "the machine was rebooted"
        if left:
            detail = f"{left} processes of lost kernels could not be killed"
            _log(detail)
        remember(self._known, replay.unacknowledged)
        report_lost(self._known, self._journal, replay.survivors.values(), detail)
        self._journal.begin()
        self._journal.write()

    def _obey(self, op: Order) -> None:
        """
        Raises:
            ProtocolError: the operation cannot be done now.
        """
        match op:
            case StartKernels():
                self._supervisor.start(op.kernels)
            case AcknowledgeEvents():
                self._supervisor.acknowledge(op.seq)
            case StopKernels():
                self._supervisor.stop(op.kernels)
            case GoKernels():
                self._supervisor.go(op.kernels)
            case RecallKernels():
                self._supervisor.recall(op.kernels)
            case Lease():
                self._supervisor.renew_lease(op.until_s)
            case Forget():
                self._known.check_ended(op.kernels)
                for first in range(0, len(op.kernels), _FORGET_AT_ONCE):
                    self._remove_files(op.kernels[first : first + _FORGET_AT_ONCE], op.places)
            case Shutdown():
                self._supervisor.shut_down(op.grace_s)
            case _:
                assert_never(op)

    def _remove_files(self, keys: tuple[Key, ...], places: tuple[str, ...]) -> None:
        """Remove files of kernels in a process of its own, because it may take long."""
        paths = []
        for name in map(file_name, keys):
            log = f"{self._directory}/logs/{name}.log"
            errors = f"{self._directory}/logs/{name}.err"
            paths += [f"{place}/{name}" for place in (f"{self._directory}/kernels", *places)]
            paths += [log, f"{log}.1", f"{log}.start", f"{log}.owner"]
            paths += [errors, f"{errors}.1", f"{errors}.start"]
        try:
            pid = os.posix_spawnp("rm", ("rm", "-rf", "--", *paths), {}, setsid=True, setsigmask=())
        except OSError as error:
            _log(f"cannot remove the files of {len(keys)} kernels: {error}")
        else:
            self._reaper.add_helper(pid)

    def _on_signals(self) -> None:
        signals = self._signals.read()
        if signals & _TERMINATIONS:
            # Before the deaths: a machine that goes down ends its processes all at once.
            self._supervisor.shut_down(_TERMINATION_GRACE_S)
        if signal.SIGCHLD in signals:
            self._supervisor.reap()

    def _wait_s(self, now_s: float) -> float:
        return min(
            _JOURNAL_RETRY_S if self._journal.failing else _LONGEST_WAIT_S,
            self._supervisor.idle_s(now_s),
            self._link.idle_s(now_s),
            self._outputs.resume(now_s),
            self._disk_watch.idle_s(now_s) if self._supervisor.live else _LONGEST_WAIT_S,
        )

    def _batching_s(self) -> float:
        if len(self._supervisor.live) < _BUSY_KERNELS:
            return 0.0  # somebody may be waiting for this very report
        return _BATCHING_WITH_HEIRS_S if self._supervisor.heirs_wait else _BATCHING_S

    def _done(self, now_s: float) -> bool:
        """Whether there is no kernel, and no other reason to stay."""
        alone_since_s, lease_end_s = self._link.alone_since_s, self._supervisor.lease_end_s
        if self._supervisor.finished(now_s, attached=alone_since_s is None):
            return True
        if alone_since_s is None:
            return False
        return now_s >= min(alone_since_s + _ALONE_S, lease_end_s)


def _listen() -> socket.socket:
    """The socket in the working directory, in place of a dead supervisor's."""
    if os.path.exists(SOCKET_NAME):
        os.unlink(SOCKET_NAME)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    mask = os.umask(0o177)
    listener.bind(SOCKET_NAME)
    os.umask(mask)
    listener.listen(16)
    return listener


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _log(sentence: str) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    sys.stderr.write(f"{stamp} supervisor {os.getpid()}: {sentence}\n")
    sys.stderr.flush()
    rotate_stderr()
