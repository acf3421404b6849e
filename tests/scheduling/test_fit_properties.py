"""Properties of every placement; the fast ways to it lead where the slow one does."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.scheduling.clusters import Box, agent, ask, box, cluster, contents, put, workload

from muster.core.resources import GPU_WHOLE, Resources, is_model
from muster.core.specs.placement import Constraint
from muster.scheduling.cluster import order
from muster.scheduling.cluster.columns import Floats, Ints, Shares
from muster.scheduling.cluster.constraints import eligible
from muster.scheduling.cluster.devices import share
from muster.scheduling.cluster.order import Ranking
from muster.scheduling.cluster.snapshot import OverCapacity, Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting import filling
from muster.scheduling.fitting.fit import fill, fit_session
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.policy.selectors import fullest_devices
from muster.scheduling.workload import KernelPlacement, WorkloadClass

NAMES = "abcdefghijklmnopqr"


class Scored(AgentSelector):
    """A selector that says what it prefers in scores alone."""

    packs = False

    def __init__(self, ranking: Ranking, *, fullest_device: bool) -> None:
        self._kind, self._fullest = ranking, fullest_device

    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        columns = snapshot.columns
        if self._kind is Ranking.ROUND_ROBIN:
            turns: Floats = -((candidates - snapshot.next_slot) % columns.slots).astype(float)
            return turns
        fullness = columns.utilisation[candidates] - 0.5e-6 * columns.size[candidates]
        return fullness if self._kind is Ranking.FULLEST else -fullness

    def devices(self, request: Resources, snapshot: Snapshot, slot: int) -> Shares:
        if self._fullest or request.gpu_milli >= GPU_WHOLE:
            return fullest_devices(request, snapshot, slot)
        free = snapshot.columns.devices_for(request, slot)
        _, index = min((-left, index) for left, index in free)
        return (share(index, request.gpu_milli),)


class Ranked(Scored):
    """The same, and it tells so."""

    def __init__(self, ranking: Ranking, *, fullest_device: bool) -> None:
        super().__init__(ranking, fullest_device=fullest_device)
        self.ranking = ranking
        self.fullest_device = fullest_device
        self.packs = ranking is Ranking.FULLEST


class Packing(Scored):
    """Says in scores what FULLEST is, and that it packs."""

    packs = True

    def __init__(self) -> None:
        super().__init__(Ranking.FULLEST, fullest_device=True)


CONCENTRATED = Ranked(Ranking.FULLEST, fullest_device=True)


@pytest.fixture(autouse=True, scope="module")
def _small_parts() -> Iterator[None]:
    """So that few agents fill several blocks, and a few kernels are many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "_BLOCK", 4)
        patch.setattr(order, "_FILLED", 3)
        patch.setattr(order, "_SPARE", 2)
        patch.setattr(order, "_WINDOW", 2)
        patch.setattr(order, "_FEW", 2)
        patch.setattr(order, "_OFTEN", 2)
        patch.setattr(order, "_LONG", 4)
        patch.setattr(filling, "_MANY", 3)
        yield


MODELS = ["NVIDIA H100 80GB", "NVIDIA L4"]

requests = st.builds(
    ask,
    cpu=st.sampled_from([0, 0.5, 1, 2, 3]),
    gib=st.sampled_from([0, 0, 0, 1, 4]),
    gpu=st.sampled_from([0, 0, 0.1, 0.25, 0.3, 0.7, 1, 2]),
    models=st.sampled_from([(), (), (), ("H100",), ("L4", "A100")]),
    licence=st.sampled_from([0, 0, 0, 0, 1]),
)

boxes = st.builds(
    box,
    cpu=st.integers(0, 9),
    gib=st.sampled_from([2, 8, 20]),
    model=st.lists(st.sampled_from(MODELS), max_size=4).map(sorted),
    status=st.sampled_from(["ALIVE"] * 5 + ["LOST"]),
    has=st.dictionaries(st.sampled_from(["zone", "rack"]), st.sampled_from(["1", "2", "x"])),
    licence=st.integers(0, 2),
)

constraints = st.lists(
    st.sampled_from(
        [
            "zone=x",
            "zone!=x",
            "rack",
            "!zone",
            "zone>=1",
            {"attribute": "rack", "values": "1", "soft": True},
            {"attribute": "zone", "op": "NE", "values": "2", "soft": True},
        ]
    ),
    max_size=3,
)

placements: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {"constraints": constraints},
        optional={
            "agents": st.lists(st.sampled_from(NAMES[:6]), min_size=1, max_size=3),
            "agents_only": st.booleans(),
            "together": st.sampled_from(["zone", "rack"]),
            "rank_by": st.sampled_from(["zone", "rack"]),
            "mode": st.sampled_from(["single-node", "multi-node"]),
            "max_kernels_per_agent": st.integers(1, 3),
            "set": st.just("replicas"),
            "set_grouping": st.sampled_from(["spread", "pack"]),
        },
    ),
)


@st.composite
def classes(draw: st.DrawFn, most: int = 1) -> WorkloadClass:
    """Sessions of one kernel, or of up to ``most`` of one or two kinds."""
    kinds = draw(st.lists(requests, min_size=1, max_size=min(most, 2)))
    kernels = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=most))
    failed = draw(st.sampled_from(["", "", "", "a", "bc"]))
    return workload(*kernels, failed=failed, **draw(placements))


@st.composite
def clusters(draw: st.DrawFn, most: int = 6) -> Snapshot:
    """Agents with work on some of them."""
    machines = draw(st.lists(boxes, max_size=most))
    snapshot = cluster(**dict(zip(NAMES, machines, strict=False)))
    with Statement(snapshot) as statement:
        for each in draw(st.lists(classes(), max_size=3)):
            fill(statement, CONCENTRATED, each, draw(st.integers(1, 2)))
        statement.keep()
    return snapshot


RULES = [
    pytest.param(ranking, fullest, id=f"{ranking.value}-{'fullest' if fullest else 'emptiest'}")
    for ranking, fullest in [
        (Ranking.FULLEST, True),
        (Ranking.EMPTIEST, False),
        (Ranking.EMPTIEST, True),
        (Ranking.ROUND_ROBIN, True),
    ]
]


class BothWays(RuleBasedStateMachine):
    """Two snapshots of one cluster: one is placed on by order, the other by scores."""

    def __init__(self) -> None:
        super().__init__()
        self.fast, self.slow = Snapshot("pool"), Snapshot("pool")
        self.held: list[tuple[Resources, KernelPlacement]] = []
        self.selectors: dict[str, tuple[AgentSelector, AgentSelector]] = {
            str(rule.id): (
                Ranked(rule.values[0], fullest_device=rule.values[1]),  # type: ignore[arg-type]
                Scored(rule.values[0], fullest_device=rule.values[1]),  # type: ignore[arg-type]
            )
            for rule in RULES
        }
        self.selectors["packs"] = CONCENTRATED, Packing()

    @initialize(machines=st.lists(boxes, min_size=6, max_size=len(NAMES)))
    def begin(self, machines: list[Box]) -> None:
        for name, machine in zip(NAMES, machines, strict=False):
            self.upsert(name, machine)

    @rule(name=st.sampled_from(NAMES), machine=boxes)
    def upsert(self, name: str, machine: Box) -> None:
        put(self.fast, name, machine)
        put(self.slow, name, machine)

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        for snapshot in (self.fast, self.slow):
            snapshot.remove_agent(agent(name))
        self.held = [each for each in self.held if each[1].agent_id != agent(name)]

    @rule(
        which=st.sampled_from([*(str(rule.id) for rule in RULES), "packs"]),
        wanted=st.lists(st.tuples(classes(), st.integers(1, 9)), min_size=1, max_size=4),
        keep=st.booleans(),
    )
    def place(self, which: str, wanted: list[tuple[WorkloadClass, int]], keep: bool) -> None:
        fast, slow = self.selectors[which]
        with Statement(self.fast) as first, Statement(self.slow) as second:
            placed = []
            for each, count in wanted:
                found = fill(first, fast, each, count)
                assert found == fill(second, slow, each, count)
                placed += [(each.kernels[0], kernel) for kernel in found]
            if keep:
                first.keep()
                second.keep()
                self.held += placed

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.held) - 1))
        request, kernel = self.held.pop(index)
        for snapshot in (self.fast, self.slow):
            snapshot.give_back(kernel.agent_id, request, kernel.shares)

    @rule(name=st.sampled_from(NAMES), request=requests, milli=st.sampled_from([0, 400, 1000]))
    def overbook(self, name: str, request: Resources, milli: int) -> None:
        shares = (share(0, milli),) if milli else ()
        for snapshot in (self.fast, self.slow):
            if snapshot.slots_named([name]):
                snapshot.take(agent(name), request, shares, force=True)

    @invariant()
    def agree(self) -> None:
        assert contents(self.fast) == contents(self.slow)


TestOrderFindsWhatScoresSay = BothWays.TestCase
TestOrderFindsWhatScoresSay.settings = settings(
    max_examples=100, stateful_step_count=15, deadline=None
)


def added_up(
    snapshot: Snapshot, kernels: Sequence[tuple[Resources, KernelPlacement]]
) -> dict[str, int]:
    """The amounts left free, from the placements alone; they never fall below zero."""
    left: dict[str, int] = {}
    for slot in range(len(snapshot)):
        facts, columns = snapshot.facts(slot), snapshot.columns
        free = zip(columns.dimensions, columns.free[slot].tolist(), strict=True)
        left |= {f"{facts.id} {name}": amount for name, amount in free}
        devices = enumerate(columns.device_free[slot].tolist())
        left |= {f"{facts.id} {index}": milli for index, milli in devices}
    for request, kernel in kernels:
        facts = snapshot.facts(snapshot.slot(kernel.agent_id))
        assert facts.accepting
        for name, amount in request.as_dict().items():
            if name != "gpu":
                left[f"{kernel.agent_id} {name}"] -= amount
        assert sum(each.milli for each in kernel.shares) == request.gpu_milli
        assert len({each.index for each in kernel.shares}) == request.gpu_devices
        for each in kernel.shares:
            left[f"{kernel.agent_id} {each.index}"] -= each.milli
            model = facts.devices[each.index].model
            assert not request.gpu_models or any(is_model(model, m) for m in request.gpu_models)
    assert min(left.values(), default=0) >= 0
    return left


@pytest.mark.parametrize(("ranking", "fullest"), RULES)
@settings(max_examples=120, deadline=None)
@given(snapshot=clusters(), each=classes(most=6))
def test_session_is_placed_whole_within_all_limits_or_leaves_no_trace(
    ranking: Ranking, fullest: bool, snapshot: Snapshot, each: WorkloadClass
) -> None:
    before, placement = contents(snapshot), each.placement
    twin = snapshot.copy()
    allowed = eligible(snapshot, each)
    with Statement(snapshot) as statement:
        fit = fit_session(statement, Ranked(ranking, fullest_device=fullest), each)
        if fit.kernels is None:
            assert contents(snapshot) == before
            assert fit.placed < len(each.kernels)
        else:
            assert fit.placed == len(fit.kernels) == len(each.kernels)
            added_up(twin, list(zip(each.kernels, fit.kernels, strict=True)))
            slots = [snapshot.slot(kernel.agent_id) for kernel in fit.kernels]
            assert allowed is None or allowed[slots].all()
            if placement.mode == "single-node":
                assert len(set(slots)) == 1
            if placement.together:
                values = {snapshot.facts(s).attributes[placement.together] for s in slots}
                assert len(values) == 1
            if placement.max_kernels_per_agent and len(slots) > 1:
                counts = [slots.count(slot) for slot in slots]
                assert max(counts) <= placement.max_kernels_per_agent
    assert contents(snapshot) == before
    assert snapshot.in_set((each.owner, "replicas")) == twin.in_set((each.owner, "replicas"))


some_racks = st.lists(
    st.builds(
        lambda cpu, gpus, rack: box(cpu=cpu, gpus=gpus, has={"rack": rack}),
        st.integers(1, 9),
        st.integers(0, 3),
        st.sampled_from(["1", "2", "x"]),
    ),
    min_size=1,
    max_size=6,
)
small = st.builds(ask, st.sampled_from([0.5, 1, 2, 3]), gpu=st.sampled_from([0, 0.5, 1]))


@settings(max_examples=150, deadline=None)
@given(
    machines=some_racks,
    kernels=st.lists(small, min_size=2, max_size=5),
    limit=st.sampled_from([{}, {}, {"max_kernels_per_agent": 2}]),
)
def test_gang_that_lies_within_one_value_lies_within_some(
    machines: list[Box], kernels: list[Resources], limit: dict[str, Any]
) -> None:
    """No value is passed over that would hold it."""
    snapshot = cluster(**dict(zip(NAMES, machines, strict=False)))
    each = workload(*kernels, **limit)
    apart = each.placement.model_copy(update={"together": None})

    def fits(**rules: object) -> bool:
        asked = replace(each, placement=apart.model_copy(update=rules))
        with Statement(snapshot) as statement:
            return fit_session(statement, CONCENTRATED, asked).kernels is not None

    of_values = [Constraint(attribute="rack", values=(value,)) for value in ("1", "2", "x")]
    holds = [fits(constraints=(*apart.constraints, one)) for one in of_values]
    assert fits(together="rack") == any(holds)


def fits_somehow(snapshot: Snapshot, each: WorkloadClass) -> bool:
    """Whether any placement of equal kernels holds, found by trying all."""
    request, placement = each.kernels[0], each.placement
    allowed = eligible(snapshot, each)
    slots = [s for s in range(len(snapshot)) if allowed is None or allowed[s]]
    for chosen in product(slots, repeat=len(each.kernels)):
        if list(chosen) != sorted(chosen):
            continue  # equal kernels: one order of them is enough
        if placement.mode == "single-node" and len(set(chosen)) > 1:
            continue
        attribute = placement.together
        if attribute:
            values = {snapshot.facts(slot).attributes.get(attribute) for slot in chosen}
            if len(values) > 1 or None in values:
                continue
        limit = placement.max_kernels_per_agent
        if limit and len(chosen) > 1 and max(chosen.count(slot) for slot in chosen) > limit:
            continue
        with Statement(snapshot) as statement:
            if all(_take_any(statement, slot, request) for slot in chosen):
                return True
    return False


def _take_any(statement: Statement, slot: int, request: Resources) -> bool:
    """Take ``request`` in a slot from the first devices that do, if it may be."""
    snapshot = statement.snapshot
    if not snapshot.facts(slot).accepting or (snapshot.columns.free[slot] < 0).any():
        return False
    devices = snapshot.facts(slot).devices
    free = snapshot.columns.device_free[slot].tolist()
    milli = min(request.gpu_milli, GPU_WHOLE)
    usable = [
        device.index
        for device in devices
        if free[device.index] >= milli
        and (not request.gpu_models or any(is_model(device.model, m) for m in request.gpu_models))
    ]
    if len(usable) < request.gpu_devices:
        return False
    shares = tuple(share(index, milli) for index in usable[: request.gpu_devices])
    try:
        statement.take(slot, request, shares)
    except OverCapacity:
        return False
    return True


@settings(max_examples=200, deadline=None)
@given(snapshot=clusters(most=4), request=requests, count=st.integers(1, 4), placement=placements)
def test_session_of_equal_kernels_fits_if_and_only_if_some_placement_holds(
    snapshot: Snapshot, request: Resources, count: int, placement: dict[str, Any]
) -> None:
    each = workload(*[request] * count, **placement)
    with Statement(snapshot) as statement:
        fit = fit_session(statement, CONCENTRATED, each)
    assert (fit.kernels is not None) == fits_somehow(snapshot, each)


@settings(max_examples=100, deadline=None)
@given(snapshot=clusters(), each=classes(), count=st.integers(1, 9))
def test_fill_places_as_many_as_fit(snapshot: Snapshot, each: WorkloadClass, count: int) -> None:
    with Statement(snapshot) as statement:
        found = fill(statement, CONCENTRATED, each, count)
        assert len(found) == count or not fill(statement, CONCENTRATED, each, 1)


@pytest.mark.parametrize(("ranking", "fullest"), RULES)
@settings(max_examples=60, deadline=None)
@given(snapshot=clusters(), each=classes(), count=st.integers(1, 9))
def test_fill_places_equals_where_each_by_itself_would_go(
    ranking: Ranking, fullest: bool, snapshot: Snapshot, each: WorkloadClass, count: int
) -> None:
    selector = Ranked(ranking, fullest_device=fullest)
    with Statement(snapshot.copy()) as statement:
        alone = [fit_session(statement, selector, each).kernels for _ in range(count)]
    with Statement(snapshot) as statement:
        together = fill(statement, selector, each, count)
    assert [(kernel,) for kernel in together] == [kernels for kernels in alone if kernels]
