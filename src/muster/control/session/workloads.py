"""Jobs and sessions as placement sees them."""

from muster.core.ids import AgentId
from muster.core.owner import Owner
from muster.core.specs import JobSpec
from muster.scheduling.workload import WorkloadClass
from muster.store.records import Session

_NONE: frozenset[AgentId] = frozenset()  # an empty set takes 216 bytes, and most are


def job_class(owner: Owner, spec: JobSpec) -> WorkloadClass:
    """What placement will decide by about the sessions of a job that is handed in."""
    kernels = spec.tasks if spec.coscheduled else 1
    return WorkloadClass(
        owner=owner,
        group=spec.group,
        priority=spec.priority,
        kernels=(spec.resources.resources(),) * kernels,
        placement=spec.placement,
        duration_s=spec.timeout,
        not_before=spec.not_before,
        after=spec.after,
    )


def workload_class(session: Session) -> WorkloadClass:
    """What placement decides by."""
    spec = session.spec or (session.job.spec if session.job is not None else None)
    assert spec is not None, "a session has a job or a spec of its own"
    return WorkloadClass(
        owner=session.owner,
        group=session.group,
        priority=session.priority,
        kernels=tuple([kernel.resources for kernel in session.kernels]),
        type=session.type,
        placement=spec.placement,
        failed_agents=frozenset(session.failed_agents) if session.failed_agents else _NONE,
        unfit_agents=frozenset(agent for agent, _ in session.unfit) if session.unfit else _NONE,
        duration_s=spec.timeout,
        not_before=spec.not_before,
        after=spec.after,
    )
