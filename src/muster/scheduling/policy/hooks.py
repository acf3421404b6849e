"""Hooks: the special treatment of each type of session (source: Sokovan).

The built-in ones do nothing at the start and the end of a session, and decide what preemption may
do to people at work.
"""

from collections.abc import Mapping
from dataclasses import replace

from muster.core.ids import SessionId
from muster.scheduling.workload import WorkloadClass


class BatchHook:
    """Batch sessions run as they were handed in."""

    def on_schedule(self, workload: WorkloadClass) -> WorkloadClass:
        return workload

    def before_start(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        return environment

    def after_end(self, session: SessionId, succeeded: bool) -> None:
        pass


class InteractiveHook(BatchHook):
    """Somebody works in the session: it is not displaced unless allowed (``preemptible: true``)."""

    def __init__(self, preemptible: bool = False) -> None:
        self._preemptible = preemptible

    def on_schedule(self, workload: WorkloadClass) -> WorkloadClass:
        return replace(workload, preemptible=workload.preemptible and self._preemptible)


class InferenceHook(BatchHook):
    """A replica of a deployment: it is treated as batch work is."""
