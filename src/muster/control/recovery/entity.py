"""The entity of recoveries: its record, its table, and the mapping between them."""

from dataclasses import dataclass
from typing import Any, NewType

from sqlalchemy import Column, Connection, Float, Index, Integer, Row, String, Table, Text, select

from muster.control.recovery.rounds import (
    Round,
    dump_round,
    dump_rounds,
    load_round,
    load_rounds,
)
from muster.core.ids import IdKind, JobId
from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.core.states.recovery import RECOVERY_TABLE, RecoveryStatus
from muster.store import schema
from muster.store.entity import Entity, Record, Visible
from muster.store.live import Live
from muster.store.lookup import Lookup
from muster.store.mapping import RowMapping
from muster.store.records import Job
from muster.store.rows import REASON, load_reason
from muster.store.sql import one_of

RecoveryId = NewType("RecoveryId", str)

MAX_KEPT = 16
"""Rounds of one recovery that are kept when they are over; earlier ones are counted."""

recoveries = Table(
    "recoveries",
    schema.metadata,
    Column("id", String, primary_key=True),
    Column("job_id", String, nullable=False),
    Column("name", String, nullable=False),  # of the job
    Column("group", String, nullable=False),
    *schema.owner_columns(),
    Column("status", String, nullable=False),
    Column("status_changed_at", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("finished_at", Float, nullable=True),
    Column("restarts", Integer, nullable=False),
    Column("rounds", Integer, nullable=False),  # how many began
    Column("open", Text, nullable=True),  # JSON, as Round
    Column("next", Text, nullable=True),  # JSON, as Round
    Column("kept", Text, nullable=False),  # JSON, as a list of Round
    Column("lost_gpu_s", Float, nullable=False),  # of rounds that are over
    Column("ran_s", Float, nullable=False),
    Column("runs_since", Float, nullable=True),
    Column("started_at", Float, nullable=True),
    *schema.reason_columns(),
    sqlite_with_rowid=False,
)
Index(
    "recoveries_live",
    recoveries.c.id,
    sqlite_where=recoveries.c.status.in_(sorted(RECOVERY_TABLE.live)),
    postgresql_where=recoveries.c.status.in_(sorted(RECOVERY_TABLE.live)),
)
Index("recoveries_by_job", recoveries.c.job_id)
Index(
    "recoveries_by_owner",
    recoveries.c.domain,
    recoveries.c.project,
    recoveries.c.user,
    recoveries.c.id,
)


def name_of(id_: str, job: str) -> str:
    """The name of a recovery in the mirror and in history: below its job, so that it belongs to
    that job's history."""
    return f"{job}/{id_}"


@dataclass(slots=True, eq=False, kw_only=True)
class Recovery(Record):
    """The recovery of one job, as old as the job.

    ``restarts`` counts the restarts after faults of machines that failed a task, ``rounds`` the
    rounds that began, and ``leaves`` those in which no task failed.
    ``open`` is the round under way, ``next`` one that begins after it: its attempts ended while
    ``open`` was past its check. ``kept`` are the last rounds that are over, ``lost_gpu_s`` the
    GPU-seconds that all of those cost.

    ``ran_s`` is how long tasks of the job have run until ``runs_since``, None while none runs, and
    ``started_at`` when the first of them did.
    """

    id: RecoveryId
    job: Job
    status: RecoveryStatus
    created_at: float
    finished_at: float | None = None
    restarts: int = 0
    rounds: int = 0
    open: Round | None = None
    next: Round | None = None
    kept: tuple[Round, ...] = ()
    lost_gpu_s: float = 0.0
    ran_s: float = 0.0
    runs_since: float | None = None
    started_at: float | None = None
    reason: Reason | None = None

    @property
    def name(self) -> str:
        return name_of(self.id, self.job.id)

    @property
    def is_whole(self) -> bool:
        """Whether all tasks of the job wait while one of them does."""
        return self.job.spec.recovers_whole

    @property
    def owner(self) -> Owner:
        return self.job.owner

    @property
    def leaves(self) -> int:
        rounds = filter(None, (self.next, self.open, *self.kept))
        return max((each.leaves for each in rounds), default=0)

    def replace_round(self, before: Round, after: Round) -> None:
        """Have another value in the place of a round that is not over."""
        if self.open is before:
            self.open = after
        else:
            self.next = after

    def close_round(self, now: float, outcome: Reason | None) -> None:
        """Have the round under way be over."""
        if self.open is None:
            return
        over = self.open.closed(now, outcome)
        self.open = None
        self.keep(over)

    def keep(self, over: Round) -> None:
        """Keep a round that is over."""
        self.kept = (*self.kept, over)[-MAX_KEPT:]
        if over.ended_at is not None:
            self.lost_gpu_s += over.gpu_hours(over.ended_at) * 3600


_LIVE = Lookup(
    select(recoveries)
    .where(one_of(recoveries.c.status, RECOVERY_TABLE.live))
    .order_by(recoveries.c.id)
)


def _load(connection: Connection, live: Live) -> None:
    for row in _LIVE.named(connection):
        job = live.jobs.get(JobId(row.job_id))
        if job is not None:  # an audit tells of one that outlived its job
            live.add(_recovery(row, job))


def _recovery(row: Row[Any], job: Job) -> Recovery:
    return Recovery(
        id=RecoveryId(row.id),
        job=job,
        status=RecoveryStatus(row.status),
        status_changed_at=row.status_changed_at,
        created_at=row.created_at,
        finished_at=row.finished_at,
        restarts=row.restarts,
        rounds=row.rounds,
        open=load_round(row.open),
        next=load_round(row.next),
        kept=load_rounds(row.kept),
        lost_gpu_s=row.lost_gpu_s,
        ran_s=row.ran_s,
        runs_since=row.runs_since,
        started_at=row.started_at,
        reason=load_reason(row.reason, row.reason_numbers),
    )


RECOVERY = Entity(
    "recovery",
    Recovery,
    RECOVERY_TABLE,
    RowMapping[Recovery](
        recoveries,
        changing=(
            "status",
            "status_changed_at",
            "finished_at",
            "restarts",
            "rounds",
            "open",
            "next",
            "kept",
            "lost_gpu_s",
            "ran_s",
            "runs_since",
            "started_at",
            *REASON,
        ),
        sources={
            "job_id": "job.id",
            "name": "job.name",
            "group": "job.group",
            "open": ("open", dump_round),
            "next": ("next", dump_round),
            "kept": ("kept", dump_rounds),
            "domain": "job.owner.domain",
            "project": "job.owner.project",
            "user": "job.owner.user",
            **REASON,
        },
    ),
    _load,
    described="a job's way through faults of its machines, where it opts in",
    prefix=IdKind.RECOVERY,
    visible=Visible.TO_OWNER,
    id_of=lambda recovery: recovery.name,
    id_column=recoveries.c.job_id + "/" + recoveries.c.id,
)
