"""An agent's end of the agent protocol: join, connect, say and hear, serve logs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import grpc
from grpc import aio

from muster.core.host_port import parted
from muster.core.text import made_text
from muster.tls_handshake import CertificateRefusal, refused_certificate, speaks_tls
from muster.wire import agent_pb2 as pb
from muster.wire import agent_pb2_grpc
from muster.wire.call_codec import (
    decode_join_reply,
    decode_log_request,
    decode_short_request,
    encode_join_request,
    encode_short_reply,
)
from muster.wire.calls import (
    AgentTurnedAway,
    Dismissed,
    JoinReply,
    JoinRequest,
    LogChunk,
    LogRequest,
    NotNow,
    StderrNotApart,
)
from muster.wire.codec import decode_controller_message
from muster.wire.messages import (
    MAX_DETAIL,
    AgentMessage,
    ControllerMessage,
    KernelKey,
    Occupied,
)
from muster.wire.pieces import encode_for_controller
from muster.wire.removal_codec import encode_why_removed
from muster.wire.transport import (
    CONNECTION,
    DISMISSED,
    MAX_LOG_READS,
    MAX_SHORT_OUTPUTS,
    NOT_NOW,
    OCCUPIED,
    PIECE_TO_CONTROLLER_BYTES,
    KeepAlive,
    UnreadableCertificate,
    bearer,
    channel_options,
    read_authority,
    require_secure,
    value_of,
)

log = logging.getLogger(__name__)

JOIN_TIMEOUT_S = 10.0

_REMEDIES = {
    CertificateRefusal.OTHER_AUTHORITY: (
        "if it is the right controller, copy the ca.pem of its data directory there; if it has "
        "lost its authority, put its ca.pem and ca.key back and start it again"
    ),
    CertificateRefusal.EXPIRED: (
        "start the controller again, which renews a certificate of --tls-self-signed, or give it "
        "another one"
    ),
    CertificateRefusal.NOT_YET_VALID: "set the clock of this machine, or of the controller's",
    CertificateRefusal.OTHER_NAME: (
        "name the controller by a name in it, or start the controller with --tls-name"
    ),
    CertificateRefusal.UNVERIFIABLE: "look at the certificate with which it was started",
}

_NOT_FOR_AGENTS = ("ALPN", "http1.x")
"""Words of gRPC about a server that speaks another protocol, with TLS and without."""

_REFUSALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


class Disconnected(Exception):
    """No controller answers at the address, or the stream to it broke; trying again may help."""


async def tls_trouble(address: str, certificate_authority: Path | None) -> str | None:
    """The trouble that keeps an agent from the TLS of the controller at "host:port", and the
    remedy; gRPC tells only that the connection was closed, or the handshake failed. None where that
    is not the cause."""
    host, port = parted(address)
    if not port.isdecimal():
        return None
    if certificate_authority is None:
        if not await asyncio.to_thread(speaks_tls, host, int(port)):
            return None
        return (
            f"{address} speaks TLS: name the controller's authority with `muster agent --ca FILE`"
        )
    try:
        authority = read_authority(certificate_authority).decode()
    except UnreadableCertificate as error:
        return str(error)
    why = await asyncio.to_thread(refused_certificate, host, int(port), authority)
    if why is None:
        return None
    return (
        f"this agent trusts the authority in {certificate_authority}, and the controller at "
        f"{address} is refused because its certificate {why}: {_REMEDIES[why]}"
    )


class ControllerChannel:
    """A connection to the controller, to be closed when done (``async with``).

    Args:
        address: "host:port" of the controller's agent gateway.
        certificate_authority: PEM file that the controller's certificate must descend from;
            without it the connection is plain, which only a loopback address may be.
        keepalive: how soon a frozen or unreachable controller is noticed.

    Raises:
        InsecureAddress: others can reach the address, and there is no TLS.
        UnreadableCertificate: ``certificate_authority`` holds no certificate.
    """

    def __init__(
        self,
        address: str,
        certificate_authority: Path | None = None,
        keepalive: KeepAlive | None = None,
    ) -> None:
        remedy = "name the controller's authority: `muster agent --ca FILE`"
        require_secure(address, tls=certificate_authority is not None, remedy=remedy)
        options = channel_options(keepalive or KeepAlive())
        if certificate_authority is None:
            self._channel = aio.insecure_channel(address, options)
        else:
            credentials = grpc.ssl_channel_credentials(read_authority(certificate_authority))
            self._channel = aio.secure_channel(address, credentials, options)
        self._stub = agent_pb2_grpc.AgentGatewayStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._channel.close()

    async def join(self, request: JoinRequest) -> JoinReply:
        """Ask that the request's credential becomes an agent's.

        Raises:
            Refused: the controller does not want this agent.
            Disconnected: no answer.
        """
        try:
            reply = await self._stub.Join(encode_join_request(request), timeout=JOIN_TIMEOUT_S)
        except aio.AioRpcError as error:
            raise _meaning(error) from None
        return decode_join_reply(reply)

    def connect(self, credential: str) -> "ControllerStream":
        """Open the agent's stream. Nothing is awaited: a refusal shows when the stream is read."""
        return ControllerStream(self._stub.Connect(metadata=bearer(credential)))

    async def serve_logs(
        self,
        credential: str,
        connection: str,
        logs: "Logs",
    ) -> None:
        """Answer the controller's log requests from ``logs`` until the stream ends, which is no
        later than the agent's stream that ``connection`` is the secret of.

        Raises:
            Refused, Disconnected: as ``ControllerStream``.
        """
        call = self._stub.Logs(metadata=(*bearer(credential), (CONNECTION, connection)))
        try:
            await _LogServer(call, logs).run()
        except aio.AioRpcError as error:
            raise _meaning(error) from None
        finally:
            call.cancel()
        raise Disconnected("the controller closed the log stream")


class ControllerStream:
    """The agent's stream: ``send`` messages, iterate over the controller's.

    Raises (both ways):
        Refused: the controller does not want this agent, or not with this credential.
        Occupied: another agent is connected with this one's credential.
        Disconnected: the stream is over.
        MalformedMessage: a message that this version cannot understand.
    """

    def __init__(self, call: "aio.StreamStreamCall[pb.AgentMessage, pb.ControllerMessage]") -> None:
        self._call = call

    async def secret(self) -> str:
        """The secret that shows that a log stream belongs to this stream. The controller sends it
        before anything else, once it has let the stream in."""
        try:
            return value_of(await self._call.initial_metadata(), CONNECTION)
        except aio.AioRpcError as error:
            raise _meaning(error) from None

    async def send(self, message: AgentMessage) -> None:
        """Send a message; waits while the controller is behind."""
        try:
            for piece in encode_for_controller(message, PIECE_TO_CONTROLLER_BYTES):
                await self._call.write(piece)
        except aio.AioRpcError as error:
            raise _meaning(error) from None
        except asyncio.InvalidStateError:
            raise await self._ending() from None

    async def __aiter__(self) -> AsyncIterator[ControllerMessage]:
        try:
            async for message in self._call:
                yield decode_controller_message(message)
        except aio.AioRpcError as error:
            raise _meaning(error) from None
        raise Disconnected("the controller closed the stream")

    def close(self) -> None:
        """End the stream now."""
        self._call.cancel()

    async def _ending(self) -> Exception:
        code = await self._call.code()
        return _error(code, await self._call.details() or "the stream is over")


class Logs(Protocol):
    """The outputs of an agent's kernels."""

    async def read(self, request: LogRequest) -> LogChunk:
        """A piece of output. It may wait for output, and is cancelled when the reader goes away.

        Raises:
            OSError: the output cannot be read; the reader is told why.
        """
        ...

    async def short(self, names: Sequence[KernelKey]) -> Mapping[KernelKey, bytes]:
        """The short ones among these outputs, each with all that it has now."""
        ...


class _LogServer:
    """Serves the requests of one log stream, each in a task of its own."""

    def __init__(
        self,
        call: "aio.StreamStreamCall[pb.LogReply, pb.LogRequest]",
        logs: "Logs",
    ) -> None:
        self._call = call
        self._logs = logs
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._writing = asyncio.Lock()  # gRPC takes one message at a time

    async def run(self) -> None:
        try:
            async for request in self._call:
                if request.cancel:
                    if (task := self._tasks.get(request.request)) is not None:
                        task.cancel()
                elif len(self._tasks) < MAX_LOG_READS:
                    task = asyncio.create_task(self._serve(request))
                    self._tasks[request.request] = task
                else:
                    await self._reply(pb.LogReply(request=request.request, error="too many reads"))
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _serve(self, request: pb.LogRequest) -> None:
        try:
            await self._reply(await self._answer(request))
        except (aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the stream is over; ``run`` raises for that
        finally:
            del self._tasks[request.request]

    async def _answer(self, request: pb.LogRequest) -> pb.LogReply:
        number = request.request
        if names := decode_short_request(request):
            return encode_short_reply(
                number, names, await self._logs.short(names[:MAX_SHORT_OUTPUTS])
            )
        try:
            chunk = await self._logs.read(decode_log_request(request))
        except StderrNotApart as together:
            return pb.LogReply(request=number, error=str(together), stderr=True)
        except OSError as error:
            why = made_text(f"the output cannot be read: {error}", MAX_DETAIL)
            return pb.LogReply(request=number, error=why)
        reply = pb.LogReply(
            request=number,
            offset=chunk.offset,
            data=chunk.data,
            eof=chunk.eof,
            stderr=request.stderr,
        )
        if chunk.removed is not None:
            reply.removed.CopyFrom(encode_why_removed(chunk.removed))
        return reply

    async def _reply(self, reply: pb.LogReply) -> None:
        async with self._writing:
            await self._call.write(reply)


def _meaning(error: aio.AioRpcError) -> Exception:
    return _error(error.code(), error.details() or "no details")


def _error(code: grpc.StatusCode, details: str) -> Exception:
    if code.name == DISMISSED:
        return Dismissed(details)
    if code in _REFUSALS:
        return AgentTurnedAway(details)
    if code.name == NOT_NOW:
        return NotNow(details)
    if code.name == OCCUPIED:
        return Occupied(details)
    if any(mark in details for mark in _NOT_FOR_AGENTS):
        details = (
            "what answers there is not the port for agents, but perhaps that of the HTTP API; "
            f"`muster agents invite` prints the right one: {details}"
        )
    return Disconnected(f"{details} ({code.name.lower()})")
