"""Allocators: the last word on a session's place (source: Sokovan)."""

from collections.abc import Sequence

from muster.scheduling.policy.plugins import AllocationContext, AllocationResult
from muster.scheduling.workload import KernelPlacement, SessionWorkload


class RepositoryAllocator:
    """Allocates what the selector chose. The ledger's rows are written in the transaction of the
    session's new status, in which SQL is asked once more whether the room is free; where it is not,
    nothing of that is written, and the session is placed anew."""

    def allocate(
        self,
        session: SessionWorkload,
        kernels: Sequence[KernelPlacement],
        context: AllocationContext,
    ) -> AllocationResult:
        return AllocationResult(tuple(kernels))
