"""The say of services when one of their sessions is to leave a machine for the cluster's sake."""

from muster.control.engine.work import Work
from muster.core.ids import SessionId
from muster.core.reasons import Reason
from muster.scheduling.budgets import DisruptionBudget
from muster.store.records import Session

HELD_UP_S = 600.0
"""How long the budget of a service may hold up a machine past the moment at which work has to have
left it."""


class ServicesGuard:
    """Nobody's say: each session leaves at once. Deployments have a guard of their own."""

    def budget(self, session: SessionId) -> DisruptionBudget | None:
        """The budget to which a session counts; None if it may leave whatever others do."""
        return None

    def sees_to(self, work: Work, session: Session, phase: str, why: Reason, until: float) -> bool:
        """Whether the session's service has it leave, or stay for now; False if the caller is to
        stop it.

        Args:
            until: the moment from which a budget holds it up no more.
        """
        return False

    def withdraw(self, work: Work, session: Session, phase: str, why: Reason) -> None:
        """Take note that the caller stops the session at once."""

    def why_stays(self, session: SessionId, left_s: float | None) -> Reason | None:
        """Why a session has not left a machine that is to be left, if its service has it stay.

        Args:
            left_s: how much longer the service may have it stay; None without a limit.
        """
        return None

    def waits_without_limit(self, session: SessionId) -> bool:
        """Whether a session waits for a place for as long as its service wants it, however short
        the group's ``pending_timeout`` is: in place of one that ends, its service would hand in
        another one at once."""
        return False
