"""The effects that have providers make, delete and list machines, and their outcomes.

Their performers read everything else by these ids, so that no join token is in an effect. An
outcome of another generation changes nothing.
"""

import logging
from dataclasses import dataclass

from muster.autoscaling.standing import CreateOutcome
from muster.control.engine.inputs import Input
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.pool.records import Slice, SliceId
from muster.providers.provider import CALL_S, Machine

log = logging.getLogger(__name__)

ANSWER_S = CALL_S + 30.0
"""How long the outcome of an effect is waited for, including its time in the performer's queue."""

MAX_CALLS = 4
"""Calls about a pool that are made side by side, without those that were given up; so no more of
its slices are asked about at a time."""


@dataclass(frozen=True, slots=True)
class MakeSlice:
    """Have the provider make a slice, or find the machines that it made of it already."""

    slice: SliceId
    generation: int


@dataclass(frozen=True, slots=True)
class DeleteSlice:
    """Have the provider delete the machines of a slice. The slice of a pool's machines may be none
    that is known (``generation`` 0). With ``given_up`` they are off for good, as an operator
    vouches: the provider takes note of that, and deletes nothing."""

    slice: SliceId
    pool: str
    generation: int
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class ListMachines:
    """Have the provider list the machines of a pool."""

    pool: str
    generation: int


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Have the provider tell the last words of a machine of a slice, which does not join."""

    slice: SliceId
    pool: str
    machine: str


@dataclass(frozen=True, slots=True)
class LogRead(Input):
    """The outcome of a ``ReadLog``: the machine's last words, empty where there are none."""

    slice: SliceId
    machine: str
    words: str

    def take(self, work: Work, parts: Parts) -> None:
        slice_ = work.live.of(Slice).get(self.slice)
        if slice_ is not None and slice_.asked_words is not None:
            slice_.words = {self.machine: self.words}
            work.mark(slice_)

    def refuse(self, error: Exception) -> None:
        log.warning("the last words of machine %s are dropped: %s", self.machine, error)


@dataclass(frozen=True, slots=True)
class SliceMade(Input):
    """The outcome of a ``MakeSlice``: its machines, or why there are none.

    Args:
        told: the provider's own words.
    """

    slice: SliceId
    generation: int
    outcome: CreateOutcome
    machines: tuple[Machine, ...] = ()
    told: str = ""

    def take(self, work: Work, parts: Parts) -> None:
        _note_outcome(self, work)

    def refuse(self, error: Exception) -> None:
        log.warning("the outcome of making slice %s is dropped: %s", self.slice, error)


@dataclass(frozen=True, slots=True)
class SliceDeleted(Input):
    """The outcome of a ``DeleteSlice``: whether all of its machines are gone.

    Args:
        told: the provider's own words, where it could not be done; else empty.
    """

    slice: SliceId
    generation: int
    gone: bool
    told: str = ""

    def take(self, work: Work, parts: Parts) -> None:
        _note_outcome(self, work)

    def refuse(self, error: Exception) -> None:
        log.warning("the outcome of deleting slice %s is dropped: %s", self.slice, error)


def _note_outcome(outcome: SliceMade | SliceDeleted, work: Work) -> None:
    slice_ = work.live.of(Slice).get(outcome.slice)
    if slice_ is None or slice_.handed_at is None or slice_.generation != outcome.generation:
        return  # another effect was emitted since, or it is gone
    slice_.outcome = outcome
    work.mark(slice_)
