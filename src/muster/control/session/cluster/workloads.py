"""Jobs, sessions and agents as placement sees them."""

from dataclasses import replace
from weakref import ref

from muster.core.ids import AgentId
from muster.core.owner import Owner
from muster.core.reasons import DISPLACED, Reason
from muster.core.resources import Resources
from muster.core.specs import JobSpec, PlacementSpec, ScalingGroup, SessionSpec, SessionType
from muster.core.states import PLACED_SESSION, AgentStatus, SessionStatus
from muster.core.states.health import ILL, HealthStatus
from muster.scheduling.cluster.snapshot import OUT_OF_DISK, WITHHELD, AgentFacts
from muster.scheduling.workload import WorkloadClass
from muster.store.records import Agent, Job, Session

IN_PLACE = frozenset({*PLACED_SESSION, SessionStatus.RUNNING})
"""Statuses of sessions that keep their room for now. Other sessions that hold room are leaving:
they, or processes of an earlier try, are being stopped."""
MOST_SPECS = 512
"""Specs whose classes are remembered. Clients that hand in the same spec again and again do so one
after the other; where each session has a spec of its own, remembered classes only take room."""
_NONE: frozenset[AgentId] = frozenset()  # an empty set takes 216 bytes, and most are empty


def job_class(owner: Owner, spec: JobSpec) -> WorkloadClass:
    """The class of the sessions of a job that is handed in."""
    kernels = spec.tasks if spec.coscheduled else 1
    return _class_of(owner, spec, (spec.resources.resources(),) * kernels, SessionType.BATCH)


def session_class(owner: Owner, spec: SessionSpec) -> WorkloadClass:
    """The class of a session without a job that is handed in."""
    requests: list[Resources] = []
    for kernel in spec.kernels:
        requests += [kernel.resources.resources()] * kernel.replicas
    return _class_of(owner, spec, tuple(requests), spec.type)


class SpecClasses:
    """The classes of sessions without a job, as they are handed in; sessions that share their spec
    share their class. A class is forgotten with its spec, for those of large gangs take room, or
    when MOST_SPECS are remembered."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, Owner], tuple[ref[SessionSpec], WorkloadClass]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, owner: Owner, spec: SessionSpec) -> WorkloadClass:
        """The class of the owner's sessions with this very spec."""
        key = id(spec), owner
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST_SPECS:
                self._known.clear()
            known = ref(spec, lambda _: self._known.pop(key, None)), session_class(owner, spec)
            self._known[key] = known
        return known[1]


def workload_class(session: Session) -> WorkloadClass:
    """The class of a session."""
    spec = session.spec or (session.job.spec if session.job is not None else None)
    assert spec is not None, "a session has a job or a spec of its own"
    return _class_of(
        session.owner,
        spec,
        tuple([kernel.resources for kernel in session.kernels]),
        session.type,
        placement=_returning(session.returns_to, spec.placement) if session.returns_to else None,
        failed=frozenset(session.failed_agents) if session.failed_agents else _NONE,
        unfit=frozenset(agent for agent, _ in session.unfit) if session.unfit else _NONE,
        begun=session.job is not None and session.job.started_at is not None,
        held=None if session.job is None else session.job.held,
    )


def has_begun(job: Job) -> bool:
    """Whether a job depends on deployments and has begun, so that it waits for them no more: that a
    deployment is healthy is a condition of the start."""
    return job.started_at is not None and any(each.is_on_deployment for each in job.spec.after)


def _class_of(
    owner: Owner,
    spec: JobSpec | SessionSpec,
    kernels: tuple[Resources, ...],
    type_: SessionType,
    placement: PlacementSpec | None = None,
    failed: frozenset[AgentId] = _NONE,
    unfit: frozenset[AgentId] = _NONE,
    *,
    begun: bool = False,
    held: Reason | None = None,
) -> WorkloadClass:
    after = spec.after
    if begun and after:
        after = tuple(each for each in after if not each.is_on_deployment)
    return WorkloadClass(
        owner=owner,
        group=spec.group,
        priority=spec.priority,
        kernels=kernels,
        type=type_,
        placement=placement or spec.placement,
        failed_agents=failed,
        unfit_agents=unfit,
        duration_s=spec.timeout,
        not_before=spec.not_before,
        after=after,
        port=spec.kernels[0].port if isinstance(spec, SessionSpec) else None,
        held=held,
    )


def _returning(names: tuple[str, ...], placement: PlacementSpec) -> PlacementSpec:
    """The placement of a session that is to return to its former agents where they have room; if
    agents are designated already, that stands."""
    if placement.agents:
        return placement
    return placement.model_copy(update={"agents": tuple(sorted(names)), "agents_only": False})


def waits_anew(session: Session) -> bool:
    """Whether the time that its job waited before does not count, because it lost its place by no
    fault of its own: it was displaced, or it restarts the job after a fault of a machine."""
    displaced = session.reason is not None and session.reason.code in DISPLACED
    return displaced or session.returns_to is not None


def placed_since(session: Session) -> float:
    """The time since which the session runs; before that, since which it has its status."""
    return session.started_at or session.status_changed_at


def agent_facts(agent: Agent, group: ScalingGroup) -> AgentFacts:
    """An agent as placement sees it."""
    alive = agent.status is AgentStatus.ALIVE
    able = alive and agent.connected
    status = agent.status.lower() if agent.connected else "not connected"
    may = agent.barred is None and not agent.disk_full and not agent.withheld
    may = may and not agent.ill and not agent.in_service
    return AgentFacts(
        agent.id,
        agent.name,
        replace(agent.capacity, kernels=group.kernels_per_agent),
        agent.devices,
        accepting=able and may,
        status=_bar_of(agent) or status if able else status,
        attributes=agent.attributes,
        returning=alive and not agent.connected and may,
    )


def _bar_of(agent: Agent) -> str:
    """The reason, as people are told, for which a connected agent takes no new work: words that
    follow "the agent is". An operator's note is told as it was written. Empty if it takes some."""
    if agent.disk_full:
        return OUT_OF_DISK
    if not agent.barred and not agent.withheld and (agent.ill or agent.in_service):
        return agent.ill or ILL[HealthStatus.CHECKING]
    if agent.barred:
        return f"{agent.barred}: {agent.bar_note}" if agent.bar_note else str(agent.barred)
    return f"{WITHHELD}: {agent.withheld}" if agent.withheld else ""
