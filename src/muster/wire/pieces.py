"""Messages in pieces that a stream carries without holding up others, within the limits of gRPC."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from muster.core.serving.port_holders import PortOrders, PortsSeen
from muster.wire import agent_pb2 as pb
from muster.wire.codec import encode_agent_message, encode_controller_message
from muster.wire.messages import (
    AgentMessage,
    Commands,
    ControllerMessage,
    FilesRemoved,
    Hello,
    ProbeOrders,
    ProbesSeen,
    Reports,
)

HELD_IN_ONE = 1_000
"""Kernels that one message tells of when a Hello comes in pieces."""

V = TypeVar("V")


def encode_in_pieces(
    message: ControllerMessage, limit_bytes: int
) -> Iterator[pb.ControllerMessage]:
    """Encode a message as ``encode_controller_message`` does, but a large batch of commands or
    orders in several messages.

    Each piece but one of a single command is at most ``limit_bytes`` long; the order is kept.
    """
    encoded = encode_controller_message(message)
    if encoded.ByteSize() > limit_bytes:
        match message:
            case Commands(commands) if len(commands) > 1:
                halves: Iterable[ControllerMessage] = map(Commands, _halves(commands))
            case ProbeOrders(orders) if len(orders) > 1:
                halves = map(ProbeOrders, _halves(orders))
            case PortOrders(ports) if len(ports) > 1:
                halves = map(PortOrders, _halves(ports))
            case _:
                halves = ()
        pieces = [piece for half in halves for piece in encode_in_pieces(half, limit_bytes)]
        if pieces:
            yield from pieces
            return
    yield encoded


def encode_for_controller(message: AgentMessage, limit_bytes: int) -> Iterator[pb.AgentMessage]:
    """Encode a message as ``encode_agent_message`` does, but a large one in several messages.

    Each piece but one of a single report or result is about ``limit_bytes`` long at most; the order
    is kept.
    """
    encoded = encode_agent_message(message)
    if encoded.ByteSize() <= limit_bytes:
        yield encoded
        return
    match message:
        case Hello():
            yield from _hello_in_pieces(encoded)
            return
        case Reports(last_seq, reports) if len(reports) > 1:
            first, second = _halves(reports)
            middle_seq = max(last_seq - len(second), 0)  # reports are numbered one by one
            halves: tuple[AgentMessage, ...]
            halves = (Reports(middle_seq, first), Reports(last_seq, second))
        case ProbesSeen(results) if len(results) > 1:
            halves = tuple(map(ProbesSeen, _halves(results)))
        case PortsSeen(ports) if len(ports) > 1:
            halves = tuple(map(PortsSeen, _halves(ports)))
        case FilesRemoved(removals) if len(removals) > 1:
            halves = tuple(map(FilesRemoved, _halves(removals)))
        case _:
            yield encoded
            return
    for half in halves:
        yield from encode_for_controller(half, limit_bytes)


def _hello_in_pieces(encoded: pb.AgentMessage) -> Iterator[pb.AgentMessage]:
    kernels = list(encoded.hello.kernels)
    encoded.hello.ClearField("kernels")
    encoded.hello.kernels_to_follow = len(kernels)
    yield encoded
    for begin in range(0, len(kernels), HELD_IN_ONE):
        held = pb.HeldKernels(kernels=kernels[begin : begin + HELD_IN_ONE])
        yield pb.AgentMessage(held_kernels=held)


def _halves(batch: tuple[V, ...]) -> tuple[tuple[V, ...], tuple[V, ...]]:
    middle = len(batch) // 2
    return batch[:middle], batch[middle:]
