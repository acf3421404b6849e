"""Pools, slices and demand as data, beside the clusters of ``tests.scheduling``."""

from collections.abc import Iterable, Sequence
from typing import Any

from tests.scheduling.clusters import cluster, policy, session

from muster.autoscaling.decision import RoutingDecision
from muster.autoscaling.demand import Demand
from muster.autoscaling.pool_state import Ceilings, ComingSlice, PoolState
from muster.autoscaling.routing import route_demand
from muster.core.ids import SessionId
from muster.core.reasons import Reason
from muster.core.reasons.of_groups import NoRoom
from muster.core.specs.pool import PoolSpec
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import SessionWorkload, WorkloadClass

KERNELS = 100  # that an agent may hold
NOW = 1_000.0


def pool(
    name: str,
    cpu: float = 4,
    gib: float = 16,
    gpus: int = 0,
    model: str = "H100",
    *,
    slices: int = 0,
    closed: Reason | None = None,
    at_once: int | None = None,
    interruptions: int = 0,
    **fields: Any,
) -> PoolState:
    """A pool of machines like ``box``; ``slices`` is how many it has, further keywords are of its
    spec."""
    machine = {"cpu": cpu, "memory": f"{gib}GiB", "gpus": gpus, "gpu_model": model if gpus else ""}
    spec = PoolSpec.model_validate(
        {"name": name, "group": "pool", "provider": "local", "max_slices": 10, "machine": machine}
        | fields
    )
    return PoolState(spec, slices, closed, at_once, interruptions)


def sessions(*waiting: tuple[str, WorkloadClass]) -> list[SessionWorkload]:
    """Sessions by name, in the order of their ages."""
    return [
        SessionWorkload(session(name).id, float(age), workload)
        for age, (name, workload) in enumerate(waiting)
    ]


def several(count: int, workload: WorkloadClass) -> list[SessionWorkload]:
    """So many sessions of a class."""
    return sessions(*((f"{number:03}", workload) for number in range(count)))


def demand(waiting: Iterable[SessionWorkload], agents: Snapshot, **parts: Any) -> Demand:
    """The demand of a group in which all sessions wait for room, though some may have it."""
    group = GroupState(agents, policy(**parts))
    for each in waiting:
        group.submit(each)
    for members in group.queue.classes:
        members.reasons = (NoRoom(agents=1, group="pool", request="1 gpu"),)
    return Demand(group, NOW)


def routed(
    waiting: Iterable[SessionWorkload],
    *pools: PoolState,
    agents: Snapshot | None = None,
    coming: Sequence[ComingSlice] = (),
    ceilings: Ceilings | None = None,
) -> RoutingDecision:
    snapshot = cluster() if agents is None else agents
    return route_demand(
        demand(waiting, snapshot),
        snapshot,
        Concentrated(),
        pools,
        coming,
        kernels=KERNELS,
        ceilings=ceilings,
    )


def where(decision: RoutingDecision) -> dict[str, str | list[str]]:
    """By session the machines that it is to have; by the first session of a class that is unmet, by
    pool the codes of the reasons why."""
    told: dict[str, str | list[str]] = {}
    for each in decision.routed:
        machines = dict.fromkeys(str(kernel.agent_id) for kernel in each.kernels)
        told[_name(each.entry.session)] = " ".join(machines)
    for unmet in decision.unmet:
        told[_name(unmet.first)] = [
            f"{pool}: {reason.code}"
            for pool, reasons in unmet.why.reasons.items()
            for reason in reasons
        ]
    return told


def sentences(decision: RoutingDecision) -> list[str]:
    """Why each pool does not serve what is unmet."""
    return [
        reason.sentence()
        for unmet in decision.unmet
        for reasons in unmet.why.reasons.values()
        for reason in reasons
    ]


def _name(id_: SessionId) -> str:
    return id_.removeprefix("ses-")
