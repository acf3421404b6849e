"""Strangers at both ports, and an agent that says what no agent may say."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc import aio
from tests.attacks.hostile_agent import hostile_agent
from tests.attacks.target import MALLORYS_ADDRESS, Target
from tests.patience import until_awaited
from tests.wire.test_checks import HELLOS

from muster.core.resources import Resources
from muster.wire import agent_pb2 as pb
from muster.wire import agent_pb2_grpc
from muster.wire.calls import (
    AgentTurnedAway,
    JoinRequest,
)
from muster.wire.client import ControllerChannel, Disconnected

CHANNELS, CALLS_OF_ONE = 40, 4
CREDENTIAL = "the-credential-that-mallory-chose-for-her-machine"


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_strangers_who_join_with_megabytes_are_refused_unread(
    target: Target, compression: grpc.Compression
) -> None:
    request = pb.JoinRequest(token="x" * 8_000_000, name="a", group="default")
    codes: set[grpc.StatusCode] = set()

    async def join(channel: aio.Channel) -> None:
        try:
            await agent_pb2_grpc.AgentGatewayStub(channel).Join(
                request, compression=compression, timeout=60.0
            )
        except aio.AioRpcError as error:
            codes.add(error.code())

    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
    async with AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(aio.insecure_channel(target.agent_address, options))
            for _ in range(CHANNELS)
        ]
        async with asyncio.TaskGroup() as group:
            for channel in channels * CALLS_OF_ONE:
                group.create_task(join(channel))
    assert codes
    assert grpc.StatusCode.OK not in codes


@asynccontextmanager
async def relayed(address: str) -> AsyncIterator[str]:
    """An address at which whoever connects reaches ``address`` as from Mallory's."""
    host, _, port = address.rpartition(":")
    carried: list[asyncio.Task[None]] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(host, int(port), local_addr=(MALLORYS_ADDRESS, 0))
        try:
            await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))
        finally:
            for each in (there[1], writer):
                each.transport.abort()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        carried.append(asyncio.create_task(carry(reader, writer)))

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for each in carried:
            each.cancel()
        await asyncio.gather(*carried, return_exceptions=True)


async def test_address_that_says_nothing_keeps_no_other_from_joining(target: Target) -> None:
    codes: list[grpc.StatusCode] = []

    async def say_nothing(channel: aio.Channel) -> None:
        while True:
            join: aio.StreamUnaryMultiCallable[Any, Any] = channel.stream_unary(
                "/muster.wire.v1.AgentGateway/Join"
            )
            codes.append(await join().code())
            await asyncio.sleep(0.1)

    options = [("grpc.use_local_subchannel_pool", 1)]
    async with relayed(target.agent_address) as address, AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(aio.insecure_channel(address, options))
            for _ in range(20)
        ]
        async with asyncio.TaskGroup() as group:
            silent = [group.create_task(say_nothing(each)) for each in channels for _ in range(16)]
            try:
                await until_awaited(lambda: grpc.StatusCode.RESOURCE_EXHAUSTED in codes)
                for number in range(5):
                    began_s = time.monotonic()
                    async with hostile_agent(target, f"neighbour-{number}"):
                        assert time.monotonic() - began_s < 3.0
            finally:
                for each in silent:
                    each.cancel()


async def test_strangers_who_guess_tokens_are_refused(target: Target) -> None:
    async with ControllerChannel(target.agent_address) as channel:
        for guess in range(200):
            with pytest.raises(AgentTurnedAway):
                await channel.join(JoinRequest(f"guess-{guess}", "a", "default", CREDENTIAL))


async def test_agent_that_says_what_no_agent_may_say_is_closed_alone(target: Target) -> None:
    async with hostile_agent(target, "mallorys") as agent:
        for wrong in HELLOS.values():
            with pytest.raises((Disconnected, AgentTurnedAway)):
                await agent.greet(**wrong)


async def test_agent_that_poses_as_a_machine_of_a_pool_is_not_believed(target: Target) -> None:
    claims = {"pool": "gpus", "slice": "slc-1", "preemptible": "false", "rack": "mallorys"}
    with target.client() as admin:
        async with hostile_agent(target, "poser") as agent:
            greeting = asyncio.create_task(agent.greet(attributes=claims, capacity=Resources()))
            seen = await until_awaited(lambda: admin.agent("poser").attributes)
            greeting.cancel()
        assert seen == {"rack": "mallorys"}


async def test_health_is_cheap_for_everybody(target: Target) -> None:
    """Without a token it is asked by whoever likes."""

    async def ask() -> None:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", target.cluster.port, local_addr=("127.0.0.2", 0)
        )
        for _ in range(20):
            writer.write(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            length = next(
                int(line.split(b":")[1])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length")
            )
            await reader.readexactly(length)
        writer.close()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for _ in range(30):
            group.create_task(ask())
