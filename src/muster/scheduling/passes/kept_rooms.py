"""The room that a pass keeps: for the first session that lacks room, for sessions for which others
leave, and for those whose machines are coming."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice

from muster.core.ids import SessionId
from muster.core.specs.group import QueuePolicy
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.making_room.bindings import Bindings
from muster.scheduling.making_room.freed_room import fits
from muster.scheduling.making_room.preemption import let_start
from muster.scheduling.making_room.reservation import Reservation, reserve
from muster.scheduling.passes.pass_result import PassResult
from muster.scheduling.passes.queue import Kept, Queue, QueueClass
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.plugins import PassContext
from muster.scheduling.workload import RunningSession, SessionWorkload, WorkloadClass

MAX_FIRST = 200
"""Sessions whose promised room a pass keeps from those before them; each costs a reservation."""


class KeptRooms:
    """The kept rooms of one pass.

    Args:
        result: of the pass; the rooms that are kept for sessions are noted there.

    Attributes:
        bindings: the rooms in the order in which they are kept.
    """

    def __init__(
        self,
        queue: Queue,
        snapshot: Snapshot,
        policy: Policy,
        context: PassContext,
        result: PassResult,
    ) -> None:
        self.bindings = Bindings(snapshot, context.runs_from)
        self._queue = queue
        self._snapshot = snapshot
        self._policy = policy
        self._context = context
        self._result = result

    def keep_first(self) -> None:
        """Keep the room that is promised to sessions of one kernel, as far as it is there, from
        those before them, too, that have room coming elsewhere. Which session of a class gets which
        room is all the same."""
        promises = self._queue.promises
        if not promises.first or self._policy.queue is QueuePolicy.STRICT:
            return  # where nobody overtakes, nobody may wait for those behind
        waiting = Counter[WorkloadClass]()
        for members in self._queue.classes:
            waiting[members.workload] += len(members)
        for id_ in promises.first:
            room = promises.reservation(id_, self._snapshot)
            if room is None or not waiting[room.workload]:
                continue
            if self._is_free(room):
                waiting[room.workload] -= 1
                self.bindings.add(replace(room, binds=promises.elsewhere))
                if len(self.bindings) == MAX_FIRST:
                    return

    def keep_promises(self, members: QueueClass) -> bool:
        """Keep the room that is promised to sessions of the class, as far as it is there; whether
        there is such a promise. A session that found other room than was promised to it leaves the
        promised one to those of its class that wait."""
        promises = self._queue.promises
        first = promises.first
        promised = {each: None for each in promises.sessions if each not in first}
        if len(promised) < len(members):
            found = [each for each in promised if each in members]
        else:
            found = [each.id for each in members if each.id in promised] if promised else []
        own = [room for id_ in found if (room := promises.reservation(id_, self._snapshot))]
        without = len(members) - sum(self._is_free(room) for room in own)
        left = self._left_over(members) if promised else ()
        for room in chain(own, islice(left, without)):
            self.bindings.bind_for(members.workload)
            self.bindings.add(room)
        return bool(found)

    def _is_free(self, room: Reservation) -> bool:
        return all(each.is_free(self._snapshot) for each in room.reserved)

    def _left_over(self, members: QueueClass) -> Iterator[Reservation]:
        """The free part of the room that is promised to sessions of the class that wait no more."""
        promises, snapshot, running = self._queue.promises, self._snapshot, self._context.running
        for id_ in promises.of_class(members.workload):
            room = None if id_ in self._queue else promises.reservation(id_, snapshot)
            if room is None:
                continue
            taken = {each.agent_id for each in room.reserved if not each.is_free(snapshot)}
            if id_ in running:
                taken.update(each.agent_id for each in running[id_].kernels)
            left = promises.reservation(id_, snapshot, without=taken)
            if left is not None:
                yield left

    def reserve_for(self, session: SessionWorkload) -> None:
        """Keep room for a session that lacks it, if any can be kept."""
        now = self._context.now
        firm = now - session.submitted_at >= self._policy.starvation_after_s
        kept = self._queue.rooms.get(session.id)
        if kept is None or not self._stands(kept, session, firm):
            previous = kept.reservation if kept else None
            snapshot, running = self._snapshot, self._running()
            if self.bindings:
                self.bindings.lift()
                snapshot = snapshot.copy()
                for earlier in self.bindings:
                    waits_for, its = earlier.waits_for, earlier.workload
                    let_start(its, earlier.kernels, waits_for, snapshot, running)
            reservation = reserve(
                session,
                snapshot,
                running,
                self._policy.selector,
                now,
                firm,
                previous=previous,
                leaving=self._context.displacing.get(session.id, ()),
            )
            snapshot = self._snapshot
            kept = Kept(
                session.id,
                reservation,
                snapshot.version,
                snapshot.capacity_version,
                firm,
                now,
            )
        self._result.rooms[session.id] = kept
        if kept.reservation is not None:
            self.bindings.bind_for(session.workload)
            self.bindings.add(kept.reservation)

    def _stands(self, kept: Kept, session: SessionWorkload, firm: bool) -> bool:
        """Whether the room that the last pass kept is kept further. It is given up once the session
        would start if the returning agents were back: then room on the returning agents is kept
        instead."""
        snapshot, context = self._snapshot, self._context
        if not kept.is_valid_for(session, snapshot, firm, context.now, context.running):
            return False
        return kept.version == snapshot.version or not self.fits_back(session.workload)

    def fits_back(self, workload: WorkloadClass, snapshot: Snapshot | None = None) -> bool:
        """Whether a session that lacks room would start if the returning agents were back."""
        snapshot = self._snapshot if snapshot is None else snapshot
        back = snapshot.with_returning()
        return back is not snapshot and fits(back, self._policy.selector, workload) is not None

    def _running(self) -> dict[SessionId, RunningSession]:
        """All sessions that hold a place, including those that this pass has placed."""
        now = self._context.now
        running = dict(self._context.running)
        for session, kernels in self._result.placed:
            duration_s = session.workload.duration_s
            ends_at = None if duration_s is None else self._context.runs_from + duration_s
            running[session.id] = RunningSession(
                session.id, session.workload, kernels, now, ends_at
            )
        return running
