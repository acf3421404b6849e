"""Machines that may be faulty: what their checks, their healing and their return may never do. All
is judged by what is true of the machines, by what their agents did, and by what was committed."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from muster.control.health.entity import Incident, IncidentId
from muster.core.health.verdict import CheckResult
from muster.core.ids import AgentId, SessionId
from muster.core.reasons import ReasonCode
from muster.core.specs.health import HealthSpec
from muster.core.states import AgentStatus
from muster.core.states.health import HEALTH_TABLE, HealthStatus
from muster.store.live import Live
from muster.store.records import LedgerKey
from muster.store.unit import Unit
from proving.hollow.agent import HollowAgent
from proving.hollow.stages import WITH_PROCESSES
from proving.hollow.supervisor import Kernel
from proving.swarm.invariants.course import Course
from proving.swarm.invariants.placing import Placed
from proving.swarm.judge import Invariant, Judge

REFUSED = re.compile(r"refuses order (\d+)")
_CHECKED = frozenset({HealthStatus.SUSPECT, HealthStatus.CHECKING})
_HEALING = frozenset({HealthStatus.RESETTING, HealthStatus.REBOOTING})
_ANEW = frozenset({HealthStatus.SUSPECT, HealthStatus.ISOLATED})
_STAYS = frozenset({HealthStatus.ISOLATED, HealthStatus.GONE})
_BEYOND_CHECKS = _HEALING | {HealthStatus.VERIFYING, HealthStatus.ISOLATED}
_SLACK_S = 240.0
"""By how much a step may take longer than its limit: its service has to be started and reported,
and a controller that has started hears all machines first."""
_AWAY = frozenset({ReasonCode.HEALTH_SILENT, ReasonCode.HEALTH_NOT_EMPTY})
_WITHOUT_CHECK = frozenset(
    {
        ReasonCode.HEALTH_RETURNED_BY,
        ReasonCode.HEALTH_LAPSED,
        ReasonCode.HEALTH_LET_BE,
        ReasonCode.HEALTH_UNPROVEN,
        ReasonCode.HEALTH_UNCHECKED,
    }
)


class _OfIncidents(Invariant):
    """Judges what the latest commit changed of incidents."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._course = judge.of(Course)

    def is_decided(self, incident: Incident) -> bool:
        """Whether an operator decided about the incident."""
        return self.decided_at(incident) >= incident.began_at

    def decided_at(self, incident: Incident, *others: str) -> float:
        """When an operator last decided about the machine, in none of the ways of ``others``; such
        a decision may be carried out until then."""
        decisions = self.scene.decided[incident.agent_id]
        times = (each.answered_at for each in decisions if each.decision not in others)
        return max((math.inf if at is None else at for at in times), default=-math.inf)


class NothingBesideServices(Invariant):
    """Judged on the machine: a service of devices, or of all of the machine, is alone there."""

    says = "no machine is checked, reset or rebooted while work holds its devices"

    def begun(self, agent: HollowAgent, kernel: Kernel) -> None:
        for other in agent.supervisor.kernels.values():
            if other is kernel or other.stage not in WITH_PROCESSES:
                continue
            if kernel.start.template.service is None and other.start.template.service is None:
                continue
            self.expect(
                not _overlap(kernel, other),
                f"{kernel.key} began on {agent.name} beside {other.key}",
            )


def _overlap(one: Kernel, other: Kernel) -> bool:
    services = [each.start.template.service for each in (one, other)]
    if any(each is not None and each.is_whole for each in services):
        return True
    first, second = ({share.index for share in each.shares} for each in (one, other))
    return bool(first & second)


class OutForCause(Invariant):
    """One of which nothing could be found out counts as faulty once its heal is due."""

    says = (
        "a suspected machine is out of work exactly while it has a turn, needs none, or is faulty"
    )

    def committed(self, unit: Unit) -> None:
        for each in unit.touched[Incident]:
            if each.status is HealthStatus.SUSPECT:
                is_faulty = each.confirmed or each.heal is not None
                is_out = each.has_turn or each.needs_no_turn or is_faulty
                self.expect(each.is_out is is_out, f"{each.agent} is out: {each.is_out}")


class OneIncident(Invariant):
    says = "a machine has one live incident at most"

    def committed(self, unit: Unit) -> None:
        if unit.touched[Incident]:
            count = Counter(each.agent_id for each in _live(unit.live))
            twice = [agent for agent, many in count.items() if many > 1]
            self.expect(not twice, f"{twice} have several live incidents")


class IncidentsEnd(Invariant):
    """While the controller has nothing to do it is judged how long a check, a reset or a reboot has
    been under way, since this controller was first seen to wait for it, against the longest time
    that the group ever gave it."""

    says = "every incident ends, or waits for an operator, and each of its steps has a limit"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._controller: object = None
        self._waits: dict[IncidentId, tuple[HealthStatus, float, float]] = {}
        self._longest: dict[tuple[str, HealthStatus], float] = {}

    def between_steps(self) -> None:
        controller = self.world.controller
        if controller is not self._controller:  # it waits anew
            self._controller = controller
            self._waits.clear()
        if controller is None or not controller.is_idle or self.world.is_broken:
            return
        live, before, self._waits = controller.store.live, self._waits, {}
        for each in _live(live):
            limit_s = self._limit_s(each, live)
            if each.acted_at is None or limit_s is None:
                continue
            status, acted_at, since = before.get(each.id, (each.status, each.acted_at, self.now))
            if (status, acted_at) != (each.status, each.acted_at):
                since = self.now
            self._waits[each.id] = each.status, each.acted_at, since
            waited_s = self.now - since
            self.expect(
                waited_s <= limit_s + _SLACK_S,
                f"{each.agent} has been {each.status} for {waited_s:.0f} s, of {limit_s:g}",
            )

    def _limit_s(self, incident: Incident, live: Live) -> float | None:
        """How long the step that is under way may take; None where it is none."""
        spec = live.groups[incident.group].health or HealthSpec()
        limits = {
            HealthStatus.CHECKING: spec.check_timeout,
            HealthStatus.VERIFYING: spec.check_timeout,
            HealthStatus.RESETTING: spec.reset_timeout,
            HealthStatus.REBOOTING: spec.reboot_timeout,
        }
        if incident.status not in limits:
            return None
        key = incident.group, incident.status
        self._longest[key] = max(self._longest.get(key, 0.0), limits[incident.status])
        return self._longest[key]

    def at_rest(self) -> None:
        told = [
            (each.agent, each.status, each.reason)
            for each in _live(self.world.store.live)
            if each.status is not HealthStatus.ISOLATED
        ]
        self.expect(not told, f"incidents never end: {told}")


class RoundsAreBounded(_OfIncidents):
    """The most that its group ever said counts; a decision of an operator begins anew."""

    says = "a machine is healed no more often than its group says"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._heals: dict[IncidentId, list[float]] = defaultdict(list)
        self._most: Counter[str] = Counter()

    def committed(self, unit: Unit) -> None:
        for group in unit.live.groups.values():
            rounds = (group.health or HealthSpec()).rounds
            self._most[group.name] = max(rounds, self._most[group.name])
        for incident, _, now in self._course.passed:
            if now in _HEALING:
                self._heals[incident.id].append(unit.now)
        for incident in unit.touched[Incident]:
            since, times = self.decided_at(incident), self._heals[incident.id]
            heals = max(sum(at > since for at in times), incident.progress.rounds)
            most = self._most[incident.group]
            self.expect(heals <= most, f"{incident.agent} was healed {heals} times, of {most}")


class ShareHolds(_OfIncidents):
    """Judged when a machine gets its turn, unless an operator has decided about it."""

    says = "no more of a group's machines are emptied, checked and healed at a time than it allows"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._had_turn: set[IncidentId] = set()

    def committed(self, unit: Unit) -> None:
        if not unit.touched[Incident]:
            return
        live = unit.live
        out = {each.id: each for each in _live(live) if each.has_turn}
        for id_ in out.keys() - self._had_turn:
            incident = out[id_]
            if self.is_decided(incident):
                continue
            most = most_out(live, incident.group)
            many = sum(each.group == incident.group for each in out.values())
            self.expect(
                most is None or many <= most,
                f"{incident.agent} is the {many}th of at most {most} machines out of work",
            )
        self._had_turn = {*out}


class NoTurnNoHeal(_OfIncidents):
    """A job's own machines may all be checked at once; they are healed one share at a time. So a
    wrong check never takes a healthy majority away."""

    says = "no machine is healed or verified without its group's turn, which no isolated one has"

    def committed(self, unit: Unit) -> None:
        for incident, _, now in self._course.passed:
            if now in _BEYOND_CHECKS and incident.status is now:
                has_one = now is not HealthStatus.ISOLATED
                self.expect(
                    incident.has_turn is has_one,
                    f"{incident.agent} is {now}, and has a turn: {incident.has_turn}",
                )


class HealthyOnceVerified(_OfIncidents):
    """By a check that the machine carried out, and that said so; after a reboot in another boot."""

    says = "a machine takes work again once a check found it healthy, or an operator says so"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._rebooted: dict[IncidentId, str] = {}

    def committed(self, unit: Unit) -> None:
        for incident, _, now in self._course.passed:
            if now is HealthStatus.REBOOTING and incident.boot_id:
                self._rebooted[incident.id] = incident.boot_id
            elif now in _ANEW:
                self._rebooted.pop(incident.id, None)  # that reboot was given up
            if now is not HealthStatus.HEALTHY:
                continue
            if incident.reason is not None and incident.reason.code in _WITHOUT_CHECK:
                continue
            last = incident.checks[-1] if incident.checks else None
            answer = None if last is None else self._course.answer(incident, last.session)
            self.expect(
                answer is not None and answer.result is CheckResult.HEALTHY,
                f"{incident.agent} is healthy again, and its last check said {answer}",
            )
            if answer is not None:
                former = self._rebooted.get(incident.id)
                self.expect(
                    answer.boot_id != former,
                    f"{incident.agent} was verified in boot {former}, which was to end",
                )


class RebootsAreNewBoots(_OfIncidents):
    says = "a machine has been rebooted when it is there with another boot, and not before"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._boots: dict[IncidentId, str] = {}

    def committed(self, unit: Unit) -> None:
        for incident, before, now in self._course.passed:
            agent = unit.live.agents.get(incident.agent_id)
            if agent is None:
                continue
            if now is HealthStatus.REBOOTING and before is not HealthStatus.REBOOTING:
                self._boots[incident.id] = incident.boot_id or agent.boot_id
            if now is HealthStatus.VERIFYING and before is HealthStatus.REBOOTING:
                former = self._boots.get(incident.id)
                self.expect(
                    agent.boot_id != former,
                    f"{incident.agent} counts as rebooted in boot {former}, which was to end",
                )


class UnknownIsNotFaulty(_OfIncidents):
    """Judged by the checks that the machine carried out; one that it lost told nothing."""

    says = "a machine of which nothing is known is checked again before it is healed"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._least = HealthSpec().unknowns

    def committed(self, unit: Unit) -> None:
        specs = (group.health for group in unit.live.groups.values())
        self._least = min([self._least, *(each.unknowns for each in specs if each is not None)])
        for incident, before, now in self._course.passed:
            if before not in _CHECKED or now not in _HEALING or not incident.checks:
                continue
            if incident.confirmed or self._why(incident) in _AWAY:
                continue  # the hardware, or a check, said that there is a fault
            if self.decided_at(incident, "check") >= incident.checks[-1].at:
                continue
            last = incident.checks[-self._least :]
            results = [self._result(incident, each.session) for each in last]
            self.expect(
                results[-1] is CheckResult.FAULTY
                or (len(results) == self._least and CheckResult.HEALTHY not in results),
                f"{incident.agent} is {now} after {results}",
            )

    def _why(self, incident: Incident) -> ReasonCode:
        return (incident.reason or incident.why).code

    def _result(self, incident: Incident, session: SessionId) -> CheckResult:
        answer = self._course.answer(incident, session)
        return CheckResult.UNKNOWN if answer is None else answer.result


class VerdictsAreTrue(_OfIncidents):
    """Of each check that the machine carried out to its end; one that was cut short is unknown."""

    says = "what a check said is what counts of it"

    def committed(self, unit: Unit) -> None:
        for incident in unit.touched[Incident]:
            if self._course.machine(incident.agent_id) is None:
                continue  # it was replaced by another
            for record in incident.checks[-1:]:
                answer = self._course.answer(incident, record.session)
                said = None if answer is None else answer.result
                self.expect(
                    record.result in (said, CheckResult.UNKNOWN),
                    f"{incident.agent} said {said}, and {record.result} counts",
                )


class IllTakeNoWork(Invariant):
    """Machines that were out of work before the latest commit and are so still."""

    says = "no work is placed on a machine that is out of work for its health"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._placed = judge.of(Placed)
        self._known: set[LedgerKey] = set()
        self._ill: set[AgentId] = set()

    def committed(self, unit: Unit) -> None:
        live, known = unit.live, self._known
        ill = {each.agent_id for each in _live(live) if each.is_out}
        self._known = {*live.ledger}
        for key in self._known - known:
            on = live.ledger[key].agent_id
            session = self._placed.session_of.get(key[0])
            if session is not None and session.service is None:
                self.expect(on not in ill & self._ill, f"{key} was placed on {on}, which is out")
        self._ill = ill


class OutcomesAreFresh(_OfIncidents):
    """A refusal of a hollow rebooter names the generation that it refused. Outcomes are of effects
    that were committed, so it is judged by the generation of the commit before."""

    says = "the outcome of an older reboot changes nothing"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._generations: dict[IncidentId, int] = {}
        self._told: dict[IncidentId, str] = {}

    def committed(self, unit: Unit) -> None:
        for incident in unit.touched[Incident]:
            told = "" if incident.reason is None else incident.reason.sentence()
            refused = REFUSED.search(told)
            before = self._generations.get(incident.id)
            if refused is not None and told != self._told.get(incident.id) and before is not None:
                self.expect(
                    int(refused[1]) == before,
                    f"{incident.agent} in generation {before}: {told}",
                )
            self._generations[incident.id] = incident.generation
            self._told[incident.id] = told


class OperatorsOutrank(_OfIncidents):
    says = "what was isolated stays so until an operator decides again"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._isolated_at: dict[IncidentId, float] = {}

    def committed(self, unit: Unit) -> None:
        for incident, before, now in self._course.passed:
            if now is HealthStatus.ISOLATED:
                self._isolated_at[incident.id] = unit.now
            elif before is HealthStatus.ISOLATED and now not in _STAYS:
                self.expect(
                    self.decided_at(incident, "isolate") >= self._isolated_at[incident.id],
                    f"{incident.agent} is {now} by itself",
                )


def _live(live: Live) -> Iterator[Incident]:
    return (each for each in live.of(Incident).values() if each.status in HEALTH_TABLE.live)


def most_out(live: Live, name: str) -> int | None:
    """How many machines of a group may be out of work; None where nobody says so any more."""
    group = live.groups.get(name)
    if group is None or group.health is None:
        return None
    there = [
        each
        for each in live.agents.values()
        if each.group == name and each.status is not AgentStatus.REMOVED
    ]
    return max(1, int(group.health.max_unhealthy * len(there)))


INVARIANTS = [
    NothingBesideServices,
    OneIncident,
    OutForCause,
    IncidentsEnd,
    RoundsAreBounded,
    ShareHolds,
    NoTurnNoHeal,
    HealthyOnceVerified,
    RebootsAreNewBoots,
    UnknownIsNotFaulty,
    VerdictsAreTrue,
    IllTakeNoWork,
    OutcomesAreFresh,
    OperatorsOutrank,
]
