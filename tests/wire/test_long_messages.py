"""Messages of agents that are longer than one message on the wire may be."""

from dataclasses import replace

import pytest
from tests.wire.controller import controller
from tests.wire.test_gateway import ending, hello, stream_of

from muster.core.ids import KernelId
from muster.wire import agent_pb2 as pb
from muster.wire.codec import encode_agent_message
from muster.wire.messages import HeldKernel, HeldStatus, KernelReport, ReportKind, Reports


async def test_hello_and_reports_beyond_a_message_arrive_whole() -> None:
    held = tuple(HeldKernel(KernelId(f"krn-{n:05}"), 0, HeldStatus.RUNNING) for n in range(20_000))
    words = "x" * 1_000
    reports = tuple(
        KernelReport(KernelId(f"krn-{n:05}"), 0, ReportKind.ENDED, 1.0, detail=words)
        for n in range(2_000)
    )
    async with controller() as made, stream_of(made, "agt-1") as stream:
        said = replace(hello("agt-1"), kernels=held)
        await stream.send(said)
        await stream.send(Reports(2_000, reports))
        await made.until(lambda: sum(len(each.reports) for each in made.batches) == 2_000)
        assert made.hellos == [said]
        assert [each.kernel for batch in made.batches for each in batch.reports] == [
            each.kernel for each in reports
        ]
        assert len(made.batches) > 1
        for batch in made.batches:
            assert batch.reports[-1].kernel == f"krn-{batch.last_seq - 1:05}"


@pytest.mark.parametrize(
    "after",
    [
        pb.AgentMessage(disk=pb.Disk(full=True)),
        pb.AgentMessage(held_kernels=pb.HeldKernels()),
        None,
    ],
)
async def test_hello_whose_kernels_do_not_follow_ends_the_stream(
    after: pb.AgentMessage | None,
) -> None:
    async with controller() as made, stream_of(made, "agt-1") as stream:
        first = encode_agent_message(hello("agt-1"))
        first.hello.kernels_to_follow = 3
        await stream._call.write(first)
        if after is None:
            await stream._call.done_writing()
        else:
            await stream._call.write(after)
        assert "kernels do not follow" in await ending(stream)
        assert made.hellos == []


async def test_hello_that_promises_too_many_kernels_ends_the_stream() -> None:
    async with controller() as made, stream_of(made, "agt-1") as stream:
        first = encode_agent_message(hello("agt-1"))
        first.hello.kernels_to_follow = 2_000_000_000
        await stream._call.write(first)
        assert "expected at most" in await ending(stream)
