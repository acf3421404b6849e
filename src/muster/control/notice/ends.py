"""Notices of the end of work, as its spec asks: made in the commit of the end itself.

Ended work leaves the mirror with that commit, so it need not be stored whether its notices were
made: either both are stored, or neither.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from muster.control.engine.handler import FollowingHandler, Stage
from muster.control.engine.work import Work
from muster.control.notice.entity import Message, Notice, NoticeId, Tone
from muster.control.notice.lifecycle import NoticeLifecycle
from muster.control.notice.message import job_message, session_message
from muster.control.notice.states import NoticeStatus
from muster.control.notice.turns import NoticeTurns
from muster.core.ids import IdKind
from muster.core.owner import Owner
from muster.core.reasons.of_notices import NoticesTooMany
from muster.core.specs import JobSpec, SessionSpec
from muster.core.specs.notify import Channel
from muster.core.states import JOB_TABLE, SESSION_TABLE
from muster.store.records import Job, Session

MAX_WAITING_OF_ONE = 1_000
"""Notices of one user that wait for an attempt."""

W = TypeVar("W", Job, Session)


class Writer:
    """Makes notices; the handlers of any entity use it to tell of its ends."""

    def __init__(self, turns: NoticeTurns, notices: NoticeLifecycle) -> None:
        self._turns = turns
        self._notices = notices

    def write(
        self, work: Work, channel: Channel, message: Message, owner: Owner, subject: str | None
    ) -> Notice:
        """Add a notice, PENDING; or FAILED, where too many of its owner wait already."""
        notice = Notice(
            id=NoticeId(work.ids.new(IdKind.NOTICE)),
            subject=subject,
            owner=owner,
            shown=channel.shown,
            url=channel.url,
            title=message.title,
            body=message.body,
            tone=message.tone,
            status=NoticeStatus.PENDING,
            status_changed_at=work.now,
            created_at=work.now,
        )
        work.unit.add(notice)
        waiting = self._turns.waiting_of(owner)
        if waiting < MAX_WAITING_OF_ONE:
            self._turns.wait(notice)
            work.mark(notice)
        else:
            why = NoticesTooMany(waiting=waiting)
            self._notices.refuse(work, notice, "LimitNotices", why)
        return notice

    def tell_end(
        self,
        work: Work,
        subject: str,
        owner: Owner,
        channels: Sequence[Channel],
        message: Message,
    ) -> None:
        """Add a notice of an end for each channel that wants one. Later passes of the wake see the
        end again, and add none."""
        told = work.once(told_subjects)
        if subject in told:
            return
        told.add(subject)
        for channel in channels:
            if channel.wants(success=message.tone is Tone.SUCCESS):
                self.write(work, channel, message, owner, subject)


def told_subjects() -> set[str]:
    """The ids of work whose end was told in this wake; who tells of it adds to them."""
    return set()


def _channels(spec: JobSpec | SessionSpec | None) -> Sequence[Channel]:
    """The channels that are to be told. A session of a job has no spec: its job's end is told."""
    return () if spec is None else spec.notify


class _TellEnds(FollowingHandler[W]):
    """Makes notices for the channels that the spec of ended work names."""

    stage = Stage.TELL

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    @abstractmethod
    def message(self, record: W) -> Message:
        """The message that the work has ended, and how."""

    def follow(self, record: W, work: Work) -> None:
        channels = _channels(record.spec)
        if channels:
            message = self.message(record)
            self._writer.tell_end(work, record.id, record.owner, channels, message)


class TellEndsOfJobs(_TellEnds[Job]):
    name = "TellEndsOfJobs"
    entity = Job
    statuses = frozenset(JOB_TABLE.terminal)

    def message(self, record: Job) -> Message:
        return job_message(record)


class TellEndsOfSessions(_TellEnds[Session]):
    name = "TellEndsOfSessions"
    entity = Session
    statuses = frozenset(SESSION_TABLE.terminal)

    def message(self, record: Session) -> Message:
        return session_message(record)
