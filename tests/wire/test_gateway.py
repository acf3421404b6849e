"""The gateway: who may speak, one stream an agent, and how streams end."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.wire.controller import QUICK, TOKEN, Controller, controller, template

from muster.core.ids import AgentId, KernelId
from muster.core.resources import Resources
from muster.wire import agent_pb2 as pb
from muster.wire import agent_pb2_grpc
from muster.wire.calls import (
    AgentTurnedAway,
    JoinRequest,
)
from muster.wire.client import ControllerChannel, ControllerStream, Disconnected
from muster.wire.codec import encode_agent_message
from muster.wire.messages import (
    Acknowledge,
    Commands,
    ControllerMessage,
    Heartbeat,
    Hello,
    Renew,
    Start,
)
from muster.wire.server import AddressUnavailable, AgentGateway
from muster.wire.transport import InsecureAddress, ServerTls, UnreadableCertificate, bearer

ROOT = Path(__file__).parents[2]


def hello(agent: str) -> Hello:
    return Hello(
        agent=AgentId(agent),
        name="a1",
        group="default",
        boot_id="boot-1",
        version="1",
        host="127.0.0.1",
        capacity=Resources(cpu_milli=1000),
        devices=(),
        attributes={},
        kernels=(),
    )


@asynccontextmanager
async def stream_of(made: Controller, agent: str) -> AsyncIterator[ControllerStream]:
    """A stream with a credential of its own, before Hello."""
    made.credentials[f"secret of {agent}"] = AgentId(agent)
    async with ControllerChannel(made.address, keepalive=QUICK) as channel:
        stream = channel.connect(f"secret of {agent}")
        yield stream
        stream.close()


async def ending(stream: ControllerStream) -> str:
    """How a stream ends, whatever is said before that."""
    with pytest.raises(Disconnected) as ended:  # noqa: PT012 # the iteration is what raises
        async with asyncio.timeout(10):
            async for _message in stream:
                pass
    return str(ended.value)


async def test_join_with_the_token_makes_the_chosen_credential_that_of_one_agent() -> None:
    async with controller() as made, ControllerChannel(made.address) as channel:
        reply = await channel.join(JoinRequest(TOKEN, "a1", "default", "chosen"))
        assert made.credentials == {"chosen": reply.agent}


async def test_join_with_a_wrong_token_is_refused_with_the_reason() -> None:
    async with controller() as made, ControllerChannel(made.address) as channel:
        with pytest.raises(AgentTurnedAway, match="the join token is not valid"):
            await channel.join(JoinRequest("guessed", "a1", "default", "chosen"))


async def test_join_without_a_controller_says_that_there_is_none() -> None:
    async with controller() as made:
        address = made.address
    async with ControllerChannel(address) as channel:
        with pytest.raises(Disconnected):
            await channel.join(JoinRequest(TOKEN, "a1", "default", "chosen"))


async def test_stream_with_an_unknown_credential_is_refused() -> None:
    async with controller() as made, ControllerChannel(made.address) as channel:
        stream = channel.connect("forged")
        with pytest.raises(AgentTurnedAway, match="does not know this credential"):
            await anext(aiter(stream))
        assert not made.hellos


async def test_hello_of_another_agent_is_refused() -> None:
    async with controller() as made, stream_of(made, "agt-1") as stream:
        await stream.send(hello("agt-2"))
        with pytest.raises(AgentTurnedAway, match="agt-2"):
            await anext(aiter(stream))
        assert not made.hellos


async def test_stream_that_does_not_begin_with_hello_is_ended() -> None:
    async with controller() as made, stream_of(made, "agt-1") as stream:
        await stream.send(Heartbeat(1.0))
        assert "must be Hello" in await ending(stream)
        assert made.heartbeats == 0


async def test_stream_without_hello_is_ended_in_time() -> None:
    made = Controller()
    made.gateway = AgentGateway(made, made, made, hello_timeout_s=0.1)
    made.port = await made.gateway.start("127.0.0.1:0")
    try:
        async with stream_of(made, "agt-1") as stream:
            assert "no Hello within 0.1 s" in await ending(stream)
    finally:
        await made.gateway.stop()


async def test_messages_both_ways_arrive_in_order() -> None:
    async with controller() as made, stream_of(made, "agt-1") as stream:
        await stream.send(hello("agt-1"))
        messages = aiter(stream)
        assert await anext(messages) == Renew(0.0, made.lease_s, made.heartbeat_s)
        assert made.hellos == [hello("agt-1")]
        for seq in range(100):
            made.gateway.send(AgentId("agt-1"), Acknowledge(seq))
        assert [await anext(messages) for _ in range(100)] == [Acknowledge(n) for n in range(100)]
        await stream.send(Heartbeat(1.0))
        assert await anext(messages) == Renew(1.0, made.lease_s, made.heartbeat_s)


async def test_stream_whose_hello_control_has_not_heard_is_sent_renewals_alone() -> None:
    async with controller() as made, stream_of(made, "agt-1") as stream:
        made.welcoming = False
        await stream.send(hello("agt-1"))
        messages = aiter(stream)
        assert await anext(messages) == Renew(0.0, made.lease_s, made.heartbeat_s)
        made.gateway.send(AgentId("agt-1"), Acknowledge(1))  # of what was said on another stream
        made.gateway.welcome(hello("agt-1"))  # and so is this Hello, equal as it is
        made.gateway.send(AgentId("agt-1"), Acknowledge(2))
        made.gateway.welcome(made.hellos[0])
        made.gateway.send(AgentId("agt-1"), Acknowledge(3))
        assert await anext(messages) == Acknowledge(3)


async def test_batch_beyond_a_message_arrives_whole_and_in_order() -> None:
    large = template("/bin/true", env={"LARGE": "x" * 10_000})
    starts = tuple(
        Start(KernelId(f"krn-{n}"), 1, large, {"ALSO": "y" * 10_000}) for n in range(1000)
    )
    async with controller() as made, stream_of(made, "agt-1") as stream:
        await stream.send(hello("agt-1"))
        await made.until(lambda: made.hellos)
        made.command(*starts)
        arrived: list[str] = []
        async with asyncio.timeout(10):
            async for message in stream:
                if isinstance(message, Commands):
                    arrived += [command.kernel for command in message.commands]
                if len(arrived) == len(starts):
                    break
        assert arrived == [start.kernel for start in starts]


async def test_newer_stream_replaces_the_older_and_its_late_messages_are_dropped() -> None:
    async with (
        controller() as made,
        stream_of(made, "agt-1") as older,
        stream_of(made, "agt-1") as newer,
    ):
        await older.send(hello("agt-1"))
        await made.until(lambda: len(made.hellos) == 1)
        await newer.send(hello("agt-1"))
        await made.until(lambda: len(made.hellos) == 2)
        with suppress(Disconnected):
            await older.send(Heartbeat(1.0))
        assert "newer stream" in await ending(older)
        assert made.connected == {"agt-1"}
        assert made.heartbeats == 0
        await newer.send(Heartbeat(1.0))
        await made.until(lambda: made.heartbeats == 1)


async def test_agent_that_is_too_far_behind_is_cut_off() -> None:
    made = Controller()
    made.gateway = AgentGateway(made, made, made, queue_limit=10)
    made.port = await made.gateway.start("127.0.0.1:0")
    try:
        async with stream_of(made, "agt-1") as stream:
            await stream.send(hello("agt-1"))
            await made.until(lambda: made.hellos)
            for seq in range(100):  # the writer has no turn between these
                made.gateway.send(AgentId("agt-1"), Acknowledge(seq))
            assert "10 messages behind" in await ending(stream)
            await made.until(lambda: not made.connected)
    finally:
        await made.gateway.stop()


async def test_agent_that_does_not_read_is_cut_off_and_may_come_again() -> None:
    large = template("/bin/true", env={"LARGE": "x" * 1_000_000})
    made = Controller()
    made.gateway = AgentGateway(made, made, made, queue_limit=3)
    made.port = await made.gateway.start("127.0.0.1:0")
    try:
        async with stream_of(made, "agt-1") as deaf, stream_of(made, "agt-1") as newer:
            await deaf.send(hello("agt-1"))
            await made.until(lambda: made.hellos)
            async with asyncio.timeout(10):
                while made.connected:
                    made.command(Start(KernelId("krn-1"), 1, large, {}))
                    await asyncio.sleep(0.01)
            await newer.send(hello("agt-1"))
            assert await anext(aiter(newer)) == Renew(0.0, made.lease_s, made.heartbeat_s)
            assert "3 messages behind" in await ending(deaf)
    finally:
        await made.gateway.stop()


async def test_closed_agent_is_told_why_and_control_that_it_left() -> None:
    async with controller() as made, stream_of(made, "agt-1") as stream:
        await stream.send(hello("agt-1"))
        await made.until(lambda: made.hellos)
        made.gateway.close(AgentId("agt-1"), "you were removed")
        assert "you were removed" in await ending(stream)
        await made.until(lambda: not made.connected)


async def test_agent_that_leaves_is_noticed_at_once() -> None:
    async with controller() as made:
        async with stream_of(made, "agt-1") as stream:
            await stream.send(hello("agt-1"))
            await made.until(lambda: made.connected)
        await made.until(lambda: not made.connected, timeout_s=2.0)


async def test_stopping_gateway_ends_its_streams() -> None:
    async with controller() as made, stream_of(made, "agt-1") as stream:
        await stream.send(hello("agt-1"))
        await made.until(lambda: made.hellos)
        stopping = asyncio.create_task(made.gateway.stop())
        assert "stopping" in await ending(stream)
        await stopping
        assert not made.connected


async def test_message_for_an_absent_agent_is_dropped() -> None:
    async with controller() as made:
        made.gateway.send(AgentId("agt-9"), Acknowledge(1))
        made.gateway.close(AgentId("agt-9"), "no reason")


async def test_message_that_cannot_be_encoded_does_not_end_the_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unsound: ControllerMessage = Acknowledge(2**70)
    async with controller() as made, stream_of(made, "agt-1") as stream:
        await stream.send(hello("agt-1"))
        messages = aiter(stream)
        await anext(messages)
        made.gateway.send(AgentId("agt-1"), unsound)
        made.gateway.send(AgentId("agt-1"), Acknowledge(3))
        assert await anext(messages) == Acknowledge(3)
        assert "cannot be encoded" in caplog.text


async def test_message_that_cannot_be_understood_ends_the_stream() -> None:
    async with controller() as made, stream_of(made, "agt-1"):
        async with ControllerChannel(made.address) as channel:
            stub = agent_pb2_grpc.AgentGatewayStub(channel._channel)
            call = stub.Connect(metadata=bearer("secret of agt-1"))
            await call.write(encode_agent_message(hello("agt-1")))
            await made.until(lambda: made.connected)
            await call.write(pb.AgentMessage())
            assert "does not know" in await ending(ControllerStream(call))
        await made.until(lambda: not made.connected)


async def test_second_gateway_on_a_port_says_that_it_is_in_use() -> None:
    async with controller() as made:
        other = Controller()
        with pytest.raises(AddressUnavailable, match="in use"):
            await other.gateway.start(made.address)


async def test_gateway_takes_the_first_of_several_addresses_that_is_free() -> None:
    async with controller() as made:
        other = Controller()
        port = await other.gateway.start(made.address, "127.0.0.1:0")
        assert made.address != f"127.0.0.1:{port}"
        await other.gateway.stop()


async def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    words = tmp_path / "words.pem"
    words.write_text("no certificate")
    made = Controller()
    gateway = AgentGateway(made, made, made, tls=ServerTls(words, words))
    with pytest.raises(UnreadableCertificate, match=r"words\.pem are not a certificate and its"):
        await gateway.start("127.0.0.1:0")
    with pytest.raises(UnreadableCertificate, match=r"words\.pem holds no certificate in PEM"):
        ControllerChannel("controller.example:7000", words)


async def test_address_that_others_can_reach_needs_tls() -> None:
    made = Controller()
    with pytest.raises(InsecureAddress, match="TLS"):
        await made.gateway.start("0.0.0.0:0")
    with pytest.raises(InsecureAddress, match="TLS"):
        ControllerChannel("controller.example:7000")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
async def test_agent_joins_over_tls(tmp_path: Path) -> None:
    tls = ServerTls(tmp_path / "cert.pem", tmp_path / "key.pem")
    subprocess.run(  # noqa: ASYNC221 # nothing else runs yet
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "1", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", tls.key, "-out", tls.certificate),
        ],
        check=True,
        capture_output=True,
    )
    made = Controller()
    made.gateway = AgentGateway(made, made, made, tls=tls)
    made.port = await made.gateway.start("127.0.0.1:0")
    try:
        async with ControllerChannel(made.address, tls.certificate) as channel:
            reply = await channel.join(JoinRequest(TOKEN, "a1", "default", "chosen"))
            assert made.credentials == {"chosen": reply.agent}
        async with ControllerChannel(made.address) as plain:
            with pytest.raises(Disconnected):
                await plain.join(JoinRequest(TOKEN, "a1", "default", "chosen"))
    finally:
        await made.gateway.stop()


# Frozen peers: a process that is stopped keeps its connections open and says nothing.

_AGENT = """
import asyncio, sys
from tests.wire.controller import QUICK
from tests.wire.test_gateway import hello
from muster.wire.client import ControllerChannel
async def main():
    async with ControllerChannel(sys.argv[1], keepalive=QUICK) as channel:
        stream = channel.connect("secret of agt-1")
        await stream.send(hello("agt-1"))
        async for _ in stream:
            pass
asyncio.run(main())
"""

_CONTROLLER = """
import asyncio
from tests.wire.controller import Controller
async def main():
    made = Controller()
    made.credentials["secret of agt-1"] = "agt-1"
    print(await made.gateway.start("127.0.0.1:0"), flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@asynccontextmanager
async def child(program: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, *arguments),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        yield process
    finally:
        process.kill()
        await process.communicate()


async def test_frozen_agent_is_noticed_within_seconds() -> None:
    async with controller() as made:
        made.credentials["secret of agt-1"] = AgentId("agt-1")
        async with child(_AGENT, made.address) as process:
            await made.until(lambda: made.connected)
            process.send_signal(signal.SIGSTOP)
            await made.until(lambda: not made.connected, timeout_s=6.0)


async def test_frozen_controller_is_noticed_within_seconds() -> None:
    async with child(_CONTROLLER) as process:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        async with ControllerChannel(f"127.0.0.1:{port}", keepalive=QUICK) as channel:
            stream = channel.connect("secret of agt-1")
            await stream.send(hello("agt-1"))
            messages = aiter(stream)
            await anext(messages)
            process.send_signal(signal.SIGSTOP)
            with pytest.raises(Disconnected):
                async with asyncio.timeout(6):
                    await anext(messages)
