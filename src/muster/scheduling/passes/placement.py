"""The placement pass: validators → sequencer → selector over the queue of one scaling group."""

from collections.abc import Container

from muster.core.ids import SessionId
from muster.core.reasons import Reason
from muster.core.reasons.of_groups import AgentsFull, GangNoRoom, NoRoom
from muster.core.reasons.of_queue import StrictOrder
from muster.core.specs.group import QueuePolicy
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.feasibility import Feasibility, together
from muster.scheduling.fitting.fit import Fit, fit_session, most_placed
from muster.scheduling.making_room.preemption import (
    Preemption,
    find_victims,
    let_displace,
)
from muster.scheduling.passes.allocating import Allocating
from muster.scheduling.passes.class_order import ClassCursor, ClassOrder, Rank, bounds, rank_of
from muster.scheduling.passes.kept_rooms import KeptRooms
from muster.scheduling.passes.pass_result import PORT_REASONS, PassResult, behind
from muster.scheduling.passes.queue import Lack, Queue, QueueClass
from muster.scheduling.passes.start_rules import StartRules
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.plugins import PassContext
from muster.scheduling.workload import (
    KernelPlacement,
    SessionWorkload,
    WorkloadClass,
)

MAX_PREEMPTORS = 8
"""Sessions for which a pass looks for victims; each costs a search, and another pass follows."""


def place(queue: Queue, snapshot: Snapshot, policy: Policy, context: PassContext) -> PassResult:
    """Decide about all waiting sessions. The room of placed ones is taken from the snapshot; they
    stay in the queue, and out of ``context.usage``, until the caller changes that.

    The queue remembers classes that lacked room and the room that is kept, so that a pass in which
    nothing has changed costs no more than a look at each class.

    Raises:
        MusterError: a plug-in answers nonsense; the snapshot is as it was.
    """
    with Statement(snapshot) as statement:
        placement = PlacementPass(queue, statement, policy, context)
        result = placement.run()
        statement.keep()
    placement.remember()
    return result


def never_fits(workload: WorkloadClass, snapshot: Snapshot, policy: Policy) -> Reason | None:
    """The reason why the present group could not hold such a session even when empty; None if it
    could."""
    return Feasibility(snapshot, policy.selector).never(workload)


class PlacementPass:
    """One pass over a group's queue, inside a statement that the caller keeps or not.

    Within a pass room only shrinks: a class that did not fit is not tried again.

    The order is that of priority, the sequencer's key, age and id (see ``class_order``).
    """

    def __init__(
        self, queue: Queue, statement: Statement, policy: Policy, context: PassContext
    ) -> None:
        self.result = PassResult()
        self._queue = queue
        self._statement = statement
        self._snapshot = statement.snapshot
        self._policy = policy
        self._feasibility = Feasibility(self._snapshot, policy.selector)
        self._rules = StartRules(policy, context)
        self._context = context = self._rules.context
        self._allocating = Allocating(statement, policy, self._fit, context.now)
        self._stopped: Reason | None = None  # the reason for which no further session starts
        self._kept = KeptRooms(queue, self._snapshot, policy, context, self.result)
        self._bindings = self._kept.bindings
        self._blocked: list[SessionWorkload] = []  # the first of each class that lacks room
        self._lacking: dict[QueueClass, Lack] = {}

    def run(self, before: SessionWorkload | None = None) -> PassResult:
        """Decide about all waiting sessions; with ``before`` only about the sessions that rank
        before it."""
        try:
            self._run(before)
            self._preempt()
        finally:
            self._bindings.lift()
        return self.result

    def ahead_of(self, session: SessionWorkload) -> int:
        """How many waiting sessions come before the given one: the sessions placed so far, and the
        waiting sessions whose rank is now smaller."""
        sequencer, context = self._policy.sequencer, self._context
        rank = rank_of(session, sequencer, context)
        ahead = 0
        for members in self._queue.classes:
            ends = [rank_of(each, sequencer, context) for each in (members.oldest, members.newest)]
            first, last = bounds(*ends)
            if last < rank:
                ahead += len(members)
            elif first < rank:
                ahead += sum(rank_of(each, sequencer, context) < rank for each in members)
        placed = self.result.placed
        return ahead + sum(rank_of(each.session, sequencer, context) >= rank for each in placed)

    def judge(
        self, session: SessionWorkload
    ) -> tuple[tuple[Reason, ...], tuple[KernelPlacement, ...]]:
        """The reasons that keep a session from starting after the decisions so far, or else its
        places. Nothing is placed."""
        members = QueueClass(session.workload)
        members.add(session)
        reasons = [*self._rules.forbid(members.workload)]
        never, kernels = self.never(members), None
        try:
            self._bindings.bind_for(session.workload)
            if never is not None:
                reasons.append(never)
            else:
                found = self._allocating.would_start(session)
                kernels = found.kernels
                if kernels is None:
                    reasons += found.reasons or (self._no_room(members, session),)
                if self._stopped is not None:
                    reasons.append(self._stopped)
        finally:
            self._bindings.lift()
        return tuple(reasons), kernels or ()

    def remember(self) -> None:
        """Store the findings of this pass in the queue, for the next one."""
        for members, reasons in self.result.refused.items():
            members.reasons = reasons
        for members, lack in self._lacking.items():
            members.lack = lack
        self._queue.rooms = self.result.rooms

    def _run(self, before: SessionWorkload | None) -> None:
        sequencer, context = self._policy.sequencer, self._context
        self._kept.keep_first()
        order = ClassOrder(self._queue.classes, sequencer, context)
        end: Rank | None = None
        while (cursor := order.pop()) is not None:
            limit = order.next_rank
            if before is not None:
                end = rank_of(before, sequencer, context)
                if cursor.rank >= end:
                    break
                if limit is None or end < limit:
                    limit = end
            order.put_back(cursor, again=self._decide(cursor, limit))

    # Deciding about one class

    def _decide(self, cursor: ClassCursor, limit: Rank | None) -> bool:
        """Place the sessions of the class that rank before ``limit``; whether the class has more
        sessions to try."""
        members, workload = cursor.members, cursor.members.workload
        assert cursor.session is not None
        reasons = self._rules.forbid(workload)
        if reasons:
            self.result.refused[members] = reasons
            return False
        if self._stopped is not None:
            self.result.refused[members] = (self.never(members) or self._stopped,)
            return False
        if members.lack is not None and members.lack.state == self._state(workload):
            self._lacks_room(members, cursor.session)
            return False
        sequencer = self._policy.sequencer
        most = 1 if sequencer.dynamic else self._rules.allow(workload, len(members))
        run = cursor.run(limit, most, sequencer, self._context)
        self._bindings.bind_for(workload)
        started, refusal = self._start(members, run)
        if refusal:
            self.result.refused[members] = refusal
            return False
        if started < len(run):
            self._lacks_room(members, run[started])
            return False
        return cursor.session is not None

    def _start(
        self, members: QueueClass, run: list[SessionWorkload]
    ) -> tuple[int, tuple[Reason, ...]]:
        """Place as many of ``run`` as fit, from the first on; the answer is their number, and the
        reasons for which the allocator refuses the next one."""
        workload = members.workload
        placed, refusal = self._allocating.start(run)
        if placed:
            if self._bindings:
                places = [kernels for _, kernels in placed]
                self._bindings.lend(workload, places)
                self._bindings.use(workload, places)
            self._context.usage.note_placed(workload, len(placed))
            self.result.placed += placed
        return len(placed), refusal

    def _lacks_room(self, members: QueueClass, session: SessionWorkload) -> None:
        """Note the lack of room: its reason, and the consequences for later sessions."""
        state, lack, never = self._state(members.workload), members.lack, self.never(members)
        if lack is None or lack.state != state:
            lack = Lack(state, (never or self._no_room(members, session),))
        self.result.refused[members] = lack.reasons
        self._lacking[members] = lack
        promised = self._kept.keep_promises(members) and not self._kept.fits_back(members.workload)
        if never is not None or lack.reasons[0].code in PORT_REASONS:
            return  # it holds up no other session
        is_head, policy = not self._blocked, self._policy.queue
        others_leave = session.id in self._context.displacing
        self._blocked.append(session)
        if policy is QueuePolicy.STRICT:
            self._stopped = StrictOrder(group=self._snapshot.group, session=session.id)
        elif others_leave or (is_head and policy is QueuePolicy.BACKFILL and not promised):
            self._kept.reserve_for(
                session
            )  # the room of the sessions that leave for it is for it alone
        if others_leave:  # nor may its owner's other work use its quota
            self._context.usage.note_placed(members.workload, 1)

    def _preempt(self) -> None:
        """Look for victims for sessions that lack room, now that no others take any."""
        if self._policy.preemption is not None:
            for session in self._blocked:
                if session.id in self._context.displacing:
                    continue
                if len(self.result.displaced) == MAX_PREEMPTORS:
                    break
                found = self.victims_for(session)
                if found is not None:
                    self.result.displaced.append(found)

    def victims_for(self, session: SessionWorkload) -> Preemption | None:
        """The sessions that ``session`` would displace, besides those that this pass displaces."""
        policy = self._policy.preemption
        if policy is None:
            return None
        if not policy.before_scaling and self._context.is_served(session.id, session.workload):
            return None  # it has machines to come, and nobody need leave
        displaced = self.result.displaced
        running, snapshot = dict(self._context.running), self._snapshot
        spared = {session.id, *(each.session for each in displaced)}
        try:
            # Sessions that get the room of displaced ones count below, and not their kept room.
            self._bindings.bind_for(session.workload, spared)
            if displaced:
                snapshot = snapshot.copy()
                for each in displaced:
                    its = self._queue.class_of(each.session).workload
                    let_displace(its, each, snapshot, running)
            if self._kept.fits_back(session.workload, snapshot):
                return None  # the session only has to wait for these agents
            found = find_victims(
                session, snapshot, running, self._policy.selector, policy, self._context, displaced
            )
        finally:
            self._bindings.lift()
        if found is None or not self._spares_reserved_room(session.workload, found, spared):
            return None
        return found

    def _spares_reserved_room(
        self, workload: WorkloadClass, found: Preemption, spared: Container[SessionId]
    ) -> bool:
        """Whether the session would get the room of the victims, because none of it is lent. Room
        that is kept for another session may be lent to a victim that soon ends; displacing that
        victim would not free its room, which would be lent to the next session, and so on without
        end."""
        reserved = [
            room
            for each in self._bindings.of(workload)
            if each.session not in spared
            for room in each.reserved
        ]
        if not reserved:
            return True
        after, running = self._snapshot.copy(), dict(self._context.running)
        for each in self.result.displaced:
            let_displace(self._queue.class_of(each.session).workload, each, after, running)
        let_displace(workload, found, after, running)
        taken = {kernel.agent_id for kernel in found.kernels}
        return all(room.is_free(after) for room in reserved if room.agent_id in taken)

    # Why not

    def _state(self, workload: WorkloadClass) -> object:
        """The state on which a lack of room and its reason depend: the version of the snapshot, and
        the reservations that bind the class. While both are unchanged, the class still lacks room,
        and waits for the same sessions."""
        bound = [(each.session, each.reserved) for each in self._bindings.of(workload)]
        return self._snapshot.version, bound

    def _no_room(self, members: QueueClass, session: SessionWorkload) -> Reason:
        workload = members.workload
        taken = self._feasibility.port_taken(workload)
        if taken is not None:
            return taken
        for reservation in self._bindings.lift_one_by_one(workload):
            if self._would_fit(session).kernels is not None:
                self._bindings.bind_for(workload)
                group, after_s = self._snapshot.group, self._policy.starvation_after_s
                return behind(reservation, group, after_s, self._context.now)
        self._bindings.bind_for(workload)
        most = self._feasibility.most_kernels(workload, self._statement)
        if most:
            return AgentsFull(group=self._snapshot.group, most=most)
        reached, closed = self._feasibility.reach(workload)
        kernels = len(workload.kernels)
        if kernels > 1:
            placed = self.most_placed(session)
            return GangNoRoom(
                placed=placed, kernels=kernels, **reached, **closed, **together(workload)
            )
        return NoRoom(request=workload.kernels[0].describe(), **reached, **closed)

    def _would_fit(self, session: SessionWorkload) -> Fit:
        """The Fit of the session now, whatever else forbids it to start; no room is taken."""
        mark = self._statement.mark()
        fit = self._fit(session)
        self._statement.rollback(mark)
        return fit

    def most_placed(self, session: SessionWorkload) -> int:
        """How many kernels find room together, whatever else forbids the session to start."""
        fit = self._would_fit(session)
        return most_placed(self._statement, self._policy.selector, session.workload, fit)

    def _fit(self, session: SessionWorkload) -> Fit:
        """Take room for the session; where none is free, the room that was kept for the session."""
        fit = fit_session(self._statement, self._policy.selector, session.workload)
        kept = self._queue.rooms.get(session.id)
        if fit.kernels is None and kept is not None:
            reservation = kept.reservation
            if reservation is not None and reservation.workload == session.workload:
                kernels = reservation.start(self._statement)
                if kernels is not None:
                    return Fit(len(kernels), kernels)
        return fit

    def never(self, members: QueueClass) -> Reason | None:
        """The reason why the present group cannot hold such a session even when empty; None if it
        can."""
        known = members.never
        if known is None or known[0] != self._snapshot.capacity_version:
            known = self._snapshot.capacity_version, self._feasibility.never(members.workload)
            members.never = known
        return known[1]
