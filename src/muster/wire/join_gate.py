"""The gate for machines that have no credential yet: each may send one small message, and only a
few may at a time, fewer of one address."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc import aio

from muster.wire import agent_pb2 as pb
from muster.wire.transport import peer_origin

MAX_JOIN_BYTES = 4 * 1024
MAX_JOINING = 8
MAX_JOINING_OF_ONE = 4
"""Joining machines whose requests are read at a time: in all, and of one address."""
MAX_WAITING = 256
MAX_WAITING_OF_ONE = 64
"""Joining machines that wait until their requests are read, in all and of one address, which many
machines may share; one more is told to come back."""
JOIN_TIMEOUT_S = 5.0
"""How long it may take until the request of a joining machine is read, its turn included: whoever
sends nothing keeps a place no longer."""

Context = aio.ServicerContext[Any, Any]
Join = Callable[[pb.JoinRequest, Context], Awaitable[pb.JoinReply]]


@dataclass(slots=True)
class _Origin:
    """The joining machines of one address."""

    waiting: int = 0
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_JOINING_OF_ONE))


class JoinGate(aio.ServerInterceptor):
    """Lets ``Join`` read only a few requests at a time, with limits of its own.

    gRPC by itself parses the one message of a plain call before the handler sees the call. On the
    wire a call whose messages the handler reads looks the same. gRPC holds one message of each call
    all the same, so it refuses any that is longer than ``MAX_TO_CONTROLLER_BYTES``.
    """

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_JOINING)
        self._waiting = 0
        self._origins: dict[str, _Origin] = {}  # of those that wait

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if not handler_call_details.method.endswith("/Join"):
            return handler
        join: Join = handler.unary_unary

        async def guarded(_requests: object, context: Context) -> pb.JoinReply:
            return await join(await self._read(context), context)

        return grpc.stream_unary_rpc_method_handler(
            guarded, response_serializer=pb.JoinReply.SerializeToString
        )

    async def _read(self, context: Context) -> pb.JoinRequest:
        origin = peer_origin(context.peer())
        of = self._origins.get(origin) or _Origin()
        if self._waiting >= MAX_WAITING or of.waiting >= MAX_WAITING_OF_ONE:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many want to join")
        try:
            with self._place(origin, of):
                async with asyncio.timeout(JOIN_TIMEOUT_S), of.slots, self._slots:
                    message: object = await context.read()
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the request did not arrive")
        if not isinstance(message, bytes) or len(message) > MAX_JOIN_BYTES:
            limit = f"expected a request of at most {MAX_JOIN_BYTES} bytes"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, limit)
        try:
            return pb.JoinRequest.FromString(message)
        except Exception:  # whatever protobuf raises
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a request to join")

    @contextmanager
    def _place(self, origin: str, of: _Origin) -> Iterator[None]:
        """A place among those who wait."""
        self._origins[origin] = of
        of.waiting += 1
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            of.waiting -= 1
            if not of.waiting:
                del self._origins[origin]
