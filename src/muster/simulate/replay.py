"""A trace replayed against a cluster and a policy, in virtual time.

The decisions are the real ones: those of a ``GroupState``, which control keeps for each group too.
The time between a decision and a running kernel is left out: a session runs as soon as it is
placed, and its room is free as soon as it ends; the machines of a new slice take work after a time
that is given. Nothing is random, and a clock is read only to measure the passes: equal input gives
equal output.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from muster.core.errors import MusterError
from muster.core.ids import AgentId, IdKind, SessionId
from muster.core.reasons import Reason
from muster.core.reasons.of_sessions import PreemptedForGood, SchedulingTimeout
from muster.core.resources import Resources
from muster.core.specs import SessionType
from muster.core.specs.group import PreemptionMode
from muster.scheduling.accounting.usage import Accounting, Quotas
from muster.scheduling.cluster.snapshot import AgentFacts, Snapshot
from muster.scheduling.making_room.preemption import Preemption
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.passes.pass_result import WAITS_FOR_ROOM, PassResult
from muster.scheduling.passes.placement import never_fits
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.validators import (
    NEVER,
    access_refusal,
    next_moment,
    refusals_at_submission,
)
from muster.scheduling.workload import Classes, SessionWorkload, WorkloadClass
from muster.simulate.cluster_file import ClusterAgent
from muster.simulate.measures import Gauge
from muster.simulate.policy_file import NamedPolicy
from muster.simulate.recording import RecordedState, Recording, SessionFate
from muster.simulate.slices import Slices
from muster.simulate.trace import TraceSession

BOOT_S = 120.0
"""From the wish for a slice until its machines take work, where nothing else is said."""
SAMPLES = 200
"""Measurements of the whole cluster, at most. Each session makes two moments at which one can be
taken: its submission and its end."""


def replay(
    trace: Sequence[TraceSession],
    agents: Sequence[ClusterAgent],
    policy: NamedPolicy,
    *,
    speed_up: float = 1.0,
    ends_known: bool = False,
    boot_s: float = BOOT_S,
    progress: Callable[[int], None] = lambda done: None,
) -> Recording:
    """Run the whole trace.

    Args:
        trace: in any order; time begins with the earliest session.
        speed_up: sessions come so many times as fast; their durations stay.
        ends_known: whether the scheduler is told how long each session will run; else it knows the
            limits in the trace, if any.
        boot_s: from the wish for a slice until its machines take work.
        progress: called now and then with the number of sessions submitted so far.

    Raises:
        MusterError: a part of the policy is not known or fails, or no session could ever start.
    """
    arrivals = _arrivals(trace, policy.group.name, speed_up, ends_known)
    if not agents and not policy.pools:
        raise MusterError(
            f"policy {policy.name} has no machines: name a cluster with --cluster, or write a "
            f"`kind: pool` into the policy's file"
        )
    world = _World(agents, policy, 2 * len(arrivals) // SAMPLES + 1, boot_s)
    recording = world.run(arrivals, progress)
    if recording.fates and not recording.placements:
        why = next((each for fate in recording.fates for each in fate.reasons), None)
        told = f": {why.sentence()}" if why is not None else ""
        raise MusterError(
            f"none of the {len(recording.fates):,} sessions ever starts on this cluster under "
            f"policy {policy.name}{told}"
        )
    return recording


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A session of the trace in the time of the replay."""

    at: float
    name: str
    runs_s: float
    workload: WorkloadClass


def _arrivals(
    trace: Sequence[TraceSession], group: str, speed_up: float, ends_known: bool
) -> list[_Arrival]:
    """Sessions in the order of submission; sessions of one moment in the order of the trace."""
    if not trace:
        raise MusterError("the trace has no sessions")
    classes = Classes()
    first = min(each.submit_at_s for each in trace)
    arrivals = []
    for each in sorted(trace, key=lambda each: each.submit_at_s):
        workload = WorkloadClass(
            each.owner,
            group,
            each.priority,
            each.kernels,
            SessionType.BATCH,
            duration_s=each.duration_s if ends_known else each.limit_s,
            not_before=_in_replay(each.not_before_s, first, speed_up),
        )
        at = (each.submit_at_s - first) / speed_up
        arrivals.append(_Arrival(at, each.name, each.duration_s, classes.one(workload)))
    return arrivals


def _in_replay(at_s: float | None, first_s: float, speed_up: float) -> float | None:
    return None if at_s is None else (at_s - first_s) / speed_up


class _World:
    """A scaling group in virtual time."""

    def __init__(
        self,
        agents: Sequence[ClusterAgent],
        named: NamedPolicy,
        sampled_every: int,
        boot_s: float,
    ) -> None:
        self._group = named.group
        accounting = Accounting(quotas=Quotas(named.quotas))
        self._state = GroupState(Snapshot(named.group.name), Policy.of(named.group), accounting)
        for number, agent in enumerate(agents):
            self._state.set_agent(_facts(number, agent))
        self._runs_s: dict[SessionId, float] = {}
        self._fates: dict[SessionId, SessionFate] = {}
        self._ends: list[tuple[float, int, SessionId]] = []  # a heap; by number of the placement
        self._placement_of: dict[SessionId, int] = {}
        self._moments: list[float] = []  # a heap: when something changes by time alone
        self._expiries: list[tuple[float, SessionId]] = []  # a heap
        self._expires_at: dict[SessionId, float] = {}  # of its last wait
        self._never: dict[tuple[Resources, ...], list[Reason]] = {}
        self._held: Counter[str] = Counter()
        self._now = 0.0
        self._capacity = capacity = _total(agents)
        self._slices = Slices(named, self._state, capacity, boot_s)
        self._gauge = Gauge(self._state.snapshot, accounting.usage, capacity, sampled_every)
        self.recording = Recording(named, pools=self._slices.uses)

    def run(self, arrivals: Sequence[_Arrival], progress: Callable[[int], None]) -> Recording:
        """Run from the first submission until nothing happens any more."""
        recording, submitted = self.recording, 0
        while True:
            self._now = now = self._next(arrivals, submitted)
            if now == _NEVER:
                break
            self._end_due()
            while submitted < len(arrivals) and arrivals[submitted].at <= now:
                self._submit(arrivals[submitted], submitted)
                submitted += 1
            self._expire_due()
            while self._moments and self._moments[0] <= now:
                heapq.heappop(self._moments)
            self._slices.join(now)
            while self._state.waiting and self._pass():
                pass  # victims have left: their room is given away at the same moment
            self._slices.look(now)
            recording.moments.append(self._moment())
            self._gauge.look(now)
            progress(submitted)
        self._slices.finish(recording.moments[-1].at)
        self._leave_waiting()
        recording.fates = list(self._fates.values())
        recording.samples = self._gauge.samples
        recording.window = _window(arrivals, recording.moments[-1].at)
        return recording

    def _next(self, arrivals: Sequence[_Arrival], submitted: int) -> float:
        """The moment of the next event."""
        while self._ends and self._placement_of.get(self._ends[0][2]) != self._ends[0][1]:
            heapq.heappop(self._ends)  # displaced before its end
        while self._expiries and not self._expires(*self._expiries[0]):
            heapq.heappop(self._expiries)
        return min(
            arrivals[submitted].at if submitted < len(arrivals) else _NEVER,
            self._ends[0][0] if self._ends else _NEVER,
            self._moments[0] if self._moments else _NEVER,
            self._expiries[0][0] if self._expiries else _NEVER,
            self._slices.next_at,
        )

    def _moment(self) -> RecordedState:
        held, capacity = self._held, self._capacity
        return RecordedState(
            self._now,
            held["gpu"],
            held["cpu"],
            self._state.waiting,
            capacity["gpu"],
            capacity["cpu"],
            self._slices.counts,
        )

    # Into the queue and out of it

    def _submit(self, arrival: _Arrival, number: int) -> None:
        """Take a session in, as ``control.session.admission`` does."""
        id_ = SessionId(f"{IdKind.SESSION}-{number:09}")
        fate = self._fates[id_] = SessionFate(arrival.name, arrival.at)
        workload = self._state.policy.hooks[arrival.workload.type].on_schedule(arrival.workload)
        self._gauge.arrived(workload)
        refusal = access_refusal(workload.owner, self._group)
        refusals = [refusal] if refusal else self._refusals(workload)
        if refusals:
            fate.reasons = tuple(refusals)
            return
        self._runs_s[id_] = arrival.runs_s
        self._enqueue(id_, workload)
        moment = next_moment(workload, self._now)
        if moment is not None:
            heapq.heappush(self._moments, moment)

    def _refusals(self, workload: WorkloadClass) -> list[Reason]:
        state, accounting = self._state, self._state.accounting
        refusals = refusals_at_submission(workload, accounting.quotas, accounting.usage)
        if not refusals and not self._slices.could_hold(workload):
            if workload.kernels not in self._never:
                never = never_fits(workload, state.snapshot, state.policy)
                of_agents = [never] if never is not None and len(state.snapshot) else []
                of_pools = self._slices.refusals(workload) if never is not None else []
                self._never[workload.kernels] = [*of_agents, *of_pools]
            refusals = self._never[workload.kernels]
        return refusals

    def _enqueue(self, id_: SessionId, workload: WorkloadClass) -> None:
        """Put a session into the queue; a displaced one waits as a new attempt of its task does."""
        self._state.submit(SessionWorkload(id_, self._now, workload))
        if self._group.pending_timeout is not None:
            expires_at = self._expires_at[id_] = self._now + self._group.pending_timeout
            heapq.heappush(self._expiries, (expires_at, id_))

    def _expires(self, at: float, id_: SessionId) -> bool:
        """Whether the session still waits, and has not run since its expiry was scheduled."""
        return self._state.waits(id_) and self._expires_at[id_] == at

    def _expire_due(self) -> None:
        while self._expiries and self._expiries[0][0] <= self._now:
            at, id_ = heapq.heappop(self._expiries)
            if self._expires(at, id_):
                timeout_s = self._group.pending_timeout
                assert timeout_s is not None, "without it nothing expires"
                why = SchedulingTimeout(timeout_s=timeout_s)
                self._refuse(id_, (why,))

    def _refuse(self, id_: SessionId, why: tuple[Reason, ...]) -> None:
        """End the wait of a session."""
        self._fates[id_].reasons = why
        self._state.withdraw(id_)

    def _leave_waiting(self) -> None:
        """Note the sessions that still wait when nothing happens any more."""
        for members in list(self._state.queue.classes):
            for session in list(members):
                self._refuse(session.id, members.reasons)

    # A pass, and what it leads to

    def _pass(self) -> bool:
        """One pass over the queue; whether it displaced sessions, so that there is new room."""
        began = perf_counter()
        result = self._state.run_pass(self._now)
        recording = self.recording
        recording.pass_s += perf_counter() - began
        recording.passes += 1
        recording.decisions += len(result.placed) + len(result.refused)
        self._start(result)
        for members, reasons in result.refused.items():
            never = tuple(each for each in reasons if each.code in NEVER)
            for session in list(members) if never else ():
                self._refuse(session.id, never)
        for preemption in result.displaced:
            self._displace(preemption)
        return bool(result.displaced)

    def _start(self, result: PassResult) -> None:
        state, now = self._state, self._now
        preemption = state.policy.preemption
        for placed in result.placed:
            state.start(placed, now)
        blocked = _first_blocked(result)
        for session, kernels in result.placed:
            id_ = session.id
            self._slices.took(kernels)
            state.progressed(id_, now, running_since=now, leaves_by=None)
            self._held.update(session.workload.total)
            number = self.recording.placements
            self.recording.placements += 1
            self._placement_of[id_] = number
            heapq.heappush(self._ends, (now + self._runs_s[id_], number, id_))
            if preemption is not None and preemption.minimum_lease < self._runs_s[id_]:
                heapq.heappush(self._moments, now + preemption.minimum_lease)
            fate = self._fates[id_]
            if fate.started_at is None:
                fate.started_at = now
                fate.backfilled = blocked is not None and blocked < _rank(session)

    def _end_due(self) -> None:
        while self._ends and self._ends[0][0] <= self._now:
            _, number, id_ = heapq.heappop(self._ends)
            if self._placement_of.get(id_) == number:
                self._leave(id_)
                self._fates[id_].ended_at = self._now

    def _leave(self, id_: SessionId) -> None:
        placed = self._state.placed[id_]
        self._held.subtract(placed.workload.total)
        self._slices.gave_back(placed.kernels.values())
        self._state.end(id_, self._now)
        del self._placement_of[id_]

    def _displace(self, preemption: Preemption) -> None:
        """Have the victims leave at once; they wait to start from the beginning, or are ended."""
        policy = self._state.policy.preemption
        assert policy is not None, "nobody is displaced without it"
        for victim in preemption.victims:
            fate, recording = self._fates[victim.id], self.recording
            self._leave(victim.id)
            fate.preempted += 1
            recording.preemptions += 1
            ran_s = self._now - victim.started_at
            recording.lost_gpu_milli_s += victim.workload.total.get("gpu", 0) * ran_s
            if policy.mode is PreemptionMode.RESCHEDULE:
                self._enqueue(victim.id, victim.workload)
            else:
                fate.reasons = (PreemptedForGood(priority=preemption.priority),)


def _window(arrivals: Sequence[_Arrival], last_end: float) -> tuple[float, float]:
    """The window of ``Recording``. A few early or late sessions must not stretch the time of the
    means: the first percent of the openb trace takes three quarters of its time."""
    margin = len(arrivals) // 100
    first, last = arrivals[margin].at, arrivals[-1 - margin].at
    return (first, last) if first < last else (0.0, last_end)


_NEVER = float("inf")
_Rank = tuple[int, float, str]


def _rank(session: SessionWorkload) -> _Rank:
    """A session's place in the order of arrival, whatever the sequencer says."""
    return -session.workload.priority, session.submitted_at, session.id


def _first_blocked(result: PassResult) -> _Rank | None:
    """The rank of the first waiting session that lacks nothing but room."""
    return min(
        (
            _rank(members.oldest)
            for members, reasons in result.refused.items()
            if len(members) and all(each.code in WAITS_FOR_ROOM for each in reasons)
        ),
        default=None,
    )


def _facts(number: int, agent: ClusterAgent) -> AgentFacts:
    return AgentFacts(
        AgentId(f"{IdKind.AGENT}-{number:06}"),
        agent.name,
        agent.capacity,
        agent.devices,
        accepting=True,
        status="ALIVE",
        attributes=dict(agent.attributes),
    )


def _total(agents: Sequence[ClusterAgent]) -> Counter[str]:
    total: Counter[str] = Counter()
    for agent in agents:
        amounts = replace(agent.capacity, gpu_milli=len(agent.devices) * 1000)
        total.update(amounts.as_dict())
    return total
