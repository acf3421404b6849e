"""The watch for stragglers: GPUs that may hold up the gang that runs on them (design: Machine
health).

It observes only. It is a memory that is bounded by what runs, and a restart forgets it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from muster.control.agent.gpu_counters import GpuCounterBook, Told
from muster.control.engine.work import Work
from muster.core.health.stragglers import (
    LEAST_MEMBERS,
    Place,
    Reading,
    Straggler,
    Streaks,
    continued,
    stragglers,
)
from muster.core.ids import AgentId, JobId, KernelId, SessionId
from muster.core.reasons import Reason
from muster.core.reasons.of_sessions import StragglerSuspected
from muster.core.resources import GPU_WHOLE
from muster.core.results import SchedulingResult
from muster.core.states import KernelStatus, SessionStatus
from muster.core.views.base import ReasonView
from muster.core.views.placement import WhyView
from muster.store.live import Live
from muster.store.records import Kernel, Session

PHASE = "WatchStragglers"
SETTLE_S = 120.0
"""Seconds after a kernel's start in which means may be of what its GPUs did before."""
MOST_TOLD = 4
"""Members of a gang that are told as stragglers in its history, and shown at a time."""


@dataclass(frozen=True, slots=True)
class _Gang:
    """The knowledge of one gang.

    Args:
        told: the members that history tells of.
        heard: when the means of each GPU were told that were looked at last.
        slow: the members that are stragglers now.
    """

    job: JobId | None = None
    streaks: Streaks = field(default_factory=dict)
    told: frozenset[str] = frozenset()
    heard: Mapping[Place, float] = field(default_factory=dict)
    slow: tuple["_Slow", ...] = ()


@dataclass(frozen=True, slots=True)
class _Slow:
    """A member that is a straggler: its machine, a sentence on the GPU that names no work, and the
    reason for those who see the gang."""

    agent: AgentId
    sentence: str
    why: Reason


class StragglerWatch:
    """Compares the members of gangs that run, once a minute, and remembers which are unlike the
    others."""

    def __init__(self) -> None:
        self._counters = GpuCounterBook()
        self._gangs: Mapping[SessionId, _Gang] = {}
        self._on: Mapping[AgentId, tuple[str, ...]] = {}

    def listen(self, counters: GpuCounterBook) -> None:
        """Have the gangs judged by what is told there."""
        self._counters = counters

    def of_session(self, session: SessionId) -> Sequence[Reason]:
        """The reasons for which members of a gang are taken for stragglers now."""
        gang = self._gangs.get(session)
        return [] if gang is None else [each.why for each in gang.slow]

    def of_job(self, job: JobId) -> Sequence[Reason]:
        return [each.why for gang in self._gangs.values() if gang.job == job for each in gang.slow]

    def on(self, agent: AgentId) -> tuple[str, ...]:
        """Sentences on the GPUs of a machine that may hold up gangs; none names work."""
        return self._on.get(agent, ())

    def sweep(self, work: Work) -> None:
        """Look at all gangs of which agents told counters. What is found counts once the wake is
        committed."""
        told = self._counters.newest(work.now)
        work.once(_Found).gangs = {
            session.id: self._looked_at(session, told, work) for session in _gangs(work.live, told)
        }

    def committed(self, work: Work) -> None:
        found = work.once(_Found).gangs
        if found is None:
            return
        on: dict[AgentId, list[str]] = {}
        for gang in found.values():
            for each in gang.slow:
                on.setdefault(each.agent, []).append(each.sentence)
        self._gangs = found
        self._on = {agent: tuple(some) for agent, some in on.items()}

    def _looked_at(self, session: Session, told: Mapping[AgentId, Told], work: Work) -> _Gang:
        before = self._gangs.get(session.id, _Gang())
        readings: list[Reading] = []
        heard: dict[Place, float] = {}
        for kernel in session.kernels:
            for at, reading in _readings(kernel, told, work.live):
                readings.append(reading)
                heard[reading.place] = at
        fresh = {place for place, at in heard.items() if before.heard.get(place) != at}
        streaks = continued(before.streaks, readings, fresh)
        slow = _by_member(stragglers(streaks), session, work.live)
        shown = list(slow.items())[:MOST_TOLD]
        news = {id_: each for id_, each in shown if id_ not in before.told}
        for each in list(news.values())[: max(0, MOST_TOLD - len(before.told))]:
            record = session if session.job is None else session.job
            work.unit.note(record, PHASE, SchedulingResult.SUCCESS, each.why)
        return _Gang(
            None if session.job is None else session.job.id,
            streaks,
            before.told.union(news),
            heard,
            tuple(each for _, each in shown),
        )


@dataclass(slots=True)
class _Found:
    """The gangs as the sweep of this wake has them; None if there was none."""

    gangs: Mapping[SessionId, _Gang] | None = None


def _gangs(live: Live, told: Mapping[AgentId, Told]) -> Sequence[Session]:
    """The gangs that run on these agents."""
    found: dict[SessionId, Session] = {}
    for agent in told:
        for allocation in live.allocations_on.get(agent, {}).values():
            kernel = live.kernels.get(allocation.kernel_id)
            if kernel is None or not allocation.shares:
                continue
            session = kernel.session
            if session.status is SessionStatus.RUNNING and len(session.kernels) >= LEAST_MEMBERS:
                found[session.id] = session
    return list(found.values())


def _readings(
    kernel: Kernel, told: Mapping[AgentId, Told], live: Live
) -> Sequence[tuple[float, Reading]]:
    """The means of the GPUs that a kernel has to itself, and when they were told. An agent is
    believed about its own GPUs alone, and about those only while a kernel holds them."""
    agent = None if kernel.agent_id is None else live.agents.get(kernel.agent_id)
    if agent is None or agent.id not in told or kernel.status is not KernelStatus.RUNNING:
        return []
    at, gpus = told[agent.id]
    if kernel.started_at is None or at < kernel.started_at + SETTLE_S:
        return []
    whole = {share.index for share in kernel.shares if share.milli == GPU_WHOLE}
    models = {device.index: device.model for device in agent.devices}
    return [
        (at, Reading(kernel.id, models[each.device], each))
        for each in gpus
        if each.device in whole and each.device in models
    ]


def _by_member(found: Sequence[Straggler], session: Session, live: Live) -> dict[str, _Slow]:
    """The members that are stragglers, by the first of their GPUs that are unlike the others."""
    kernels = {kernel.id: kernel for kernel in session.kernels}
    members: dict[str, _Slow] = {}
    for each in found:
        member, device = each.place
        kernel = kernels.get(KernelId(member))
        if kernel is None or kernel.agent_id is None or member in members:
            continue
        agent = live.agents[kernel.agent_id]
        task = kernel.task_index
        why = StragglerSuspected(
            member=f"kernel {kernel.index}" if task is None else f"task {task}",
            agent=agent.name,
            device=device,
            what=each.sentence(),
        )
        members[member] = _Slow(agent.id, f"GPU {device}: {each.sentence()}", why)
    return members


def with_stragglers(found: WhyView, reasons: Sequence[Reason]) -> WhyView:
    """The answer about live work, with the members that may hold it up."""
    if not reasons:
        return found
    return replace(found, reasons=(*found.reasons, *map(ReasonView.of, reasons)))
