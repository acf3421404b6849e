"""What a placement pass says of the sessions that wait."""

from dataclasses import dataclass, field
from typing import NamedTuple

from muster.core.ids import SessionId
from muster.core.reasons import Reason, ReasonCode
from muster.scheduling.preemption import Preemption
from muster.scheduling.queue import Kept, QueueClass
from muster.scheduling.reservation import Reservation
from muster.scheduling.workload import KernelPlacement, SessionWorkload

LACKS_ROOM = frozenset(
    {
        ReasonCode.NO_ROOM,
        ReasonCode.GANG_NO_ROOM,
        ReasonCode.AGENTS_FULL,
        ReasonCode.BEHIND_RESERVATION,
        ReasonCode.BEHIND_STARVING,
    }
)
"""Why a session waits that finds no room."""

WAITS_FOR_ROOM = LACKS_ROOM | {ReasonCode.STRICT_ORDER}
"""Why a session waits that nothing forbids to start."""


class Placed(NamedTuple):
    """The session starts; ``kernels[i]`` is the place of its kernel i."""

    session: SessionWorkload
    kernels: tuple[KernelPlacement, ...]


@dataclass(slots=True)
class PassResult:
    """What one pass decided.

    Args:
        placed: those that start, in the order in which they were tried.
        refused: why the sessions of a class that still wait do so; a class of which all have been
            placed is not there.
        rooms: what is kept for the first session that lacks room, and for those for whom others are
            leaving already.
        displaced: whose room others get; those others are still refused until it is free.
    """

    placed: list[Placed] = field(default_factory=list)
    refused: dict[QueueClass, tuple[Reason, ...]] = field(default_factory=dict)
    rooms: dict[SessionId, Kept] = field(default_factory=dict)
    displaced: list[Preemption] = field(default_factory=list)

    @property
    def kept(self) -> Kept | None:
        """For the first session that lacks room."""
        return next(iter(self.rooms.values()), None)

    @property
    def reservation(self) -> Reservation | None:
        return self.kept.reservation if self.kept is not None else None
