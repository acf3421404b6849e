"""Kernels from command to report: the real supervisor, real processes, over the real wire."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.agent.running import running
from tests.patience import until_awaited
from tests.wire.controller import Controller, controller, template

from muster.core.ids import KernelId
from muster.core.reasons import ReasonCode
from muster.core.resources import DeviceShare
from muster.wire.calls import (
    LogChunk,
    LogRequest,
)
from muster.wire.messages import (
    HeldKernel,
    HeldStatus,
    KernelReport,
    Prepare,
    Recall,
    ReportKind,
    Start,
    Stop,
)

K1, K2, K3 = KernelId("krn-1"), KernelId("krn-2"), KernelId("krn-3")
FOREVER = ("/bin/sleep", "600")


@asynccontextmanager
async def agent(directory: Path, **fields: object) -> AsyncIterator[Controller]:
    """A controller with one agent."""
    async with controller() as made, running(made, directory, **fields):
        yield made


def start(kernel: KernelId, *command: str, **fields: object) -> Start:
    return Start(kernel, 1, template(*command), {}, **fields)  # type: ignore[arg-type]


async def output(made: Controller, kernel: KernelId) -> bytes:
    reading = made.gateway.read_log(made.agent, LogRequest(kernel, 1, follow=True))
    async with asyncio.timeout(15):
        return b"".join([chunk.data async for chunk in reading])


async def ended(made: Controller, kernel: KernelId) -> KernelReport:
    return await made.report(kernel, ReportKind.ENDED)


async def test_kernel_runs_and_its_exit_code_and_output_are_known(directory: Path) -> None:
    async with agent(directory) as made:
        made.command(
            Start(
                K1,
                1,
                template("/bin/sh", "-c", "cat note; echo $A $B; exit 3", files={"note": "hi\n"}),
                {"A": "one", "B": "two"},
            )
        )
        started = await made.report(K1, ReportKind.STARTED)
        end = await ended(made, K1)
        assert (started.generation, started.shares) == (1, ())
        assert (end.exit_code, end.signal, end.reason) == (3, None, ReasonCode.EXITED)
        assert started.at <= end.at
        assert await output(made, K1) == b"hi\none two\n"


@pytest.mark.parametrize(
    ("command", "fields", "reason", "exit_code"),
    [
        (("no-such-program",), {}, ReasonCode.COMMAND_NOT_FOUND, 127),
        (("/etc/passwd",), {}, ReasonCode.COMMAND_NOT_EXECUTABLE, 126),
        (("/bin/sh", "-c", "kill -9 $$"), {}, ReasonCode.SIGNALED, None),
    ],
)
async def test_kernel_that_ends_badly_says_how(
    directory: Path,
    command: tuple[str, ...],
    fields: dict[str, object],
    reason: ReasonCode,
    exit_code: int | None,
) -> None:
    async with agent(directory) as made:
        made.command(Start(K1, 1, template(*command, **fields), {}))
        end = await ended(made, K1)
        assert (end.reason, end.exit_code) == (reason, exit_code)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"workdir": "/no/such/place"}, ReasonCode.WORKDIR_MISSING),
        ({"files": {"../escape": "x"}}, ReasonCode.BAD_FILE_PATH),
        ({"files": {f"f{n}": "x" * 1_000_000 for n in range(3)}}, ReasonCode.CREATE_FAILED),
    ],
)
async def test_kernel_that_cannot_be_made_says_why_and_may_be_tried_again(
    directory: Path, fields: dict[str, object], reason: ReasonCode
) -> None:
    async with agent(directory) as made:
        made.command(Start(K1, 1, template("/bin/true", **fields), {}))
        failed = await made.report(K1, ReportKind.CREATE_FAILED)
        assert failed.reason is reason
        assert failed.detail
        made.start(K1, "/bin/true")
        assert (await ended(made, K1)).exit_code == 0


async def test_kernel_sees_the_devices_of_its_share_only(directory: Path) -> None:
    share = (DeviceShare(1, 500),)
    show = ("/bin/sh", "-c", "echo ${CUDA_VISIBLE_DEVICES-unset}")
    async with agent(directory) as made:
        made.command(start(K1, *show, shares=share), start(K2, *show))
        assert (await made.report(K1, ReportKind.STARTED)).shares == share
        assert await output(made, K1) == b"1\n"
        assert await output(made, K2) == b"\n"


async def test_ended_kernel_hands_its_devices_to_the_next_of_its_shape(directory: Path) -> None:
    share = (DeviceShare(1, 250),)
    async with agent(directory) as made:
        made.command(
            start(K1, *FOREVER, shares=share),
            start(K2, "/bin/sh", "-c", "echo $CUDA_VISIBLE_DEVICES", queued=True),
        )
        await made.report(K1, ReportKind.STARTED)
        made.command(Stop(K1, 1, 5.0, "make room"))
        end, heir = await ended(made, K1), await made.report(K2, ReportKind.STARTED)
        assert (end.reason, end.detail) == (ReasonCode.STOPPED, "make room")
        assert (end.heir, heir.predecessor, heir.shares) == ((K2, 1), (K1, 1), share)
        together = [batch.reports for batch in made.batches if end in batch.reports]
        assert all(heir in reports for reports in together)
        assert await output(made, K2) == b"1\n"


async def test_recalled_kernel_is_given_back_only_if_it_still_waits(directory: Path) -> None:
    async with agent(directory) as made:
        made.command(start(K1, *FOREVER), start(K2, "/bin/true", queued=True))
        await made.report(K1, ReportKind.STARTED)
        made.command(Recall(K1, 1), Recall(K2, 1), start(K3, "/bin/true"))
        assert (await ended(made, K2)).reason is ReasonCode.NEVER_STARTED
        await ended(made, K3)
        assert not made.of(K1, ReportKind.ENDED)


async def test_stop_of_an_unknown_kernel_confirms_that_it_is_gone(directory: Path) -> None:
    async with agent(directory) as made:
        made.command(Stop(K1, 4, 5.0, "cleaning up"))
        end = await ended(made, K1)
        assert (end.generation, end.reason) == (4, ReasonCode.KERNEL_VANISHED)


async def test_prepared_kernel_has_ports_until_it_has_ended(directory: Path) -> None:
    async with agent(directory, ports=range(21_000, 21_040)) as made:
        made.command(Prepare(K1, 1, 2), Prepare(K2, 1, 39))
        prepared = await made.report(K1, ReportKind.PREPARED)
        assert len(set(prepared.ports)) == 2
        failed = await made.report(K2, ReportKind.PREPARE_FAILED)
        assert failed.reason is ReasonCode.NO_PORTS
        made.gateway.close(made.agent, "say Hello again")
        await made.until(
            lambda: len(made.hellos) == 2 and len(made.of(K1, ReportKind.PREPARED)) == 2
        )
        assert made.hellos[1].kernels == (HeldKernel(K1, 1, HeldStatus.PREPARED),)
        assert made.of(K1, ReportKind.PREPARED)[1].ports == prepared.ports
        made.start(K1, "/bin/true")
        await ended(made, K1)
        await ports_given_back(directory)


async def test_fixed_port_is_one_kernels_until_its_processes_are_gone(directory: Path) -> None:
    async with agent(directory, ports=range(21_040, 21_044)) as made:
        made.command(Prepare(K1, 1, 1, 21_042), Prepare(K2, 1, 0, 21_042))
        prepared = await made.report(K1, ReportKind.PREPARED)
        assert 21_042 not in prepared.ports
        failed = await made.report(K2, ReportKind.PREPARE_FAILED)
        assert (failed.reason, failed.detail) == (
            ReasonCode.PORT_IN_USE,
            "port 21042 is in use",
        )
        made.acknowledging = False  # the next kernel does not wait until the end is noted
        made.start(K1, "/bin/true")
        await ended(made, K1)
        made.command(Prepare(K3, 1, 0, 21_042))
        assert (await made.report(K3, ReportKind.PREPARED)).ports == ()


async def test_ports_that_cannot_be_written_down_are_not_told(directory: Path) -> None:
    async with agent(directory, ports=range(21_044, 21_050)) as made:
        (directory / "ports.json").unlink(missing_ok=True)
        (directory / "ports.json").mkdir()
        made.command(Prepare(K1, 1, 1), Prepare(K2, 1, 0))
        failed = await made.report(K1, ReportKind.PREPARE_FAILED)
        assert failed.reason is ReasonCode.DISK_FULL
        assert failed.detail == "its ports cannot be written down: Is a directory"
        assert (await made.report(K2, ReportKind.PREPARED)).ports == ()


async def test_prepared_kernel_that_is_stopped_never_started(directory: Path) -> None:
    async with agent(directory) as made:
        made.command(Prepare(K1, 1, 1), Stop(K1, 1, 5.0, "changed my mind"))
        assert (await ended(made, K1)).reason is ReasonCode.NEVER_STARTED
        await ports_given_back(directory)


async def ports_given_back(directory: Path) -> None:
    await until_awaited(lambda: (directory / "ports.json").read_text() == "[]")


async def test_followed_log_ends_when_the_kernel_has(directory: Path) -> None:
    async with agent(directory) as made:
        made.start(K1, "/bin/sh", "-c", "echo one; sleep 600")
        await made.report(K1, ReportKind.STARTED)
        chunks = made.gateway.read_log(made.agent, LogRequest(K1, 1, follow=True))
        assert (await anext(chunks)).data == b"one\n"
        made.command(Stop(K1, 1, 0.0, "enough"))
        assert [chunk async for chunk in chunks] == [LogChunk(4, b"", eof=True)]


async def test_rotated_log_is_read_by_the_offsets_of_all_that_was_written(
    directory: Path,
) -> None:
    everything = b"".join(b"%09d\n" % number for number in range(1, 30_001))
    async with agent(directory, log_max_bytes=65_536) as made:
        made.start(K1, "/bin/sh", "-c", "seq -f %09g 30000")
        await ended(made, K1)
        reading = made.gateway.read_log(made.agent, LogRequest(K1, 1))
        chunks = [chunk async for chunk in reading]
        assert 65_536 <= len(everything) - chunks[0].offset <= 2 * 65_536
        for chunk in chunks:
            assert chunk.data == everything[chunk.offset : chunk.offset + len(chunk.data)]
        assert chunks[-1].eof
        assert chunks[-1].offset + len(chunks[-1].data) == len(everything)
