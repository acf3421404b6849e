"""The running and the prefilled kernels of each agent, by shape, and how many more may be prefilled
(design: Prefill). Nothing here is stored: it is rebuilt from the mirror."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeAlias

from muster.core.ids import AgentId, JobId
from muster.core.resources import Resources
from muster.core.states import JOB_TABLE, AgentStatus, KernelStatus
from muster.scheduling.fitting.backlog_depth import backlog_depth
from muster.scheduling.workload import WorkloadClass
from muster.store.live import Live
from muster.store.records import Allocation, Job, Kernel, LedgerKey

MOST_KERNELS = 2
"""Kernels of an agent at most, prefilled ones included, as a multiple of ``kernels_per_agent``."""
_LEAST_YOUTH_S = 0.5  # seconds: how old reports of a busy machine may be
_SMOOTHING = 0.2  # weight of the newest duration in the running mean


@dataclass(slots=True)
class Shape:
    """Kernels of one shape on one agent: running ones, each with the time when it got its room, and
    prefilled ones, which wait in the agent's backlog; the oldest first."""

    running: dict[LedgerKey, float] = field(default_factory=dict)
    prefilled: dict[LedgerKey, Allocation] = field(default_factory=dict)

    def younger_than(self, moment: float) -> int:
        """How many running kernels got their room after ``moment``."""
        return sum(1 for _ in takewhile(lambda at: at > moment, reversed(self.running.values())))


_ByShape: TypeAlias = dict[str, dict[AgentId, Shape]]


class Shapes:
    """Each Shape of all agents, and the mean duration of each job's kernels; follows the ledger."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._groups: dict[str, _ByShape] = {}
        self._mean_run_s: dict[JobId, float] = {}
        self._priorities: dict[str, Counter[int]] = {}  # of prefilled kernels, by group
        self._waits_as: dict[LedgerKey, WorkloadClass] = {}  # of prefilled kernels

    def of_group(self, name: str) -> Mapping[str, Mapping[AgentId, Shape]]:
        """The group's shapes, by shape and agent; shapes without kernels are absent."""
        return self._groups.get(name, {})

    def allocated(self, allocation: Allocation, workload: WorkloadClass | None = None) -> None:
        """Take note of a new allocation; ``workload`` is the class of a prefilled kernel's session,
        if that is known."""
        agents = self._shapes_of(allocation).setdefault(allocation.resources.shape, {})
        shape = agents.get(allocation.agent_id)
        if shape is None:
            shape = agents[allocation.agent_id] = Shape()
        if allocation.charged:
            shape.running[allocation.key] = allocation.since
        else:
            shape.prefilled[allocation.key] = allocation
            self._join_backlog(allocation, workload)

    def charged(self, allocation: Allocation, now: float) -> WorkloadClass | None:
        """Take note that a prefilled kernel has got its room; the answer is its class, if that is
        known."""
        shape = self._shapes_of(allocation)[allocation.resources.shape][allocation.agent_id]
        del shape.prefilled[allocation.key]
        shape.running[allocation.key] = now
        return self._leave_backlog(allocation)

    def reclassify(self, allocation: Allocation, workload: WorkloadClass) -> None:
        """Have a prefilled kernel, which keeps its turn in the backlog, count as of another class
        from now on."""
        self._leave_backlog(allocation)
        self._join_backlog(allocation, workload)

    def released(self, allocation: Allocation) -> None:
        shapes = self._shapes_of(allocation)
        agents = shapes[allocation.resources.shape]
        shape = agents[allocation.agent_id]
        of_kind = shape.running if allocation.charged else shape.prefilled
        del of_kind[allocation.key]
        if not allocation.charged:
            self._leave_backlog(allocation)
        if not shape.running and not shape.prefilled:
            del agents[allocation.agent_id]
            if not agents:
                del shapes[allocation.resources.shape]

    def lowest_prefilled(self, group: str) -> int | None:
        """The lowest priority among the group's prefilled kernels; None if there are none."""
        return min(self._priorities.get(group, ()), default=None)

    def priority_of(self, allocation: Allocation) -> int:
        """The priority of a prefilled kernel."""
        return _priority(self._waits_as.get(allocation.key))

    def _join_backlog(self, allocation: Allocation, workload: WorkloadClass | None) -> None:
        if workload is not None:
            self._waits_as[allocation.key] = workload
        counts = self._priorities.setdefault(self._group_of(allocation), Counter())
        counts[_priority(workload)] += 1

    def _leave_backlog(self, allocation: Allocation) -> WorkloadClass | None:
        workload = self._waits_as.pop(allocation.key, None)
        counts = self._priorities[self._group_of(allocation)]
        priority = _priority(workload)
        counts[priority] -= 1
        if not counts[priority]:
            del counts[priority]
        return workload

    def _shapes_of(self, allocation: Allocation) -> _ByShape:
        return self._groups.setdefault(self._group_of(allocation), {})

    def _group_of(self, allocation: Allocation) -> str:
        return self._live.agents[allocation.agent_id].group

    def prefill_room(
        self, job: Job, resources: Resources, now: float
    ) -> Iterator[tuple[AgentId, int]]:
        """Agents on which more of this job's kernels may be prefilled, each with their number.

        Only kernels that have run for less than the window count as short, whatever the mean
        duration is.
        """
        mean_s = self._mean_run_s.get(job.id)
        group = self._live.groups[job.group]
        window_s = group.backlog_window
        if mean_s is None or mean_s > window_s:
            return
        for agent_id, shape in self.of_group(job.group).get(resources.shape, {}).items():
            young = shape.younger_than(now - max(window_s, _LEAST_YOUTH_S))
            room = backlog_depth(window_s, mean_s, young) - len(shape.prefilled)
            allocated = len(self._live.allocations_on.get(agent_id, ()))
            room = min(room, MOST_KERNELS * group.kernels_per_agent - allocated)
            agent = self._live.agents[agent_id]
            able = agent.status is AgentStatus.ALIVE and agent.connected and agent.barred is None
            able = able and not agent.disk_full and not agent.ill
            if room > 0 and able:
                yield agent_id, room

    def job_ended(self, job: Job) -> None:
        self._mean_run_s.pop(job.id, None)

    def kernel_ended(self, kernel: Kernel) -> None:
        """Learn the duration of an ended kernel of its job."""
        job = kernel.session.job
        if (
            job is None
            or job.status in JOB_TABLE.terminal
            or kernel.started_at is None
            or kernel.ended_at is None
            or kernel.status is not KernelStatus.TERMINATED
        ):
            return
        took_s = max(kernel.ended_at - kernel.started_at, 0.0)
        mean_s = self._mean_run_s.get(job.id, took_s)
        self._mean_run_s[job.id] = mean_s + _SMOOTHING * (took_s - mean_s)


def _priority(workload: WorkloadClass | None) -> int:
    return 0 if workload is None else workload.priority
