"""The waiting sessions of one scaling group, in classes of equals.

A pass decides about a class, and not about each of its sessions: if one finds no room, its equals
do not either. So the cost of a pass grows with the changes, not with the length of the queue. The
order in which a pass tries the classes is kept in ``class_order``.
"""

from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from muster.core.errors import NotFound
from muster.core.ids import SessionId
from muster.core.reasons import Reason
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.making_room.promises import Promises
from muster.scheduling.making_room.reservation import Reservation
from muster.scheduling.workload import SessionWorkload, WorkloadClass

KEPT_S = 1.0
"""Seconds between two searches for room that would be better to keep than the room that is kept."""

AGE = attrgetter("submitted_at", "id")


@dataclass(frozen=True, slots=True)
class Kept:
    """The room that a pass kept for a session; None in ``reservation`` if no room could be kept.

    Args:
        version, capacity_version: the snapshot's versions when the room was looked for.
        firm: whether the session had waited longer than ``starvation_after``.
        made_at: when the room was looked for, in seconds since the epoch.
    """

    session: SessionId
    reservation: Reservation | None
    version: int
    capacity_version: int
    firm: bool
    made_at: float

    def is_valid_for(
        self,
        session: SessionWorkload,
        snapshot: Snapshot,
        firm: bool,
        now: float,
        running: Container[SessionId],
    ) -> bool:
        """Whether the room is still good for the session, so that no other room need be looked for.

        All placements since then have respected it. Where room was given back since then, better
        room may exist. It is looked for only every ``KEPT_S``, as long as the agents are unchanged
        and all sessions whose ends the reservation counts on still run.
        """
        if (self.session, self.firm) != (session.id, firm):
            return False
        if self.capacity_version != snapshot.capacity_version:
            return False
        at = self.reservation.expected_at if self.reservation else None
        if at is not None and now >= at:
            return False
        if self.version == snapshot.version:
            return True
        waits_for = self.reservation.waits_for if self.reservation else ()
        return now < self.made_at + KEPT_S and all(id_ in running for id_ in waits_for)


@dataclass(frozen=True, slots=True)
class Lack:
    """The lack of room of a class in a pass: while the ``state`` on which it depends is the same,
    the class is not tried again, and its ``reasons`` are the same."""

    state: object
    reasons: tuple[Reason, ...]


class QueueClass:
    """Waiting sessions that differ in age and id alone, the oldest first.

    Passes keep their findings here. ``reasons``: the reasons for which the last pass refused
    the class. ``lack``: its lack of room when it last failed to fit. ``never``: the reason why the
    group cannot hold such a session even when empty, with the group's ``capacity_version`` then.
    """

    __slots__ = ("_order", "_waiting", "lack", "never", "reasons", "workload")

    def __init__(self, workload: WorkloadClass) -> None:
        self.workload = workload
        self.reasons: tuple[Reason, ...] = ()
        self.lack: Lack | None = None
        self.never: tuple[int, Reason | None] | None = None
        self._order: deque[SessionWorkload] = deque()  # may hold sessions that wait no longer
        self._waiting: dict[SessionId, SessionWorkload] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, id_: SessionId) -> bool:
        return id_ in self._waiting

    def __iter__(self) -> Iterator[SessionWorkload]:
        """The sessions from the oldest to the newest."""
        waiting = self._waiting
        return (session for session in self._order if waiting.get(session.id) is session)

    def session(self, id_: SessionId) -> SessionWorkload:
        """A session of the class by its id.

        Raises:
            KeyError: the session does not wait here.
        """
        return self._waiting[id_]

    def __reversed__(self) -> Iterator[SessionWorkload]:
        waiting = self._waiting
        return (session for session in reversed(self._order) if waiting.get(session.id) is session)

    def newest_first(self) -> Iterator[SessionWorkload]:
        """The sessions from the newest to the oldest; those of one age in the order of their
        ids."""
        for _, same_age in groupby(reversed(self), attrgetter("submitted_at")):
            yield from reversed(list(same_age))

    @property
    def oldest(self) -> SessionWorkload:
        order, waiting = self._order, self._waiting
        while waiting.get(order[0].id) is not order[0]:
            order.popleft()
        return order[0]

    @property
    def newest(self) -> SessionWorkload:
        order, waiting = self._order, self._waiting
        while waiting.get(order[-1].id) is not order[-1]:
            order.pop()
        return order[-1]

    def add_all(self, sessions: Iterable[SessionWorkload]) -> None:
        """Add sessions of any age, at the cost of one sort."""
        added = list(sessions)
        self._order = deque(sorted((*self, *added), key=AGE))
        self._waiting.update((session.id, session) for session in added)

    def add(self, session: SessionWorkload) -> None:
        if not self._order or AGE(self._order[-1]) < AGE(session):
            self._order.append(session)
        else:  # an older session comes back to the queue after it was placed
            self.add_all([session])
            return
        self._waiting[session.id] = session

    def remove(self, id_: SessionId) -> None:
        del self._waiting[id_]
        if len(self._order) > 2 * len(self._waiting) + 16:
            self._order = deque(self)


class Queue:
    """The classes of waiting sessions; ``rooms`` holds the room that the last pass kept for each
    session, in the order of that pass, and ``promises`` the room that is promised to sessions."""

    def __init__(self, sessions: Iterable[SessionWorkload] = ()) -> None:
        self.promises = Promises()
        self.rooms: dict[SessionId, Kept] = {}
        self._classes: dict[WorkloadClass, QueueClass] = {}
        self._class_of: dict[SessionId, QueueClass] = {}
        for session in sessions:
            self.add(session)

    def __len__(self) -> int:
        return len(self._class_of)

    def __contains__(self, id_: SessionId) -> bool:
        return id_ in self._class_of

    def __iter__(self) -> Iterator[SessionWorkload]:
        """Every waiting session, class by class."""
        for members in self._classes.values():
            yield from members

    @property
    def classes(self) -> Iterable[QueueClass]:
        return self._classes.values()

    def known(self, workload: WorkloadClass) -> WorkloadClass:
        """The object that equal waiting sessions share as their class, or ``workload`` itself where
        no equal session waits."""
        members = self._classes.get(workload)
        return workload if members is None else members.workload

    def find(self, id_: SessionId) -> QueueClass | None:
        """The class of a session; None if it does not wait here."""
        return self._class_of.get(id_)

    def class_of(self, id_: SessionId) -> QueueClass:
        """
        Raises:
            NotFound: no such session waits here.
        """
        members = self._class_of.get(id_)
        if members is None:
            raise NotFound(f"session {id_} does not wait in this queue")
        return members

    def forget(self) -> None:
        """Forget the findings of passes, which were made under another policy."""
        self.rooms = {}
        for members in self._classes.values():
            members.lack = members.never = None

    def add(self, session: SessionWorkload) -> QueueClass:
        """Add a session, unless it waits already."""
        self.remove(session.id)
        members = self._members(session.workload)
        members.add(session)
        self._class_of[session.id] = members
        return members

    def move(self, sessions: Sequence[SessionWorkload]) -> None:
        """Have waiting sessions wait in the classes that they have now, without the room that was
        kept for them in their former classes."""
        by_class: dict[WorkloadClass, list[SessionWorkload]] = {}
        for session in sessions:
            self.remove(session.id)
            self.rooms.pop(session.id, None)
            by_class.setdefault(session.workload, []).append(session)
        for workload, some in by_class.items():
            members = self._members(workload)
            members.add_all(
                SessionWorkload(each.id, each.submitted_at, members.workload) for each in some
            )
            self._class_of.update((each.id, members) for each in some)

    def _members(self, workload: WorkloadClass) -> QueueClass:
        """The class of these sessions, in which none may wait yet."""
        members = self._classes.get(workload)
        if members is None:
            members = self._classes[workload] = QueueClass(workload)
        return members

    def remove(self, id_: SessionId) -> QueueClass | None:
        """Remove a session; the answer is its class, or None if the session did not wait."""
        members = self._class_of.pop(id_, None)
        if members is not None:
            members.remove(id_)
            if not members:
                del self._classes[members.workload]
        return members


class JoinedQueue(Queue):
    """A queue with more sessions in it; the real queue stays as it is."""

    def __init__(self, real: Queue, more: Iterable[SessionWorkload]) -> None:
        super().__init__(more)
        self.rooms, self.promises = real.rooms, real.promises
        self._real = real

    def __len__(self) -> int:
        return super().__len__() + len(self._real)

    def __contains__(self, id_: SessionId) -> bool:
        return super().__contains__(id_) or id_ in self._real

    def __iter__(self) -> Iterator[SessionWorkload]:
        yield from self._real
        yield from super().__iter__()

    @property
    def classes(self) -> Iterable[QueueClass]:
        return [*self._real.classes, *super().classes]

    def class_of(self, id_: SessionId) -> QueueClass:
        return self._real.class_of(id_) if id_ in self._real else super().class_of(id_)
