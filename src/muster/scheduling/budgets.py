"""Budgets of services: how many of their sessions may be displaced at a time (design: Deployments
and routes)."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from muster.core.ids import SessionId
from muster.scheduling.workload import RunningSession


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """The budget of the service to which a session belongs.

    Args:
        service: its id.
        left: counts how many more of its sessions may be displaced now; a service may have very
            many, so that this is asked once for all of them.
    """

    service: str
    left: Callable[[], int]


Budgets = Callable[[SessionId], DisruptionBudget | None]
"""Tells the budget to which a session counts; None if it may be displaced whatever others do."""


def unbounded(session: SessionId) -> DisruptionBudget | None:
    """No budget for any session."""
    return None


def within(
    sessions: Sequence[RunningSession],
    preferred: Collection[SessionId],
    displaced: Collection[SessionId],
    budgets: Budgets,
) -> list[RunningSession]:
    """As many of the sessions as may be displaced all together, in the same order.

    Args:
        preferred: sessions that come before others of their service.
        displaced: sessions that are displaced already, and count.
    """
    counted = filter(None, map(budgets, displaced))
    taken = Counter(budget.service for budget in counted)
    left: dict[str, int] = {}
    kept: set[SessionId] = set()
    for each in sorted(sessions, key=lambda each: each.id not in preferred):
        budget = budgets(each.id)
        if budget is not None:
            if budget.service not in left:
                left[budget.service] = budget.left()
            if taken[budget.service] >= left[budget.service]:
                continue
            taken[budget.service] += 1
        kept.add(each.id)
    return [each for each in sessions if each.id in kept]
