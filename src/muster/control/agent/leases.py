"""The book of leases: which agents' leases may be renewed and for how long, and the ends granted so
far (design: Leases).

The book is the one part of control that another thread uses: the gateway answers heartbeats from
it, so that neither a slow pass nor a full disk costs work its lease. Control publishes in it, after
the commit, the terms that may be granted, and looks into it at the moment when it judges an agent.
"""

import math
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeVar

from muster.control.agent.gpu_counters import GpuCounterBook
from muster.core.clock import Clock, ClockWords
from muster.core.ids import AgentId, system_boot
from muster.core.specs import ScalingGroup
from muster.core.states import AgentStatus
from muster.store.records import Agent
from muster.wire.messages import Heartbeat, Hello, Occupied, Overtaken, Renew

DEFAULT_TERM_S = 300.0
LEASE_MARGIN_S = 15.0
"""Added to the end of a lease before its kernels count as stopped: they have up to ten seconds of
grace (the supervisor's LEASE_GRACE_MAX_S), and two clocks may run at different speeds."""

IN_CHARGE_S = 900.0
"""How long a controller that cannot ask a database server whether it is still in charge goes on
renewing leases: longer than most outages, which would else end the work of a whole cluster. Whoever
takes its place, and has no proof that it is gone, waits for all that it may have renewed so."""

HEARTBEATS_A_TERM = 3
_GRANTS_KEPT = 8
_SAMPLES_KEPT = 8
_BOOTS_KEPT = 8
_DRIFT = 0.001
"""How much faster one machine's clock may run than another's, at most, as a part of 1."""

T = TypeVar("T")
_Incarnation = tuple[str, str]
"""The boot and the directory to which an agent's kernels belong."""


@dataclass(slots=True)
class _Grant:
    """A renewal of a lease. ``sent_s`` is the moment on the agent's boot clock that it answered,
    ``at`` the moment by the controller's clock when it was granted, ``until`` its latest end."""

    sent_s: float
    at: float
    until: float
    heartbeat_s: float


@dataclass(slots=True)
class _Lease:
    """The lease of one agent. ``incarnation`` is the committed one, ``admitted`` the current
    stream's. ``spoke_at`` is when the agent last spoke, ``heard_at`` the same moment, but no
    earlier than this controller's start: nobody listened before. ``silent_since`` is when it last
    spoke before it said Hello.

    ``grants`` are the renewals that may be in force on the agent: its heartbeats tell which one is,
    and earlier renewals are void. ``former_until`` is the latest end of those that the agent may
    have from a former controller. It may go back to one that still renews leases, so only a renewal
    from after that time shows that it has none.

    ``known_boot`` is the boot in which an earlier controller heard it, and when its clock was 0,
    ``booted_at`` the same as this controller heard it; ``proven_s`` and ``told_s`` are its words
    about the controller's time (``ClockWords``). ``gone`` says that it ran in another boot of the
    controller's own machine.
    """

    heard_at: float
    spoke_at: float
    silent_since: float = -math.inf
    grants: deque[_Grant] = field(default_factory=deque)
    former_until: float = -math.inf
    incarnation: _Incarnation = ("", "")
    admitted: _Incarnation = ("", "")
    hello_s: float = -math.inf
    beside: bool = False
    former_boots: deque[str] = field(default_factory=lambda: deque(maxlen=_BOOTS_KEPT))
    term_s: float = 0.0  # of a renewal; 0 grants none
    heartbeat_s: float = 0.0
    silence_s: float = 0.0
    known_boot: tuple[str, float] = ("", 0.0)
    booted_at: float | None = None
    proven_s: float | None = None
    told_s: float | None = None
    gone: bool = False
    offsets_s: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES_KEPT))


class LeaseBook:
    """The wire's Leases; safe to use from any thread.

    Args:
        clock: the controller's.
        boot_id: of the controller's machine. An agent of the same boot (``core.ids.system_boot``)
            that talks over the loopback interface cannot be cut off from the controller, only be
            without a controller.
        machine: the id of that machine; empty if it has none. Agents that ran there in another
            boot are proven gone, whatever their leases and the time of day say.
        in_charge_s: how long leases are renewed after the controller was last known to be in
            charge; endless where a lock keeps others from its database.
        former_in_charge_s: how long from now the controller before this one may renew leases.
    """

    def __init__(
        self,
        clock: Clock,
        boot_id: str = "",
        machine: str = "",
        in_charge_s: float = math.inf,
        former_in_charge_s: float = 0.0,
    ) -> None:
        self._clock = clock
        self._in_charge_s = in_charge_s
        self._in_charge_boot_s = clock.boot_s()
        self._former_until = clock.now() + former_in_charge_s
        self.counters = GpuCounterBook()
        self._boot_id = boot_id
        self.machine = machine
        self._lock = Lock()
        self._leases: dict[AgentId, _Lease] = {}
        self._news: dict[AgentId, _Lease] = {}  # heard since ``take_news``
        self._expected_until: dict[AgentId, float] = {}  # of agents that are being started

    # The gateway's side

    def admit(self, hello: Hello, *, beside: bool) -> Renew | None:
        """See ``wire.messages.Leases``."""
        with self._lock:
            lease = self._leases.get(hello.agent)
            if lease is None:
                return None  # the agent was removed; control will tell it so
            now = self._clock.now()
            self._note_clocks(lease, hello, now)
            incarnation = (hello.boot_id, hello.instance)
            if incarnation == lease.admitted:
                if hello.sent_s < lease.hello_s:
                    raise Overtaken("a newer stream of this agent is there")
            else:
                self._replace(lease, hello, now)
            if incarnation == lease.incarnation or incarnation != lease.admitted:
                lease.silent_since = lease.spoke_at
            # Otherwise control has not heard a Hello of this boot.
            lease.admitted, lease.hello_s = incarnation, hello.sent_s
            is_here = bool(self._boot_id) and system_boot(hello.boot_id) == self._boot_id
            lease.beside = beside and is_here
            self._note(hello.agent, lease, now, hello.time_s)
            return self._grant(lease, hello.sent_s, now)

    def _note_clocks(self, lease: _Lease, hello: Hello, now: float) -> None:
        """Note the agent's clocks; an agent that is not admitted has them too."""
        boot, booted_at = lease.known_boot
        if hello.sent_s:
            lease.booted_at = now - hello.sent_s
            if booted_at and boot == hello.boot_id:
                lease.proven_s = booted_at - lease.booted_at
        if hello.time_s and system_boot(hello.boot_id) != self._boot_id:
            lease.told_s = hello.time_s - now

    def _replace(self, lease: _Lease, hello: Hello, now: float) -> None:
        """Let the agent speak from another boot or directory than before. A boot that began after
        the former boot was last heard is a later boot of the same machine, which proves the former
        boot's kernels gone.

        Raises:
            Occupied: its former self may be alive.
            Overtaken: the former boot is the newer one.
        """
        former_boot = lease.admitted[0]
        if not former_boot:
            return
        if hello.boot_id in lease.former_boots:
            raise Overtaken("this machine has booted again since")
        rebooted = hello.boot_id != former_boot
        booted_at = now - hello.sent_s * (1 - _DRIFT)
        if not (rebooted and booted_at >= lease.spoke_at):
            free_at = max(lease.heard_at + lease.silence_s, _until(lease) + LEASE_MARGIN_S)
            if now < free_at:
                raise Occupied(
                    f"an agent on another {'machine' if rebooted else 'directory'} has the same "
                    f"credential, was heard {max(0.0, now - lease.heard_at):.0f} s ago and may run "
                    f"kernels: stop one of the two; if both are wanted, remove this one's "
                    f"credential.json and start it with a join token and another --name; if the "
                    f"first is gone for good, have an administrator run `muster agents remove "
                    f"--lost {hello.name}`"
                )
        if rebooted:
            lease.former_boots.append(former_boot)

    def renew(self, agent: AgentId, heartbeat: Heartbeat) -> Renew | None:
        """See ``wire.messages.Leases``."""
        with self._lock:
            lease = self._leases.get(agent)
            if lease is None:
                return None
            now = self._clock.now()
            self._note(agent, lease, now, heartbeat.time_s)
            if heartbeat.gpus:
                self.counters.put(agent, heartbeat.gpus, now)
            grants = lease.grants
            if any(grant.sent_s == heartbeat.renewed_s for grant in grants):
                while grants[0].sent_s != heartbeat.renewed_s:
                    grants.popleft()
                if grants[0].at >= self._former_until:
                    lease.former_until = -math.inf
            return self._grant(lease, heartbeat.sent_s, now)

    def heard(self, agent: AgentId) -> None:
        """See ``wire.messages.Leases``."""
        with self._lock:
            if (lease := self._leases.get(agent)) is not None:
                self._note(agent, lease, self._clock.now(), None)

    def _note(self, agent: AgentId, lease: _Lease, now: float, time_s: float | None) -> None:
        lease.heard_at = lease.spoke_at = now
        self._expected_until.pop(agent, None)
        if time_s is not None:
            lease.offsets_s.append(now - time_s)
        self._news[agent] = lease

    def _grant(self, lease: _Lease, sent_s: float, now: float) -> Renew | None:
        if not lease.term_s or lease.admitted != lease.incarnation:
            return None
        if self._clock.boot_s() >= self._in_charge_boot_s + self._in_charge_s:
            return None  # another controller may wait for the ends of leases
        grants = lease.grants
        grants.append(_Grant(sent_s, now, now + lease.term_s, lease.heartbeat_s))
        if len(grants) > _GRANTS_KEPT:  # for long the agent has not told which one is in force
            oldest, second = grants.popleft(), grants[0]
            second.until = max(second.until, oldest.until)
            second.heartbeat_s = max(second.heartbeat_s, oldest.heartbeat_s)
        return Renew(sent_s, lease.term_s, lease.heartbeat_s)

    # Control's side

    def publish(self, agent: Agent, group: ScalingGroup) -> None:
        """Take over the committed agent; from now on it may be granted ``agent.term_s``."""
        with self._lock:
            if agent.status is AgentStatus.REMOVED:
                self._leases.pop(agent.id, None)
                self._expected_until.pop(agent.id, None)
                return
            lease = self._leases.get(agent.id)
            incarnation = (agent.boot_id, agent.instance)
            if lease is None:
                now = self._clock.now()
                is_own = agent.machine == self.machine != ""
                gone = is_own and system_boot(agent.boot_id) != self._boot_id
                admitted = ("", "") if gone else incarnation
                lease = _Lease(now, agent.seen_at, incarnation=incarnation, admitted=admitted)
                lease.known_boot, lease.gone = (agent.boot_id, agent.booted_at), gone
                self._leases[agent.id] = lease
                if agent.lease_s and not gone:
                    lease.former_until = max(now, self._former_until) + agent.lease_s
            if incarnation != lease.incarnation:  # its kernels are proven gone, and its leases
                lease.incarnation = incarnation
                _end(lease)
            lease.term_s = 0.0 if agent.status is AgentStatus.LOST else agent.term_s
            lease.silence_s = group.agent_silence
            lease.heartbeat_s = min(group.agent_silence, agent.term_s) / HEARTBEATS_A_TERM

    def clock_words(self) -> ClockWords:
        """The evidence of agents about the controller's time. Those that this controller is to
        start itself are not waited for."""
        with self._lock:
            leases = list(self._leases.values())
            elsewhere = [
                lease for id_, lease in self._leases.items() if id_ not in self._expected_until
            ]
        proven = [each.proven_s for each in leases if each.proven_s is not None]
        told = [each.told_s for each in leases if each.told_s is not None]
        awaited = [
            each for each in elsewhere if each.booted_at is None and each.term_s and not each.gone
        ]
        return ClockWords(proven, told, len(awaited))

    def advance(self, by_s: float, set_clock: Callable[[], None]) -> None:
        """Have the controller's time go ahead by ``by_s``, which ``set_clock`` does: what was heard
        and granted since the controller started keeps its distance from now."""
        with self._lock:
            set_clock()
            self._former_until += by_s
            for agent in self._expected_until:
                self._expected_until[agent] += by_s
            for lease in self._leases.values():
                if lease.spoke_at == lease.heard_at:
                    lease.spoke_at += by_s
                lease.heard_at += by_s
                lease.former_until += by_s
                if lease.booted_at is not None:
                    lease.booted_at += by_s
                for grant in lease.grants:
                    grant.at += by_s
                    grant.until += by_s
                shifted = [offset_s + by_s for offset_s in lease.offsets_s]
                lease.offsets_s = deque(shifted, maxlen=_SAMPLES_KEPT)

    def booted_at(self, agent: AgentId) -> float | None:
        """When the boot clock of an agent was 0, by this controller's time; None if not known."""
        return self._read(agent, lambda lease: lease.booted_at, None)

    def confirm_charge(self, boot_s: float) -> None:
        """Take note that the controller was in charge at a moment of its boot clock, which goes on
        while its machine is suspended: nobody had taken the fence by then."""
        with self._lock:
            self._in_charge_boot_s = max(self._in_charge_boot_s, boot_s)

    def is_in_charge(self, lately_s: float) -> bool:
        """Whether the controller was known to be in charge within so many seconds, or a lock keeps
        others from its database."""
        if math.isinf(self._in_charge_s):
            return True
        with self._lock:
            return self._clock.boot_s() < self._in_charge_boot_s + lately_s

    def forget_all_but(self, agents: Collection[AgentId]) -> None:
        """Grant leases to these agents alone, because no others exist."""
        with self._lock:
            for gone in [agent for agent in self._leases if agent not in agents]:
                del self._leases[gone]

    def answer(self, agent: AgentId, sent_s: float) -> Renew | None:
        """The renewal that answers a Hello that control has heard."""
        with self._lock:
            lease = self._leases.get(agent)
            return None if lease is None else self._grant(lease, sent_s, self._clock.now())

    def take_news(self) -> dict[AgentId, tuple[float, float]]:
        """The agents heard since the last call: when, and by how many seconds at most the
        controller's clock is ahead of the agent's; a delay looks like a difference."""
        with self._lock:
            news, self._news = self._news, {}
            return {
                agent: (lease.heard_at, min(lease.offsets_s, default=0.0))
                for agent, lease in news.items()
            }

    def is_endless(self, agent: AgentId) -> bool:
        """Whether the agent may have a lease without an end."""
        return self.until(agent) == math.inf

    def is_beside(self, agent: AgentId) -> bool:
        """Whether the agent runs on the controller's own machine."""
        return self._read(agent, lambda lease: lease.beside, False)

    def heard_at(self, agent: AgentId) -> float:
        return self._read(agent, lambda lease: lease.heard_at, -math.inf)

    def unheard_s(self, agent: AgentId) -> float:
        """How long the agent had been silent when this controller started; 0 once it was heard
        since."""
        return self._read(agent, lambda lease: lease.heard_at - lease.spoke_at, 0.0)

    def silent_since(self, agent: AgentId) -> float:
        """When the agent was heard last before it said Hello."""
        return self._read(agent, lambda lease: lease.silent_since, -math.inf)

    def until(self, agent: AgentId) -> float:
        """When the last lease ends that may be in force on the agent."""
        return self._read(agent, _until, -math.inf)

    def pace_s(self, agent: AgentId) -> float:
        """The longest time between two heartbeats of the agent."""
        return self._read(agent, _pace_s, 0.0)

    def end(self, agent: AgentId) -> None:
        """End all leases of the agent, whose kernels are proven gone."""
        with self._lock:
            if (lease := self._leases.get(agent)) is not None:
                _end(lease)

    def expect(self, agents: Collection[AgentId], within_s: float) -> None:
        """Have these agents count as lost no earlier than in ``within_s``, unless they are heard
        before: they are being started, and their supervisors' journals may have ends of kernels
        that nobody has heard of yet."""
        with self._lock:
            until = self._clock.now() + within_s
            for agent in agents:
                known = self._expected_until.get(agent, -math.inf)
                self._expected_until[agent] = max(known, until)

    def revoke(self, agent: AgentId) -> bool:
        """If all leases of the agent have ended, and its kernels with them, grant it no more
        leases; the answer says whether that is so. It is not so yet while the agent is expected."""
        with self._lock:
            lease = self._leases.get(agent)
            if lease is None:
                return True
            now = self._clock.now()
            if now < _until(lease) + LEASE_MARGIN_S:
                return False
            if now < self._expected_until.get(agent, -math.inf):
                return False
            lease.term_s = 0.0
            return True

    def _read(self, agent: AgentId, look: Callable[[_Lease], T], default: T) -> T:
        with self._lock:
            lease = self._leases.get(agent)
            return default if lease is None else look(lease)


def _end(lease: _Lease) -> None:
    lease.grants.clear()
    lease.former_until = -math.inf


def _until(lease: _Lease) -> float:
    return max([lease.former_until, *(grant.until for grant in lease.grants)])


def _pace_s(lease: _Lease) -> float:
    return max((grant.heartbeat_s for grant in lease.grants), default=0.0)
