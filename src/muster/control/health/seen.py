"""Suspicion without being asked: what agents see of their own health, and jobs that fail in a row
on a machine (design: Machine health).

An agent is believed about itself alone. It is told of nothing twice, a device that it does not have
is nobody's, and what it saw in an earlier boot asks for a look and no more.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from muster.control.engine.handler import FollowingHandler, Stage
from muster.control.engine.work import Work
from muster.control.health.failing_jobs import FailingJobs, WorkEnd
from muster.control.health.incidents import Incidents
from muster.control.health.lifecycle import IncidentLifecycle
from muster.core.health.remedy import Remedy
from muster.core.ids import AgentId
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_health import HealthFaultSeen
from muster.core.states import SESSION_TABLE
from muster.core.text import count
from muster.store.records import Agent, Kernel, Session
from muster.wire.messages import HealthSeen, Sighting

PHASE = "SeeHealth"
LOOK_AGAIN_S = 3600.0
"""Seconds after which a machine is looked at again for something of which nobody says that it is a
fault: programs can provoke such errors, too."""
MOST_A_DAY = 6
DAY_S = 86_400.0
"""So often a machine is healed for what it sees of itself, within a day; then it is an operator's
affair."""
_OWN_ENDS = frozenset({ReasonCode.EXITED, ReasonCode.SIGNALED})
_GRAVEST_FIRST = tuple(reversed(Remedy))


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A suspicion of a machine.

    Args:
        devices: indexes of GPUs; all of the machine if empty.
        confirmed: whether the hardware itself tells of a fault.
        what: a sentence without its full stop, which names no job.
    """

    remedy: Remedy
    devices: tuple[int, ...]
    confirmed: bool
    what: str


def suspicions(
    sightings: Iterable[Sighting], boot_id: str, indexes: Collection[int]
) -> Sequence[Suspicion]:
    """The suspicions that sightings of one machine lead to, one for each remedy, the gravest first.

    Args:
        boot_id: of the machine's present boot.
        indexes: of the devices that it has.
    """
    found: dict[Remedy, list[Suspicion]] = {}
    for each in sightings:
        if each.boot_id != boot_id:  # its numbers of devices were others, and it has rebooted
            what = f"before its last reboot: {each.what}"
            now = Suspicion(Remedy.CHECK, (), False, what)
        else:
            devices = tuple(sorted(set(each.devices).intersection(indexes)))
            if each.devices and not devices:
                continue
            now = Suspicion(each.remedy, devices, each.confirmed, each.what)
        found.setdefault(now.remedy, []).append(now)
    return [_merged(found[remedy]) for remedy in _GRAVEST_FIRST if remedy in found]


def _merged(alike: Sequence[Suspicion]) -> Suspicion:
    whole = any(not each.devices for each in alike)
    devices = () if whole else tuple(sorted({index for each in alike for index in each.devices}))
    first = next((each for each in alike if each.confirmed), alike[0])
    more = len({each.what for each in alike}) - 1
    what = f"{first.what}; and {count(more, 'more sighting')}" if more else first.what
    return Suspicion(first.remedy, devices, first.confirmed, what)


@dataclass(slots=True)
class _Known:
    """The knowledge of one agent.

    Args:
        seq: the number of its last sighting that was heard.
        looked_at: when it was last suspected for nothing that is known to be a fault.
        suspected_at: when its sightings began incidents.
    """

    seq: int = 0
    looked_at: float | None = None
    suspected_at: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_A_DAY))


class SeenMemory:
    """The sightings of each agent, and the jobs that failed there. They live as long as the plane,
    and a restart forgets them: what an agent repeats then is added to its incident."""

    def __init__(self) -> None:
        self.failing = FailingJobs()
        self._known: dict[AgentId, _Known] = {}

    def of(self, work: Work, agent: AgentId) -> _Known:
        """The knowledge of an agent, with what this wake learns of it. It counts once the wake is
        committed."""
        learnt = work.once(_learnt)
        if agent not in learnt:
            known = self._known.get(agent) or _Known()
            suspected_at = deque(known.suspected_at, MOST_A_DAY)
            learnt[agent] = _Known(known.seq, known.looked_at, suspected_at)
        return learnt[agent]

    def committed(self, work: Work) -> None:
        self._known |= work.once(_learnt)

    def sweep(self, agents: Collection[AgentId], now: float) -> None:
        """Forget agents that are no more, and old failures."""
        self._known = {id_: known for id_, known in self._known.items() if id_ in agents}
        self.failing.forget(now)


def _learnt() -> dict[AgentId, _Known]:
    """The facts that the wake has learnt of agents."""
    return {}


class SeenHealth:
    """Has machines suspected."""

    def __init__(
        self, memory: SeenMemory, incidents: Incidents, lifecycle: IncidentLifecycle
    ) -> None:
        self.memory = memory
        self._incidents = incidents
        self._lifecycle = lifecycle

    def hear(self, work: Work, agent: Agent, seen: HealthSeen) -> None:
        """Hear what an agent saw of its own health. What was heard before changes nothing."""
        known = self.memory.of(work, agent.id)
        news = [each for each in seen.sightings if each.seq > known.seq]
        if not news:
            return
        known.seq = news[-1].seq
        if is_passive(work, agent):
            for each in suspicions(news, agent.boot_id, {device.index for device in agent.devices}):
                self.suspect(work, agent, each)

    def suspect(self, work: Work, agent: Agent, suspicion: Suspicion) -> None:
        """Suspect a machine, unless nothing new can come of it."""
        known = self.memory.of(work, agent.id)
        has_one = self._incidents.of(agent.id) is not None
        remedy, confirmed, what = suspicion.remedy, suspicion.confirmed, suspicion.what
        if remedy is Remedy.CHECK and not confirmed:
            late = known.looked_at is None or work.now >= known.looked_at + LOOK_AGAIN_S
            if has_one or not late:
                return
            known.looked_at = work.now
        elif not has_one:
            times = known.suspected_at
            if len(times) == MOST_A_DAY and times[0] > work.now - DAY_S:
                remedy, confirmed = Remedy.OPERATOR, True
                what = f"{what}; it was healed {MOST_A_DAY} times within a day, and it did not last"
            times.append(work.now)
        why = HealthFaultSeen(what=what)
        self._lifecycle.suspect(
            work,
            agent,
            PHASE,
            why,
            devices=suspicion.devices,
            remedy=remedy,
            confirmed=confirmed,
        )


def is_passive(work: Work, agent: Agent) -> bool:
    """Whether machines of the agent's group are suspected for what is seen."""
    health = work.live.groups[agent.group].health
    return health is not None and health.passive


class SuspectFailing(FollowingHandler[Session]):
    """Suspects the machine on which jobs fail one after the other."""

    name = "SuspectFailing"
    stage = Stage.SETTLE
    entity = Session
    statuses = frozenset(SESSION_TABLE.terminal)

    def __init__(self, seen: SeenHealth) -> None:
        self._seen = seen

    def follow(self, record: Session, work: Work) -> None:
        end = end_of(record, work.now)
        agent = None if end is None else work.live.agents.get(end.agent)
        if end is None or agent is None or not is_passive(work, agent):
            return
        counted = work.once(_counted)
        if record.id in counted:  # a later pass of the wake sees the end again
            return
        counted.add(record.id)
        failures = self._seen.memory.failing.ended(end)
        if failures is not None:
            what = (
                f"{count(failures.jobs, 'job')} of {count(failures.users, 'user')} failed on it "
                f"one after the other"
            )
            what += ", each as soon as it began" if failures.at_once else ""
            self._seen.suspect(work, agent, Suspicion(Remedy.CHECK, (), False, what))


def _counted() -> set[str]:
    """The ids of sessions whose end was counted in this wake."""
    return set()


def end_of(session: Session, now: float) -> WorkEnd | None:
    """The end of a session for the machine that it was on; None where it tells nothing of one: it
    had several machines, did not run, was ended by others, or was no work."""
    kernels: Sequence[Kernel] = session.kernels
    first = kernels[0] if kernels else None
    if first is None or first.agent_id is None or session.service is not None:
        return None
    if any(each.agent_id != first.agent_id for each in kernels):
        return None
    failed = not all(each.ended_well for each in kernels)
    if failed and not any(_failed_itself(each) for each in kernels):
        return None
    owner = session.owner
    job = session.id if session.job is None else session.job.id
    ran = [each.ended_at - each.started_at for each in kernels if each.started_at and each.ended_at]
    user = owner.domain, owner.user
    return WorkEnd(first.agent_id, user, job, failed, now, max(ran, default=0.0))


def _failed_itself(kernel: Kernel) -> bool:
    """Whether a kernel ended wrongly by its own doing, with nobody telling it to."""
    ran = kernel.started_at is not None and kernel.stop_sent_at is None
    by_itself = kernel.reason is None or kernel.reason.code in _OWN_ENDS
    return ran and by_itself and bool(kernel.exit_code or kernel.signal)
