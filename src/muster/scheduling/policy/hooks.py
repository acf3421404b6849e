"""Hooks: the special treatment of each type of session (source: Sokovan).

The built-in ones decide when a session of their type is over, which variables its kernels need, and
what preemption may do to people at work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from muster.core.ids import SessionId
from muster.core.specs import SessionType
from muster.core.specs.variables import PORT
from muster.scheduling.workload import WorkloadClass


@dataclass(frozen=True, slots=True)
class KernelEnds:
    """The ends of a running session's kernels.

    Args:
        total: the number of its kernels.
        ended: how many of them have ended.
        ended_well: how many of those exited with 0.
        leader_ended_well: whether one that decides for all did.
    """

    total: int
    ended: int
    ended_well: int
    leader_ended_well: bool = False


@dataclass(frozen=True, slots=True)
class KernelPorts:
    """The ports of a kernel that is about to start.

    Args:
        reserved: those that its agent reserved for it.
        fixed: the one on which its program listens by itself; None if it has none.
    """

    reserved: Sequence[int]
    fixed: int | None


class BatchHook:
    """Batch sessions run as they were handed in, until all their work is done."""

    def on_schedule(self, workload: WorkloadClass) -> WorkloadClass:
        return workload

    def variables(self, ports: KernelPorts) -> Mapping[str, str]:
        """The variables that a kernel needs, whatever its spec says."""
        return {}

    def before_start(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        return environment

    def is_over(self, kernels: KernelEnds) -> bool:
        """Whether a running session ends. A kernel that exited with 0 does not count until all have
        ended, unless it leads; any other end counts at once (design: Promotion)."""
        if kernels.leader_ended_well:
            return True
        return kernels.ended == kernels.total or kernels.ended > kernels.ended_well

    def after_end(self, session: SessionId, succeeded: bool) -> None:
        pass


class InteractiveHook(BatchHook):
    """Somebody works in the session: it is over with its first kernel that ends, and not displaced
    unless allowed (``preemptible: true``)."""

    def __init__(self, preemptible: bool = False) -> None:
        self._preemptible = preemptible

    def on_schedule(self, workload: WorkloadClass) -> WorkloadClass:
        return replace(workload, preemptible=workload.preemptible and self._preemptible)

    def is_over(self, kernels: KernelEnds) -> bool:
        return kernels.ended > 0


class InferenceHook(BatchHook):
    """A replica of a deployment: it is to serve for ever, so it is over with its first kernel that
    ends, and the deployment begins another. Its program is told by ``PORT`` where requests and
    probes come in."""

    def variables(self, ports: KernelPorts) -> Mapping[str, str]:
        if ports.fixed is not None:
            return {PORT: str(ports.fixed)}
        return {PORT: str(ports.reserved[0])} if ports.reserved else {}

    def is_over(self, kernels: KernelEnds) -> bool:
        return kernels.ended > 0


BUILT_IN: Mapping[SessionType, BatchHook] = {
    SessionType.BATCH: BatchHook(),
    SessionType.INTERACTIVE: InteractiveHook(),
    SessionType.INFERENCE: InferenceHook(),
}
"""The needs of sessions of each type, also where their group names a plug-in as the hook, which
adds to them."""
