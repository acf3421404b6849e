"""How long large gangs hold the controller's event loop: its control plane with hollow agents."""

import gc
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.results import Figure, MeaninglessFigures, Results
from proving.hollow.supervisor import Run
from tests.control.world import ADA, World

from muster.app.driver import LONGEST_PAUSE_S
from muster.app.process import settle_memory
from muster.control.session.requests import SessionRequests
from muster.core.resources import Resources
from muster.core.specs import SessionSpec
from muster.core.states import SESSION_TABLE, SessionStatus
from muster.store.records import Session

TITLE = "Gangs: how long one wake holds the event loop"
AGENT = Resources(cpu_milli=10**9, memory_bytes=2**50)
STEPS = {
    SessionStatus.PENDING: "create",
    SessionStatus.SCHEDULED: "place",
    SessionStatus.PREPARING: "prepare",
    SessionStatus.PREPARED: "prepare",
    SessionStatus.CREATING: "start",
    SessionStatus.RUNNING: "run",
    SessionStatus.TERMINATING: "stop",
    SessionStatus.TERMINATED: "end",
    SessionStatus.CANCELLED: "end",
}
"""The name of a wake's step by the status into which the wake moved the gang."""
REPORTS = "reports"


@dataclass(frozen=True, slots=True)
class Plan:
    """``runs`` lives of a gang of each size, on ``agents``; ``in_a_row`` gangs of the largest size
    handed in and cancelled one after the other."""

    runs: int
    in_a_row: int
    sizes: Sequence[int] = (100, 1_000, 10_000)
    agents: int = 20


FULL = Plan(runs=7, in_a_row=30)
SHORT = Plan(runs=3, in_a_row=10)


class TimedWorld(World):
    """``wakes`` are the seconds of each, with what it did to the gang that is looked at."""

    gang: Session | None = None

    def __init__(self, path: Path, agents: int) -> None:
        self.wakes: list[tuple[str, float]] = []
        names = [f"agent-{number}" for number in range(agents)]
        super().__init__(path, dict.fromkeys(names, AGENT), behaviour=lambda start: Run(10**6))

    def wake(self) -> float | None:
        before = None if self.gang is None else self.gang.status
        began_s = _clock_s()
        due = super().wake()
        took_s = _clock_s() - began_s
        after = None if self.gang is None else self.gang.status
        step = REPORTS if after is None or after is before else STEPS[after]
        self.wakes.append((step, took_s))
        return due

    def submit_gang(self, kernels: int) -> None:
        """Hand in a gang of kernels that ask for next to nothing; it is looked at from now on."""
        kernel = {"command": ["x"], "replicas": kernels, "resources": {"cpu": 0.001}}
        spec = SessionSpec.model_validate({"kernels": [kernel]})

        def answer(session: Session | None, error: Exception | None) -> None:
            self.gang = session

        self.gang = None
        self.plane.ask(lambda work, parts: parts[SessionRequests].submit(work, ADA, spec), answer)
        began = len(self.wakes)
        self.wake()
        self.wakes[began] = (STEPS[SessionStatus.PENDING], self.wakes[began][1])
        if self.gang is None:
            raise MeaninglessFigures("the gang was refused")

    def cancel_gang(self) -> None:
        """Cancel it, and look at it until it has ended."""
        assert self.gang is not None, "no gang was handed in"
        id_ = self.gang.id
        self.ask(lambda work, parts: parts[SessionRequests].cancel(work, ADA, id_))
        if self.gang.status not in SESSION_TABLE.terminal:
            raise MeaninglessFigures(f"the gang is {self.gang.status}")


def _clock_s() -> float:
    """Time that stands still while this thread is ready to run and others have the processors."""
    waited_ns = int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    return time.perf_counter() - waited_ns / 1e9


def measure(plan: Plan) -> Results:
    """
    Raises:
        MeaninglessFigures: a gang did not run, or did not end.
    """
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        world = TimedWorld(Path(directory), plan.agents)
        _live(world, plan.sizes[-1])  # statements are compiled
        settle_memory()  # as a controller that has started
        figures = [*_lives(world, plan), *_in_a_row(world, plan)]
        world.close()
    gc.unfreeze()
    return Results(plan.runs, figures)


def _lives(world: TimedWorld, plan: Plan) -> Iterator[Figure]:
    """The longest wakes in the lives of gangs that are placed, run and are cancelled."""
    by_step: defaultdict[str, list[float]] = defaultdict(list)
    for kernels in plan.sizes:
        longest: list[float] = []
        for _ in range(plan.runs):
            wakes = _live(world, kernels)
            longest.append(max(took_s for _, took_s in wakes))
            for step in {step for step, _ in wakes} if kernels == plan.sizes[-1] else ():
                by_step[step].append(max(took_s for name, took_s in wakes if name == step))
        yield Figure(
            f"hold_ms_{kernels}",
            median(longest) * 1e3,
            f"the longest wake in the life of a gang of {kernels} kernels",
            "≤ 50" if kernels == plan.sizes[-1] else "",
        )
    for step, took_s in by_step.items():
        yield Figure(
            f"{step}_ms",
            median(took_s) * 1e3,
            f"of the largest: the longest of its wakes in which it came to {step}",
        )


def _in_a_row(world: TimedWorld, plan: Plan) -> Iterator[Figure]:
    """Gangs that are cancelled in the wake after their creation: nothing else comes between."""
    world.wakes.clear()
    for _ in range(plan.in_a_row):
        world.submit_gang(plan.sizes[-1])
        world.cancel_gang()
    took_s = [each for _, each in world.wakes]
    waits = [rest_s + min(rest_s, LONGEST_PAUSE_S) + next_s for rest_s, next_s in pairwise(took_s)]
    yield Figure(
        "row_hold_ms",
        max(took_s) * 1e3,
        f"the longest wake while {plan.in_a_row} gangs of {plan.sizes[-1]} kernels are handed in "
        "and cancelled, one after the other",
    )
    yield Figure(
        "row_wait_ms",
        max(waits) * 1e3,
        "the longest that anybody else's request waits then: two wakes and the pause between",
        "≤ 100",
    )


def _live(world: TimedWorld, kernels: int) -> list[tuple[str, float]]:
    """A gang's whole life; its wakes."""
    world.wakes.clear()
    world.submit_gang(kernels)
    world.settle()
    if world.gang is None or world.gang.status is not SessionStatus.RUNNING:
        raise MeaninglessFigures("the gang does not run")
    world.cancel_gang()
    return list(world.wakes)
