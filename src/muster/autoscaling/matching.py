"""The pools whose machines can hold kernels of a class, and the reasons of the others: by shapes
and attributes alone, whatever is running."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from muster.autoscaling.modelled import modelled
from muster.autoscaling.pool_state import PoolState
from muster.core.reasons import Reason
from muster.core.reasons.of_demand import (
    PoolNoDevice,
    PoolNotDesignated,
    PoolOtherDevice,
    PoolPortInUse,
    PoolRuleUnmet,
    PoolTooSmall,
)
from muster.core.reasons.of_groups import NoAgentMeets, NoSuchAgents
from muster.core.resources import KERNELS, Resources, is_model, unit_of
from muster.core.specs.placement import PlacementSpec
from muster.core.specs.pool import PoolSpec
from muster.scheduling.cluster.constraints import eligible, hard_rules, is_met
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.fitting.feasibility import Feasibility
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.workload import WorkloadClass, others_on

_REMEMBERED = 20_000  # classes


@dataclass(frozen=True, slots=True)
class Match:
    """The pools of which an empty machine holds a kernel of a class, the best first.

    Args:
        pools: their numbers.
        copies: by ``WorkloadClass.requests`` the number of kernels that a machine of each of these
            pools holds.
    """

    pools: tuple[int, ...] = ()
    copies: tuple[tuple[int, ...], ...] = ()

    def __iter__(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Each pool's number with its ``copies``."""
        return zip(self.pools, zip(*self.copies, strict=True), strict=True)


class Matcher:
    """The pools of a group, against which classes are held. It is good as long as their shapes and
    ranks are the same (``is_for``), whatever becomes of their slices.

    Attributes:
        specs: of the pools; a pool's number is its index.
        kernels: how many kernels an agent of the group may hold.

    Args:
        group: the name of the scaling group.
        pools: in any order.
        kernels: how many kernels an agent of the group may hold.
    """

    def __init__(
        self, group: str, pools: Sequence[PoolState], kernels: int, selector: AgentSelector
    ) -> None:
        self.specs = [pool.spec for pool in pools]
        self._interruptions = [pool.interruptions for pool in pools]
        self._ports_in_use = {pool.spec.name: pool.ports_in_use for pool in pools}
        self._selector = selector
        self.kernels = kernels
        samples = Snapshot(group).extended(
            modelled(pool.spec, f"{pool.spec.name}+1", 1, kernels) for pool in pools
        )
        for slot, pool in enumerate(pools):
            for port in pool.ports_in_use:
                samples.set_joined_at(slot, others_on(port), 1)
        self._samples = samples
        self._slots = np.arange(len(pools))
        self._known: dict[WorkloadClass, Match] = {}
        self._ranks = {
            needs: np.array(
                sorted(range(len(pools)), key=lambda at: _rank(pools[at], needs_devices=needs)),
                np.int64,
            )
            for needs in (True, False)
        }

    def is_for(self, pools: Sequence[PoolState], kernels: int, selector: AgentSelector) -> bool:
        """Whether what was found out holds for these pools, in this order."""
        return (
            kernels == self.kernels
            and selector is self._selector
            and self._interruptions == [pool.interruptions for pool in pools]
            and self._ports_in_use == {pool.spec.name: pool.ports_in_use for pool in pools}
            and self.specs == [pool.spec for pool in pools]
        )

    def match(self, workload: WorkloadClass) -> Match:
        """The pools for a class; remembered."""
        known = self._known.get(workload)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[workload] = self._match(workload)
        return known

    def _match(self, workload: WorkloadClass) -> Match:
        mask = eligible(self._samples, workload)
        if mask is not None and not mask.any():
            return Match()
        copies = np.array(
            [
                self._samples.columns.copies(request, self._slots, self.kernels)
                for request, _ in workload.requests
            ]
        )
        np.maximum(copies, 0, out=copies)
        if mask is not None:
            copies[:, ~mask] = 0
        ranks = self._ranks[any(request.gpu_milli for request, _ in workload.requests)]
        matching = ranks[copies.max(axis=0)[ranks] > 0]
        return Match(tuple(matching.tolist()), tuple(map(tuple, copies[:, matching].tolist())))

    # Why not

    def refusals(self, workload: WorkloadClass, pool: PoolSpec) -> tuple[Reason, ...]:
        """All reasons for which no machine of a pool can hold a kernel of a class; none if one
        can."""
        found = [*self._rules(workload.placement, pool)]
        if workload.port in self._ports_in_use[pool.name]:
            found.append(PoolPortInUse(pool=pool.name, port=workload.port))
        for request, _ in workload.requests:
            found += _lacking(request, pool, self.kernels)
        return tuple(dict.fromkeys(found))

    def _rules(self, placement: PlacementSpec, pool: PoolSpec) -> Iterator[Reason]:
        attributes = pool.attributes_in(f"{pool.name}+1")
        for rule in hard_rules(placement):
            if rule is None:
                yield PoolNotDesignated(pool=pool.name)
            elif not is_met(rule, has := attributes.get(rule.attribute)):
                lacks = has is None
                yield PoolRuleUnmet(pool=pool.name, rule=str(rule), has=has, lacks=lacks)

    def nearest(self, workload: WorkloadClass) -> str | None:
        """The value of pools that is most like the one that the class asks for and no pool has:
        perhaps it was meant."""
        never = Feasibility(self._samples, self._selector).never(workload)
        return never.nearest if isinstance(never, NoAgentMeets | NoSuchAgents) else None


def _rank(pool: PoolState, *, needs_devices: bool) -> tuple[Any, ...]:
    """The order of pools: by priority; of equal ones those that leave scarce devices unused, the
    cheaper, those that were interrupted less, and by name."""
    spec = pool.spec
    scarce = 0 if needs_devices else spec.machine.gpus
    return spec.priority, scarce, spec.price, pool.interruptions, spec.name


def _lacking(request: Resources, pool: PoolSpec, kernels: int) -> Iterator[Reason]:
    shape = pool.machine
    if request.gpu_milli:
        if not shape.gpus:
            yield PoolNoDevice(pool=pool.name)
        elif request.gpu_models and not any(
            is_model(shape.gpu_model, wanted) for wanted in request.gpu_models
        ):
            wanted = " or ".join(request.gpu_models)
            yield PoolOtherDevice(pool=pool.name, has=shape.gpu_model, wanted=wanted)
    has = shape.capacity(kernels).as_dict()
    for name, asked in request.as_dict().items():
        if name != KERNELS and asked > has.get(name, 0) and (name != "gpu" or shape.gpus):
            yield PoolTooSmall(
                pool=pool.name,
                resource=name,
                requested=asked,
                capacity=has.get(name, 0),
                unit=unit_of(name),
            )
