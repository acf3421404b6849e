"""Whether a group's agents could ever hold a session, and which agents: by their capacity and
attributes, not by their free amounts."""

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypedDict

import numpy as np

from muster.core.reasons import Reason
from muster.core.reasons.of_groups import (
    GangNeverFits,
    NeedsAbsentAgents,
    NeverFits,
    NoAgentMeets,
    NoAgents,
    NoAliveAgents,
    NoSuchAgents,
    PortForeign,
    PortTaken,
)
from muster.core.reasons.reason import UNKNOWN
from muster.core.resources import GPU_WHOLE, KERNELS, Resources
from muster.core.specs.placement import ClusterMode, Constraint, Operator, PlacementSpec
from muster.core.states import AgentBar
from muster.core.states.health import ILL, HealthStatus
from muster.scheduling.cluster.columns import Columns, Flags, Ints
from muster.scheduling.cluster.constraints import (
    allowed,
    eligible,
    hard_rules,
    has_free,
    have_others,
    meets_rule,
)
from muster.scheduling.cluster.snapshot import OUT_OF_DISK, WITHHELD, Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.fit import Fit, fit_session, most_placed
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.workload import WorkloadClass

_NAMED = 5  # of many names or rules
_NEAR = 16  # names on either side of a name's place, among which the nearest is looked for
_APART = {"mode": ClusterMode.MULTI_NODE, "together": None, "max_kernels_per_agent": None}


class ReachedAgents(TypedDict):
    """The numbers of a reason that tell how many agents of a group meet a session's rules, unless
    all do, and these rules."""

    agents: int
    group: str
    meeting: int | None
    rules: str


class ClosedAgents(TypedDict, total=False):
    """The numbers of a reason that tell how many agents take no new work, if any, their statuses,
    and how many of them have a remedy of their own."""

    closed: int
    statuses: str
    barred: int | None
    isolated: int | None
    healing: int | None
    withheld: int | None
    full: int | None
    silent: int | None


class RulesTogether(TypedDict, total=False):
    """The numbers of a reason that tell a session's rules for all of its kernels together."""

    single_node: bool
    together: str
    per_agent: int


class Feasibility:
    """Feasibility at one moment: the snapshot's agents must not change meanwhile; their free
    amounts may."""

    def __init__(self, snapshot: Snapshot, selector: AgentSelector) -> None:
        self._snapshot = snapshot
        self._selector = selector

    def never(self, workload: WorkloadClass) -> Reason | None:
        """The reason why the present group could not hold such a session even when empty; None if
        it could.

        Raises:
            MusterError: the selector raises or answers nonsense.
        """
        snapshot, kernels = self._snapshot, len(workload.kernels)
        agents, group = len(snapshot), snapshot.group
        if not len(snapshot):
            return NoAgents(group=group)
        columns = snapshot.columns
        if not (columns.accepting | columns.returning).any():
            return NoAliveAgents(agents=agents, group=group, **self._closed_among(None))
        if self._fit(workload, self._when_empty).kernels is not None:
            return None
        fit = self._fit(workload, self._with_closed)
        if fit.kernels is not None:
            return NeedsAbsentAgents(agents=agents, group=group, **self._closed_among(None))
        absent = _absent(snapshot, workload.placement)
        unmet = self._unmet(workload, absent)
        if unmet is not None:
            return unmet
        missing = _some(absent) or None
        reached = self._reached(workload, allowed(snapshot, workload))
        if kernels == 1:
            request = workload.kernels[0].describe()
            return NeverFits(request=request, missing=missing, **reached)
        placed = most_placed(self._with_closed, self._selector, workload, fit)
        most = self.most_kernels(workload, self._with_closed)
        return GangNeverFits(
            placed=placed,
            kernels=kernels,
            keys=self._keys_in_the_way(workload),
            most=most or None,
            missing=missing,
            **reached,
            **together(workload),
        )

    def reach(self, workload: WorkloadClass) -> tuple[ReachedAgents, ClosedAgents]:
        """The numbers of a reason that tell of the agents that meet the session's rules, and of
        those of them that take no new work."""
        mask = eligible(self._snapshot, workload)
        rules = [] if workload.port is None else [f"port {workload.port} free"]
        return self._reached(workload, mask, rules), self._closed_among(mask)

    def port_taken(self, workload: WorkloadClass) -> Reason | None:
        """The reason of a session whose fixed port is taken on all agents that it may use now; None
        for any other."""
        snapshot, port = self._snapshot, workload.port
        if port is None:
            return None
        mask, open_ = allowed(snapshot, workload), snapshot.columns.accepting
        may = open_ if mask is None else open_ & mask
        if not may.any() or (may & has_free(snapshot, port)).any():
            return None
        agents = int(np.count_nonzero(may))
        others = int(np.count_nonzero(may & have_others(snapshot, port)))
        group, several, some = snapshot.group, agents > 1, agents < len(snapshot)
        if others == agents:
            return PortForeign(port=port, agents=agents, group=group, several=several, some=some)
        return PortTaken(
            port=port, agents=agents, group=group, several=several, some=some, others=others or None
        )

    def most_kernels(self, workload: WorkloadClass, statement: Statement) -> int:
        """The number of kernels that an agent may hold, if only that limit keeps the session from
        fitting; else 0."""
        columns = statement.snapshot.columns
        if KERNELS not in columns.dimensions:
            return 0
        dimension = columns.dimensions.index(KERNELS)
        few = columns.present & (columns.free[:, dimension] < len(workload.kernels))
        if not few.any():
            return 0
        if (columns.free[few, dimension] < 0).any():  # the limit was higher
            statement = Statement(statement.snapshot.uncounted())
        if self._fit(workload.uncounted, statement).kernels is None:
            return 0
        return int(columns.capacity[few, dimension].max())

    # Agents that meet the rules

    def _reached(
        self, workload: WorkloadClass, mask: Flags | None, more: Sequence[str] = ()
    ) -> ReachedAgents:
        """
        Args:
            mask: the slots that meet the session's rules, ``more`` of which are no hard rules.
        """
        snapshot = self._snapshot
        agents = meeting = len(snapshot)
        if mask is not None:
            meeting = int(np.count_nonzero(mask & snapshot.columns.present))
        if meeting == agents:
            return ReachedAgents(agents=agents, group=snapshot.group, meeting=None, rules=UNKNOWN)
        rules = [_as_written(rule, workload.placement) for rule in hard_rules(workload.placement)]
        rules += ["its needs"] if workload.unfit_agents else []
        rules += more
        return ReachedAgents(
            agents=agents, group=snapshot.group, meeting=meeting, rules=_some(rules)
        )

    def _unmet(self, workload: WorkloadClass, absent: Sequence[str]) -> Reason | None:
        """The rules that no agent meets, alone or together; None if for each request an agent meets
        all of them.

        Args:
            absent: designated agents that the group lacks.
        """
        snapshot, placement = self._snapshot, workload.placement
        there = snapshot.columns.present
        rules = list(hard_rules(placement))
        told = [_as_written(rule, placement) for rule in rules]
        met_by = [meets_rule(snapshot, placement, rule) & there for rule in rules]
        unmet = [rule for rule, met in zip(rules, met_by, strict=True) if not met.any()]
        if unmet:
            guesses = [_meant(snapshot, rule, absent) for rule in unmet]
            nearest = _some([guess for guess in guesses if guess is not None]) or None
            if unmet == [None]:
                return NoSuchAgents(
                    agents=len(snapshot),
                    group=snapshot.group,
                    nearest=nearest,
                    missing=_some(absent),
                )
            written = _some([_as_written(rule, placement) for rule in unmet])
            return self._no_agent_meets(written, absent, nearest)
        mask = there.copy()
        for met in met_by:
            mask &= met
        if not mask.any():
            return self._no_agent_meets(f"all of {_some(told)}", absent)
        for request, _ in workload.requests:
            device = _device_rule(snapshot.columns, request)
            if device:
                usable = snapshot.columns.usable(request, np.arange(there.size))
                met = usable.sum(axis=0) > 0
                if not (met & mask).any():
                    alone = not (met & there).any()
                    written = device if alone else f"all of {_some([*told, device])}"
                    return self._no_agent_meets(written, absent)
        return None

    def _no_agent_meets(
        self, rules: str, absent: Sequence[str], nearest: str | None = None
    ) -> NoAgentMeets:
        return NoAgentMeets(
            agents=len(self._snapshot),
            group=self._snapshot.group,
            rules=rules,
            nearest=nearest,
            missing=_some(absent) or None,
        )

    # Agents that take no new work

    @cached_property
    def _closed(self) -> tuple[Ints, Ints, Sequence[str]]:
        """The slots of agents that take no new work, the index of each one's status, and the
        statuses."""
        snapshot = self._snapshot
        slots = np.flatnonzero(snapshot.columns.present & ~snapshot.columns.accepting)
        statuses = [snapshot.facts(slot).status for slot in slots.tolist()]
        known = sorted(set(statuses))
        index_of = {status: index for index, status in enumerate(known)}
        return slots, np.array([index_of[each] for each in statuses], np.int64), known

    @cached_property
    def _closed_in_group(self) -> ClosedAgents:
        _, indexes, statuses = self._closed
        return _closed_agents(indexes, statuses)

    def _closed_among(self, mask: Flags | None) -> ClosedAgents:
        if mask is None:
            return self._closed_in_group
        slots, indexes, statuses = self._closed
        return _closed_agents(indexes[mask[slots]], statuses)

    # Room

    def _keys_in_the_way(self, workload: WorkloadClass) -> str | None:
        """The keys of the rules for all kernels together, if the group could hold the session
        without these rules."""
        rules = together(workload)
        if not rules:
            return None
        apart = replace(workload, placement=workload.placement.model_copy(update=_APART))
        if self._fit(apart, self._with_closed).kernels is None:
            return None
        keys = {
            "single_node": "mode: single-node",
            "together": f"together: {workload.placement.together}",
            "per_agent": f"max_kernels_per_agent: {workload.placement.max_kernels_per_agent}",
        }
        return ", ".join(keys[rule] for rule in rules)

    def _fit(self, workload: WorkloadClass, statement: Statement) -> Fit:
        mark = statement.mark()
        try:
            return fit_session(statement, self._selector, workload)
        finally:  # others try on the same copy
            statement.rollback(mark)

    @cached_property
    def _when_empty(self) -> Statement:
        return Statement(self._snapshot.emptied())

    @cached_property
    def _with_closed(self) -> Statement:
        return Statement(self._snapshot.emptied(all_accept=True))


_BARS = tuple(map(str, AgentBar))  # an operator's note may follow
_HEALING = frozenset(ILL.values())  # an isolated machine is nobody's to heal


def _remedy_of(status: str) -> str:
    """The number of a reason that counts the agents of this status."""
    if status.startswith(_BARS):
        return "barred"
    if status == ILL[HealthStatus.ISOLATED]:
        return "isolated"
    if status in _HEALING:
        return "healing"
    if status.startswith(WITHHELD):
        return "withheld"
    return "full" if status == OUT_OF_DISK else "silent"


def _closed_agents(indexes: Ints, statuses: Sequence[str]) -> ClosedAgents:
    """
    Args:
        indexes: of the status of each agent, in ``statuses``.
    """
    if not indexes.size:
        return {}
    counts = np.bincount(indexes, minlength=len(statuses)).tolist()
    by_count = sorted(zip(counts, statuses, strict=True), key=lambda each: (-each[0], each[1]))
    remedies = Counter[str]()
    for count, status in by_count:
        remedies[_remedy_of(status)] += count
    return ClosedAgents(
        closed=indexes.size,
        statuses=", ".join(f"{count} {each}" for count, each in by_count if count),
        barred=remedies["barred"] or None,
        isolated=remedies["isolated"] or None,
        healing=remedies["healing"] or None,
        withheld=remedies["withheld"] or None,
        full=remedies["full"] or None,
        silent=remedies["silent"] or None,
    )


def together(workload: WorkloadClass) -> RulesTogether:
    """A session's rules for all of its kernels together."""
    placement, kernels = workload.placement, len(workload.kernels)
    rules = RulesTogether()
    if kernels == 1:
        return rules
    if placement.mode is ClusterMode.SINGLE_NODE:
        rules["single_node"] = True
    if placement.together is not None:
        rules["together"] = placement.together
    if placement.max_kernels_per_agent is not None and placement.max_kernels_per_agent < kernels:
        rules["per_agent"] = placement.max_kernels_per_agent
    return rules


def _device_rule(columns: Columns, request: Resources) -> str:
    """The rule that devices have to meet for the request, as people are told it; empty if every one
    will do."""
    if not request.gpu_milli:
        return ""
    models = f"gpu_model: {'|'.join(request.gpu_models)}" if request.gpu_models else ""
    if request.gpu_milli >= GPU_WHOLE or not columns.has_partitions:
        return models
    part = "a gpu that is shared (MIG devices are given whole)"
    return f"{models}, as {part}" if models else part


# Rules and names as people write them


def _as_written(rule: Constraint | None, placement: PlacementSpec) -> str:
    return f"agents: [{_some(placement.agents)}]" if rule is None else str(rule)


def _some(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return ", ".join(texts[:_NAMED]) + more


def _absent(snapshot: Snapshot, placement: PlacementSpec) -> list[str]:
    """Designated agents that the group lacks."""
    named = placement.agents if placement.agents_only else ()
    return [name for name in named if not snapshot.slots_named((name,))]


def _meant(snapshot: Snapshot, rule: Constraint | None, absent: Sequence[str]) -> str | None:
    """The existing value, or name of an agent, that is most like the one in the rule."""
    if rule is None:
        return _nearest(absent[0], snapshot, None, lambda: snapshot.names)
    if rule.op not in (Operator.EQ, Operator.IN):
        return None

    def values() -> Iterable[str]:
        codes, known = snapshot.attribute(rule.attribute)
        used = np.unique(codes[snapshot.columns.present & (codes >= 0)])
        return [known[code] for code in used.tolist()]

    value = _nearest(rule.values[0], snapshot, rule.attribute, values)
    return None if value is None else f"{rule.attribute}={value}"


def _nearest(
    text: str, snapshot: Snapshot, attribute: str | None, known: Callable[[], Iterable[str]]
) -> str | None:
    """The value of ``attribute`` that is most like ``text``, or the agent's name if ``attribute``
    is None. Only alphabetical neighbours are compared: there may be thousands, and passes ask."""
    by_folded, folded = snapshot.remembered(("nearest", attribute), lambda: _folded(known()))
    at = bisect_left(folded, text.casefold())
    near = folded[max(at - _NEAR, 0) : at + _NEAR]
    close = difflib.get_close_matches(text.casefold(), near, 1)
    return by_folded[close[0]] if close else None


def _folded(texts: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    by_folded = {each.casefold(): each for each in texts}
    return by_folded, sorted(by_folded)
