"""The agent's end of the supervisor's socket, against a supervisor that does as it is told."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.wire.controller import OWNER, template

from muster.agent.supervisor.kernel import Event
from muster.agent.supervisor.protocol import SOCKET_NAME, VERSION
from muster.agent.supervisor_link import (
    LINE_LIMIT_BYTES,
    SupervisorLink,
    SupervisorLost,
    SupervisorState,
    Terms,
)
from muster.core.ids import KernelId
from muster.core.resources import DeviceShare
from muster.wire.messages import Start, Stop

TERMS = Terms(log_max_bytes=65_536, pids_max=100, scratch_max_bytes=0)
STATE: SupervisorState = {"version": VERSION, "kernels": [], "limits": "none"}


@dataclass
class Ear:
    """Notes what the supervisor says, in order."""

    said: list[object] = field(default_factory=list)

    def attached(self, state: SupervisorState) -> None:
        self.said.append(state)

    def heard(self, events: Sequence[Event]) -> None:
        self.said.append(events)

    def refused(self, why: str) -> None:
        self.said.append(why)


@dataclass
class Scripted:
    """A supervisor that answers ``attach`` with these bytes, and notes all other lines."""

    answer: bytes
    lines: list[dict[str, Any]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        await reader.readline()
        writer.write(self.answer)
        if not self.answer:
            writer.close()
        while line := await reader.readline():
            assert len(line) <= LINE_LIMIT_BYTES
            self.lines.append(json.loads(line))
            self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def supervisor(directory: Path, answer: bytes) -> AsyncIterator[Scripted]:
    made = Scripted(answer)
    server = await asyncio.start_unix_server(
        made.serve, directory / SOCKET_NAME, limit=LINE_LIMIT_BYTES
    )
    async with server:
        yield made
        for writer in made.writers:
            writer.close()
            await writer.wait_closed()


def line(message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


async def test_state_and_events_are_heard_in_the_order_they_were_said(tmp_path: Path) -> None:
    events = [{"seq": 1, "kernel": "krn-1", "generation": 1, "kind": "started", "at": 1.0}]
    answer = line({"state": STATE}) + line({"events": events}) + line({"error": "no"})
    ear = Ear()
    async with supervisor(tmp_path, answer):
        link = await SupervisorLink.attach(tmp_path, ear)
        assert ear.said == [STATE, events, "no"]
        link.close()
        await link.lost


async def test_directory_without_a_supervisor_has_lost_it(tmp_path: Path) -> None:
    with pytest.raises(SupervisorLost):
        await SupervisorLink.attach(tmp_path, Ear())


async def test_supervisor_that_hangs_up_is_lost(tmp_path: Path) -> None:
    async with supervisor(tmp_path, b""):
        with pytest.raises(SupervisorLost, match="closed the connection"):
            await SupervisorLink.attach(tmp_path, Ear())


async def test_many_large_starts_are_told_in_lines_that_are_short_enough(tmp_path: Path) -> None:
    equal = template("/bin/true", env={"LARGE": "x" * 50_000})
    starts = [Start(KernelId(f"krn-{n}"), 1, equal, {"ALSO": "y" * 20_000}) for n in range(300)]
    async with supervisor(tmp_path, line({"state": STATE})) as made:
        link = await SupervisorLink.attach(tmp_path, Ear())
        assert link.start(starts, TERMS, {OWNER: None}) == []
        link.stop([Stop(KernelId("krn-last"), 1, 0.0, "last")])
        await made.until(lambda: bool(made.lines) and made.lines[-1]["op"] == "stop")
        told = [kernel["id"] for each in made.lines[:-1] for kernel in each["kernels"]]
        assert told == [start.kernel for start in starts]
        assert all(len(each["templates"]) == 1 for each in made.lines[:-1])
        link.close()


async def test_start_that_fits_in_no_line_is_handed_back(tmp_path: Path) -> None:
    huge = template("/bin/true", env={"HUGE": "x" * LINE_LIMIT_BYTES})
    starts = [
        Start(KernelId("krn-1"), 1, template("/bin/true"), {}),
        Start(KernelId("krn-2"), 1, huge, {}),
    ]
    async with supervisor(tmp_path, line({"state": STATE})) as made:
        link = await SupervisorLink.attach(tmp_path, Ear())
        assert link.start(starts, TERMS, {OWNER: None}) == [starts[1]]
        await made.until(lambda: len(made.lines) == 1)
        assert [kernel["id"] for kernel in made.lines[0]["kernels"]] == ["krn-1"]
        link.close()


async def test_devices_are_named_where_cuda_does_not_know_their_numbers(tmp_path: Path) -> None:
    shares = (DeviceShare(0, 1000), DeviceShare(2, 1000))
    start = Start(KernelId("krn-1"), 1, template("/bin/true"), {}, shares)
    named = replace(TERMS, device_names={0: "MIG-a", 1: "MIG-b"})
    async with supervisor(tmp_path, line({"state": STATE})) as made:
        link = await SupervisorLink.attach(tmp_path, Ear())
        for terms in (TERMS, named):
            assert link.start([start], terms, {OWNER: None}) == []
        await made.until(lambda: len(made.lines) == 2)
        told = [kernel["devices"] for each in made.lines for kernel in each["kernels"]]
        assert told == [[0, 2], ["MIG-a", 2]]
        link.close()
