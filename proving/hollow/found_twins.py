"""Hollow twins of performers that worlds find by their folder."""

from collections.abc import Callable, Sequence

from muster.control.engine.inputs import Input
from muster.core.clock import Clock
from muster.core.packages import classes_of, modules_of
from proving.hollow import performers
from proving.hollow.performers.late_calls import FoundTwin


def found_twins(
    clock: Clock, report: Callable[[Input], None], seed: int = 1
) -> Sequence[FoundTwin]:
    """A twin of each class derived from ``FoundTwin`` in ``proving.hollow.performers``."""
    return [twin(clock, report, seed) for twin in classes_of(modules_of(performers), FoundTwin)]
