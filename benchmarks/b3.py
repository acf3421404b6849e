"""B3: placement decisions, pure: whole passes over a queue, without the control plane."""

import gc
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from benchmarks.results import Figure, MeaninglessFigures, Results, Samples

from muster.app.process import settle_memory
from muster.core.ids import AgentId, SessionId
from muster.core.owner import Owner
from muster.core.resources import Device, Resources
from muster.core.specs import PlacementSpec, ScalingGroup
from muster.core.specs.placement import ANYWHERE
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.explaining.explain import explain
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.passes.pass_result import PassResult
from muster.scheduling.policy.group_policy import SELECTORS, Policy
from muster.scheduling.policy.selectors import fullest_devices
from muster.scheduling.workload import SessionWorkload, WorkloadClass

TITLE = "B3. Placement decisions, pure"
SEED = 20_261_120
RANKED = ("concentrated", "dispersed", "round_robin")
GIB = 2**30
NOW = 1_000_000.0
OWNER = Owner("default", "research", "ann")
GPU = "NVIDIA H100 80GB HBM3"
AGENT = Resources(128_000, 1024 * GIB, 4096 * GIB, extra=(("licence", 16_000),))
ZONES = 8
SHAPES = (
    Resources(1_000, 4 * GIB, 10 * GIB),
    Resources(4_000, 16 * GIB, 20 * GIB),
    Resources(2_000, 8 * GIB, 10 * GIB, 500),
    Resources(8_000, 64 * GIB, 100 * GIB, 1_000),
    Resources(16_000, 128 * GIB, 200 * GIB, 2_000, (("licence", 1_000),)),
    Resources(32_000, 256 * GIB, 500 * GIB, 4_000),
)
NEVER_FREE = Resources(8_000, 64 * GIB, 100 * GIB, 8_000)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured, each figure ``runs`` times."""

    runs: int
    agents: int = 10_000
    distinct: int = 10_000
    equal: int = 30_000
    waiting: int = 100_000


FULL = Plan(runs=7)
SHORT = Plan(runs=3)


def measure(plan: Plan) -> Results:
    """
    Raises:
        MeaninglessFigures: a pass did not decide as it should.
    """
    samples = Samples()
    selectors = [name for name in RANKED if name in SELECTORS]
    large, small = _cluster(plan.agents), _cluster(500)
    busy = _busy(plan.agents)
    jobs = {
        "distinct": _distinct(plan.distinct),
        "equal": _equal(plan.equal, SHAPES),
        "tasks": _equal(10_000, SHAPES[:2]),
        "gang": [_session(0, WorkloadClass(OWNER, "pool", 50, (SHAPES[3],) * 512))],
    }
    settle_memory()  # as a controller that has started
    policies = {name: _policy(name) for name in selectors}
    for policy in policies.values():  # a cluster that has been in use, as it mostly has
        _pass(jobs["distinct"], busy, policy, refused=plan.distinct // 50)
    for _ in range(plan.runs):
        for name, policy in policies.items():
            took_s = _pass(jobs["distinct"], busy, policy, refused=plan.distinct // 50)
            samples.add(f"distinct_per_s.{name}", plan.distinct / took_s)
            took_s = _pass(jobs["equal"], large, policy)
            samples.add(f"equal_per_s.{name}", plan.equal / took_s)
            samples.add(f"tasks.{name}", _pass(jobs["tasks"], small, policy) * 1e3)
            samples.add(f"gang.{name}", _pass(jobs["gang"], large, policy) * 1e3)
        samples.add("explain", _explain_ms(busy))
        samples.add("idle", _idle_ms(busy, plan.waiting))
    gc.unfreeze()
    return Results(plan.runs, list(_figures(plan, samples, selectors)))


def _figures(plan: Plan, samples: Samples, selectors: Sequence[str]) -> Iterator[Figure]:
    def each(key: str, worst: Callable[[Iterable[float]], float]) -> tuple[float, str]:
        medians = {name: samples.median(f"{key}.{name}") for name in selectors}
        shown = ", ".join(f"{name} {value:,.3g}" for name, value in medians.items())
        return worst(medians.values()), f"the slowest of {shown}"

    agents = f"{plan.agents:,} agents of 4 dimensions and 8 GPUs"
    value, which = each("distinct_per_s", min)
    yield Figure(
        "distinct_per_s",
        value,
        f"one pass over {plan.distinct:,} sessions, no two of which ask for the same, a third with "
        f"constraints, one in 50 without room; {agents}, half full; {which}",
        "≥ 50,000",
    )
    value, which = each("equal_per_s", min)
    yield Figure(
        "equal_per_s",
        value,
        f"one pass over six jobs of {plan.equal // 6:,} equal sessions, two with constraints; "
        f"{agents}; {which}",
        "≥ 1,000,000",
    )
    value, which = each("tasks", max)
    yield Figure(
        "tasks10000_agents500_ms",
        value,
        f"one pass over two jobs of 5,000 equal tasks, all placed; {which}",
        "≤ 10",
    )
    value, which = each("gang", max)
    yield Figure(
        "gang512_ms",
        value,
        f"one pass over a gang of 512 kernels of a GPU; {agents}; {which}",
        "≤ 5",
    )
    yield Figure(
        "explain_ms",
        samples.median("explain"),
        f"why one session does not start, agent by agent; {agents}, half full",
        "≤ 2",
    )
    yield Figure(
        "idle_pass_ms",
        samples.median("idle"),
        f"a pass over {plan.waiting:,} waiting sessions of 50 shapes after one over the same; "
        f"{agents}",
        "≤ 50",
    )


def _policy(selector: str) -> Policy:
    return Policy.of(ScalingGroup(name="pool", selector=selector))


def _pass(
    sessions: Sequence[SessionWorkload], snapshot: Snapshot, policy: Policy, refused: int = 0
) -> float:
    """Seconds of one pass; all that it placed has ended afterwards."""
    before, state = snapshot.columns.free.copy(), _state(snapshot, policy, sessions)
    began_s = time.perf_counter()
    result = state.run_pass(NOW)
    took_s = time.perf_counter() - began_s
    _check(result, len(sessions), refused)
    for placed in result.placed:
        state.start(placed, NOW)
        state.end(placed.session.id, NOW)
    if not np.array_equal(before, snapshot.columns.free):
        raise MeaninglessFigures("what was given back is not what was placed")
    return took_s


def _state(snapshot: Snapshot, policy: Policy, waiting: Iterable[SessionWorkload]) -> GroupState:
    state = GroupState(snapshot, policy)
    for session in waiting:
        state.submit(session)
    return state


def _check(result: PassResult, sessions: int, refused: int) -> None:
    waiting = sum(len(members) for members in result.refused)
    if len(result.placed) != sessions - refused or waiting != refused:
        raise MeaninglessFigures(
            f"{len(result.placed)} of {sessions} sessions were placed and {waiting} refused, "
            f"not {refused}"
        )


def _explain_ms(busy: Snapshot) -> float:
    session = _session(0, WorkloadClass(OWNER, "pool", 50, (NEVER_FREE,)))
    state = _state(busy.copy(), _policy("concentrated"), [session])
    state.run_pass(NOW)
    context = state.context(NOW)
    began_s = time.perf_counter()
    explanation = explain(session, state.queue, state.snapshot, state.policy, context)
    took_s = time.perf_counter() - began_s
    if not explanation.reasons:
        raise MeaninglessFigures("the session to explain would start")
    return took_s * 1e3


def _idle_ms(busy: Snapshot, waiting: int) -> float:
    classes = [
        WorkloadClass(OWNER, "pool", 50, (_altered(NEVER_FREE, number),)) for number in range(50)
    ]
    sessions = (_session(number, classes[number % 50]) for number in range(waiting))
    state = _state(busy.copy(), _policy("concentrated"), sessions)
    state.run_pass(NOW)
    began_s = time.perf_counter()
    result = state.run_pass(NOW)
    took_s = time.perf_counter() - began_s
    _check(result, waiting, waiting)
    return took_s * 1e3


# Clusters and queues


def _cluster(agents: int) -> Snapshot:
    snapshot = Snapshot("pool")
    devices = tuple(Device(index, GPU) for index in range(8))
    for number in range(agents):
        snapshot.upsert_agent(
            AgentId(f"agt-{number:06}"),
            f"node-{number:05}",
            AGENT,
            devices,
            accepting=True,
            status="ALIVE",
            attributes={"zone": f"z{number % ZONES}", "rack": f"r{number // 40}"},
        )
    return snapshot


def _busy(agents: int) -> Snapshot:
    """A cluster in which every agent has some work, so that none has all of its GPUs free. It is
    no copy: on a copy, passes also consider agents that are away, which no real pass does."""
    busy, rng = _cluster(agents), random.Random(SEED)
    for slot in range(busy.columns.slots):
        for _ in range(rng.randint(2, 4)):
            request = rng.choice(SHAPES[2:5])
            busy.take_at(slot, request, fullest_devices(request, busy, slot))
    return busy


def _session(number: int, workload: WorkloadClass) -> SessionWorkload:
    return SessionWorkload(SessionId(f"ses-{number:08}"), NOW - 100 + number * 1e-6, workload)


def _constrained() -> list[PlacementSpec]:
    soft = {"attribute": "zone", "values": "z2", "soft": True}
    specs = [["zone in z1,z3,z4"], ["zone!=z0", "rack"], ["zone=z5"], ["!spot"], [soft]]
    return [PlacementSpec.model_validate({"constraints": each}) for each in specs]


def _altered(request: Resources, number: int) -> Resources:
    """One that nobody else asks for."""
    return Resources(
        request.cpu_milli + number % 977,
        request.memory_bytes + number * 4096,
        request.disk_bytes,
        request.gpu_milli,
        request.extra,
    )


def _distinct(count: int) -> list[SessionWorkload]:
    rng, specs = random.Random(SEED), _constrained()
    sessions = []
    for number in range(count):
        request = NEVER_FREE if number % 50 == 49 else rng.choice(SHAPES)
        placement = rng.choice(specs) if number % 3 == 0 else ANYWHERE
        workload = WorkloadClass(
            OWNER, "pool", 50, (_altered(request, number),), placement=placement
        )
        sessions.append(_session(number, workload))
    return sessions


def _equal(count: int, shapes: Sequence[Resources]) -> list[SessionWorkload]:
    """A job of each shape, one after the other."""
    specs, each = _constrained(), count // len(shapes)
    sessions: list[SessionWorkload] = []
    for index, request in enumerate(shapes):
        placement = specs[index] if len(shapes) > 2 and index % 3 == 0 else ANYWHERE
        workload = WorkloadClass(OWNER, "pool", 50, (request,), placement=placement)
        sessions += [_session(index * each + number, workload) for number in range(each)]
    return sessions
