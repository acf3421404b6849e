"""The mix of past requests, as a selector that learns remembers it."""

import math
from dataclasses import dataclass

from muster.core.errors import MusterError
from muster.core.resources import GPU_WHOLE, Resources

MAX_SHAPES = 256
"""Shapes of whole GPUs that are told apart; beyond this number the rarer half is forgotten."""

_LARGEST = 2.0**200  # of weights; before one gets larger, all are scaled down


@dataclass(frozen=True, slots=True)
class WholeShape:
    """A request for whole GPUs, as far as it matters for the choice of an agent.

    Args:
        models: the allowed ones; empty for any.
    """

    cpu_milli: int
    gpus: int
    models: tuple[str, ...]


class RequestMix:
    """The frequency of each shape among requests.

    Args:
        half_life: the number of kernels after which one counts half; None counts all alike.

    Attributes:
        kernels: how many have come.
        gpu_milli: the sum of their GPU requests.
        fractions: the weight of each fraction, by milli.
        wholes: the weight of each shape of whole GPUs.
    """

    def __init__(self, half_life: float | None = None) -> None:
        if half_life is not None and not (
            type(half_life) in (int, float) and 0 < half_life < math.inf
        ):
            raise MusterError(f"half_life is a number of kernels above 0, not {half_life!r}")
        self._half_life = half_life
        self._weight = 1.0  # of the next kernel; it grows, so that earlier ones count less
        self._cpu_milli = 0.0  # of kernels that ask for GPUs
        self._gpus = 0.0
        self.kernels = 0
        self.gpu_milli = 0
        self.fractions: dict[int, float] = {}
        self.wholes: dict[WholeShape, float] = {}

    @property
    def cpu_milli_per_gpu(self) -> float:
        """The CPU that the mix has for each GPU; 0 if no GPU is asked for."""
        return self._cpu_milli / self._gpus if self._gpus else 0.0

    def add(self, request: Resources, kernels: int) -> None:
        if self._half_life is not None:
            self._grow(kernels / self._half_life)
        self.kernels += kernels
        milli = request.gpu_milli
        if not milli:
            return
        amount = self._weight * kernels
        self.gpu_milli += milli * kernels
        self._cpu_milli += request.cpu_milli * amount
        self._gpus += milli / GPU_WHOLE * amount
        if milli < GPU_WHOLE:
            self.fractions[milli] = self.fractions.get(milli, 0.0) + amount
            return
        shape = WholeShape(request.cpu_milli, milli // GPU_WHOLE, request.gpu_models)
        self.wholes[shape] = self.wholes.get(shape, 0.0) + amount
        if len(self.wholes) > MAX_SHAPES:
            kept = sorted(self.wholes.items(), key=lambda item: -item[1])[: MAX_SHAPES // 2]
            self.wholes = dict(kept) | {shape: self.wholes[shape]}

    def _grow(self, half_lives: float) -> None:
        """Raise the weight of the next kernel, so that earlier kernels count less in comparison."""
        factor = 2.0 ** min(half_lives, 100.0)
        if self._weight * factor > _LARGEST:
            scale, self._weight = 1 / self._weight, 1.0
            self._cpu_milli *= scale
            self._gpus *= scale
            self.fractions = {milli: each * scale for milli, each in self.fractions.items()}
            self.wholes = {shape: each * scale for shape, each in self.wholes.items()}
        self._weight *= factor
