"""What holds a place in a group, as placement passes see it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from muster.core.ids import SessionId
from muster.core.owner import Owner
from muster.core.specs.group import PreemptionMode, PreemptionSpec
from muster.core.states import PLACED_SESSION, SessionStatus
from muster.scheduling.workload import KernelPlacement, RunningSession, WorkloadClass
from muster.store.records import Allocation, LedgerKey, Session

STAYING = frozenset({*PLACED_SESSION, SessionStatus.RUNNING})
"""Others that hold something are leaving: they are being stopped, or what they hold is what remains
of a try."""


HALF_LIFE_S = 300.0
"""Of what slow starts are taken for: one image that takes long must not keep others from overtaking
for long."""


def placed_since(session: Session) -> float:
    """Since when it runs; until it does, since when it has its status."""
    return session.started_at or session.status_changed_at


@dataclass(slots=True)
class Place:
    """What a session counts as from its first charged row on to its last.

    ``rows`` are those; ``seen`` is what they amount to, until they change.
    """

    owner: Owner
    what: WorkloadClass
    rows: dict[LedgerKey, Allocation] = field(default_factory=dict)
    seen: tuple[WorkloadClass, tuple[KernelPlacement, ...]] | None = None

    @property
    def since(self) -> float:
        """When the first of its rows was made."""
        return min(row.since for row in self.rows.values())

    def held(self) -> tuple[WorkloadClass, tuple[KernelPlacement, ...]]:
        """What it holds: less than it asked for once a kernel of it has ended."""
        if self.seen is None:
            rows = self.rows.values()
            what, requests = self.what, tuple([row.resources for row in rows])
            if requests != what.kernels:
                what = replace(what, kernels=requests)
            self.seen = what, tuple([KernelPlacement(row.agent_id, row.shares) for row in rows])
        return self.seen


@dataclass(slots=True)
class StartTimes:
    """How long it takes in a group from a placement until the session runs: the longest that was
    seen, and half of it after each ``HALF_LIFE_S`` in which nothing as long was."""

    longest_s: float = 0.0
    seen_at: float = 0.0

    def saw(self, took_s: float, now: float) -> None:
        if took_s >= self.at(now):
            self.longest_s, self.seen_at = took_s, now

    def at(self, now: float) -> float:
        return self.longest_s * math.pow(0.5, max(0.0, now - self.seen_at) / HALF_LIFE_S)


class Running(Mapping[SessionId, RunningSession]):
    """A group's placed sessions, each made when one looks: most passes do not.

    Those that leave do so soon, at their limit or within their grace, whichever comes first, and
    nobody need displace them. A limit counts from when they run: those that do not yet are taken to
    do so ``start_s`` after they were placed.
    """

    def __init__(
        self,
        placed: Mapping[SessionId, Session],
        places: Mapping[SessionId, Place],
        preemption: PreemptionSpec | None,
        start_s: float,
    ) -> None:
        self._placed = placed
        self._places = places
        self._start_s = start_s
        self._preempts = preemption is not None
        self._again = preemption is not None and preemption.mode is PreemptionMode.RESCHEDULE
        self._spared: dict[int, WorkloadClass] = {}  # by the identity of a class

    def __getitem__(self, id_: SessionId) -> RunningSession:
        session = self._placed[id_]
        place = self._places[id_]
        what, kernels = place.held()
        since = runs_from = placed_since(session)
        if session.started_at is None:
            runs_from = max(since, place.since + self._start_s)
        ends_at = None if what.duration_s is None else runs_from + what.duration_s
        if session.status not in STAYING:
            what = self._spare(what)
            # What is stopped for its limit may have ended long ago, on an agent that is away.
            leaves_at = session.status_changed_at + session.tally.grace_s
            ends_at = leaves_at if ends_at is None else min(ends_at, leaves_at)
        elif session.job is None and self._again:
            what = self._spare(what)  # nobody would begin it anew
        return RunningSession(id_, what, kernels, since, ends_at)

    def _spare(self, what: WorkloadClass) -> WorkloadClass:
        """The class of those of ``what`` who are not displaced."""
        if not self._preempts or not what.preemptible:
            return what
        spared = self._spared.get(id(what))
        if spared is None:
            spared = self._spared[id(what)] = replace(what, preemptible=False)
        return spared

    def __iter__(self) -> Iterator[SessionId]:
        return iter(self._placed)

    def __len__(self) -> int:
        return len(self._placed)
