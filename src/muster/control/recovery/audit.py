"""Audits of recoveries against their jobs, and of their rounds."""

from collections.abc import Iterator

from sqlalchemy import select

from muster.control.recovery.entity import load_next, load_open, load_rounds, recoveries
from muster.core.states import JOB_TABLE
from muster.core.states.recovery import RECOVERY_TABLE, RecoveryStatus
from muster.store.audit.finding import MAX_SENTENCE, UNREADABLE, Audit, AuditFinding, Stored
from muster.store.schema import jobs

_WAITING = RECOVERY_TABLE.live - {RecoveryStatus.IN_PROGRESS}


def _outliving(stored: Stored) -> Iterator[AuditFinding]:
    joined = recoveries.outerjoin(jobs, jobs.c.id == recoveries.c.job_id)
    live = recoveries.c.status.in_(sorted(RECOVERY_TABLE.live))
    query = (
        select(recoveries.c.id, recoveries.c.status, jobs.c.status.label("of_job"))
        .select_from(joined)
        .where(live, jobs.c.status.is_(None) | jobs.c.status.in_(sorted(JOB_TABLE.terminal)))
    )
    for row in stored.connection.execute(query):
        yield AuditFinding(row.id, f"is {row.status}, and its job is {row.of_job or 'missing'}")


def _wrong_rounds(stored: Stored) -> Iterator[AuditFinding]:
    for row in stored.connection.execute(select(recoveries).order_by(recoveries.c.id)):
        try:
            open_, next_, kept = load_open(row.open), load_next(row.next), load_rounds(row.kept)
        except UNREADABLE as error:
            yield AuditFinding(row.id, f"cannot be read: {error!r}"[:MAX_SENTENCE])
            continue
        is_open, newest = open_ is not None, next_ or open_ or (kept[-1] if kept else None)
        if is_open is not (row.status in _WAITING):
            yield AuditFinding(
                row.id, f"is {row.status}, and has {'a' if is_open else 'no'} round open"
            )
        failed = row.rounds - (0 if newest is None else newest.leaves)
        if row.restarts > failed:
            yield AuditFinding(row.id, f"was restarted {row.restarts} times in {failed} rounds")


AUDITS = (
    Audit("no recovery is live once its job has ended", _outliving),
    Audit("a recovery has a round open exactly while it waits for one", _wrong_rounds),
)
