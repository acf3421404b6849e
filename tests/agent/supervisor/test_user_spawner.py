"""The messages of a supervisor to the process that spawns the kernels of a user."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.agent.supervisor.driver import WAIT_S

from muster.agent.supervisor.failures import CannotExecute, CreateFailed
from muster.agent.supervisor.kernel import OwnKernel
from muster.agent.supervisor.loop import Loop
from muster.agent.supervisor.output import OutputPipes
from muster.agent.supervisor.process_tree import read_stat
from muster.agent.supervisor.protocol import KernelAccount, Program
from muster.agent.supervisor.spawn_messages import (
    ENDED,
    MAX_PLACES,
    READY,
    SPAWNED,
    VERSION,
    pack_fact,
    read_message,
)
from muster.agent.supervisor.spawner import Launch, Spawned
from muster.agent.supervisor.user_spawner import UserSpawner

UID = 210_001


class Listener:
    """A listener that is told of starts, and of the end of its process."""

    def __init__(self) -> None:
        self.running: list[OwnKernel] = []
        self.never_begun: list[OwnKernel] = []
        self.lost: list[OwnKernel] = []

    def spawned(self, kernel: OwnKernel, spawned: Spawned) -> None:
        kernel.pid, kernel.born_ticks = spawned.pid, spawned.born_ticks
        self.running.append(kernel)

    def not_spawned(self, kernel: OwnKernel, failure: CreateFailed | CannotExecute) -> None:
        self.never_begun.append(kernel)

    def dropped(self, kernel: OwnKernel) -> None:
        raise AssertionError

    def main_ended(self, kernel: OwnKernel, wait_status: int, heir: OwnKernel | None) -> None:
        self.running.remove(kernel)

    def spawner_ended(self, kernels: Collection[OwnKernel]) -> None:
        self.lost += kernels

    def helper_spawned(self, pid: int) -> None:
        raise AssertionError


@dataclass
class Peer:
    """A spawner as the supervisor has it, with the test at the other end of its socket."""

    process: subprocess.Popen[bytes]
    loop: Loop
    listener: Listener
    spawner: UserSpawner
    socket: socket.socket
    outputs: OutputPipes

    def start(self, program: Program, *, standby: bool = False) -> OwnKernel:
        kernel = OwnKernel(("k", 1))
        kernel.output = self.outputs.open("k", 1000)
        launch = Launch(program, {"OWN": "1"}, "/scratch")
        self.spawner.start(kernel, launch, standby=standby)
        return kernel

    def turn_until(self, condition: Callable[[], object]) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not condition() and time.monotonic() < deadline_s:
            self.loop.run_once(0.1)

    def heard(self) -> list[tuple[Any, ...]]:
        """The messages since the last call."""
        messages = []
        with suppress(BlockingIOError):
            while data := self.socket.recv(1 << 20, socket.MSG_DONTWAIT):
                messages.append(read_message(memoryview(data)))
        return messages


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200_000)
    account = KernelAccount(UID, UID, (), "ada", "/", "/", gains_privileges=False)
    loop, listener = Loop(), Listener()
    process = subprocess.Popen(["sleep", "60"])
    try:
        with ours, theirs:
            spawner = UserSpawner(account, process.pid, ours, loop, listener, lambda _: None)
            outputs = OutputPipes(loop, str(tmp_path))
            yield Peer(process, loop, listener, spawner, theirs, outputs)
    finally:
        process.kill()
        process.wait()


def program(name: str, argument: str = "") -> Program:
    return Program((name, argument), {"SHARED": "2"}, workdir=None, files={})


def test_launch_that_is_larger_than_a_message_fails_alone(peer: Peer) -> None:
    with pytest.raises(CreateFailed, match="CAP_NET_ADMIN"):
        peer.start(program("large", "x" * 400_000))
    assert peer.spawner.idle
    assert peer.heard() == []

    peer.start(program("small"))

    assert [words[0] for words in peer.heard()] == ["program", "launch"]


def test_program_of_many_kernels_is_told_once(peer: Peer) -> None:
    for _ in range(3):
        peer.start(program("a"))  # equal ones, as orders of several lines have them
        peer.start(program("b"))

    heard = peer.heard()
    assert [words[1:3] for words in heard if words[0] == "program"] == [
        (0, ("a", "")),
        (1, ("b", "")),
    ]
    assert [words[2] for words in heard if words[0] == "launch"] == [0, 1] * 3
    assert heard[-1][3:6] == ({"OWN": "1"}, "/scratch", ())


def test_program_that_was_not_used_for_long_is_told_again(peer: Peer) -> None:
    for number in range(MAX_PLACES + 1):
        peer.start(program(str(number)))
    peer.heard()

    peer.start(program("1"))
    assert [words[0] for words in peer.heard()] == ["launch"]
    peer.start(program("0"))
    assert peer.heard()[0][:3] == ("program", 1, ("0", ""))


def test_large_program_is_told_with_each_launch_and_takes_no_others_place(peer: Peer) -> None:
    for number in range(MAX_PLACES):
        peer.start(program(str(number)))
    peer.heard()

    for _ in range(2):
        peer.start(program("large", "x" * 100_000))
        peer.start(program("0"))

    heard = [words[:2] for words in peer.heard() if words[0] == "program"]
    assert heard == [("program", MAX_PLACES)] * 2


def test_kernels_of_a_process_that_died_are_lost_though_its_socket_stays_open(peer: Peer) -> None:
    """A process that it was about to spawn has the socket, until it executes its program."""
    kernel = peer.start(program("a"))
    peer.socket.send(pack_fact(READY, 0, VERSION))

    peer.process.kill()
    peer.turn_until(lambda: peer.listener.lost)

    assert peer.listener.lost == [kernel]


@pytest.mark.parametrize(
    "chance", ["none", "unheard end", "told end", "told to begin", "unheard beginning"]
)
def test_kernel_that_stood_by_with_a_dead_process_is_lost_only_if_that_may_have_spawned_it(
    peer: Peer, chance: str
) -> None:
    host = peer.start(program("a"))
    kernel = peer.start(program("a"), standby=True)
    with subprocess.Popen(["sleep", "60"]) as running:
        born = read_stat(running.pid)
        assert born is not None
        spawned = pack_fact(SPAWNED, running.pid, 1, born.start_ticks, born.start_ticks)
        peer.socket.send(pack_fact(READY, 0, VERSION) + spawned)
        peer.turn_until(lambda: peer.listener.running)
        if chance.endswith("end"):
            running.kill()
            running.wait()
        if chance == "told end":
            peer.socket.send(pack_fact(ENDED, running.pid, 9, 2))
            peer.turn_until(lambda: not peer.listener.running)
        if chance == "told to begin":
            peer.spawner.launch_now(kernel)
        # This one may have begun, ended and made place.
        unheard = [peer.start(program("a"))] if chance == "unheard beginning" else []
        peer.process.kill()
        peer.turn_until(lambda: peer.listener.lost or peer.listener.never_begun)
        running.kill()

    begun = [host] if chance == "unheard end" else []
    if chance == "none":
        assert (peer.listener.never_begun, peer.listener.lost) == ([kernel], [])
    else:
        assert (peer.listener.never_begun, peer.listener.lost) == ([], [kernel, *unheard, *begun])


def test_process_lives_on_that_got_the_descriptor_of_one_that_has_just_died(peer: Peer) -> None:
    """The loop calls a handler for whoever had the number earlier in the turn."""
    (first, first_end), (second, second_end) = os.pipe(), os.pipe()
    ended: list[UserSpawner] = []
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def begin() -> None:
        os.read(first, 1)
        peer.loop.close(second)
        pid, account = peer.process.pid, peer.spawner.account
        UserSpawner(account, pid, ours, peer.loop, peer.listener, ended.append)

    peer.loop.watch(first, begin)
    peer.loop.watch(second, lambda: None)
    os.write(first_end, b"x")
    os.write(second_end, b"x")
    with ours, theirs:
        peer.loop.run_once(0.0)

    assert not ended
    assert peer.process.poll() is None
    peer.loop.close(first)
    for fd in (first_end, second_end):
        os.close(fd)
