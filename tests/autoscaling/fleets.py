"""Pools, slices and demand as data, beside the clusters of ``tests.scheduling``."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.scheduling.clusters import cluster, session

from muster.autoscaling.pool_state import Ceilings, ComingSlice, PoolState
from muster.autoscaling.routing import DemandEntry, RoutingDecision, route_demand
from muster.core.reasons import Reason
from muster.core.resources import Resources
from muster.core.specs.pool import PoolSpec
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import WorkloadClass

KERNELS = 100  # that an agent may hold


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


def entries(*demand: tuple[str, WorkloadClass]) -> list[DemandEntry]:
    return [DemandEntry(session(name).id, workload) for name, workload in demand]


def demand(count: int, workload: WorkloadClass) -> list[DemandEntry]:
    """So many sessions of a class."""
    return entries(*((str(number), workload) for number in range(count)))


def routed(
    waiting: Sequence[DemandEntry],
    *pools: PoolState,
    agents: Snapshot | None = None,
    coming: Sequence[ComingSlice] = (),
    ceilings: Ceilings | None = None,
) -> RoutingDecision:
    snapshot = cluster() if agents is None else agents
    return route_demand(
        waiting, snapshot, Concentrated(), pools, coming, kernels=KERNELS, ceilings=ceilings
    )


def where(decision: RoutingDecision) -> dict[str, str | list[str]]:
    """By session the machines that it is to have, or by pool the codes of the reasons why not."""
    told: dict[str, str | list[str]] = {}
    for each in decision.routed:
        machines = dict.fromkeys(str(kernel.agent_id) for kernel in each.kernels)
        told[_name(each.entry)] = " ".join(machines)
    for unmet in decision.unmet:
        told[_name(unmet.entry)] = [
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


def counted(kernels: Sequence[Resources]) -> tuple[Resources, ...]:
    """The requests of kernels, each of which counts toward what an agent may hold."""
    return tuple(replace(each, kernels=1) for each in kernels)


def _name(entry: DemandEntry) -> str:
    return entry.session.removeprefix("ses-")
