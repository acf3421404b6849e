"""B4: placement quality on the openb trace; ``python -m benchmarks.b4 FOLDER`` for the full form.

Every decision is made by the product's own ``fill`` in a statement on a snapshot. A pass of a
``GroupState`` would decide alike; here the time of a decision alone is measured.
"""

import heapq
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median

from benchmarks import openb, results
from benchmarks.results import Figure, Results
from rich.console import Console

from muster.core.ids import AgentId
from muster.core.owner import Owner
from muster.core.resources import Resources
from muster.scheduling.cluster.columns import Shares
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.fit import fill
from muster.scheduling.policy.plugins import AgentSelector, LearningSelector
from muster.scheduling.policy.selectors import Concentrated, Dispersed, Fragmentation, RoundRobin
from muster.scheduling.workload import WorkloadClass

TITLE = "B4. Placement quality, openb trace"
GOALS = {"default": 4.11, "cpu100": 4.10, "multigpu20": 3.66, "gpuspec10": 4.00}
PUBLISHED = {
    "default": "BestFit 7.14, FGD 4.77",
    "cpu100": "BestFit 6.74, FGD 4.79",
    "multigpu20": "BestFit 6.27, FGD 4.47",
    "gpuspec10": "BestFit 6.90, FGD 5.34",
}
SELECTORS: Mapping[str, Callable[[int], AgentSelector]] = {
    "fragmentation": lambda seed: Fragmentation(seed=seed),
    "concentrated": lambda seed: Concentrated(),
    "dispersed": lambda seed: Dispersed(),
    "round_robin": lambda seed: RoundRobin(),
}
COMING_AND_GOING = "default"
LOAD = 1.2
"""GPU time asked for, of what there is, where tasks come and go."""

_OWNER = Owner("default", "openb", "everybody")
_NS_PER_US = 1000


@dataclass(frozen=True, slots=True)
class Plan:
    """Args:
    every_nth_node: of the cluster, on which tasks come and go.
    """

    seeds: tuple[int, ...]
    going_seeds: tuple[int, ...]
    workloads: tuple[str, ...] = openb.WORKLOADS
    every_nth_node: int = 8


FULL = Plan(seeds=tuple(range(42, 52)), going_seeds=(42, 43, 44))
SHORT = Plan(seeds=(42,), going_seeds=(42,), every_nth_node=32)


@dataclass(slots=True)
class _World:
    """A cluster under one selector."""

    snapshot: Snapshot
    selector: AgentSelector
    took_ns: list[int] = field(default_factory=list)
    classes: dict[Resources, WorkloadClass] = field(default_factory=dict)
    _learner: LearningSelector | None = field(init=False)

    def __post_init__(self) -> None:
        # Asked once, as a group's state does: a look at a protocol takes microseconds.
        self._learner = self.selector if isinstance(self.selector, LearningSelector) else None

    def place(self, request: Resources) -> tuple[AgentId, Shares] | None:
        """The agent and the shares of GPUs for a task that arrives; None if it finds no room."""
        workload = self.classes.get(request)
        if workload is None:
            workload = self.classes[request] = WorkloadClass(_OWNER, "openb", 50, (request,))
        began_ns = time.perf_counter_ns()
        if self._learner is not None:
            self._learner.arrived(request, 1)
        with Statement(self.snapshot) as statement:
            placed = fill(statement, self.selector, workload, 1)
            statement.keep()
        self.took_ns.append(time.perf_counter_ns() - began_ns)
        return (placed[0].agent_id, placed[0].shares) if placed else None


def measure(plan: Plan, directory: Path | None = None) -> Results:
    """The figures, or one that says why there are none."""
    folder = openb.found(directory)
    if folder is None:
        why = f"no openb trace: {openb.VARIABLE} does not name a folder with it"
        return Results(0, [Figure("skipped", why, "the data are not part of the project")])
    return Results(len(plan.seeds), list(_figures(plan, folder)))


def _figures(plan: Plan, folder: Path) -> Iterator[Figure]:
    times: defaultdict[str, list[float]] = defaultdict(list)
    seeds = f"mean of seeds {plan.seeds[0]} to {plan.seeds[-1]}"
    for workload in plan.workloads:
        for name in SELECTORS:
            stranded = [_stranded(folder, workload, name, seed, times) for seed in plan.seeds]
            fragmentation = name == "fragmentation"
            goal = f"≤ {GOALS[workload]:.2f}" if fragmentation else ""
            published = f"; published: {PUBLISHED[workload]}" if fragmentation else ""
            meaning = f"GPU % unallocated when 100 % has arrived, {seeds}{published}"
            yield Figure(f"{workload}.{name}", fmean(stranded), meaning, goal)
    for name in SELECTORS:
        goal = "≤ 100" if name == "fragmentation" else ""
        meaning = "µs a decision on 1,213 nodes, taking included: median of the means of all runs"
        yield Figure(f"us_per_decision.{name}", median(times[name]), meaning, goal)
    for name in SELECTORS:
        delivered = [_delivered(plan, folder, name, seed) for seed in plan.going_seeds]
        meaning = (
            f"GPU time delivered, % of what there is; {COMING_AND_GOING} with its own times, "
            f"{LOAD:g} times as much asked for as there is, on each {plan.every_nth_node}th node"
        )
        goal = "the most" if name == "fragmentation" else ""
        yield Figure(f"delivered.{name}", fmean(delivered), meaning, goal)


def _stranded(
    folder: Path, workload: str, name: str, seed: int, times: Mapping[str, list[float]]
) -> float:
    """GPU % not allocated, the mean while the demand that has arrived is within half a percent of
    all GPUs. A task that does not fit is gone for good."""
    nodes = openb.nodes(folder)
    capacity = openb.gpu_milli(nodes)
    world = _World(openb.snapshot_of(nodes), SELECTORS[name](seed))
    arrived = allocated = 0
    found = []
    for request in openb.arrivals(openb.requests(folder, workload), capacity, seed):
        arrived += request.gpu_milli
        if world.place(request) is not None:
            allocated += request.gpu_milli
        if arrived >= 1.005 * capacity:
            break
        if request.gpu_milli and arrived >= 0.995 * capacity:
            found.append(100 * (1 - allocated / capacity))
    times[name].append(fmean(world.took_ns) / _NS_PER_US)
    return fmean(found)


def _delivered(plan: Plan, folder: Path, name: str, seed: int) -> float:
    """GPU time, in % of what there is until the last task has come."""
    nodes = openb.nodes(folder)[:: plan.every_nth_node]
    capacity = openb.gpu_milli(nodes)
    stays, span_s = openb.stays(folder, COMING_AND_GOING, capacity, LOAD, seed)
    world = _World(openb.snapshot_of(nodes), SELECTORS[name](seed))
    going: list[tuple[float, int, AgentId, Resources, Shares]] = []
    delivered = 0.0
    for number, stay in enumerate(stays):
        while going and going[0][0] <= stay.from_s:
            _, _, agent_id, request, shares = heapq.heappop(going)
            world.snapshot.give_back(agent_id, request, shares)
        place = world.place(stay.request)
        if place is not None:
            heapq.heappush(going, (stay.until_s, number, place[0], stay.request, place[1]))
            delivered += stay.request.gpu_milli * (min(stay.until_s, span_s) - stay.from_s)
    return 100 * delivered / (capacity * span_s)


def main(arguments: list[str]) -> None:
    found = measure(FULL, Path(arguments[0]) if arguments else None)
    results.write("b4", found, short=False)
    results.show(Console(highlight=False, width=140), TITLE, found)


if __name__ == "__main__":
    main(sys.argv[1:])
