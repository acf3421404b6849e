"""The agents that a session may use, and the agents that it prefers: rules on attributes and names,
and fixed ports.

Nothing here looks at free amounts. What the rules allow is cached for a snapshot as long as its
agents' facts are unchanged (``Snapshot.facts_version``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from muster.core.specs import PlacementSpec
from muster.core.specs.placement import ANYWHERE, NUMERIC, Constraint, Operator, as_number
from muster.scheduling.cluster.columns import Flags, Ints
from muster.scheduling.cluster.order import Tier
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.workload import WorkloadClass, others_on, users_of

_COMPARE: Mapping[Operator, Callable[[float, float], bool]] = {
    Operator.GT: lambda value, bound: value > bound,
    Operator.GE: lambda value, bound: value >= bound,
    Operator.LT: lambda value, bound: value < bound,
    Operator.LE: lambda value, bound: value <= bound,
}


def is_met(constraint: Constraint, value: str | None) -> bool:
    """Whether an agent whose attribute has ``value`` meets ``constraint``; None stands for an agent
    without the attribute."""
    op = constraint.op
    if op is Operator.EXISTS:
        return value is not None
    if op is Operator.NOT_EXISTS:
        return value is None
    if op is Operator.NE:
        return value != constraint.values[0]
    if value is None:
        return False
    if op in NUMERIC:
        number, bound = as_number(value), as_number(constraint.values[0])
        return number is not None and bound is not None and _COMPARE[op](number, bound)
    return value in constraint.values  # EQ, IN


def meets(snapshot: Snapshot, constraint: Constraint) -> Flags:
    """The slots that meet ``constraint``; entries of vacant slots mean nothing."""
    codes, values = snapshot.attribute(constraint.attribute)
    of_code = np.array([is_met(constraint, value) for value in (*values, None)], np.bool_)
    return of_code[codes]  # the last entry is for agents without the attribute, whose code is -1


def hard_rules(placement: PlacementSpec) -> Iterator[Constraint | None]:
    """The rules that an agent must meet; None stands for being one of the designated agents."""
    for constraint in placement.constraints:
        if not constraint.soft:
            yield constraint
    if placement.together is not None:
        yield Constraint(attribute=placement.together, op=Operator.EXISTS)
    if placement.agents and placement.agents_only:
        yield None


def meets_rule(snapshot: Snapshot, placement: PlacementSpec, rule: Constraint | None) -> Flags:
    """The slots that meet one of ``hard_rules``."""
    return _named(snapshot, placement) if rule is None else meets(snapshot, rule)


def has_free(snapshot: Snapshot, port: int) -> Flags:
    """The slots where no kernel has a fixed port, nor anybody else as far as their agents told."""
    mask = ~have_others(snapshot, port)
    mask[list(snapshot.in_set(users_of(port)))] = False
    return mask


def have_others(snapshot: Snapshot, port: int) -> Flags:
    """The slots where a program that is no kernel of the agent has a fixed port, as it told."""
    mask = np.zeros(snapshot.columns.slots, np.bool_)
    mask[list(snapshot.in_set(others_on(port)))] = True
    return mask


def eligible(snapshot: Snapshot, workload: WorkloadClass) -> Flags | None:
    """The slots that ``allowed`` names and where the workload's fixed port is free, if it has one;
    None if all are."""
    mask = allowed(snapshot, workload)
    if workload.port is None:
        return mask
    free = has_free(snapshot, workload.port)
    return free if mask is None else mask & free


def allowed(snapshot: Snapshot, workload: WorkloadClass) -> Flags | None:
    """The slots that the hard rules of ``workload.placement`` allow, without the slots of agents
    that are unfit for the workload; None if all slots are allowed."""
    placement, unfit = workload.placement, workload.unfit_agents
    if placement is ANYWHERE and not unfit:
        return None
    return snapshot.remembered(
        ("eligible", placement, unfit), lambda: _eligible(snapshot, workload)
    )


def soft_ranks(snapshot: Snapshot, workload: WorkloadClass) -> Ints | None:
    """Ranks by slot, which come before the selector's score, the lowest first; None if all are
    equal.

    Agents that failed the session come last; among the others designated agents come first, then
    agents that meet more of the soft constraints.
    """
    placement = workload.placement
    ranks: Ints | None = None
    if placement is not ANYWHERE:
        ranks = _ranks(snapshot, placement)
    failed = snapshot.slots_among(workload.failed_agents) if workload.failed_agents else []
    if failed:
        if ranks is None:
            ranks = np.zeros(snapshot.columns.slots, np.int64)
        ranks[failed] += 1 + ranks.max()
    return ranks


EVERYWHERE = Tier()
_ALL = (EVERYWHERE,)


def tiers(snapshot: Snapshot, workload: WorkloadClass) -> tuple[Tier, ...]:
    """The slots that the hard rules allow, by ``soft_ranks``, the best first; none is empty.

    In a trial, the slots of returning agents come after all others, so that the session needs as
    few of them as possible: it would wait for them, and meanwhile keep room on connected agents
    that other sessions could use.
    """
    known = _known_tiers(snapshot, workload)
    if not snapshot.is_trial:
        return known
    away = snapshot.columns.returning
    return (*within(known, ~away), *within(known, away)) if away.any() else known


def _known_tiers(snapshot: Snapshot, workload: WorkloadClass) -> tuple[Tier, ...]:
    """``tiers``, with returning agents among the others; one object while the facts stay the
    same."""
    placement, failed, unfit = workload.placement, workload.failed_agents, workload.unfit_agents

    def find() -> tuple[Tier, ...]:
        key = ("tiers", placement, failed, unfit)
        return snapshot.remembered(key, lambda: _tiers(snapshot, workload))

    if failed or unfit:
        return find()
    if placement is ANYWHERE:
        return _ALL
    # Comparing placement specs costs as much as a decision, and most are one object.
    spec, known = snapshot.remembered(id(placement), lambda: (placement, find()))
    return known if spec is placement else find()


def _tiers(snapshot: Snapshot, workload: WorkloadClass) -> tuple[Tier, ...]:
    mask, ranks = allowed(snapshot, workload), soft_ranks(snapshot, workload)
    if ranks is None:
        if mask is None:
            return _ALL
        return _present(mask)
    used = ranks if mask is None else ranks[mask]
    masks = [ranks == rank for rank in np.unique(used)]
    return _present(*(same if mask is None else same & mask for same in masks))


def _present(*masks: Flags) -> tuple[Tier, ...]:
    """A tier for each mask that has a slot."""
    if len(masks) == 1 and masks[0].all():
        return _ALL
    return tuple(Tier(mask) for mask in masks if mask.any())


def within(tiers: Iterable[Tier], mask: Flags) -> tuple[Tier, ...]:
    """The tiers without the slots that are not in ``mask``."""
    return _present(*(mask if each.mask is None else each.mask & mask for each in tiers))


def _eligible(snapshot: Snapshot, workload: WorkloadClass) -> Flags | None:
    masks = [
        meets_rule(snapshot, workload.placement, rule) for rule in hard_rules(workload.placement)
    ]
    if workload.unfit_agents:
        masks.append(is_fit(snapshot, workload))
    return np.logical_and.reduce(masks) if masks else None


def is_fit(snapshot: Snapshot, workload: WorkloadClass) -> Flags:
    """The slots whose agents have not reported that they cannot run the session."""
    mask = np.ones(snapshot.columns.slots, np.bool_)
    mask[snapshot.slots_among(workload.unfit_agents)] = False
    return mask


def _ranks(snapshot: Snapshot, placement: PlacementSpec) -> Ints | None:
    soft = [constraint for constraint in placement.constraints if constraint.soft]
    preferred = bool(placement.agents) and not placement.agents_only
    if not soft and not preferred:
        return None
    ranks = np.zeros(snapshot.columns.slots, np.int64)
    for constraint in soft:
        ranks += ~meets(snapshot, constraint)
    if preferred:
        ranks += (len(soft) + 1) * ~_named(snapshot, placement)
    return ranks


def _named(snapshot: Snapshot, placement: PlacementSpec) -> Flags:
    mask = np.zeros(snapshot.columns.slots, np.bool_)
    mask[snapshot.slots_named(placement.agents)] = True
    return mask
