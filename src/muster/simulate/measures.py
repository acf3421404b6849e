"""Measurements of a simulated cluster while a trace runs: fragmentation and fairness.

Each measurement looks at all agents or all owners, so it is taken at some moments only.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from muster.core.owner import Owner
from muster.core.resources import GPU_WHOLE, Resources
from muster.scheduling.accounting.fairness import dominant_share
from muster.scheduling.accounting.usage import Usage, scopes
from muster.scheduling.cluster.columns import Ints
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.workload import WorkloadClass


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement.

    Args:
        fragmented: the part of free GPU capacity that the mix cannot use; None while nobody has
            asked for GPUs or none is free.
        stranded: the capacity that the mix cannot use as a part of all GPU capacity.
        fairness: Jain's index of what owners hold; None while fewer than two have any work.
    """

    at: float
    fragmented: float | None
    stranded: float | None
    fairness: float | None


class Gauge:
    """Takes samples of one cluster at every ``every``-th moment at which something happens.

    Args:
        capacity: of all agents, by name of the resource; kept current.
    """

    def __init__(
        self, snapshot: Snapshot, usage: Usage, capacity: Mapping[str, int], every: int
    ) -> None:
        self.samples: list[Sample] = []
        self._snapshot = snapshot
        self._usage = usage
        self._capacity = capacity
        self._every = every
        self._moments = 0
        self._requests: Counter[Resources] = Counter()  # kernels that ask for GPUs
        self._owners: dict[Owner, None] = {}

    def arrived(self, workload: WorkloadClass) -> None:
        """Count a session of the class, which is submitted."""
        self._owners[workload.owner] = None
        for request, indexes in workload.requests:
            if request.gpu_milli:
                self._requests[request] += len(indexes)

    def look(self, now: float) -> None:
        """Take a sample if it is time to; call it whenever something has happened."""
        if self._moments % self._every == 0:
            self.samples.append(self._sample(now))
        self._moments += 1

    def _sample(self, now: float) -> Sample:
        all_milli = self._capacity.get("gpu", 0)
        free_milli = float(self._snapshot.columns.device_free.sum())
        fragmented = stranded = None
        if self._requests and free_milli > 0:
            fragmented = 1.0 - usable_milli(self._snapshot, self._requests) / free_milli
            stranded = fragmented * free_milli / all_milli
        elif self._requests and all_milli:
            stranded = 0.0
        return Sample(now, fragmented, stranded, self._fairness())

    def _fairness(self) -> float | None:
        shares = []
        for owner in self._owners:
            holding = self._usage.of(scopes(owner)[0])
            if holding.sessions or holding.pending:
                shares.append(dominant_share(holding.amounts, self._capacity))
        return jain(shares)


def usable_milli(snapshot: Snapshot, requests: Mapping[Resources, int]) -> float:
    """Thousandths of free GPUs that the mix of requests can use: the mean of what each request can
    use, weighed by how often it is made.

    A request can use nothing on an agent where it does not fit. On other agents it can use the free
    part of every device that has at least as much free as the request takes of one device: the
    complement of the paper's F_n(M) (source: Weng 2023). Requests without GPUs are left out: to
    them all GPUs are fragments, however they are packed.
    """
    columns, agents_of = snapshot.columns, {}
    total = 0.0
    for request, count in requests.items():
        key = min(request.gpu_milli, GPU_WHOLE), request.gpu_models
        if key not in agents_of:
            agents_of[key] = _usable_by_slot(snapshot, request)
        total += count * float(agents_of[key][columns.fitting(request)].sum())
    return total / sum(requests.values())


def _usable_by_slot(snapshot: Snapshot, request: Resources) -> Ints:
    """For each agent the sum of the free parts of devices that are free enough and of an allowed
    model."""
    columns = snapshot.columns
    need, free = columns.need(request), columns.device_free
    if need is None:
        return np.zeros(columns.slots, np.int64)
    usable = free >= need.milli
    if need.allowed is not None:
        usable &= np.array(need.allowed)[columns.device_model]
    found: Ints = np.where(usable, free, 0).sum(axis=1)
    return found


def jain(shares: Iterable[float]) -> float | None:
    """Jain's index of fairness, (Σx)² / (n·Σx²): 1 when all have equal shares, 1/n when one has all
    (source: Jain 1984). None for fewer than two, or when nobody has anything."""
    amounts = list(shares)
    squares = sum(each * each for each in amounts)
    if len(amounts) < 2 or not squares:
        return None
    return sum(amounts) ** 2 / (len(amounts) * squares)
