"""Requests of people about recoveries."""

from muster.control.engine.work import Work
from muster.control.job.requests import JobRequests
from muster.control.recovery.entity import Recovery
from muster.core.errors import NotFound
from muster.core.owner import Principal
from muster.core.states.recovery import RECOVERY_TABLE
from muster.store.live import Live


class RecoveryRequests:
    """Requests about live recoveries; those that are over are read from SQL."""

    def __init__(self, live: Live, jobs: JobRequests) -> None:
        self._live = live
        self._jobs = jobs

    def stop(self, work: Work, principal: Principal, id_: str) -> Recovery:
        """Stop a recovery with its job, whatever it waits for; its machines heal on.

        Raises:
            NotFound: no such live recovery of the principal's.
        """
        found = (each for each in self._live.of(Recovery).values() if each.id == id_)
        recovery = next(found, None)
        if (
            recovery is None
            or recovery.status in RECOVERY_TABLE.terminal
            or not principal.may_change(recovery.owner)
        ):
            raise NotFound(f"there is no live recovery {id_}")
        self._jobs.cancel(work, principal, recovery.job.id)
        return recovery
