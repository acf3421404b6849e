"""The result of a placement pass."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

from muster.core.ids import SessionId
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_groups import AgentsFull, GangNoRoom, NoRoom, PortForeign, PortTaken
from muster.core.reasons.of_queue import (
    BehindPromise,
    BehindReservation,
    BehindStarving,
    StrictOrder,
)
from muster.scheduling.making_room.preemption import Preemption
from muster.scheduling.making_room.reservation import Reservation
from muster.scheduling.passes.queue import Kept, QueueClass
from muster.scheduling.workload import KernelPlacement, SessionWorkload

PORT_REASONS = frozenset({ReasonCode.PORT_TAKEN, ReasonCode.PORT_FOREIGN})
"""Reasons of a waiting session whose fixed port is free nowhere."""

_Behind = BehindReservation | BehindStarving | BehindPromise

LacksRoom = NoRoom | GangNoRoom | AgentsFull | PortTaken | PortForeign | _Behind
"""Reasons of a waiting session that finds no room."""

LACKS_ROOM = frozenset(kind.code for kind in get_args(LacksRoom))
"""The codes of ``LacksRoom``."""

NamesAnother = _Behind | StrictOrder
"""Reasons of a waiting session that name another one."""

WAITS_FOR_ROOM = LACKS_ROOM | {ReasonCode.STRICT_ORDER}
"""Reasons that only lack of room causes, the session's own or that of one ahead; no other rule
forbids the start."""


class Placed(NamedTuple):
    """A session that starts; ``kernels[i]`` is the place of its kernel i."""

    session: SessionWorkload
    kernels: tuple[KernelPlacement, ...]


@dataclass(slots=True)
class PassResult:
    """The decisions of one pass.

    Args:
        placed: the sessions that start, in the order in which they were tried.
        refused: the reasons of each class that still waits; a class whose sessions were all placed
            is absent.
        rooms: the room kept for the first session that lacks room, and for sessions for which
            others are leaving already.
        displaced: sessions that leave for others, which stay refused until the room is free.
    """

    placed: list[Placed] = field(default_factory=list)
    refused: dict[QueueClass, tuple[Reason, ...]] = field(default_factory=dict)
    rooms: dict[SessionId, Kept] = field(default_factory=dict)
    displaced: list[Preemption] = field(default_factory=list)


def behind(reservation: Reservation, group: str, starvation_after_s: float, now: float) -> Reason:
    """The reason of a session whose room is kept for the reservation's."""
    first = reservation.session
    if reservation.promised:
        return BehindPromise(group=group, session=first)
    if reservation.expected_at is None:
        after_s = round(starvation_after_s)
        return BehindStarving(group=group, session=first, after_s=after_s)
    in_s = max(0, round(reservation.expected_at - now))
    return BehindReservation(group=group, session=first, in_s=in_s)


def is_behind(reasons: Sequence[Reason], sessions: Set[SessionId]) -> bool:
    """Whether these reasons say that a session waits because of one of the ``sessions``."""
    return any(isinstance(each, NamesAnother) and each.session in sessions for each in reasons)
