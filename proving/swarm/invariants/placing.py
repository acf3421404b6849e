"""Invariants of placement: the order of a queue, reserved room, quotas, and no session forgotten.

All are judged by what was committed: the rows of the ledger, and simple sums of processors and
devices.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from muster.control.pool.records import Pool, Slice
from muster.control.session.cluster.state import ClusterState
from muster.core.ids import AgentId, KernelId
from muster.core.specs.group import QueuePolicy
from muster.core.specs.pool import PoolSpec
from muster.core.states import SessionStatus
from muster.scheduling.accounting.usage import Scope, scopes
from muster.store.live import Live
from muster.store.records import LedgerKey, Session
from muster.store.unit import NEW, Unit
from proving.swarm.judge import Invariant, Judge, Observer
from proving.swarm.oracle.room import (
    NOTICED_S,
    Room,
    bounds_on,
    fits,
    free_room,
    is_service,
    lacks_room_alone,
    may_come_back,
    order,
    requested,
    spec_of,
    waiting_in,
)
from proving.swarm.oracle.usable import holds, meets

_WAITED = frozenset({NEW, SessionStatus.PENDING})


class Placed(Observer):
    """The sessions that the latest commit placed: their rows are charged, and were not before; and
    the session of each kernel that there was. Services, which no pass places, are not among
    them."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self.sessions: list[Session] = []
        self.session_of: dict[KernelId, Session] = {}

    def committed(self, unit: Unit) -> None:
        self.sessions = []
        for session, stored in unit.touched[Session].items():
            self.session_of.update((kernel.id, session) for kernel in session.kernels)
            if session.service is None and stored in _WAITED and _holds_room(session, unit.live):
                self.sessions.append(session)


def _holds_room(session: Session, live: Live) -> bool:
    rows = (live.ledger.get((each.id, each.generation)) for each in session.kernels)
    return any(row is not None and row.charged for row in rows)


class _OfPlacements(Invariant):
    """Judges what the latest commit placed."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._placed = judge.of(Placed)


class StrictOrder(_OfPlacements):
    says = "under strict order nobody overtakes work of higher priority"

    def committed(self, unit: Unit) -> None:
        live = unit.live
        for session in self._placed.sessions:
            group = live.groups[session.group]
            if group.queue is not QueuePolicy.STRICT:
                continue
            whole = {
                agent.id: Room.of(agent, group)
                for agent in live.agents.values()
                if agent.group == group.name and may_come_back(agent)
            }
            before = [
                other
                for other in waiting_in(live, group)
                if other.priority > session.priority
                and lacks_room_alone(live, other, unit.now)
                and max(other.created_at, other.queued_at) < unit.now
                and fits(other, whole)
            ]
            self.expect(
                not before,
                f"{session.id} was placed before {[each.id for each in before]} of higher priority",
            )


class RoomIsKept(_OfPlacements):
    """A session that is first in the queue, and only waits for agents whose connection broke a
    moment ago (as after a restart of the controller), finds its room when these are back, unless
    other sessions are leaving to make room for it. While machines are coming for it, those that
    fewer sessions can use are kept for these; also one for which no machine comes may take them."""

    says = "room that is kept for a session survives reconnects and restarts"

    def committed(self, unit: Unit) -> None:
        live, placed = unit.live, self._placed.sessions
        if not placed or self.world.controller is None:
            return
        groups = self.world.controller.plane.parts[ClusterState].groups
        for group in live.groups.values():
            agents = [
                agent
                for agent in live.agents.values()
                if agent.group == group.name and may_come_back(agent)
            ]
            waiting = waiting_in(live, group)
            if group.queue is QueuePolicy.BEST_EFFORT or not waiting:
                continue
            first = waiting[0]
            if (
                not lacks_room_alone(live, first, unit.now)
                or first.id in groups[group.name].displacing
            ):
                continue
            later = [
                each for each in placed if each.group == group.name and order(each) > order(first)
            ]
            if not later or max(first.created_at, first.queued_at) >= unit.now:
                continue
            if _has_other_machines(live, first, [*later, *waiting]):
                continue
            if fits(first, free_room(live, agents, less=later)):
                self.expect(
                    fits(first, free_room(live, agents)),
                    f"{[each.id for each in later]} took the room of {first.id}",
                )


def _has_other_machines(live: Live, session: Session, others: Sequence[Session]) -> bool:
    """Whether machines are coming on which the session finds room, and one of the others can use
    fewer pools."""
    slices = [each for each in live.of(Slice).values() if each.group == session.group]
    comes = any(
        each.is_coming and each.doomed is None and _can_use(each.spec, session) for each in slices
    )
    pools = [each for each in live.of(Pool).values() if each.group == session.group]
    usable = [pool for pool in pools if _can_use(pool.spec, session)]
    return comes and any(not _can_use(pool.spec, other) for pool in usable for other in others)


def _can_use(machines: PoolSpec, session: Session) -> bool:
    kernels = [kernel.resources for kernel in session.kernels]
    return meets(machines, spec_of(session)) and all(holds(machines, each) for each in kernels)


class AgentsTakeWork(Invariant):
    """Also none into the backlog of an agent, which is not charged."""

    says = "nothing is placed on an agent that takes no work"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._known: set[LedgerKey] = set()
        self._ill: set[AgentId] = set()

    def committed(self, unit: Unit) -> None:
        live, known, ill = unit.live, self._known, self._ill
        self._known = {*live.ledger}
        self._ill = {agent.id for agent in live.agents.values() if agent.ill}
        for key in self._known - known:
            agent = live.agents[live.ledger[key].agent_id]
            if is_service(live, key[0]) or agent.id in self._ill - ill:
                continue  # it may have come under suspicion once that was placed
            self.expect(
                agent.connected and may_come_back(agent),
                f"{key} was placed on {agent.name}, which takes no work",
            )


class NobodyIsForgotten(Invariant):
    """Judged while the controller has nothing to do."""

    says = "nothing waits that could run"

    def between_steps(self) -> None:
        controller = self.world.controller
        if controller is None or not controller.is_idle:
            return
        live, groups = controller.store.live, controller.plane.parts[ClusterState].groups
        for group in live.groups.values():
            waiting = waiting_in(live, group)
            if not waiting or groups[group.name].displacing or groups[group.name].queue.promises:
                continue  # room may also be kept for other sessions
            agents = [
                agent
                for agent in live.agents.values()
                if agent.group == group.name and agent.connected and may_come_back(agent)
            ]
            first = waiting if group.queue is QueuePolicy.BEST_EFFORT else waiting[:1]
            for session in first:
                if not lacks_room_alone(live, session, self.now - NOTICED_S):
                    continue
                self.expect(
                    not fits(session, free_room(live, agents)),
                    f"{session.id} waits, and there is room for it",
                )


class QuotasHold(_OfPlacements):
    """A session that ended while its agent was silent holds room still, and counts. Prefilled work
    takes room that no pass sees, so none of it is of an owner with a quota, once agents have heard
    of that."""

    says = "nobody is given more than their quota"

    def between_steps(self) -> None:
        for id_, agent in self.world.quiet_agents():
            live = self.world.store.live
            for row in live.allocations_on.get(id_, {}).values():
                kernel = None if row.charged else live.kernels.get(row.kernel_id)
                if kernel is not None and kernel.generation == row.generation:
                    bound = any(bounds_on(live, kernel.session))
                    self.expect(not bound, f"{kernel.id} is prefilled on {agent.name}")

    def committed(self, unit: Unit) -> None:
        live, facts = unit.live, self._placed
        bound = [each for each in facts.sessions if any(bounds_on(live, each))]
        if not bound:
            return
        sessions: dict[Scope, set[str]] = {}
        held: dict[Scope, Counter[str]] = defaultdict(Counter)
        for row in live.ledger.values():
            session = facts.session_of.get(row.kernel_id)
            if row.charged and session is not None:
                for scope in scopes(session.owner):
                    sessions.setdefault(scope, set()).add(session.id)
                    held[scope].update(row.resources.as_dict())
        quotas = {scope: each for session in bound for scope, each in bounds_on(live, session)}
        for scope, quota in quotas.items():
            its = [each for each in bound if scope in scopes(each.owner)]
            most = quota.sessions
            over = [
                name
                for name, amount in quota.amounts.items()
                if held[scope][name] > amount and any(requested(each, name) for each in its)
            ]
            within = most is None or len(sessions[scope]) <= most
            has = f"{len(sessions[scope])} sessions with {dict(held[scope])}"
            self.expect(within and not over, f"{scope} has {has}, of {quota}")
