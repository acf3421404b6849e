"""Audits of sessions against their kernels."""

from collections.abc import Iterator, Mapping

from sqlalchemy import func, or_, select, tuple_

from muster.core.states import KERNEL_TABLE, SESSION_TABLE, KernelStatus, SessionStatus
from muster.store.audit.finding import Audit, AuditFinding, Stored
from muster.store.lookup import Lookup
from muster.store.schema import kernels, sessions

_K, _S = KernelStatus, SessionStatus
_ENDED = KERNEL_TABLE.terminal

KERNELS_OF: Mapping[SessionStatus, frozenset[KernelStatus]] = {
    _S.PENDING: frozenset({_K.PENDING}),
    _S.SCHEDULED: frozenset({_K.SCHEDULED}),
    _S.PREPARING: _ENDED | {_K.PREPARING, _K.PULLING, _K.PREPARED},
    _S.PREPARED: _ENDED | {_K.PREPARED},
    _S.CREATING: _ENDED | {_K.CREATING, _K.RUNNING},
    _S.RUNNING: _ENDED | {_K.RUNNING},
    _S.TERMINATING: _ENDED | {_K.TERMINATING},
    **dict.fromkeys(SESSION_TABLE.terminal, _ENDED),
}
"""The statuses that kernels of a session can have, by the status of the session: both are written
in one commit."""


_PAIRS = [
    (session, kernel) for session, several in KERNELS_OF.items() for kernel in sorted(several)
]
_IN_OTHER_PAIRS = Lookup(
    select(sessions.c.id, sessions.c.status, kernels.c.id, kernels.c.status)
    .select_from(sessions.join(kernels, kernels.c.session_id == sessions.c.id))
    .where(tuple_(sessions.c.status, kernels.c.status).not_in(_PAIRS))
)
_k = kernels.c
_counted = (
    select(_k.session_id, func.count().label("count"), func.max(_k.idx).label("last"))
    .group_by(_k.session_id)
    .subquery()
)
_MISCOUNTED = Lookup(
    select(sessions.c.id, _counted.c.count, _counted.c.last)
    .select_from(sessions.outerjoin(_counted, _counted.c.session_id == sessions.c.id))
    .where(or_(_counted.c.count.is_(None), _counted.c.count != _counted.c.last + 1))
)
_AT_ONCE = Lookup(
    select(_k.job_id, _k.task_index, func.count())
    .where(_k.job_id.is_not(None), _k.status.in_(sorted(KERNEL_TABLE.live)))
    .group_by(_k.job_id, _k.task_index)
    .having(func.count() > 1)
)
_NUMBERED_ALIKE = Lookup(
    select(_k.job_id, _k.task_index, _k.attempt, func.count())
    .where(_k.job_id.is_not(None))
    .group_by(_k.job_id, _k.task_index, _k.attempt)
    .having(func.count() > 1)
)


def _disagreeing(stored: Stored) -> Iterator[AuditFinding]:
    for id_, status, kernel, kernel_status in _IN_OTHER_PAIRS.each(stored.connection):
        yield AuditFinding(id_, f"is {status}, and its kernel {kernel} is {kernel_status}")


def _miscounted(stored: Stored) -> Iterator[AuditFinding]:
    """Kernels are numbered from 0 on without a gap."""
    for id_, count, last in _MISCOUNTED.each(stored.connection):
        yield AuditFinding(id_, f"has {count or 0} kernels, of which the last is number {last}")


def _two_at_once(stored: Stored) -> Iterator[AuditFinding]:
    for job, task, count in _AT_ONCE.each(stored.connection):
        yield AuditFinding(f"{job}/{task}", f"has {count} live attempts")


def _numbered_alike(stored: Stored) -> Iterator[AuditFinding]:
    for job, task, attempt, count in _NUMBERED_ALIKE.each(stored.connection):
        yield AuditFinding(f"{job}/{task}", f"has {count} attempts with the number {attempt}")


AUDITS = (
    Audit("each session has the status that its kernels allow", _disagreeing),
    Audit("each session has all of its kernels", _miscounted),
    Audit("each task has one live attempt at most", _two_at_once),
    Audit("each attempt of a task has a number of its own", _numbered_alike),
)
