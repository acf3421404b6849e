"""The state of one scaling group for placement. No other module takes or gives back its room.

It is pure and knows no records: ``control.session.cluster`` turns records into workloads and calls
the methods of every group; ``control.group`` stores the settings that operators make.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from muster.core.ids import AgentId, SessionId
from muster.core.owner import Owner
from muster.core.resources import DeviceShare, Resources
from muster.core.specs import Dependency
from muster.scheduling.accounting.fairness import DecayedUsage
from muster.scheduling.accounting.history import GroupPast, NoHistory
from muster.scheduling.accounting.usage import Accounting
from muster.scheduling.budgets import Budgets, unbounded
from muster.scheduling.cluster.snapshot import AgentFacts, Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.making_room.preemption import Preemption
from muster.scheduling.passes.outlook import Outlook, served_at
from muster.scheduling.passes.pass_result import PassResult, Placed
from muster.scheduling.passes.placed_sessions import PlacedSession, RunningSessions, StartTimes
from muster.scheduling.passes.placement import PlacementPass, place
from muster.scheduling.passes.queue import AGE, JoinedQueue, Queue, QueueClass
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.learning import Learner
from muster.scheduling.policy.plugins import LearningSelector, PassContext, nothing_is_known
from muster.scheduling.policy.sequencers import FairShare
from muster.scheduling.workload import (
    DependencyState,
    KernelPlacement,
    SessionWorkload,
    WorkloadClass,
    no_replicas_are_known,
)

HALF_LIVES = 5
"""The half-lives over which usage is read back: older usage weighs a thirtieth at most."""


class GroupState:
    """One scaling group: its agents, its policy, and the sessions that wait or hold room.

    A session waits from ``submit`` until ``start`` or ``withdraw``. It holds room from the pass
    that placed it, which the caller confirms with ``start``, until ``leave`` was called for its
    last kernel, or ``end`` for all of them. Nothing here is stored, and no clock is read.

    Attributes:
        snapshot: the group's agents and their free amounts.
        policy: the parts by which a pass decides; changed by ``use`` alone.
        accounting: the holdings of owners in all groups, and their limits.
        queue: the waiting sessions about which a pass decides.
        aside: waiting sessions that passes do not see.
        placed: the sessions that hold room.
        displacing: for a waiting session, the sessions that are leaving for it.
        fairness: the usage of owners of late; None where the sequencer does not need it.
        start_times: how long sessions take from their placement until they run.
        due: whether another pass could decide differently from the last one.
        passes: how many passes were run.
        outlook: the machines that may come for waiting sessions; None where no pool makes any.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        accounting: Accounting | None = None,
        *,
        history: GroupPast | None = None,
        dependency_state: Callable[[Owner, Dependency], DependencyState] = nothing_is_known,
        budgets: Budgets = unbounded,
    ) -> None:
        """
        Args:
            dependency_state, budgets: as of ``PassContext``.

        Raises:
            PluginFault: the policy's selector cannot learn.
        """
        self.snapshot = snapshot
        self.policy = policy
        self.accounting = accounting or Accounting()
        self.queue = Queue()
        self.aside: dict[SessionId, SessionWorkload] = {}
        self.placed: dict[SessionId, PlacedSession] = {}
        self.displacing: dict[SessionId, set[SessionId]] = {}
        self.fairness: DecayedUsage | None = None
        self.start_times = StartTimes()
        self.due = True
        self.passes = 0
        self.outlook: Outlook | None = None
        self._history = history or NoHistory()
        self._dependency_state = dependency_state
        self.replicas_of: Callable[[str], tuple[int, int]] = no_replicas_are_known
        self._budgets = budgets
        self._learner: Learner | None = None
        self._ask_history()
        self._teach()

    # -- policy and agents ---------------------------------------------------------------------

    def use(self, policy: Policy) -> None:
        """Decide by another policy from now on.

        Raises:
            PluginFault: the policy's selector cannot learn; the policy is in force all the same.
        """
        before, self.policy = self.policy, policy
        self.queue.forget()
        self.due = True
        half_life_s = self.fairness.half_life_s if self.fairness is not None else None
        sequencer = policy.sequencer
        if isinstance(sequencer, FairShare) and sequencer.half_life_s != half_life_s:
            self._ask_history()
        if before.selector is not policy.selector:
            self._teach()

    def _ask_history(self) -> None:
        """Compute the usage of owners, for a sequencer that orders by it."""
        sequencer = self.policy.sequencer
        if isinstance(sequencer, FairShare):
            half_life_s = sequencer.half_life_s
            past = self._history.usage(HALF_LIVES * half_life_s)
            self.fairness = DecayedUsage.of_past(past, half_life_s)
            for its in self.placed.values():
                self.fairness.placed(its.workload.owner, its.workload.total, its.since)

    def _teach(self) -> None:
        """Tell a selector that learns of all earlier requests."""
        self._learner, selector = None, self.policy.selector
        if isinstance(selector, LearningSelector):
            self._learner = learner = Learner(selector, self._history.requests())
            for id_, workload in self._history.live():
                learner.arrived(id_, workload)

    def set_agent(self, facts: AgentFacts) -> None:
        """Add or change an agent; room that is held on it stays held.

        Raises:
            MusterError: see ``Snapshot.upsert_agent``; nothing was changed.
        """
        self.snapshot.upsert_agent(
            facts.id,
            facts.name,
            facts.capacity,
            facts.devices,
            facts.accepting,
            facts.status,
            facts.attributes,
            returning=facts.returning,
        )
        self.accounting.usage.note_models(self.snapshot.group, facts.devices)
        self.due = True

    def remove_agent(self, id_: AgentId) -> None:
        """Forget an agent with all room that is held on it."""
        self.snapshot.remove_agent(id_)
        self.due = True

    # -- waiting -------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """How many sessions wait."""
        return len(self.queue) + len(self.aside)

    def waits(self, id_: SessionId) -> bool:
        return id_ in self.queue or id_ in self.aside

    def waits_as(self, id_: SessionId) -> WorkloadClass | None:
        """The class of a waiting session; None for any other."""
        members = self.queue.find(id_)
        if members is not None:
            return members.workload
        aside = self.aside.get(id_)
        return None if aside is None else aside.workload

    def submit(self, session: SessionWorkload, *, aside: bool = False) -> None:
        """Have a session wait from now on, in the queue unless it is put ``aside``.

        Raises:
            PluginFault: the selector fails to learn of it; the session waits all the same.
        """
        self.accounting.usage.waits(session.workload.owner, 1)
        if aside:
            self.aside[session.id] = session
        else:
            self._enqueue(session)

    def readmit(self, id_: SessionId) -> None:
        """Move a session that was put aside into the queue.

        Raises:
            PluginFault: as ``submit``.
        """
        self._enqueue(self.aside.pop(id_))

    def set_aside(self, id_: SessionId) -> None:
        """Move a session of the queue aside, where passes do not see it."""
        self.aside[id_] = self.queue.class_of(id_).session(id_)
        self.queue.remove(id_)

    def withdraw(self, id_: SessionId) -> bool:
        """End the wait of a session that is not to be placed any more; the answer says whether it
        waited. Sessions behind it may start now."""
        waited = self.leave_queue(id_)
        self.due = self.due or waited
        return waited

    def leave_queue(self, id_: SessionId) -> bool:
        """End the wait of a session that has its place, be it in a backlog; the answer says whether
        it waited."""
        left: QueueClass | SessionWorkload | None = self.queue.remove(id_)
        if left is None:
            left = self.aside.pop(id_, None)
            if left is None:
                return False
        self.displacing.pop(id_, None)
        self.accounting.usage.waits(left.workload.owner, -1)
        return True

    def requeue(self, class_of: Callable[[SessionWorkload], WorkloadClass]) -> None:
        """Have all waiting sessions enter the queue anew, the oldest first, with the classes of
        ``class_of``. An error that ``class_of`` raises changes nothing here."""

        def anew(session: SessionWorkload) -> SessionWorkload:
            workload = queue.known(class_of(session))
            return SessionWorkload(session.id, session.submitted_at, workload)

        queue = Queue()
        queue.promises = self.queue.promises
        for session in sorted(self.queue, key=AGE):
            queue.add(anew(session))
        self.queue, self.aside = queue, {id_: anew(each) for id_, each in self.aside.items()}

    def reprioritise(self, sessions: Iterable[SessionWorkload]) -> None:
        """Have sessions that wait or hold room do so as of other classes, which differ from their
        former ones in priority alone. They keep their ages, and those who leave for them still
        do."""
        waiting: list[SessionWorkload] = []
        # By the former's identity, and the priority that it gets.
        known: dict[tuple[int, int], tuple[WorkloadClass, WorkloadClass]] = {}
        for session in sessions:
            if session.id in self.queue:
                waiting.append(session)
            elif session.id in self.aside:
                self.aside[session.id] = session
            held = self.placed.get(session.id)
            if held is not None:
                former, priority = held.workload, session.workload.priority
                key = id(former), priority
                if key not in known:
                    known[key] = former, replace(former, priority=priority)
                held.workload, held.seen = known[key][1], None
        self.queue.move(waiting)
        self.due = True

    def _enqueue(self, session: SessionWorkload) -> None:
        workload = self.queue.known(session.workload)
        if workload is not session.workload:
            session = SessionWorkload(session.id, session.submitted_at, workload)
        self.queue.add(session)
        self.due = True
        if self._learner is not None:
            self._learner.arrived(session.id, workload)

    # -- passes --------------------------------------------------------------------------------

    def context(self, now: float) -> PassContext:
        """The context of a pass over the queue at the moment ``now``."""
        start_s = self.start_times.at(now)
        return PassContext(
            self.snapshot,
            now,
            self.accounting.usage,
            self.accounting.quotas,
            self.fairness or DecayedUsage(),
            RunningSessions(self.placed, self.policy.preemption, start_s),
            self._dependency_state,
            self.displacing,
            start_s,
            self._budgets,
            served_at(self.outlook, now),
            self.replicas_of,
        )

    def run_pass(self, now: float) -> PassResult:
        """Decide about all sessions of the queue. Room is taken for the placed ones, which still
        wait and count in no sum until ``start``; displaced sessions still hold their room.

        Raises:
            MusterError: a plug-in answers nonsense; nothing was changed.
        """
        self.due = False
        self.passes += 1
        if not len(self.queue):  # as after each end of a lone task
            self.queue.rooms = {}
            return PassResult()
        return place(self.queue, self.snapshot, self.policy, self.context(now))

    def rehearse(
        self, more: Iterable[SessionWorkload], policy: Policy, context: PassContext
    ) -> PassResult:
        """The decisions of a pass over the queue if these sessions waited too. Nothing changes: no
        room is taken, and the queue keeps the findings of the last pass.

        Args:
            policy, context: the group's own, or variants of them.

        Raises:
            MusterError: a plug-in answers nonsense.
        """
        with Statement(self.snapshot, trial=True) as statement:
            joined = JoinedQueue(self.queue, more)
            return PlacementPass(joined, statement, policy, context).run()

    def displace(self, preemption: Preemption) -> None:
        """Note that the victims leave, so that no others are displaced for the session."""
        self.displacing[preemption.session] = {victim.id for victim in preemption.victims}
        self.queue.rooms.clear()  # their ends are known now

    # -- holding room --------------------------------------------------------------------------

    def start(self, placed: Placed, now: float, *, begun_anew: bool = True) -> None:
        """Have a session take the room that the last pass found for it.

        Args:
            begun_anew: whether it would be begun anew if it were displaced.
        """
        session, kernels = placed
        self.leave_queue(session.id)
        held = PlacedSession(session.workload, dict(enumerate(kernels)), now, begun_anew, now)
        self._count_placed(session.id, held, now)

    def adopt(
        self,
        id_: SessionId,
        workload: WorkloadClass,
        kernels: Mapping[int, KernelPlacement],
        now: float,
        *,
        since: float,
        begun_anew: bool = True,
    ) -> None:
        """Have a session hold room that no pass has found. Its agents report that room, so it
        counts even where it exceeds the capacity.

        Args:
            kernels: their places, by index; more kernels may be adopted later.
            since: when the session got its place.
        """
        for index, kernel in kernels.items():
            self.occupy(kernel.agent_id, workload.kernels[index], kernel.shares)
            self._join_set(workload, kernel, +1)
        held = self.placed.get(id_)
        if held is None:
            self._count_placed(
                id_, PlacedSession(workload, dict(kernels), since, begun_anew, since), now
            )
        else:
            held.kernels.update(kernels)
            held.seen = None

    def progressed(
        self,
        id_: SessionId,
        entered_at: float,
        running_since: float | None,
        leaves_by: float | None,
    ) -> None:
        """Note the progress of a session, if it is placed (see ``PlacedSession``)."""
        held = self.placed.get(id_)
        if held is None:
            return
        if running_since is not None and held.running_since is None and leaves_by is None:
            self.start_times.saw(running_since - held.since, running_since)
        held.entered_at, held.leaves_by = entered_at, leaves_by
        held.running_since, held.seen = running_since, None

    def move(self, id_: SessionId, index: int, shares: tuple[DeviceShare, ...]) -> None:
        """Note that a kernel runs on other devices of its agent, as the agent reports."""
        held = self.placed[id_]
        request, before = held.workload.kernels[index], held.kernels[index]
        self.vacate(before.agent_id, request, before.shares)
        self.occupy(before.agent_id, request, shares)
        held.kernels[index] = KernelPlacement(before.agent_id, shares)
        held.seen = None

    def leave(self, id_: SessionId, index: int, now: float) -> None:
        """Free the room of a kernel. With its last kernel the session is placed no more."""
        held = self.placed[id_]
        kernel = held.kernels[index]
        self.vacate(kernel.agent_id, held.workload.kernels[index], kernel.shares)
        self._join_set(held.workload, kernel, -1)
        del held.kernels[index]
        held.seen = None
        if not held.kernels:
            self._gone(id_, now)

    def end(self, id_: SessionId, now: float) -> None:
        """Free the room of a session, all kernels of which have left."""
        for index in list(self.placed[id_].kernels):
            self.leave(id_, index, now)
        self.forget(id_)

    def forget(self, id_: SessionId) -> None:
        """Forget a session that has ended; its id may come again for another one."""
        if self._learner is not None:
            self._learner.ended(id_)

    def occupy(
        self, agent_id: AgentId, request: Resources, shares: tuple[DeviceShare, ...] = ()
    ) -> None:
        """Take room, for any use, whether it is free or not."""
        self.snapshot.take(agent_id, request, shares, force=True)

    def vacate(
        self, agent_id: AgentId, request: Resources, shares: tuple[DeviceShare, ...] = ()
    ) -> None:
        """Give back room that was taken with ``occupy``.

        Raises:
            NotHeld: less is in use; nothing was given back.
        """
        self.snapshot.give_back(agent_id, request, shares)
        self.due = True

    def _count_placed(self, id_: SessionId, session: PlacedSession, now: float) -> None:
        """Count the session as placed from now on."""
        workload = session.workload
        self.placed[id_] = session
        self.accounting.usage.placed(workload.owner, workload.total, 1, workload.parts)
        if self.fairness is not None:
            self.fairness.placed(workload.owner, workload.total, now)

    def _gone(self, id_: SessionId, now: float) -> None:
        workload = self.placed.pop(id_).workload
        self.accounting.usage.placed(workload.owner, workload.total, -1, workload.parts)
        if self.fairness is not None:
            self.fairness.released(workload.owner, workload.total, now)
        for preemptor, victims in list(self.displacing.items()) if self.displacing else ():
            victims.discard(id_)
            if not victims:
                del self.displacing[preemptor]

    def _join_set(self, workload: WorkloadClass, kernel: KernelPlacement, kernels: int) -> None:
        """Count more kernels of the workload's sets on the agent; a pass counts its own itself."""
        for key in workload.sets:
            self.snapshot.set_joined(kernel.agent_id, key, kernels)
