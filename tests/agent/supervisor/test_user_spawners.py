"""What a supervisor tells the process that spawns the kernels of a user."""

import json
import os
import socket
from collections.abc import Collection
from pathlib import Path

import pytest

from muster.agent.supervisor.failures import CannotExecute, CreateFailed
from muster.agent.supervisor.kernel import Kernel
from muster.agent.supervisor.loop import Loop
from muster.agent.supervisor.output import Outputs
from muster.agent.supervisor.protocol import Account
from muster.agent.supervisor.spawner import Launch, Spawned
from muster.agent.supervisor.user_spawners import UserSpawner, UserSpawners

UID = 210_001


class Deaf:
    """A listener that is told nothing in these tests."""

    def spawned(self, kernel: Kernel, spawned: Spawned) -> None:
        raise AssertionError

    def not_spawned(self, kernel: Kernel, failure: CreateFailed | CannotExecute) -> None:
        raise AssertionError

    def main_ended(self, pid: int, wait_status: int) -> None:
        raise AssertionError

    def spawner_ended(self, kernels: Collection[Kernel]) -> None:
        raise AssertionError

    def helper_spawned(self, pid: int) -> None:
        raise AssertionError


def test_launch_that_is_larger_than_a_message_fails_alone(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    account = Account(UID, UID, (), "ada", "/", "/", gains_privileges=False)
    large, small = (Kernel(("k", generation)) for generation in (1, 2))
    loop = Loop()
    outputs = Outputs(loop, str(tmp_path))
    large.output, small.output = outputs.open("large", 1000), outputs.open("small", 1000)
    with ours, theirs:
        spawners = UserSpawners(loop, {}, None)
        spawner = UserSpawner(spawners, account, os.getpid(), ours, Deaf())

        with pytest.raises(CreateFailed, match="CAP_NET_ADMIN"):
            spawner.start(large, Launch(("x" * 20_000,), {}, "/", "", {}, ""))
        assert not spawner.has(large)
        spawner.start(small, Launch(("true",), {}, "/", "", {}, ""))
        assert json.loads(theirs.recv(10_000))["launch"]["command"] == ["true"]
