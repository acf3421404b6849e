"""Streams, controllers, supervisors and the agent itself fail: nothing is lost or doubled."""

import asyncio
import os
import signal
import socket
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.agent.running import running
from tests.patience import until
from tests.wire.controller import Controller, controller, template

from muster.agent import conversation
from muster.agent.supervisor.launch import connect
from muster.core.ids import KernelId
from muster.core.reasons import ReasonCode
from muster.core.resources import DeviceShare
from muster.wire.messages import (
    Acknowledge,
    HeldStatus,
    ReportKind,
    Start,
)

ROOT = Path(__file__).parents[2]
K1, K2, K3 = KernelId("krn-1"), KernelId("krn-2"), KernelId("krn-3")
FOREVER = ("/bin/sleep", "600")


async def said_hello_again(made: Controller) -> None:
    hellos = len(made.hellos)
    made.gateway.close(made.agent, "say Hello again")
    await made.until(lambda: len(made.hellos) > hellos)


def held(made: Controller) -> dict[KernelId, HeldStatus]:
    """The kernels that the agent holds, by its last Hello."""
    return {each.kernel: each.status for each in made.hellos[-1].kernels}


async def heard_everything(made: Controller) -> None:
    """Wait for two heartbeats: they come when there is nothing else to say.

    The first may have been on its way already; the second was made after it, by an agent that had
    read all that this end had written before.
    """
    heartbeats = made.heartbeats
    await made.until(lambda: made.heartbeats > heartbeats + 1)


async def test_reports_are_repeated_on_each_stream_until_acknowledged(directory: Path) -> None:
    async with controller(heartbeat_s=0.2) as made, running(made, directory):
        made.acknowledging = False
        made.start(K1, "/bin/true")
        end = await made.report(K1, ReportKind.ENDED)
        await said_hello_again(made)
        assert held(made) == {K1: HeldStatus.ENDED}
        await made.until(lambda: len(made.of(K1, ReportKind.ENDED)) == 2)
        assert made.of(K1, ReportKind.ENDED) == [end, end]
        assert len(made.of(K1, ReportKind.STARTED)) == 2
        made.gateway.send(made.agent, Acknowledge(made.batches[-1].last_seq))
        await heard_everything(made)
        await said_hello_again(made)
        await heard_everything(made)
        assert held(made) == {}
        assert len(made.of(K1, ReportKind.ENDED)) == 2


async def test_agent_that_is_asked_for_hellos_without_end_is_never_silent_for_long(
    directory: Path,
) -> None:
    """A controller asks for one each time that it has read its state again."""
    async with controller(heartbeat_s=0.2) as made, running(made, directory):
        await heard_everything(made)
        for _ in range(8):
            async with asyncio.timeout(2.5):  # waits that doubled would come to more
                await said_hello_again(made)


async def test_idle_agent_sends_heartbeats_as_often_as_it_was_told(directory: Path) -> None:
    async with controller(heartbeat_s=0.1) as made, running(made, directory):
        await made.until(lambda: made.heartbeats >= 3, timeout_s=3.0)


async def test_agent_finds_a_restarted_controller_and_tells_what_it_holds(
    directory: Path,
) -> None:
    go = directory.parent / "go"
    waits = f"until [ -e {go} ]; do sleep 0.02; done; exit 7"
    async with controller() as first, running(first, directory):
        first.command(
            Start(K1, 1, template(*FOREVER), {}),
            Start(K2, 1, template("/bin/true"), {}, queued=True),
            Start(K3, 1, template("/bin/sh", "-c", waits, shape="other"), {}),
        )
        await first.report(K3, ReportKind.STARTED)
        await first.gateway.stop()
        go.touch()
        async with controller(port=first.port, credentials=first.credentials) as second:
            end = await second.report(K3, ReportKind.ENDED)
            assert end.exit_code == 7
            assert held(second)[K1] is HeldStatus.RUNNING
            assert held(second)[K2] is HeldStatus.QUEUED
            assert held(second)[K3] in (HeldStatus.RUNNING, HeldStatus.ENDED)


async def test_start_that_is_told_again_does_not_run_twice(directory: Path) -> None:
    marker = directory.parent / "runs"
    async with controller() as made, running(made, directory):
        made.acknowledging = False
        for times in range(1, 4):
            made.start(K1, "/bin/sh", "-c", f"echo run >> {marker}")
            await made.until(lambda times=times: len(made.of(K1, ReportKind.ENDED)) == times)  # type: ignore[misc]
            await said_hello_again(made)
        made.start(K2, "/bin/true")
        await made.report(K2, ReportKind.ENDED)
        assert marker.read_text() == "run\n"


async def test_kernels_are_stopped_when_the_controller_is_silent_past_the_lease(
    directory: Path,
) -> None:
    async with controller(lease_s=1.0, heartbeat_s=0.1) as first, running(first, directory):
        first.start(K1, *FOREVER)
        await first.report(K1, ReportKind.STARTED)
        heartbeats = first.heartbeats
        await first.until(lambda: first.heartbeats > heartbeats + 20)  # two leases long
        assert not first.of(K1, ReportKind.ENDED)
        await first.gateway.stop()
        await asyncio.to_thread(wait_for_journal, directory, "lease_expired")
        async with controller(port=first.port, credentials=first.credentials) as second:
            end = await second.report(K1, ReportKind.ENDED)
            assert end.reason is ReasonCode.LEASE_EXPIRED


async def test_controller_that_is_connected_and_silent_is_given_up(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "SILENCE_LIMIT_S", 1.0)
    async with controller(heartbeat_s=0.1) as made, running(made, directory):
        await made.until(lambda: made.heartbeats >= 15)
        assert len(made.hellos) == 1
        made.renewing = False
        await made.until(lambda: len(made.hellos) > 1)


async def test_supervisor_that_is_killed_is_replaced_and_its_kernels_reported_lost(
    directory: Path,
) -> None:
    async with controller() as made, running(made, directory):
        made.start(K1, *FOREVER)
        await made.report(K1, ReportKind.STARTED)
        os.kill(supervisor_pid(directory), signal.SIGKILL)
        end = await made.report(K1, ReportKind.ENDED)
        assert end.reason is ReasonCode.SUPERVISOR_LOST
        made.start(K2, "/bin/true")
        assert (await made.report(K2, ReportKind.ENDED)).exit_code == 0


def supervisor_pid(directory: Path) -> int:
    """The process that listens on the supervisor's socket."""
    with connect(directory) as connection:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


_AGENT = """
import asyncio, sys
from pathlib import Path
from muster.agent.config import AgentConfig
from muster.agent.daemon import run
directory, controller, token = sys.argv[1:]
accounts = {"somebody": "root"}
config = AgentConfig(Path(directory), controller, "a1", token=token, accounts=accounts)
asyncio.run(run(config, asyncio.Event()))
"""


@asynccontextmanager
async def agent_process(
    made: Controller, directory: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """An agent in a process of its own, connected; killed in the end."""
    hellos = len(made.hellos)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _AGENT, directory, made.address, "join-me"), cwd=ROOT
    )
    try:
        await made.until(lambda: len(made.hellos) > hellos)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_agent_killed_while_kernels_run_and_end_reports_all_of_them_afterwards(
    directory: Path,
) -> None:
    share = (DeviceShare(0, 500),)
    gate = directory.parent / "gate"
    os.mkfifo(gate)
    waits = template("/bin/sh", "-c", f"read line < {gate}; exit 5")
    async with controller() as made:
        async with agent_process(made, directory) as process:
            made.command(
                Start(K1, 1, waits, {}, share),
                Start(K2, 1, template("/bin/sh", "-c", "exit 6"), {}, queued=True),
                Start(K3, 1, template(*FOREVER, shape="other"), {}),
            )
            await made.report(K3, ReportKind.STARTED)
            await made.report(K1, ReportKind.STARTED)
            process.kill()
            await process.wait()
            await made.until(lambda: not made.connected)
        with gate.open("w") as opened:  # K1 ends now, and then K2, with nobody there to hear it
            opened.write("go\n")
        await asyncio.to_thread(wait_for_journal, directory, '"exit_code":6')
        async with agent_process(made, directory):
            ends = [await made.report(kernel, ReportKind.ENDED) for kernel in (K1, K2)]
            assert [end.exit_code for end in ends] == [5, 6]
            heir = await made.report(K2, ReportKind.STARTED)
            assert (ends[0].heir, heir.predecessor, heir.shares) == ((K2, 1), (K1, 1), share)
            assert held(made) == {
                K1: HeldStatus.ENDED,
                K2: HeldStatus.ENDED,
                K3: HeldStatus.RUNNING,
            }


def wait_for_journal(directory: Path, text: str) -> None:
    """Wait until the supervisor has written down what it did."""
    until(lambda: text in (directory / "journal").read_text())
