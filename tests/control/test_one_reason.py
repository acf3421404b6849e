"""The reason of a cancel names the user who asked; all work that ends by it has that reason."""

import json

from proving.hollow.supervisor import Run
from sqlalchemy import select
from tests.control.conftest import MakeWorld
from tests.control.world import ADA, World

from muster.control.job.requests import JobRequests
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec
from muster.store import schema


def reasons_of_job(world: World, id_: str) -> dict[str, set[str | None]]:
    """The reasons of a job, its tasks, sessions and kernels, and those in their histories."""
    jobs, tasks, sessions = schema.jobs.c, schema.tasks.c, schema.sessions.c
    kernels, history = schema.kernels.c, schema.history.c
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        said = {
            "job": set(connection.scalars(select(jobs.reason).where(jobs.id == id_))),
            "tasks": set(connection.scalars(select(tasks.reason).where(tasks.job_id == id_))),
            "sessions": set(
                connection.scalars(select(sessions.reason).where(sessions.job_id == id_))
            ),
            "kernels": set(connection.scalars(select(kernels.reason).where(kernels.job_id == id_))),
        }
        rows = connection.execute(
            select(history.to_status, history.reasons).where(
                history.to_status.in_(["KILLED", "CANCELLED", "TERMINATING", "TERMINATED"])
            )
        )
        said["history"] = {code for row in rows for code, _ in json.loads(row.reasons or "[]")}
    return said


def test_one_cancel_tells_job_tasks_and_sessions_the_same_reason(group_world: MakeWorld) -> None:
    world = group_world({"a": 2}, lambda start: Run(50))
    job = world.submit(JobSpec(command=["sweep"], tasks=40))
    world.run(2.0)
    world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, job.id))
    world.run(2.0)
    told = reasons_of_job(world, job.id)
    only = {ReasonCode.CANCELLED.value}
    assert told["job"] == told["tasks"] == told["sessions"] == told["history"] == only
    assert told["kernels"] <= only | {ReasonCode.STOPPED.value, None}
    assert len(world.agent("a").starts) == 2, "nothing more was brought up"
