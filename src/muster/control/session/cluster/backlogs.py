"""The kernels that agents run and hold ahead, by shape, and how many more they may hold (design:
Prefill). Nothing here is stored: it is rebuilt from the mirror."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeAlias

from muster.core.ids import AgentId, JobId
from muster.core.resources import Resources
from muster.core.states import JOB_TABLE, AgentStatus, KernelStatus
from muster.scheduling.fitting.backlog import backlog_depth
from muster.store.live import Live
from muster.store.records import Allocation, Job, Kernel, LedgerKey

MOST_HELD = 2
"""Times ``kernels_per_agent`` that an agent holds at most, including kernels held ahead."""
_LEAST_YOUTH_S = 0.5  # reports of a busy machine may be so old
_SMOOTHING = 0.2  # weight of the newest duration in the running mean


@dataclass(slots=True)
class Shape:
    """Kernels of one shape on one agent: running ones, each with the time when it got its room, and
    those in the agent's backlog; the oldest first."""

    running: dict[LedgerKey, float] = field(default_factory=dict)
    ahead: dict[LedgerKey, Allocation] = field(default_factory=dict)

    def younger_than(self, moment: float) -> int:
        """How many running kernels got their room after the moment."""
        return sum(1 for _ in takewhile(lambda at: at > moment, reversed(self.running.values())))


_Shapes: TypeAlias = dict[str, dict[AgentId, Shape]]


class Backlogs:
    """Follows the ledger, and the durations of each job's kernels."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._groups: dict[str, _Shapes] = {}
        self._mean_run_s: dict[JobId, float] = {}
        self._priorities: dict[str, Counter[int]] = {}  # of kernels held ahead, by group
        self._priority_of: dict[LedgerKey, int] = {}

    def of_group(self, name: str) -> Mapping[str, Mapping[AgentId, Shape]]:
        """The group's shapes, by shape and agent; shapes without kernels are absent."""
        return self._groups.get(name, {})

    def held(self, row: Allocation, priority: int) -> None:
        """Take note of a new row, of a session of this priority."""
        agents = self._shapes_of(row).setdefault(row.resources.shape, {})
        shape = agents.get(row.agent_id)
        if shape is None:
            shape = agents[row.agent_id] = Shape()
        if row.charged:
            shape.running[row.key] = row.since
        else:
            shape.ahead[row.key] = row
            self._priority_of[row.key] = priority
            self._priorities.setdefault(self._group_of(row), Counter())[priority] += 1

    def charged(self, row: Allocation, now: float) -> None:
        """Take note that a row in a backlog has got its room."""
        shape = self._shapes_of(row)[row.resources.shape][row.agent_id]
        del shape.ahead[row.key]
        self._left_ahead(row)
        shape.running[row.key] = now

    def released(self, row: Allocation) -> None:
        shapes = self._shapes_of(row)
        agents = shapes[row.resources.shape]
        shape = agents[row.agent_id]
        of_kind = shape.running if row.charged else shape.ahead
        del of_kind[row.key]
        if not row.charged:
            self._left_ahead(row)
        if not shape.running and not shape.ahead:
            del agents[row.agent_id]
            if not agents:
                del shapes[row.resources.shape]

    def lowest_ahead(self, group: str) -> int | None:
        """The lowest priority among kernels that the group's agents hold ahead; None if they hold
        none."""
        return min(self._priorities.get(group, ()), default=None)

    def priority_of(self, row: Allocation) -> int:
        """The priority of a row in a backlog."""
        return self._priority_of[row.key]

    def _left_ahead(self, row: Allocation) -> None:
        priority = self._priority_of.pop(row.key)
        counts = self._priorities[self._group_of(row)]
        counts[priority] -= 1
        if not counts[priority]:
            del counts[priority]

    def _shapes_of(self, row: Allocation) -> _Shapes:
        return self._groups.setdefault(self._group_of(row), {})

    def _group_of(self, row: Allocation) -> str:
        return self._live.agents[row.agent_id].group

    def room_ahead(
        self, job: Job, resources: Resources, now: float
    ) -> Iterator[tuple[AgentId, int]]:
        """Agents that may hold more of this job's kernels ahead, each with their number.

        Only young kernels count, which have run for less than the window: older ones are long,
        whatever the mean says.
        """
        mean_s = self._mean_run_s.get(job.id)
        group = self._live.groups[job.group]
        window_s = group.backlog_window
        if mean_s is None or mean_s > window_s:
            return
        for agent_id, shape in self.of_group(job.group).get(resources.shape, {}).items():
            young = shape.younger_than(now - max(window_s, _LEAST_YOUTH_S))
            room = backlog_depth(window_s, mean_s, young) - len(shape.ahead)
            held = len(self._live.held_by.get(agent_id, ()))
            room = min(room, MOST_HELD * group.kernels_per_agent - held)
            agent = self._live.agents[agent_id]
            able = agent.status is AgentStatus.ALIVE and agent.connected and agent.barred is None
            able = able and not agent.disk_full
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
