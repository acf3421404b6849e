"""Verbs of jobs."""

from typing import TYPE_CHECKING

from muster.core.verbs import Verb

if TYPE_CHECKING:
    from muster.core.views.work import JobView

HOLD_JOB: "Verb[JobView]" = Verb(
    "hold_job",
    does="Hold a job: tasks of it that have no place yet do not begin until it is released.",
    help="Keep tasks of jobs that have no place yet from beginning.",
    said=lambda job: f"job {job.name} ({job.id}) is held: no more of its tasks begin",
)
RELEASE_JOB: "Verb[JobView]" = Verb(
    "release_job",
    does="Release a job that is held; one that an admin holds is released by admins alone.",
    help="Let the tasks of held jobs begin.",
    said=lambda job: f"job {job.name} ({job.id}) is released",
)
