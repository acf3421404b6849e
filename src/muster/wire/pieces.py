"""Messages to agents in pieces that a stream carries without holding up others."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from muster.wire import agent_pb2 as pb
from muster.wire.codec import encode_controller_message
from muster.wire.messages import Commands, ControllerMessage, ProbeOrders

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
            case _:
                halves = ()
        pieces = [piece for half in halves for piece in encode_in_pieces(half, limit_bytes)]
        if pieces:
            yield from pieces
            return
    yield encoded


def _halves(batch: tuple[V, ...]) -> tuple[tuple[V, ...], tuple[V, ...]]:
    middle = len(batch) // 2
    return batch[:middle], batch[middle:]
