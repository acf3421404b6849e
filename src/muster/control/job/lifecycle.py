"""The lifecycle of jobs: the consequences of a job's change for work that depends on it."""

import math
from collections.abc import Iterable

from muster.control.engine.lifecycle import Lifecycle
from muster.control.engine.work import Move, Work
from muster.control.job.held import HeldAttempts
from muster.control.session.cluster.state import ClusterState
from muster.core.states import JOB_TABLE
from muster.store.records import Job

LOOK_AGAIN_S = 1.0
"""How often a job is looked at while processes of its tasks' last attempts may be left."""


class JobLifecycle(Lifecycle[Job]):
    """Notes the end of a job, and tells dependent work of each change."""

    entity = Job

    def __init__(self, cluster: ClusterState, held: HeldAttempts) -> None:
        self._cluster = cluster
        self._held = held

    def moved(self, work: Work, record: Job, move: Move) -> None:
        self._cluster.job_changed(record)
        if record.status in JOB_TABLE.terminal:
            record.finished_at = work.now
            record.reason = move.reason

    def deadlines(self, record: Job, work: Work) -> Iterable[float]:
        if record.status in JOB_TABLE.live and not self._held.holds_all(record):
            yield work.now + LOOK_AGAIN_S
            later = (task.retry_at for task in record.waiting.values())
            yield min((at for at in later if at > work.now), default=math.inf)
