"""Fragmentation: leave as little GPU capacity stranded as can be.

After fragmentation gradient descent (source: Weng 2023), with another measure of the loss.
"""

from collections.abc import Mapping

import numpy as np

from muster.core.errors import MusterError
from muster.core.resources import GPU_WHOLE, DeviceShare, Resources
from muster.scheduling.cluster.columns import Columns, Floats, Ints, Shares
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.policy.selectors.cutting_stock import piece_values
from muster.scheduling.policy.selectors.request_mix import RequestMix, WholeShape
from muster.scheduling.policy.selectors.worth import TIE, Prices, WorthTable

REFRESH = 0.02
"""The part of all GPUs that has to be asked for before shapes are weighed anew."""

FIRST_PRICES = 50
PRICES_EVERY = 1600
"""Pieces of GPUs are priced after 50 kernels, 100, 200 … and then every 1600."""

_SCARCITY = 1.5  # shapes that little of the group could serve weigh more
_SIZE = -0.5  # shapes of many GPUs weigh less
_LEAST = 0.001  # of all GPUs is taken to be there always
_SPARE_CPU = 2.0  # times the CPU that GPUs need; more CPUs are worth nothing


class Fragmentation(AgentSelector):
    """Places work where this lowers the worth of the free GPUs to coming work least.

    Coming work is assumed to be like past work. The loss has two parts. The larger is the worth of
    an agent: the worth of its pieces of GPUs, out of which fractions can be cut
    (``cutting_stock``), but no more than the worth of its CPUs. The smaller decides among equals:
    the wholly free GPUs that each shape can no longer have, counted more where few are left.

    The selector weighs and prices anew only when it decides: a trial (``is_trial`` of the snapshot)
    changes no later decision.

    Args:
        seed: of the order of agents that decides among equals.
        half_life: the number of kernels after which a request counts half; None counts all alike.

    Raises:
        MusterError: ``seed`` is no whole number from 0 on, or ``half_life`` no number above 0.
    """

    def __init__(self, seed: int = 0, half_life: float | None = None) -> None:
        if type(seed) is not int or seed < 0:  # True is an int, but no seed
            raise MusterError(f"seed is a whole number from 0 on, not {seed!r}")
        self._mix = RequestMix(half_life)
        self._seed = seed
        self._rank: Floats = np.zeros(0)  # by slot
        self._prices = Prices(piece_values({}), 0.0)
        self._next_prices = FIRST_PRICES
        self._prices_every = PRICES_EVERY
        if half_life is not None:
            self._prices_every = max(FIRST_PRICES, min(PRICES_EVERY, round(half_life)))
        self._weights: Mapping[WholeShape, float] = {}
        self._weighed_at = 0  # GPUs, in milli, that had been asked for at the last weighing
        self._table: WorthTable | None = None
        self._trial: WorthTable | None = None  # of a snapshot to try on

    def arrived(self, request: Resources, kernels: int) -> None:
        self._mix.add(request, kernels)

    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        """The negated loss; among equals the first in the fixed order scores a trace more."""
        columns = snapshot.columns
        table = self._table_of(snapshot)
        scores: Floats = -table.losses(columns, request).take(candidates)
        equal = np.flatnonzero(scores >= scores.max(initial=-np.inf) - TIE)
        if equal.size > 1:
            first = equal[self._ranks(columns.slots).take(candidates[equal]).argmin()]
            scores[first] = scores[equal].max() + TIE
        return scores

    def devices(self, request: Resources, snapshot: Snapshot, slot: int) -> Shares:
        columns, milli = snapshot.columns, request.gpu_milli
        if milli < GPU_WHOLE:
            held = self._table_of(snapshot).held_device(columns, request, slot)
            if held is not None:
                return (DeviceShare(held, milli),)
        devices = columns.devices_for(request, slot)
        free = [index for left, index in devices if left == GPU_WHOLE][: request.gpu_devices]
        return tuple(DeviceShare(index, min(milli, GPU_WHOLE)) for index in free)

    def _table_of(self, snapshot: Snapshot) -> WorthTable:
        """The table of the snapshot, up to date."""
        columns, is_trial = snapshot.columns, snapshot.is_trial
        if self._mix.kernels >= self._next_prices and not is_trial:
            self._find_prices()
        table = self._table
        if table is not None and table.is_of(columns, self._prices):
            table.update(columns)
            if not is_trial and self._is_refresh_due(table):
                self._weigh(table, columns)
            return table
        if not is_trial:
            table = self._table = WorthTable(columns, self._prices)
            self._weigh(table, columns)
            return table
        trial = self._trial
        if trial is None or not trial.is_of(columns, self._prices):
            trial = self._trial = WorthTable(columns, self._prices)
        trial.update(columns)
        if trial.weights is not self._weights:
            trial.weigh(self._weights)
        return trial

    def _find_prices(self) -> None:
        mix = self._mix
        self._prices = Prices(piece_values(mix.fractions), mix.cpu_milli_per_gpu * _SPARE_CPU)
        while self._next_prices <= mix.kernels:
            self._next_prices += min(self._next_prices, self._prices_every)

    def _is_refresh_due(self, table: WorthTable) -> bool:
        since = self._mix.gpu_milli - self._weighed_at
        return since > 0 and since >= REFRESH * table.gpu_milli

    def _weigh(self, table: WorthTable, columns: Columns) -> None:
        """Weigh shapes by how often they are asked for and how little could serve them."""
        self._weighed_at = self._mix.gpu_milli
        wholes, all_gpus = self._mix.wholes, table.gpu_milli
        self._weights = {}
        if wholes and all_gpus:
            could = table.could_have(columns, list(wholes)) + _LEAST * all_gpus
            gpus = np.array([shape.gpus for shape in wholes], np.float64)
            weights = np.array(list(wholes.values()))
            weights = weights / weights.max() * gpus**_SIZE * (all_gpus / could) ** _SCARCITY
            weights /= weights.sum()
            self._weights = dict(zip(wholes, weights.tolist(), strict=True))
        table.weigh(self._weights)

    def _ranks(self, slots: int) -> Floats:
        """A fixed order of slots."""
        if self._rank.size < slots:
            # Earlier slots keep their ranks: it is the same sequence, only longer.
            self._rank = np.random.default_rng(self._seed).random(2 * slots)
        return self._rank
