"""Notices of the end of work, as its spec asks: made in the commit of the end itself.

Ended work leaves the mirror with that commit, so it need not be stored whether its notices were
made: either both are stored, or neither.
"""

from collections.abc import Sequence

from muster.control.engine.handler import FollowingHandler, Stage
from muster.control.engine.work import Move, Work
from muster.control.notice.entity import PREFIX, Message, Notice, NoticeId
from muster.control.notice.message import job_message, session_message
from muster.control.notice.states import NoticeStatus
from muster.control.notice.turns import Turns
from muster.core.owner import Owner
from muster.core.reasons import ReasonCode, reason
from muster.core.results import SchedulingResult
from muster.core.specs.notify import Channel
from muster.core.states import JOB_TABLE, SESSION_TABLE, JobState
from muster.store.records import Job, Session

MAX_WAITING_OF_ONE = 1_000
"""Notices of one user that wait for an attempt."""


class Writer:
    """Makes notices."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def write(
        self, work: Work, channel: Channel, message: Message, owner: Owner, subject: str | None
    ) -> Notice:
        """Add a notice, PENDING; or FAILED, where too many of its owner wait already."""
        notice = Notice(
            id=NoticeId(work.ids.new(PREFIX)),
            subject=subject,
            owner=owner,
            shown=channel.shown,
            url=channel.url,
            message=message,
            status=NoticeStatus.PENDING,
            status_changed_at=work.now,
            created_at=work.now,
        )
        work.unit.add(notice)
        waiting = self._turns.waiting_of(owner)
        if waiting < MAX_WAITING_OF_ONE:
            self._turns.wait(notice)
            work.mark(notice)
            return notice
        why = reason(ReasonCode.NOTICES_TOO_MANY, waiting=waiting)
        move = Move("LimitNotices", SchedulingResult.GIVE_UP, why)
        work.move(notice, {NoticeStatus.PENDING}, NoticeStatus.FAILED, move)
        notice.end(work.now, why)
        return notice


def _subjects() -> set[str]:
    """The ids of work whose end was told in this wake."""
    return set()


def _is_new(subject: str, work: Work) -> bool:
    """Whether the end is new in this wake, whose later passes see it again."""
    told = work.once(_subjects)
    is_new = subject not in told
    told.add(subject)
    return is_new


class TellEndsOfJobs(FollowingHandler[Job]):
    name = "TellEndsOfJobs"
    stage = Stage.TELL
    entity = Job
    targets = frozenset(JOB_TABLE.terminal)

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def follow(self, record: Job, work: Work) -> None:
        if not record.spec.notify or not _is_new(record.id, work):
            return
        success = record.status is JobState.SUCCEEDED
        for channel in record.spec.notify:
            if channel.wants(success=success):
                self._writer.write(work, channel, job_message(record), record.owner, record.id)


class TellEndsOfSessions(FollowingHandler[Session]):
    """Tells the ends of sessions without a job."""

    name = "TellEndsOfSessions"
    stage = Stage.TELL
    entity = Session
    targets = frozenset(SESSION_TABLE.terminal)

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def gather(self, candidates: Sequence[Session], work: Work) -> Sequence[Session]:
        """The sessions to tell of. Most sessions belong to jobs, and cost no call each."""
        asking = [each for each in candidates if each.spec is not None and each.spec.notify]
        return super().gather(asking, work)

    def follow(self, record: Session, work: Work) -> None:
        if record.spec is None or not _is_new(record.id, work):
            return
        success = record.reason is not None and record.reason.code is ReasonCode.COMPLETED
        for channel in record.spec.notify:
            if channel.wants(success=success):
                message = session_message(record, success=success)
                self._writer.write(work, channel, message, record.owner, record.id)
