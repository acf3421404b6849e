"""The controller's end of the agent protocol: it checks who may speak, and keeps one stream an
agent."""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
from grpc import aio

from muster.core.errors import MusterError
from muster.core.ids import AgentId
from muster.wire import agent_pb2 as pb
from muster.wire import agent_pb2_grpc
from muster.wire.agent_stream import AgentStream
from muster.wire.call_codec import decode_join_request, encode_join_reply
from muster.wire.calls import (
    AgentTurnedAway,
    Dismissed,
    Gatekeeper,
    LogChunk,
    LogRequest,
    NotNow,
)
from muster.wire.checks import MAX_HELD, check_join, heard
from muster.wire.duplex import run_until_one_ends
from muster.wire.join_gate import JoinGate
from muster.wire.log_reading import LogReader
from muster.wire.messages import (
    AgentEvents,
    AgentMessage,
    ControllerMessage,
    Heartbeat,
    Hello,
    KernelKey,
    Leases,
    MalformedMessage,
    Occupied,
    Overtaken,
    Renew,
)
from muster.wire.transport import (
    CONNECTION,
    DISMISSED,
    NOT_NOW,
    OCCUPIED,
    KeepAlive,
    ServerTls,
    bearer_of,
    is_loopback,
    read_pem,
    require_pair,
    require_secure,
    server_options,
    value_of,
)

log = logging.getLogger(__name__)

HELLO_TIMEOUT_S = 10.0
QUEUE_LIMIT = 1024
STOP_GRACE_S = 2.0
"""How long the agents' streams may take to end when the gateway stops."""

_NO_HELLO = "the first message of a stream must be Hello"

Context = aio.ServicerContext[Any, Any]


class AddressUnavailable(MusterError):
    """The gateway cannot listen on the address that was asked for."""


class AgentGateway(agent_pb2_grpc.AgentGatewayServicer):
    """Serves agents. Control reaches agents through it (``AgentLink``) and reads logs.

    Args:
        gatekeeper: decides who may join, and knows the agent of a credential.
        events: hears the agents' messages.
        leases: answers heartbeats, and decides who may connect.
        tls: certificate and key; without it only loopback addresses are served.
        keepalive: how soon a frozen or unreachable agent is noticed.
        hello_timeout_s: how long a new stream may take to say Hello.
        queue_limit: messages that may wait for one agent before its stream is closed.
    """

    def __init__(
        self,
        gatekeeper: Gatekeeper,
        events: AgentEvents,
        leases: Leases,
        *,
        tls: ServerTls | None = None,
        keepalive: KeepAlive | None = None,
        hello_timeout_s: float = HELLO_TIMEOUT_S,
        queue_limit: int = QUEUE_LIMIT,
    ) -> None:
        self._gatekeeper = gatekeeper
        self._events = events
        self._leases = leases
        self._tls = tls
        self._keepalive = keepalive or KeepAlive()
        self._hello_timeout_s = hello_timeout_s
        self._queue_limit = queue_limit
        self._streams: dict[AgentId, AgentStream] = {}
        self._logs = LogReader()
        self._server: aio.Server | None = None

    async def start(self, *addresses: str) -> int:
        """Listen on the first of ``addresses`` that can be had ("host:port", port 0 for any), and
        answer its port.

        Raises:
            InsecureAddress: others can reach an address, and there is no TLS.
            UnreadableCertificate: the TLS files are not what they should be.
            AddressUnavailable: all addresses are in use, or not of this machine.
        """
        for address in addresses:
            require_secure(address, tls=self._tls is not None)
        credentials = None if self._tls is None else _credentials(self._tls)
        options = server_options(self._keepalive)
        server = aio.server(options=options, interceptors=(JoinGate(),))
        agent_pb2_grpc.add_AgentGatewayServicer_to_server(self, server)
        for address in addresses:
            with suppress(RuntimeError):
                if credentials is None:
                    port = server.add_insecure_port(address)
                else:
                    port = server.add_secure_port(address, credentials)
                break
        else:
            until = f" to {addresses[-1]}" if len(addresses) > 1 else ""
            raise AddressUnavailable(
                f"cannot listen for agents on {addresses[0]}{until}: it is in use, or not an "
                f"address of this machine; is another controller running?"
            )
        await server.start()
        self._logs.started()
        self._server = server
        return port

    async def stop(self) -> None:
        """End all streams and stop listening; agents will look for a controller again."""
        for stream in self._streams.values():
            stream.close("the controller is stopping")
        if self._server is not None:
            await self._server.stop(STOP_GRACE_S)
            self._server = None

    def welcome(self, hello: Hello) -> None:
        """See ``AgentLink.welcome``."""
        stream = self._streams.get(hello.agent)
        if stream is not None and stream.hello is hello:
            stream.welcome = True

    def send(self, agent: AgentId, message: ControllerMessage) -> None:
        """See ``AgentLink.send``."""
        stream = self._streams.get(agent)
        if stream is not None and (stream.welcome or isinstance(message, Renew)):
            stream.send(message)

    def close(self, agent: AgentId, why: str) -> None:
        """See ``AgentLink.close``."""
        if (stream := self._streams.get(agent)) is not None:
            stream.close(why)

    def read_log(self, agent: AgentId, request: LogRequest) -> AsyncGenerator[LogChunk, None]:
        """Output of a kernel from its agent; see ``LogReader.read``. Closing the iterator ends
        the read on the agent too."""
        return self._logs.read(agent, request)

    async def short_outputs(
        self, agent: AgentId, names: Sequence[KernelKey]
    ) -> Mapping[KernelKey, bytes]:
        """Short outputs of kernels from their agent; see ``LogReader.short``."""
        return await self._logs.short(agent, names)

    # Calls of agents

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinReply:
        """Take in a new agent."""
        try:
            asked = decode_join_request(request)
            check_join(asked)
            reply = await self._gatekeeper.join(asked)
        except MalformedMessage as malformed:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(malformed))
        except NotNow as refusal:
            await context.abort(grpc.StatusCode[NOT_NOW], str(refusal))
        except AgentTurnedAway as refusal:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(refusal))
        return encode_join_reply(reply)

    async def Connect(  # type: ignore[override] # grpc.aio also takes handlers that read and write
        self, _requests: object, context: Context
    ) -> None:
        """An agent's stream: Hello, then messages both ways until either end closes."""
        agent = await self._authenticated(context)
        try:
            hello = await self._hello(agent, context)
        except MalformedMessage as malformed:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(malformed))
        stream = AgentStream(hello, self._queue_limit, partial(self._heard, agent))
        try:
            renewal = self._leases.admit(hello, beside=is_loopback(context.peer()))
        except Occupied as occupied:
            await context.abort(grpc.StatusCode[OCCUPIED], str(occupied))
        except Overtaken as overtaken:
            await context.abort(grpc.StatusCode.ABORTED, str(overtaken))
        if (older := self._streams.get(agent)) is not None:
            older.close("the agent opened a newer stream")
        self._streams[agent] = stream
        if renewal is not None:
            stream.send(renewal)
        code = grpc.StatusCode.UNAVAILABLE
        try:
            self._events.agent_said(agent, hello)
            await context.send_initial_metadata(((CONNECTION, stream.secret),))
            why = await stream.run(context)
        except MalformedMessage as malformed:
            code, why = grpc.StatusCode.INVALID_ARGUMENT, str(malformed)
        finally:
            if self._streams.get(agent) is stream:
                del self._streams[agent]
                self._events.agent_left(agent)
        if why:
            log.warning("agent %s: stream closed: %s", agent, why)
            await stream.written()
            await context.abort(code, why)

    def _heard(self, agent: AgentId, message: AgentMessage) -> None:
        if isinstance(message, Heartbeat):
            renewal = self._leases.renew(agent, message)
            if renewal is not None:
                self.send(agent, renewal)
            return
        self._leases.heard(agent)
        self._events.agent_said(agent, message)

    async def Logs(  # type: ignore[override]
        self, _replies: object, context: Context
    ) -> None:
        """The log stream that belongs to an agent's stream, and ends with it: requests out,
        replies in."""
        agent = await self._authenticated(context)
        connection = self._streams.get(agent)
        shown = value_of(context.invocation_metadata(), CONNECTION)
        if connection is None or not secrets.compare_digest(shown, connection.secret):
            await context.abort(
                grpc.StatusCode.ABORTED, "this log stream belongs to no stream of the agent"
            )
        stream = self._logs.attach(agent)
        try:
            await run_until_one_ends(stream.run(context), closed=connection.closed)
        except MalformedMessage as malformed:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(malformed))
        finally:
            self._logs.detach(agent, stream)

    async def _authenticated(self, context: Context) -> AgentId:
        credential = bearer_of(context.invocation_metadata())
        try:
            agent = None if credential is None else self._gatekeeper.authenticate(credential)
        except Dismissed as dismissal:
            await context.abort(grpc.StatusCode[DISMISSED], str(dismissal))
        if agent is None:
            await context.abort(
                grpc.StatusCode.UNAUTHENTICATED, "the controller does not know this credential"
            )
        return agent

    async def _hello(self, agent: AgentId, context: Context) -> Hello:
        try:
            async with asyncio.timeout(self._hello_timeout_s):
                message = await _first_message(context)
        except TimeoutError:
            await context.abort(
                grpc.StatusCode.DEADLINE_EXCEEDED, f"no Hello within {self._hello_timeout_s:g} s"
            )
        hello = heard(message)
        if not isinstance(hello, Hello):
            raise MalformedMessage(_NO_HELLO)
        if hello.agent != agent:
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED,
                f"this credential is not that of agent {hello.agent}",
            )
        return hello


async def _first_message(context: Context) -> pb.AgentMessage:
    """The first message of a stream, with the kernels that follow a Hello.

    Raises:
        MalformedMessage: there is none, other messages follow, or more kernels than a Hello may
            have.
    """
    message = await context.read()
    if not isinstance(message, pb.AgentMessage):
        raise MalformedMessage(_NO_HELLO)
    hello, expected = message.hello, message.hello.kernels_to_follow
    if expected > MAX_HELD:
        raise MalformedMessage(f"it said {expected:,} kernels: expected at most {MAX_HELD:,}")
    while len(hello.kernels) < expected:
        more = await context.read()
        if not isinstance(more, pb.AgentMessage) or not more.held_kernels.kernels:
            raise MalformedMessage("a Hello whose kernels do not follow")
        hello.kernels.extend(more.held_kernels.kernels)
    return message


def _credentials(tls: ServerTls) -> grpc.ServerCredentials:
    """
    Raises:
        UnreadableCertificate: a file is missing, unreadable or of another kind, which gRPC would
            not tell apart.
    """
    require_pair(tls)
    return grpc.ssl_server_credentials([(read_pem(tls.key), read_pem(tls.certificate))])
