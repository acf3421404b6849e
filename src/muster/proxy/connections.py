"""Limits on connections of clients, in all and from one address."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


class ClientConnection(Protocol):
    """A connection of a client. ``origin`` is what its limits are counted by."""

    origin: str

    def cut_off(self) -> None: ...


@dataclass(slots=True)
class _Address:
    """Connections from one address; ``idle`` are the connections without a request, the oldest
    first."""

    count: int = 0
    idle: dict[ClientConnection, None] = field(default_factory=dict)


class Connections:
    """All connections. One too many makes the oldest idle connection be cut off, of the same
    address or of the address that has the most; if none is idle, the new connection is cut off.

    Args:
        most, of_one: connections in all, and from one address.
        too_many: is called with each that is too many.
    """

    def __init__(self, most: int, of_one: int, too_many: Callable[[], None]) -> None:
        self._most = most
        self._of_one = of_one
        self._too_many = too_many
        self._count = 0
        self._of: dict[str, _Address] = {}

    def opened(self, connection: ClientConnection) -> None:
        of = self._of.setdefault(connection.origin, _Address())
        of.count += 1
        self._count += 1
        if of.count > self._of_one:
            self._make_room(of, connection)
        elif self._count > self._most:
            self._make_room(max(self._of.values(), key=lambda each: each.count), connection)
        of.idle[connection] = None

    def _make_room(self, of: _Address, newest: ClientConnection) -> None:
        self._too_many()
        next(iter(of.idle), newest).cut_off()

    def idle(self, connection: ClientConnection) -> None:
        if (of := self._of.get(connection.origin)) is not None:
            of.idle[connection] = None

    def busy(self, connection: ClientConnection) -> None:
        if (of := self._of.get(connection.origin)) is not None:
            of.idle.pop(connection, None)

    def closed(self, connection: ClientConnection) -> None:
        of = self._of[connection.origin]
        of.idle.pop(connection, None)
        of.count -= 1
        self._count -= 1
        if not of.count:
            del self._of[connection.origin]
