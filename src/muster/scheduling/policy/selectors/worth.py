"""The worth of agents to coming work, and the cost of placing on each, for `Fragmentation`.

All values are kept by slot and updated from the changes that the columns remember, so that a
decision recomputes few agents. They equal values computed from scratch.
"""

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from muster.core.resources import GPU_WHOLE, Resources, is_model
from muster.scheduling.cluster.columns import Columns, Flags, Floats, Ints
from muster.scheduling.policy.selectors.request_mix import WholeShape

WORTH_FACTOR = 10.0
"""How much more the worth of an agent's GPUs counts than their use to whole GPUs."""

TIE = 1e-9
"""Losses that differ by less are equal."""

_STEPS = 1024  # steps of an agent's free CPUs in the table of uses
_MOST_COSTS = 1_000_000  # shapes times slots whose costs are kept
_FEWEST_COSTS = 16  # shapes
_MOST_CODES = 1000  # combinations of models
_ENDLESS = 1e12


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """The worth of resources.

    Args:
        pieces: worth of a piece of a GPU, by its milli.
        cpu_milli_per_gpu: the CPU that a GPU needs beside it at the most; 0 where not known.
    """

    pieces: Floats
    cpu_milli_per_gpu: float


@dataclass(slots=True)
class _Costs:
    """The cost of placing one shape in each slot, without the lost use to whole GPUs.

    Rows are options: a fraction may go to a partly held device, or to a wholly free one; other
    shapes have one option.

    Args:
        cost: options × slots; infinite where there is no such device.
        entry: the index of the slot's use afterwards in the table of uses.
        device: for a fraction, the device of the first option, by slot.
        loss: the best option's cost and lost use, for ``weighing``.
        mark: up to which changes are included.
    """

    cost: Floats
    entry: Ints
    device: Ints
    loss: Floats
    weighing: int
    mark: int


class WorthTable:
    """The free amounts of a group's agents, and their worth at certain prices.

    The worth of an agent is the worth of the pieces of its GPUs, or of its CPUs if that is less:
    GPUs without free CPU beside them are worth nothing. Its use to whole GPUs is the part of its
    wholly free GPUs that each shape could have, by the weights of ``weigh``.
    """

    def __init__(self, columns: Columns, prices: Prices) -> None:
        self._columns = weakref.ref(columns)
        self._prices = prices
        self.weights: Mapping[WholeShape, float] = {}
        self._piece_list: list[float] = prices.pieces.tolist()
        self._capacity_version = columns.capacity_version
        slots = columns.slots
        self._all = np.arange(slots)
        self._mark = columns.changes_mark
        self._devices = columns.device_count.astype(np.float64)
        self.gpu_milli = float(self._devices.sum()) * GPU_WHOLE  # all GPUs of the group
        self._models: Ints = columns.device_model.T.copy()  # devices × slots
        self._names = columns.models
        self._codes_of: dict[tuple[str, ...], Flags] = {}
        cpus = columns.capacity[:, 0].astype(np.float64)
        self._has_cpus = cpus > 0
        self._all_have_cpus = bool(self._has_cpus.all())
        self._steps_per_cpu = _STEPS / max(float(cpus.max(initial=0.0)), _STEPS)
        kinds, kind = np.unique(columns.device_model, axis=0, return_inverse=True)
        self._kinds: Ints = kinds  # the models of its devices, by kind of agent
        self._kind: Ints = kind.reshape(-1)
        # The table of uses: for each kind of agent one row for each number of wholly free GPUs.
        gpus = (kinds >= 0).sum(axis=1)
        first = np.concatenate(([0], np.cumsum(gpus + 1)))
        self._row_kind = np.repeat(np.arange(len(kinds)), gpus + 1)
        self._row_gpus = np.arange(first[-1]) - first[self._row_kind]
        self._first_row: Ints = first[self._kind]
        self._uses: Floats = np.zeros(len(self._row_kind) * (_STEPS + 1))
        self._weighing = 0
        self._state: Floats = np.zeros((4, slots))
        self._worth, self._cpus, self._per_cpu, self._value = self._state  # views
        self._use: Floats = np.zeros(slots)
        self._whole: Ints = np.zeros(slots, np.int64)
        self._free: Ints = np.zeros(self._models.shape, np.int64)
        self._lost_of: dict[int, tuple[Floats, float]] = {}  # by the fraction's milli
        self._per_cpu[:] = self._rate(cpus)
        self._costs: dict[tuple[int, int, tuple[str, ...]], _Costs] = {}
        self._load(columns, self._all)

    def is_of(self, columns: Columns, prices: Prices) -> bool:
        """Whether this is still a table of these columns and prices."""
        return (
            self._columns() is columns
            and self._prices is prices
            and self._capacity_version == columns.capacity_version
            and len(self._models) == columns.device_indexes
        )

    def update(self, columns: Columns) -> None:
        """Take in the changes of the columns."""
        slots = columns.slots_changed_since(self._mark)
        if slots is not None:
            if slots.size == 1:
                self._load_one(columns, int(slots[0]))
            else:
                self._load(columns, slots)
        self._mark = columns.changes_mark

    # Use to whole GPUs

    def could_have(self, columns: Columns, shapes: Sequence[WholeShape]) -> Floats:
        """The milli of wholly free GPUs that each shape could have by itself."""
        slots = np.flatnonzero((self._whole > 0) & columns.accepting)
        whole = self._whole[slots][:, None].astype(np.float64)
        cpus = self._cpus[slots][:, None]
        gpus, per_cpu = _gpus_and_rates(shapes)
        mine = np.minimum(whole, np.maximum(cpus, 1e-9) * per_cpu)
        mine *= whole >= gpus
        mine *= self._allowed_by(shapes)[self._kind[slots]]
        could: Floats = mine.sum(axis=0) * GPU_WHOLE
        return could

    def weigh(self, weights: Mapping[WholeShape, float]) -> None:
        """Tabulate the use of agents, by the weights of shapes."""
        self.weights = weights
        shapes = list(weights)
        self._uses = np.zeros_like(self._uses)
        if shapes:
            self._uses = self._tabulated(shapes, np.array(list(weights.values())))
        self._weighing += 1
        self._use = self._uses[self._entries(self._all, self._whole, self._cpus)]

    def _tabulated(self, shapes: Sequence[WholeShape], weights: Floats) -> Floats:
        gpus, per_cpu = _gpus_and_rates(shapes)
        usable = self._allowed_by(shapes)[self._row_kind] & (self._row_gpus[:, None] >= gpus)
        # Kinds of agents that the same shapes can use have equal rows.
        row_of: dict[tuple[bytes, int], int] = {}
        keys = zip((row.tobytes() for row in usable), self._row_gpus.tolist(), strict=True)
        rows = np.array([row_of.setdefault(key, len(row_of)) for key in keys])
        _, distinct = np.unique(rows, return_index=True)
        usable, free = usable[distinct], self._row_gpus[distinct][:, None]
        # With F GPUs free and c CPUs a shape has min(F, c · per_cpu) of them: it rises with c up to
        # a bend, where the CPUs are enough for all F.
        bend = np.ceil(free / per_cpu * self._steps_per_cpu - 1e-6)  # none, if it needs no CPUs
        width = _STEPS + 2  # the last entry is for shapes that need more CPUs than any agent has
        bend = np.minimum(bend, width - 1).astype(np.int64)
        at = (np.arange(len(free))[:, None] * width + bend)[usable]
        weight = np.broadcast_to(weights, usable.shape)[usable]
        rate = np.where(per_cpu < _ENDLESS, per_cpu, 0.0)  # an endless rate would drown the others
        slope = np.broadcast_to(weights * rate, usable.shape)[usable]
        size, table = len(free) * width, (len(free), width)
        flat = np.bincount(at, weight, size).reshape(table).cumsum(axis=1)
        ended = np.bincount(at, slope, size).reshape(table).cumsum(axis=1)
        rising = np.maximum(ended[:, -1:] - ended, 0.0)
        cpus = np.arange(width) / self._steps_per_cpu
        uses: Floats = ((free * flat + cpus * rising) * GPU_WHOLE)[:, :-1]
        each: Floats = uses[rows].reshape(-1)
        return each

    def _allowed_by(self, shapes: Sequence[WholeShape]) -> Flags:
        """Kinds of agents × shapes: whether the kind has a GPU of an allowed model."""
        known: dict[tuple[str, ...], Flags] = {}
        for shape in shapes:
            if shape.models not in known:
                codes = self._codes(shape.models)
                known[shape.models] = np.any(codes[self._kinds], axis=1)
        kinds = [known[shape.models] for shape in shapes]
        return np.array(kinds, np.bool_).reshape(len(shapes), len(self._kinds)).T

    # Costs

    def losses(self, columns: Columns, request: Resources) -> Floats:
        """By slot the loss of placing ``request`` there; meaningless where it does not fit.

        ``update`` must have been called.
        """
        return self._costs_of(columns, request).loss

    def held_device(self, columns: Columns, request: Resources, slot: int) -> int | None:
        """The best partly held device in ``slot`` for a fraction; None if a wholly free one is
        better."""
        costs = self._costs_of(columns, request)
        held, whole = (costs.cost[:, slot] - self._uses[costs.entry[:, slot]]).tolist()
        return int(costs.device[slot]) if held <= whole + TIE else None

    def _costs_of(self, columns: Columns, request: Resources) -> _Costs:
        key = request.cpu_milli, request.gpu_milli, request.gpu_models
        costs = self._costs.get(key)
        if costs is None:
            if len(self._costs) >= max(_FEWEST_COSTS, _MOST_COSTS // self._all.size):
                del self._costs[next(iter(self._costs))]  # the oldest
            costs = self._costs[key] = self._new_costs(request)
            slots: Ints | None = self._all
        else:
            slots = columns.slots_changed_since(costs.mark)
        if slots is not None:
            found = self._find(request, slots)
            costs.cost[:, slots], costs.entry[:, slots], costs.device[slots] = found
        costs.mark = columns.changes_mark
        if costs.weighing != self._weighing:
            costs.weighing = self._weighing
            costs.loss = _best(costs.cost - self._uses.take(costs.entry)) + self._use
        elif slots is not None:
            cost, entry, _ = found
            loss = _best(cost - self._uses.take(entry))
            costs.loss[slots] = loss + self._use.take(slots)
        return costs

    def _new_costs(self, request: Resources) -> _Costs:
        slots = self._whole.size
        options = 2 if 0 < request.gpu_milli < GPU_WHOLE else 1
        return _Costs(
            cost=np.zeros((options, slots)),
            entry=np.zeros((options, slots), np.int64),
            device=np.zeros(slots, np.int64),
            loss=np.zeros(slots),
            weighing=-1,
            mark=0,
        )

    def _find(self, request: Resources, slots: Ints) -> tuple[Floats, Ints, Ints]:
        """Cost, entry and device as ``_Costs`` has them."""
        worth, cpus, per_cpu, value = self._state.take(slots, axis=1)
        cpus -= request.cpu_milli
        whole, milli = self._whole.take(slots), request.gpu_milli
        if 0 < milli < GPU_WHOLE:
            lost, device = self._pieces_lost(request, slots)
            value = value - lost
            left = whole - _OPTIONS
        else:
            device = _NO_DEVICE
            value = (value - milli)[None]
            left = (whole - milli // GPU_WHOLE)[None]
        cost = (worth - np.minimum(value, cpus * per_cpu)) * WORTH_FACTOR
        return cost, self._entries(slots, left, cpus), device

    def _pieces_lost(self, request: Resources, slots: Ints) -> tuple[Floats, Ints]:
        """The worth that a device loses by the fraction: for the best partly held device and for a
        wholly free one (infinite where there is none), with the index of the partly held device."""
        lost, of_whole = self._lost(request.gpu_milli)
        free = self._free.take(slots, axis=1)
        each = lost.take(free)
        is_whole = free == GPU_WHOLE
        if request.gpu_models:
            allowed = self._codes(request.gpu_models)[self._models.take(slots, axis=1)]
            each = np.where(allowed, each, np.inf)
            is_whole &= allowed
        if not len(each):
            return np.full((2, slots.size), np.inf), np.zeros(slots.size, np.int64)
        best = each.min(axis=0), np.where(is_whole.any(axis=0), of_whole, np.inf)
        return np.stack(best), each.argmin(axis=0)

    def _lost(self, milli: int) -> tuple[Floats, float]:
        """The worth that a device loses by a fraction: by the free milli of a partly held device,
        and of a wholly free one."""
        known = self._lost_of.get(milli)
        if known is None:
            pieces = self._prices.pieces
            lost = np.full(GPU_WHOLE + 1, np.inf)
            lost[milli:] = pieces[milli:] - pieces[: pieces.size - milli]
            of_whole = float(lost[GPU_WHOLE])
            lost[GPU_WHOLE] = np.inf
            known = self._lost_of[milli] = lost, of_whole
        return known

    # State

    def _load(self, columns: Columns, slots: Ints) -> None:
        """Load the free amounts of ``slots``."""
        free = np.maximum(columns.device_free[slots].T, 0)
        whole = columns.whole_free[slots]
        cpus = columns.free[slots, 0]
        if not self._all_have_cpus:  # agents without CPUs lack none
            cpus[~self._has_cpus[slots]] = 1
        value = self._prices.pieces[free].sum(axis=0)
        self._free[:, slots] = free
        self._whole[slots] = whole
        self._cpus[slots] = cpus
        self._value[slots] = value
        self._worth[slots] = np.minimum(value, cpus * self._per_cpu[slots])
        self._use[slots] = self._uses[self._entries(slots, whole, cpus)]

    def _load_one(self, columns: Columns, slot: int) -> None:
        """``_load`` in plain Python, which is faster than numpy on a few numbers."""
        agent = columns.agent(slot)
        pieces, devices = self._piece_list, agent.devices
        cpus = agent.amounts[0] if self._has_cpus[slot] else 1
        value = sum([pieces[left] for left in devices if left > 0])
        self._free[:, slot] = (
            [max(left, 0) for left in devices] if min(devices, default=0) < 0 else devices
        )
        self._whole[slot] = agent.whole
        self._cpus[slot] = cpus
        self._value[slot] = value
        self._worth[slot] = min(value, cpus * float(self._per_cpu[slot]))
        entry = (int(self._first_row[slot]) + agent.whole) * (_STEPS + 1)
        self._use[slot] = self._uses[entry + int(max(cpus, 0) * self._steps_per_cpu)]

    def _entries(self, slots: Ints, whole: Ints, cpus: Floats) -> Ints:
        """The entries in the table of uses for agents with these free amounts."""
        step = (np.maximum(cpus, 0) * self._steps_per_cpu).astype(np.int64)
        entries: Ints = (self._first_row.take(slots) + np.maximum(whole, 0)) * (_STEPS + 1) + step
        return entries

    def _rate(self, cpus: Floats) -> Floats:
        """The worth of a milli of CPU, such that a GPU's fair share of an agent's CPUs is worth a
        GPU. CPUs beyond the needs of GPUs are worth nothing."""
        share = np.divide(cpus, self._devices, out=np.zeros_like(cpus), where=self._devices > 0)
        if self._prices.cpu_milli_per_gpu:
            share = np.minimum(share, self._prices.cpu_milli_per_gpu)
        rate = np.divide(GPU_WHOLE, share, out=np.full_like(cpus, _ENDLESS), where=share > 0)
        return np.where(self._devices > 0, rate, 0.0)

    def _codes(self, models: tuple[str, ...]) -> Flags:
        """For each model's code whether it is allowed; the last entry, for "no device", is
        false."""
        codes = self._codes_of.get(models)
        if codes is None:
            if len(self._codes_of) >= _MOST_CODES:
                self._codes_of.clear()
            allowed = [
                not models or any(is_model(name, wanted) for wanted in models)
                for name in self._names
            ]
            codes = self._codes_of[models] = np.array([*allowed, False], np.bool_)
        return codes


_NO_DEVICE: Ints = np.zeros(1, np.int64)
_OPTIONS: Ints = np.array([[0], [1]])  # wholly free GPUs that each option takes


def _best(losses: Floats) -> Floats:
    """The smaller loss by slot, of one or two options."""
    best: Floats = losses[0] if len(losses) == 1 else np.minimum(losses[0], losses[1])
    return best


def _gpus_and_rates(shapes: Sequence[WholeShape]) -> tuple[Ints, Floats]:
    """The number of GPUs of each shape, and the number of GPUs that it gets for a milli of CPU."""
    gpus = np.array([shape.gpus for shape in shapes], np.int64)
    cpus = np.array([shape.cpu_milli for shape in shapes], np.float64)
    return gpus, np.divide(gpus, cpus, out=np.full(len(shapes), _ENDLESS), where=cpus > 0)
