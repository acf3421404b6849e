"""B5: autoscaling: how long the routing of demand takes, pure, and what the control plane adds.

`python -m benchmarks.b5 PART` measures one part of it, and prints the rows of a table.
"""

import gc
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import pools as control
from benchmarks.results import Figure, MeaninglessFigures, Results, Samples

from muster.app.process import settle_memory
from muster.autoscaling.decision import RoutingDecision
from muster.autoscaling.demand import Demand
from muster.autoscaling.matching import Matcher
from muster.autoscaling.pool_state import PoolState
from muster.autoscaling.routing import route_demand
from muster.core.ids import AgentId, SessionId
from muster.core.owner import Owner
from muster.core.resources import Device, Resources
from muster.core.specs import PlacementSpec, ScalingGroup
from muster.core.specs.placement import ANYWHERE
from muster.core.specs.pool import PoolSpec
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.selectors import fullest_devices
from muster.scheduling.workload import SessionWorkload, WorkloadClass

TITLE = "B5. Routing of demand"
SEED = 20_261_123
GIB = 2**30
NOW = 1_000_000.0
OWNER = Owner("default", "research", "ann")
KERNELS = 1_000  # that an agent may hold
H100, A100, L4 = "NVIDIA H100 80GB HBM3", "NVIDIA A100 80GB", "NVIDIA L4"
MACHINES: Sequence[Mapping[str, Any]] = (
    {"cpu": 8, "memory": "32GiB"},
    {"cpu": 64, "memory": "256GiB"},
    {"cpu": 32, "memory": "1TiB", "disk": "4TiB"},
    {"cpu": 16, "memory": "64GiB", "gpus": 1, "gpu_model": L4},
    {"cpu": 48, "memory": "192GiB", "gpus": 4, "gpu_model": L4},
    {"cpu": 96, "memory": "1TiB", "gpus": 8, "gpu_model": A100},
    {"cpu": 192, "memory": "2TiB", "gpus": 8, "gpu_model": H100, "extra": {"nic": 8}},
)
REQUESTS = (
    Resources(1_000, 4 * GIB),
    Resources(4_000, 16 * GIB),
    Resources(16_000, 200 * GIB),
    Resources(2_000, 8 * GIB, 0, 250),
    Resources(4_000, 16 * GIB, 0, 1_000),
    Resources(8_000, 64 * GIB, 0, 2_000, (), ("A100", "H100")),
    Resources(64_000, 512 * GIB, 0, 8_000, (), ("H100",)),
)
NOWHERE = (
    Resources(512_000, 4 * GIB),  # larger than any machine
    Resources(1_000, 8 * 1024 * GIB),
    Resources(4_000, 16 * GIB, 0, 1_000, (), ("B200",)),  # a model that no pool has
    Resources(4_000, 16 * GIB, 0, 16_000),
    Resources(1_000, 4 * GIB, extra=(("licence", 1_000),)),  # a resource that no pool has
)
CONSTRAINTS = tuple(
    {"constraints": each}
    for each in (
        ["zone=z1"],
        ["zone!=z0", "disk"],
        ["zone in z1,z2,z3", "!spot"],
        ["speed>100"],
        ["speed>=200", "preemptible=false"],
        ["speed<300"],
        ["speed<=250", {"attribute": "zone", "values": "z4", "soft": True}],
        ["zone=nowhere"],
        ["speed>9000"],
    )
)
TIGHT = ({"together": "slice"}, {"mode": "single-node"})
RULES = ({"max_kernels_per_agent": 1}, {"rank_by": "zone"}, {"together": "zone"})


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured, each figure ``runs`` times."""

    runs: int
    entries: int = 10_000
    pools: int = 100
    agents: int = 1_000


FULL = Plan(runs=7)
SHORT = Plan(runs=3)


def measure(plan: Plan) -> Results:
    """All parts.

    Raises:
        MeaninglessFigures: demand was not routed as it should.
    """
    figures = [figure for part in PARTS.values() for figure in part(plan)]
    return Results(plan.runs, figures)


# Routing


@dataclass(frozen=True, slots=True)
class Mix:
    """A kind of demand.

    Args:
        classes: makes the classes of the sessions.
        served: whether all of it has to be served, none of it, or (None) neither.
        together: sessions of one class that come one after the other, as the tasks of a job do.
    """

    meaning: str
    classes: Callable[[random.Random], list[WorkloadClass]]
    served: bool | None = None
    together: int = 10


MIXES = {
    "shapes_50": Mix("50 shapes, one in five impossible", lambda rng: _single(rng, 50, 0.2)),
    "shapes_1000": Mix("1,000 shapes, one in five impossible", lambda rng: _single(rng, 1000, 0.2)),
    "by_turns": Mix(
        "1,000 shapes, one in five impossible, no two neighbours in the queue alike",
        lambda rng: _single(rng, 1000, 0.2),
        together=1,
    ),
    "possible": Mix("1,000 shapes, all served", lambda rng: _single(rng, 1000, 0.0, 4), True),
    "mostly_impossible": Mix(
        "1,000 shapes, 19 of 20 impossible", lambda rng: _single(rng, 1000, 0.95)
    ),
    "impossible": Mix("1,000 shapes, all impossible", lambda rng: _single(rng, 1000, 1.0), False),
    "constraints": Mix(
        "1,000 shapes with constraints of all operators",
        lambda rng: _single(rng, 1000, 0.2, placements=_placements(CONSTRAINTS)),
    ),
    "gangs": Mix("gangs of 2 to 8 equal kernels, 50 shapes", lambda rng: _gangs(rng, 50)),
    "mixed_gangs": Mix(
        "gangs of 2 to 8 kernels with two requests, 50 shapes",
        lambda rng: _gangs(rng, 50, mixed=True),
    ),
    "tight_gangs": Mix(
        "gangs of 2 to 8 equal kernels in one slice or on one machine, 50 shapes",
        lambda rng: _gangs(rng, 50, placements=_placements(TIGHT)),
    ),
    "mixed_tight_gangs": Mix(
        "gangs of 2 to 8 kernels with two requests in one slice or on one machine, 50 shapes",
        lambda rng: _gangs(rng, 50, mixed=True, placements=_placements(TIGHT)),
    ),
    "ruled_gangs": Mix(
        "gangs of 2 to 8 equal kernels with max_kernels_per_agent, rank_by or together, 50 shapes",
        lambda rng: _gangs(rng, 50, placements=_placements(RULES)),
    ),
}


def _route(plan: Plan) -> Iterator[Figure]:
    samples = Samples()
    pools, busy = _pools(plan.pools), _busy(plan.agents)
    policy = Policy.of(ScalingGroup(name="pool"))
    groups = {name: _group(plan, mix, busy, policy) for name, mix in MIXES.items()}
    settle_memory()  # as a controller that has started
    for _ in range(plan.runs):
        for name, mix in MIXES.items():
            matcher = Matcher("pool", pools, KERNELS, policy.selector)
            _timed(plan, mix, groups[name], pools, matcher)
            samples.add(f"{name}.warm", _timed(plan, mix, groups[name], pools, matcher))
            samples.add(name, _timed(plan, mix, groups[name], pools, None))
    gc.unfreeze()
    slowest = max((name for name in MIXES if "gangs" not in name), key=samples.median)
    size = f"{plan.entries:,} entries over {plan.pools} pools, {plan.agents:,} agents in use"
    yield Figure(
        "route_ms",
        samples.median(slowest),
        f"processor time, the slowest kind of demand without gangs ({slowest}); {size}",
        "≤ 100",
    )
    for name, mix in MIXES.items():
        yield Figure(f"route_ms.{name}", samples.median(name), mix.meaning, "≤ 100")
        meaning = "the same, when the classes were matched with the pools before"
        yield Figure(f"route_warm_ms.{name}", samples.median(f"{name}.warm"), meaning)


def _timed(
    plan: Plan, mix: Mix, group: GroupState, pools: Sequence[PoolState], matcher: Matcher | None
) -> float:
    """Milliseconds of this thread's processor time for one routing."""
    gc.collect()
    began_s = time.thread_time()
    decision = route_demand(
        Demand(group, NOW),
        group.snapshot,
        group.policy.selector,
        pools,
        kernels=KERNELS,
        matcher=matcher,
    )
    took_s = time.thread_time() - began_s
    _check(plan, mix, decision)
    return took_s * 1e3


def _check(plan: Plan, mix: Mix, decision: RoutingDecision) -> None:
    routed, unmet = len(decision.routed), sum(each.sessions for each in decision.unmet)
    as_it_should = {True: not unmet, False: not routed, None: routed > 0 < unmet}[mix.served]
    if routed + unmet != plan.entries or not as_it_should:
        raise MeaninglessFigures(
            f"{mix.meaning}: {routed} of {plan.entries} entries were routed, {unmet} were not"
        )


def _pools(count: int) -> list[PoolState]:
    """Pools of all kinds of machines, in some zones; together they may have more machines than are
    modelled at a time."""
    rng = random.Random(SEED)
    pools = []
    for number in range(count):
        attributes = {"zone": f"z{number % 5}", "speed": str(rng.randrange(50, 400))}
        if number % 2:
            attributes["disk"] = "nvme"
        spec = {
            "name": f"pool-{number:03}",
            "group": "pool",
            "provider": "local",
            "machine": MACHINES[number % len(MACHINES)],
            "slice_size": rng.choice((1, 1, 2, 4, 8)),
            "max_slices": rng.choice((10, 100, 200)),
            "priority": rng.choice((10, 50, 100)),
            "price": rng.randrange(1, 100) / 10,
            "preemptible": number % 3 == 0,
            "attributes": attributes,
        }
        pools.append(PoolState(PoolSpec.model_validate(spec)))
    return pools


def _busy(agents: int) -> Snapshot:
    """Agents that are all in use, most of them with a little room left."""
    snapshot, rng = Snapshot("pool"), random.Random(SEED)
    devices = tuple(Device(index, A100) for index in range(8))
    for number in range(agents):
        id_, capacity = AgentId(f"agt-{number:06}"), Resources(96_000, 1024 * GIB, kernels=KERNELS)
        attributes = {"zone": f"z{number % 5}", "speed": "200"}
        snapshot.upsert_agent(id_, id_, capacity, devices, True, "ALIVE", attributes)
        its = Resources(96_000 - rng.choice((0, 500)), 900 * GIB, 0, 8_000, kernels=1)
        snapshot.take_at(number, its, fullest_devices(its, snapshot, number))
    return snapshot


def _group(plan: Plan, mix: Mix, snapshot: Snapshot, policy: Policy) -> GroupState:
    """A group after a pass that placed nothing."""
    rng = random.Random(SEED)
    classes = mix.classes(rng)
    group = GroupState(snapshot, policy)
    for number in range(plan.entries):
        id_ = SessionId(f"ses-{number:08}")
        if number % mix.together == 0:
            workload = rng.choice(classes)
        group.submit(SessionWorkload(id_, NOW - 100 + number * 1e-6, workload))
    if placed := group.run_pass(NOW).placed:
        raise MeaninglessFigures(f"{mix.meaning}: {len(placed)} sessions had room on agents")
    return group


def _single(
    rng: random.Random,
    count: int,
    impossible: float,
    shapes: int = len(REQUESTS),
    placements: Sequence[PlacementSpec] = (ANYWHERE,),
) -> list[WorkloadClass]:
    """Classes of one kernel.

    Args:
        impossible: the part of them that no machine can hold.
        shapes: how many of the requests, the smallest first, are used.
    """
    return [
        _class(
            rng,
            (_altered(rng, NOWHERE if rng.random() < impossible else REQUESTS[:shapes], number),),
            rng.choice(placements),
        )
        for number in range(count)
    ]


def _gangs(
    rng: random.Random,
    count: int,
    *,
    mixed: bool = False,
    placements: Sequence[PlacementSpec] = (ANYWHERE,),
) -> list[WorkloadClass]:
    classes = []
    for number in range(count):
        size = rng.randint(2, 8)
        first = _altered(rng, NOWHERE if rng.random() < 0.2 else REQUESTS, number)
        other = _altered(rng, REQUESTS[:4], number) if mixed else first
        kernels = (first,) + (other,) * (size - 1)
        classes.append(_class(rng, kernels, placements[number % len(placements)]))
    return classes


def _class(
    rng: random.Random, kernels: tuple[Resources, ...], placement: PlacementSpec
) -> WorkloadClass:
    return WorkloadClass(OWNER, "pool", rng.choice((50, 50, 60)), kernels, placement=placement)


def _altered(rng: random.Random, requests: Sequence[Resources], number: int) -> Resources:
    """One of the requests, with an amount that no other class asks for."""
    one = rng.choice(requests)
    return Resources(
        one.cpu_milli,
        one.memory_bytes + number * 4096,
        one.disk_bytes,
        one.gpu_milli,
        one.extra,
        one.gpu_models,
        kernels=1,
    )


def _placements(specs: Iterable[Mapping[str, Any]]) -> list[PlacementSpec]:
    return [PlacementSpec.model_validate(each) for each in specs]


def _control(plan: Plan) -> Iterator[Figure]:
    """The control plane's part."""
    yield from control.idle_tick(plan.pools, plan.agents // 10, plan.runs)
    yield from control.submit_to_create(10 * plan.runs)
    yield from control.singles(100)


PARTS = {"route": _route, "control": _control}


if __name__ == "__main__":
    for figure in PARTS[sys.argv[1]](FULL):
        print(f"| {figure.key}: {figure.meaning} | {figure.shown} | {figure.goal} |", flush=True)
