"""The entity of recoveries: its record and its table."""

from dataclasses import dataclass
from typing import Annotated, NewType

from sqlalchemy import Connection, Index, String

from muster.control.recovery.rounds import Round
from muster.core.ids import IdKind, JobId
from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.core.states.recovery import RECOVERY_TABLE, RecoveryStatus
from muster.store.entity import Entity, Record, Visible
from muster.store.fields import Fixed, Key, Reference
from muster.store.live import Live
from muster.store.record_table import (
    Computed,
    RecordTable,
    index_by_owner,
    index_live,
    owner_through,
)
from muster.store.records import Job

RecoveryId = NewType("RecoveryId", str)

MAX_KEPT = 16
"""Rounds of one recovery that are kept when they are over; earlier ones are counted."""


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

    id: Key[RecoveryId]
    job: Annotated[Job, Reference("job_id")]
    status: RecoveryStatus
    created_at: Fixed[float]
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


RECOVERIES = RecordTable(
    Recovery,
    "recoveries",
    RECOVERY_TABLE,
    computed={
        "name": Computed(String, "job.name"),
        "group": Computed(String, "job.group"),
        **owner_through("job.owner"),
    },
)
recoveries = RECOVERIES.table
index_live(RECOVERIES)
index_by_owner(recoveries)
Index("recoveries_by_job", recoveries.c.job_id)
load_open, load_next = RECOVERIES.loader("open"), RECOVERIES.loader("next")
load_rounds = RECOVERIES.loader("kept")


def _load(connection: Connection, live: Live) -> None:
    for row in RECOVERIES.live.named(connection):
        job = live.jobs.get(JobId(row.job_id))
        if job is not None:  # an audit tells of one that outlived its job
            live.add(RECOVERIES.load(row, job=job))


RECOVERY = Entity(
    "recovery",
    RECOVERIES,
    _load,
    described="a job's way through faults of its machines, where it opts in",
    prefix=IdKind.RECOVERY,
    visible=Visible.TO_OWNER,
    id_of=lambda recovery: recovery.name,
    id_column=recoveries.c.job_id + "/" + recoveries.c.id,
)
