"""The machines that may come for a group's waiting sessions, as explanations ask about them."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from muster.core.ids import SessionId
from muster.core.reasons import Reason
from muster.scheduling.passes.queue import QueueClass
from muster.scheduling.policy.plugins import no_machines_come
from muster.scheduling.workload import WorkloadClass


@dataclass(frozen=True, slots=True)
class Addition:
    """Slices that a pool would make, with their machines, and what these cost an hour."""

    pool: str
    slices: int
    machines: int
    price: float


class Outlook(Protocol):
    """The knowledge of whoever makes machines for a group."""

    def of(self, session: SessionId, workload: WorkloadClass, now: float) -> tuple[Reason, ...]:
        """The slice for which a waiting session waits, with what keeps its provider from making it,
        or why no pool makes machines for it; empty where its wait has nothing to do with
        machines."""

    def is_served(self, session: SessionId, workload: WorkloadClass, now: float) -> bool:
        """Whether a waiting session gets machines that are sure to come within their usual time, or
        it is about to be found out."""

    def withheld(self, session: SessionId, workload: WorkloadClass) -> tuple[Reason, ...]:
        """The rules that forbid a waiting session to start once those ahead of it have, so that no
        machine is made for it; empty where there are none."""

    def refusals(self, workload: WorkloadClass) -> tuple[Reason, ...]:
        """The reasons for which the pools could never make the machines for such a session; empty
        if they could."""

    def may_make_others(self, workload: WorkloadClass) -> bool:
        """Whether pools may have machines for a session beside those that cannot run it, as they
        have said."""

    @property
    def attributes(self) -> Set[str]:
        """The names of the attributes that machines of the pools have."""

    def additions(self, more: QueueClass, now: float) -> Sequence[Addition]:
        """The slices that would be made for sessions that are handed in now and find no room."""


def served_at(outlook: Outlook | None, now: float) -> Callable[[SessionId, WorkloadClass], bool]:
    """The ``is_served`` of the context of a pass at the moment ``now``."""
    if outlook is None:
        return no_machines_come
    return lambda session, workload: outlook.is_served(session, workload, now)
