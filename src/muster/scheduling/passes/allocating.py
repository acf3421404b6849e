"""The start of sessions that find room: each place is handed to the group's allocator."""

from collections.abc import Callable, Sequence

from muster.core.reasons import Reason
from muster.core.resources import Resources
from muster.scheduling.cluster.snapshot import OverCapacity
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.fit import Fit, fill
from muster.scheduling.passes.pass_result import Placed
from muster.scheduling.policy.allocators import RepositoryAllocator
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.guard import PluginFault
from muster.scheduling.policy.plugins import AllocationContext, AllocationResult
from muster.scheduling.workload import KernelPlacement, SessionWorkload

FitSession = Callable[[SessionWorkload], Fit]
"""Takes room in the statement for a session, if it finds any."""

_NO_ROOM = AllocationResult(None)
_NOTHING = Resources()


class Allocating:
    """Finds room for sessions, in a statement, and has a group's allocator allocate it.

    Args:
        fit: finds the room.
        now: of the pass.
    """

    def __init__(self, statement: Statement, policy: Policy, fit: FitSession, now: float) -> None:
        self._statement = statement
        self._policy = policy
        self._fit = fit
        self._now = now
        self._asks = not isinstance(policy.allocator, RepositoryAllocator)

    def start(self, run: Sequence[SessionWorkload]) -> tuple[list[Placed], tuple[Reason, ...]]:
        """Place as many sessions of a class as can be, from the first on. The reasons are those for
        which the allocator refuses the next one; none if that lacks room."""
        workload = run[0].workload
        if len(workload.kernels) == 1 and not self._asks:
            found = fill(self._statement, self._policy.selector, workload, len(run))
            return list(map(Placed, run, zip(found))), ()
        placed: list[Placed] = []
        for session in run:
            result = self._place(session)
            if result.kernels is None:
                return placed, result.reasons
            placed.append(Placed(session, result.kernels))
        return placed, ()

    def would_start(self, session: SessionWorkload) -> AllocationResult:
        """The places that the session would get now; no room is taken."""
        mark = self._statement.mark()
        try:
            return self._place(session)
        finally:
            self._statement.rollback(mark)

    def _place(self, session: SessionWorkload) -> AllocationResult:
        """Take room for a session, or none."""
        mark = self._statement.mark()
        found = self._fit(session).kernels
        if found is None:
            return _NO_ROOM
        if not self._asks:
            return AllocationResult(found)
        try:
            context = AllocationContext(self._statement.snapshot, self._now)
            result = self._policy.allocator.allocate(session, found, context)
            if result.kernels is None:
                self._statement.rollback(mark)
            elif result.kernels != found:
                self._swap(session, found, result.kernels)
        except PluginFault:
            self._statement.rollback(mark)
            raise
        return result

    def _swap(
        self,
        session: SessionWorkload,
        found: Sequence[KernelPlacement],
        chosen: Sequence[KernelPlacement],
    ) -> None:
        """Hold the devices that the allocator chose, in place of those that were found.

        Raises:
            PluginFault: they are not free.
        """
        snapshot = self._statement.snapshot
        pairs = list(zip(found, chosen, session.workload.kernels, strict=True))
        for kernel, _, _ in pairs:
            self._statement.give_back(snapshot.slot(kernel.agent_id), kernel.shares)
        for _, kernel, request in pairs:
            slot = snapshot.slot(kernel.agent_id)
            usable = {index for _, index in snapshot.columns.devices_for(request, slot)}
            asked = [share.index for share in kernel.shares]
            try:
                if not usable.issuperset(asked):
                    raise OverCapacity("a device")
                self._statement.take(slot, _NOTHING, kernel.shares)
            except OverCapacity:
                raise PluginFault(
                    "allocator",
                    self._policy.allocator_name,
                    f"allocates devices {asked} of an agent, of which {sorted(usable)} can be had",
                ) from None
