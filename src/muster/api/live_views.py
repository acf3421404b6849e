"""Live records, as the API tells them: from the mirror, without SQL.

To be called on the event loop only, between two wakes, when the mirror holds the last commit: not
of a plane that ``is_broken``.
"""

from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from muster.control.agent.explanation import full_disk_of
from muster.control.engine.module import Parts
from muster.control.health.entity import Incident
from muster.control.health.explanation import may_be_out, missing_checks
from muster.control.health.incidents import Incidents
from muster.control.health.stragglers import StragglerWatch
from muster.control.job.explanation import job_needs_agent
from muster.control.pool.fleet import Fleet
from muster.control.session.cluster.state import ClusterState
from muster.control.session.explaining.explanation import session_needs_agent
from muster.control.session.explaining.spec_warnings import spec_warnings
from muster.core.reasons import Reason
from muster.core.reasons.of_queue import PluginRefused
from muster.core.resources import GPU_WHOLE, Resources
from muster.core.states import JOB_TABLE
from muster.core.views.base import ReasonView, ResourcesView
from muster.core.views.cluster import AgentView, GroupView
from muster.core.views.projection import view_of
from muster.core.views.work import JobView, SessionView
from muster.scheduling.cluster.snapshot import Snapshot
from muster.store.live import Live
from muster.store.queries.agents import capacity_of, stored_agent
from muster.store.queries.jobs import all_counts
from muster.store.records import Agent, Job, Session


def accepted_job(job: Job, live: Live, parts: Parts) -> JobView:
    """The answer to a submission."""
    found = [*spec_warnings(job.spec), *job_needs_agent(live, parts[ClusterState], job)]
    return replace(job_view(job), warnings=_views(found))


def accepted_session(session: Session, live: Live, parts: Parts) -> SessionView:
    """The answer to a submission."""
    found = session_needs_agent(parts[ClusterState], session)
    if session.spec is not None:
        found = [*spec_warnings(session.spec), *found]
    return replace(session_view(session), warnings=_views(found))


def _views(reasons: Iterable[Reason]) -> tuple[ReasonView, ...]:
    return tuple(map(ReasonView.of, reasons))


def job_view(job: Job) -> JobView:
    ended = job.status in JOB_TABLE.terminal
    return view_of(
        JobView,
        job,
        state=job.status,
        state_changed_at=job.status_changed_at,
        task_count=job.spec.tasks,
        counts=all_counts(job.counts, job.tasks_total, job.next_task, ended=ended),
    )


def session_view(session: Session) -> SessionView:
    job_id = None if session.job is None else session.job.id
    return view_of(SessionView, session, job_id=job_id)


def agent_view(agent: Agent, live: Live, parts: Parts) -> AgentView:
    """An agent with its free resources; an amount is negative where the agent reported that its
    kernels hold more than there is."""
    snapshot = parts[ClusterState].groups[agent.group].snapshot
    slot, columns = snapshot.slot(agent.id), snapshot.columns
    free_of = dict(zip(columns.dimensions, columns.free[slot].tolist(), strict=True))
    device_free = columns.device_free[slot].tolist()
    capacity = capacity_of(agent)
    free = Resources(
        free_of["cpu"],
        free_of["memory"],
        free_of["disk"],
        sum(device_free[device.index] for device in agent.devices),
        tuple((name, free_of.get(name, 0)) for name, _ in capacity.extra),
    )
    rows = live.allocations_on.get(agent.id, {}).values()
    charged = sum(1 for row in rows if row.charged)
    shown, incident = stored_agent(agent), parts[Incidents].of(agent.id)
    return replace(
        shown,
        free=ResourcesView.of(free),
        held=ResourcesView.of(_difference(capacity, free)),
        devices=tuple(
            replace(device, free=device_free[device.index] / GPU_WHOLE) for device in shown.devices
        ),
        kernels=charged,
        prefilled=len(rows) - charged,
        incident=None if incident is None else incident.id,
        stragglers=parts[StragglerWatch].on(agent.id),
        reason=ReasonView.of(full_disk_of(agent)) if agent.disk_full else shown.reason,
    )


def group_view(name: str, live: Live, parts: Parts) -> GroupView:
    """A group, with the numbers of its agents and of its waiting sessions, and what its pools
    have."""
    group, fleet = parts[ClusterState].groups[name], parts[Fleet]
    incidents = [each for each in live.of(Incident).values() if each.group == name]
    pools = fleet.groups().get(name, ())
    slices = [slice_ for pool in pools for slice_ in fleet.slices(pool.name)]
    agents = [agent for agent in live.agents.values() if agent.group == name]
    return GroupView(
        name=name,
        spec=live.groups[name].model_dump(mode="json"),
        agents=len(agents),
        statuses=Counter(agent.status for agent in agents),
        devices=sum(len(agent.devices) for agent in agents),
        devices_free=sum(_free_devices(agent, group.snapshot) for agent in agents),
        waiting=group.waiting,
        pools=len(pools),
        machines=sum(len(each.machines) for each in slices),
        gpus=sum(len(each.machines) * each.spec.machine.gpus for each in slices),
        price=sum(each.price for each in slices),
        incidents=Counter(each.status for each in incidents),
        out=sum(each.is_out for each in incidents),
        may_be_out=may_be_out(live.groups[name].health, len(group.snapshot)),
        refused=tuple(
            ReasonView.of(
                PluginRefused(
                    plugin=fault.kind,
                    name=fault.name,
                    group=name,
                    why=fault.why,
                )
            )
            for fault in group.policy.refused
        )
        + _views(missing_checks(live, name)),
    )


def _free_devices(agent: Agent, snapshot: Snapshot) -> float:
    """The part of the agent's GPUs that nobody holds."""
    free: list[int] = snapshot.columns.device_free[snapshot.slot(agent.id)].tolist()
    return sum(free[device.index] for device in agent.devices) / GPU_WHOLE


def _difference(whole: Resources, part: Resources) -> Resources:
    rest = dict(part.extra)
    return Resources(
        whole.cpu_milli - part.cpu_milli,
        whole.memory_bytes - part.memory_bytes,
        whole.disk_bytes - part.disk_bytes,
        whole.gpu_milli - part.gpu_milli,
        tuple((name, amount - rest[name]) for name, amount in whole.extra),
    )
