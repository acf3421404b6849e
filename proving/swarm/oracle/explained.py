"""Reasons that waiting work tells of itself, compared with the world: (design: Typed reasons)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

from muster.control.health.entity import Incident
from muster.control.pool.records import Pool
from muster.control.session.cluster.state import ClusterState
from muster.control.session.handlers.schedule import ScheduleNewSessions
from muster.core.ids import AgentId, SessionId
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_sessions import Preempted, PreemptedForGood
from muster.core.results import SchedulingResult
from muster.core.states import SessionStatus
from muster.store.records import Job, LedgerKey, Session
from muster.store.unit import Unit
from muster.wire.messages import AgentMessage
from proving.hollow.door import Answered
from proving.hollow.stages import Stage
from proving.swarm.invariants.placing import Placed
from proving.swarm.judge import Invariant, Judge, Observer
from proving.swarm.oracle.sessions import SessionsEndForCause
from proving.swarm.oracle.standing import Standing
from proving.swarm.oracle.waiting import Claim, is_true
from proving.swarm.scene import ADMIN, USERS, VIEWER, User
from proving.swarm.wayward import NAMES

ASKED_EVERY = 8
"""Quiet moments from one question to the next: each answer takes as long as a wake."""


class Standings(Observer):
    """The state of each group while the controller has nothing to do."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self.events = 0
        self._placed = judge.of(Placed)
        self._displaced: dict[LedgerKey, int] = {}  # kernels with the priority that displaced them

    def committed(self, unit: Unit) -> None:
        self.events += 1
        for session in unit.touched[Session]:
            if isinstance(session.reason, Preempted | PreemptedForGood):
                priority = session.reason.priority
                for kernel in session.kernels:
                    for row in unit.live.allocations_of.get(kernel.id, ()):
                        self._displaced.setdefault(row.key, priority)

    def heard(self, agent: AgentId, message: AgentMessage) -> None:
        self.events += 1

    def woke(self) -> None:
        self.events += 1

    def controller_died(self) -> None:
        self.events += 1

    def now_of(self, group: str) -> Standing | None:
        """The state of the group; None if something is on its way, or its machines are those of
        pools, or one is checked or healed, of which the oracle knows nothing."""
        controller = self.world.controller
        if controller is None or not controller.is_idle:
            return None
        live = controller.store.live
        is_of_pools = any(each.group == group for each in live.of(Pool).values())
        if is_of_pools or any(each.group == group for each in live.of(Incident).values()):
            return None
        ready = {
            key
            for agent in self.world.agents.values()
            for key, kernel in agent.supervisor.kernels.items()
            if kernel.stage is Stage.CREATED
        }
        return Standing(
            live,
            live.groups[group],
            self.now + self.controller_ahead_s,
            self._placed.session_of,
            {priority for key, priority in self._displaced.items() if key in live.ledger},
            ready,
            {id_ for id_, _ in self.world.quiet_agents()},
        )


class RefusalsHold(Invariant):
    """Judged while nothing is on its way, so that a pass has been run since the last change. The
    latest row of a session's history tells the same."""

    says = "the reasons for which a session waits hold, and its history tells them"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._standings = judge.of(Standings)
        self._sessions = judge.of(SessionsEndForCause)

    def between_steps(self) -> None:
        controller = self.world.controller
        if controller is None:
            return
        for group in controller.store.live.groups:
            standing = self._standings.now_of(group)
            if standing is None or not standing.waiting:
                continue
            queue = controller.plane.parts[ClusterState].groups[group].queue
            for members in queue.classes:
                self._judge(standing, members.oldest.id, members.reasons)
                for each in members:
                    self._judge_history(standing.live.sessions[each.id], members.reasons)

    def _judge(self, standing: Standing, id_: SessionId, reasons: Sequence[Reason]) -> None:
        case = self._sessions.case(standing.live.sessions[id_], standing.live, standing.now)
        for why in reasons:
            claim = Claim(why.code, why.numbers(), case, standing, is_now=False)
            self.expect(is_true(claim), f"{id_} waits, and it is not true that {why}")

    def _judge_history(self, session: Session, reasons: Sequence[Reason]) -> None:
        refused = [
            each
            for each in session.repeats
            if each.phase == ScheduleNewSessions.name and each.result is SchedulingResult.SKIPPED
        ]
        latest = max((each.last_at for each in refused), default=0.0)
        told = [_codes(each.reasons) for each in refused if each.last_at == latest]
        holds = _codes(reasons) in told
        self.expect(holds, f"{session.id} waits for {_codes(reasons)}, and its history has {told}")


def _codes(reasons: Sequence[Reason]) -> list[ReasonCode]:
    return [each.code for each in reasons]


class WhyIsAnswered(Invariant):
    """Asked over the API while nothing is on its way, in turn by those who may and by those who may
    not; an answer is judged if nothing has happened until it came."""

    says = "`why` answers what holds, and whom it may"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._standings = judge.of(Standings)
        self._sessions = judge.of(SessionsEndForCause)
        self._moments = 0
        self._turns = cycle(range(5))

    def between_steps(self) -> None:
        controller = self.world.controller
        if controller is None or not controller.is_idle:
            return
        live = controller.store.live
        if any(not _WAYWARD.isdisjoint(each.options) for each in live.groups.values()):
            return  # an answer takes calls of plug-ins, which only serve for so many
        by_people = [each for each in live.sessions.values() if each.service is None]
        sessions = [each for each in by_people if each.status in _UNSTARTED]
        records: list[Session | Job] = [*(sessions or by_people)]
        records += {each.job.id: each.job for each in sessions if each.job is not None}.values()
        if not records:
            return
        self._moments += 1
        if self._moments % ASKED_EVERY == 0:
            self._ask(records[self._moments // ASKED_EVERY % len(records)])

    def _ask(self, record: Session | Job) -> None:
        controller, asked_at = self.world.controller, (self.now, self._standings.events)
        assert controller is not None, "somebody answers"
        owner = next(each for each in (*USERS, ADMIN) if each.name == record.owner.user)
        user = self._asker(owner)
        kind = "jobs" if isinstance(record, Job) else "sessions"
        is_refused = user is not ADMIN and user.name != owner.name

        def answered(answer: Answered) -> None:
            may_be = (404, 503) if is_refused else (200, 503)
            told = f"{user.name} ({user.role}) asks why {record.id}: {answer}"
            self.expect(answer.status in may_be, told)
            standing = self._standings.now_of(record.group)
            is_now = asked_at == (self.now, self._standings.events)
            if answer.status == 200 and standing is not None and is_now:
                if answer.body["ended"] or any(map(standing.begins_now, standing.waiting)):
                    return
                self._judge(record, answer.body, standing)

        path = f"/v1/{kind}/{record.id}/why"
        controller.door.ask("GET", path, user.token, None, answered)

    def _asker(self, owner: User) -> User:
        """The owner and admins by turns and, now and then, a viewer or another user."""
        turn = next(self._turns)
        if turn == 4:
            return next(each for each in USERS if each.name != owner.name)
        viewer = VIEWER if owner.name == VIEWER.name else owner
        return (owner, ADMIN, owner, viewer)[turn]

    def _judge(self, record: Session | Job, answer: Mapping[str, Any], standing: Standing) -> None:
        live = standing.live
        its = [each for each in live.sessions.values() if record in (each, each.job)]
        unplaced = answer["status"] == SessionStatus.PENDING and isinstance(record, Session)
        self.expect(answer["reasons"] or not unplaced, f"why {record.id} waits is not told")
        for told in answer["reasons"]:
            self.expect(
                any(is_true(claim) for claim in self._claims(told, its, standing)),
                f"why {record.id} waits: it is not true that {told}",
            )
        placement = answer["placement"]
        if placement is not None:
            session = live.sessions[SessionId(placement["session"])]
            wrong = [*_wrong(placement, session, standing)]
            self.expect(not wrong, f"why {session.id} waits: {wrong}")

    def _claims(
        self, told: Mapping[str, Any], sessions: Sequence[Session], standing: Standing
    ) -> Iterator[Claim]:
        for session in sessions:
            case = self._sessions.case(session, standing.live, standing.now)
            yield Claim(ReasonCode(told["code"]), told["numbers"], case, standing)


_WAYWARD = frozenset(NAMES.values())
_UNSTARTED = frozenset(SessionStatus) - {SessionStatus.RUNNING}


def _wrong(told: Mapping[str, Any], session: Session, standing: Standing) -> Iterator[str]:
    """Sentences about the answer's wrong numbers of the queue and of the agents."""
    if told["starts"] and session in standing.waiting:
        yield "it is said to start"
    if told["agents"] != len(standing.agents):
        yield f"{told['agents']} agents, and there are {len(standing.agents)}"
    if told["queue"] != len({*standing.waiting, session}):
        yield f"{told['queue']} sessions are said to wait, and {len(standing.waiting)} do"
    ahead = sum(standing.is_ahead(each.id, session) for each in standing.waiting)
    if session in standing.waiting and told["position"] != ahead + 1:
        yield f"its place is {told['position']}, and {ahead} are ahead"
    (request,) = told["requests"]
    lacks = Counter[frozenset[str]]()
    for group in request["groups"]:
        lacks[_lacks(group)] += group["agents"]
    true = Counter(standing.shortfalls(agent, session) for agent in standing.agents)
    if lacks != true:
        yield f"agents lack {lacks}, and really {true}"
    for group in request["groups"]:
        alike = _lacks(group)
        nearest = standing.named(group["nearest"])
        if not any(standing.shortfalls(agent, session) == alike for agent in nearest):
            yield f"{group['nearest']} is said to lack {set(alike)}"
    fit = min(standing.places(session), len(session.kernels))
    if request["fit"] != fit:
        yield f"{request['fit']} kernels are said to fit, and {fit} do"


def _lacks(group: Mapping[str, Any]) -> frozenset[str]:
    """The codes of the lacks for one kernel: a rule for all kernels of a gang is left out."""
    return frozenset(each["code"] for each in group["shortfalls"]) - {ReasonCode.LACKS_FOR_ALL}
