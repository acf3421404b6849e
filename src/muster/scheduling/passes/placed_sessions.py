"""Sessions that hold room in a scaling group, as placement passes see them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from muster.core.ids import SessionId
from muster.core.specs.group import PreemptionMode, PreemptionSpec
from muster.scheduling.workload import KernelPlacement, RunningSession, WorkloadClass

HALF_LIFE_S = 300.0
"""The half-life of the longest start time seen, so that one slow image does not keep other sessions
from overtaking for long."""


@dataclass(slots=True)
class PlacedSession:
    """A session that holds room: from its start until the last of its kernels has left.

    Times are in seconds since the epoch.

    Attributes:
        workload: the amounts that its owner is charged with for all of that time.
        kernels: the placements of the kernels that have not left, by index.
        since: when it was placed.
        begun_anew: whether the session is started again after it was displaced.
        entered_at: when it began to run or, until it runs, entered the phase that it is in.
        running_since: when it began to run; None until then.
        leaves_by: the latest end of a session that is being stopped; None for others.
        seen: the session as passes see it; None after a change, until a pass looks.
    """

    workload: WorkloadClass
    kernels: dict[int, KernelPlacement]
    since: float
    begun_anew: bool
    entered_at: float
    running_since: float | None = None
    leaves_by: float | None = None
    seen: RunningSession | None = None

    def held(self) -> WorkloadClass:
        """The workload less the kernels that have left."""
        workload, kernels = self.workload, self.kernels
        if len(kernels) == len(workload.kernels):
            return workload
        return replace(workload, kernels=tuple([workload.kernels[index] for index in kernels]))


@dataclass(slots=True)
class StartTimes:
    """The time that sessions of a group take from their placement until they run: the longest time
    seen, which is halved after each ``HALF_LIFE_S`` in which no session took as long."""

    longest_s: float = 0.0
    seen_at: float = 0.0

    def saw(self, took_s: float, now: float) -> None:
        if took_s >= self.at(now):
            self.longest_s, self.seen_at = took_s, now

    def at(self, now: float) -> float:
        return self.longest_s * math.pow(0.5, max(0.0, now - self.seen_at) / HALF_LIFE_S)


class RunningSessions(Mapping[SessionId, RunningSession]):
    """A group's placed sessions as running ones. Each is made when a pass looks at it: most passes
    look at none.

    Sessions that are being stopped leave soon, at their time limit or within their grace, whichever
    comes first, and need not be displaced. A time limit counts from when a session runs; one that
    does not yet run is assumed to do so ``start_s`` after its placement.
    """

    def __init__(
        self,
        placed: Mapping[SessionId, PlacedSession],
        preemption: PreemptionSpec | None,
        start_s: float,
    ) -> None:
        self._placed = placed
        self._start_s = start_s
        self._preempts = preemption is not None
        self._again = preemption is not None and preemption.mode is PreemptionMode.RESCHEDULE
        # By the identity of a class, which is kept beside it: another one may be what has left of a
        # session, made for this look alone, and leave its identity to the next.
        self._spared: dict[int, tuple[WorkloadClass, WorkloadClass]] = {}

    def __getitem__(self, id_: SessionId) -> RunningSession:
        placed = self._placed[id_]
        return placed.seen or self._see(id_, placed)

    def _see(self, id_: SessionId, placed: PlacedSession) -> RunningSession:
        workload, runs_from, leaves_by = placed.held(), placed.running_since, placed.leaves_by
        if runs_from is None:
            runs_from = max(placed.entered_at, placed.since + self._start_s)
        ends_at = None if workload.duration_s is None else runs_from + workload.duration_s
        if leaves_by is not None:
            # A session stopped for its limit may have ended long ago, on an agent that is away.
            ends_at = leaves_by if ends_at is None else min(ends_at, leaves_by)
        spared = leaves_by is not None or (self._again and not placed.begun_anew)
        seen = RunningSession(
            id_,
            self._spare(workload) if spared else workload,
            tuple(placed.kernels.values()),
            placed.entered_at,
            ends_at,
        )
        if not spared and placed.running_since is not None:
            placed.seen = seen  # no part of it depends on the pass
        return seen

    def _spare(self, workload: WorkloadClass) -> WorkloadClass:
        """The class of sessions of ``workload`` that may not be displaced."""
        if not self._preempts or not workload.preemptible:
            return workload
        known = self._spared.get(id(workload))
        if known is None:
            known = self._spared[id(workload)] = workload, replace(workload, preemptible=False)
        return known[1]

    def __iter__(self) -> Iterator[SessionId]:
        return iter(self._placed)

    def __len__(self) -> int:
        return len(self._placed)
