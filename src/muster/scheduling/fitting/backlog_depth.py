"""The number of kernels that may wait in an agent's backlog, and the priorities to which they give
way (design: Prefill), an idea of HyperQueue (source: HyperQueue). Pure; the backlog itself is the
supervisor's."""

import math
from collections.abc import Sequence

import numpy as np

from muster.scheduling.cluster.columns import Ints
from muster.scheduling.cluster.constraints import eligible
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.workload import WorkloadClass

_MOST_ASKED = 8  # classes of the highest priorities, for which possible places are looked for


def backlog_depth(
    window_s: float, mean_duration_s: float | None, running: int, limit: int = 256
) -> int:
    """How many kernels of one shape to prefill on an agent on which ``running`` of that shape run.

    The number keeps the rooms of the running kernels busy for ``window_s``, and is at most
    ``limit``. It is 0 while the mean duration is unknown, or longer than the window: then a round
    trip to the controller costs little in comparison, and a prefilled kernel might have started
    earlier on another agent.
    """
    if mean_duration_s is None or running <= 0 or not 0 <= mean_duration_s <= window_s:
        return 0
    if mean_duration_s * limit <= running * window_s:  # true as well where the mean is 0
        return limit if window_s > 0 else 0
    return math.ceil(running * window_s / mean_duration_s)


def highest_in_need(lacking: Sequence[WorkloadClass], snapshot: Snapshot) -> Ints:
    """By slot the highest priority among the ``lacking`` classes that could use room there, or 0. A
    class could use an agent's room if the agent is large enough for one of its kernels and meets
    its rules."""
    highest = np.zeros(snapshot.columns.slots, np.int64)
    columns = snapshot.emptied(all_accept=True).columns
    by_priority = sorted(lacking, key=lambda workload: -workload.priority)
    for workload in by_priority[:_MOST_ASKED]:
        mask = eligible(snapshot, workload)
        for request, _ in workload.requests[:_MOST_ASKED]:
            slots = columns.fitting(request)
            slots = slots if mask is None else slots[mask[slots]]
            highest[slots] = np.maximum(highest[slots], workload.priority)
    if len(by_priority) > _MOST_ASKED:  # one of so many classes can probably use any room
        np.maximum(highest, by_priority[_MOST_ASKED].priority, out=highest)
    return highest
