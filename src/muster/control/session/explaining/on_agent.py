"""The kernels on one agent, as far as whoever asks may see whose they are."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from muster.core.ids import AgentId
from muster.core.owner import Principal
from muster.core.resources import GPU_WHOLE
from muster.core.views.base import OwnerView, ResourcesView
from muster.core.views.cluster import HeldKernelView
from muster.core.views.work import ShareView
from muster.store.live import Live
from muster.store.records import Allocation, Kernel


@dataclass(slots=True)
class HeldKernels:
    """The kernels that hold room of an agent, those that have it longest first.

    Args:
        seen: those that the asker may see, and services of the machine, which are nobody's.
        others: how many more there are, which belong to others.
        other_gpu_milli: thousandths of GPUs that these hold.
    """

    seen: list[HeldKernelView] = field(default_factory=list)
    others: int = 0
    other_gpu_milli: int = 0


def kernels_on(live: Live, agent: AgentId, asker: Principal) -> HeldKernels:
    """The kernels that hold room of an agent. Those of its backlog hold none."""
    found = HeldKernels()
    for row, kernel in _held(live, agent):
        if kernel is None or not _may_see(kernel, asker):
            found.others += 1
            found.other_gpu_milli += row.resources.gpu_milli
        else:
            found.seen.append(_view(row, kernel))
    return found


def _held(live: Live, agent: AgentId) -> Iterator[tuple[Allocation, Kernel | None]]:
    """The charged rows of an agent, each with its kernel, if that is known still."""
    rows = [row for row in live.allocations_on.get(agent, {}).values() if row.charged]
    for row in sorted(rows, key=lambda row: row.since):
        yield row, live.kernels.get(row.kernel_id) or live.left.get(row.kernel_id)


def _may_see(kernel: Kernel, asker: Principal) -> bool:
    session = kernel.session
    return session.service is not None or asker.may_see(session.owner)


def _view(row: Allocation, kernel: Kernel) -> HeldKernelView:
    session = kernel.session
    service = session.service
    return HeldKernelView(
        id=kernel.id,
        session_id=session.id,
        job_id=None if session.job is None else session.job.id,
        work=_name(kernel),
        owner=None if service is not None else OwnerView.of(session.owner),
        service="" if service is None else str(service.name),
        status=kernel.status,
        devices=tuple(
            ShareView(index=share.index, share=share.milli / GPU_WHOLE) for share in row.shares
        ),
        resources=ResourcesView.of(row.resources),
        since=row.since,
        started_at=kernel.started_at,
    )


def _name(kernel: Kernel) -> str:
    """The name of the kernel's work, as people type it."""
    session = kernel.session
    if session.job is None:
        name = session.name or session.id
        return f"{name}/{kernel.index}" if len(session.kernels) > 1 else name
    if session.job.spec.tasks == 1:
        return session.job.name
    return f"{session.job.name}/{kernel.task_index}"
