"""Names of jobs that were handed in without one: no two jobs of one owner get the same."""

from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from tests.control.conftest import MakeWorld, cpus
from tests.control.world import ADA, BOB, World
from tests.databases import ON_BOTH

from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.inbox import NotStored
from muster.control.job.requests import JobRequests, Retried
from muster.core.errors import InvalidSpec
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE
from muster.store.queries import jobs
from muster.store.records import Job

pytestmark = ON_BOTH

UNNAMED = JobSpec(command=["true"])


@pytest.fixture
def world(worlds: MakeWorld) -> World:
    return worlds({"a": cpus(2)})


def run(world: World, spec: JobSpec = UNNAMED) -> Job:
    """The job, once it has ended."""
    job = world.submit(spec)
    world.run_until(lambda: job.status in JOB_TABLE.terminal)
    return job


def retry(world: World, job: Job) -> str:
    """The name of a job that runs an ended job again, and has ended too."""
    retried = Retried(job.id, job.name, job.spec, None, 0)
    again: Job = world.ask(lambda work, parts: parts[JobRequests].retry(work, ADA, retried))
    world.run_until(lambda: again.status in JOB_TABLE.terminal)
    return again.name


def test_job_that_is_refused_leaves_its_number_to_the_next(world: World) -> None:
    first = run(world)
    refused = UNNAMED.model_copy(update={"after": JobSpec(command=["x"], after=["none"]).after})
    retried = Retried(first.id, first.name, refused, None, 0)
    for _ in range(3):
        with pytest.raises(InvalidSpec):
            world.submit(refused)
        with pytest.raises(InvalidSpec):
            world.ask(lambda work, parts: parts[JobRequests].retry(work, ADA, retried))
    assert [run(world).name, retry(world, first)] == ["true-2", "true-1-retry-1"]


def test_names_given_after_a_restart_are_new(world: World) -> None:
    first = run(world)
    given = [first.name, run(world).name, retry(world, first)]
    world.restart_controller()
    given += [run(world).name, retry(world, first)]
    assert given == ["true-1", "true-2", "true-1-retry-1", "true-3", "true-1-retry-2"]


def test_name_that_a_person_chose_is_not_given_again(world: World) -> None:
    run(world, UNNAMED.model_copy(update={"name": "true-2"}))
    assert [run(world).name, run(world).name] == ["true-1", "true-3"]


def test_many_names_are_found_in_few_looks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(40):
        world.submit(UNNAMED)
    world.restart_controller()
    looks = []

    def look(*arguments: Any) -> Any:
        looks.append(arguments)
        return found(*arguments)

    found = jobs.CALLED.first
    monkeypatch.setattr(jobs.CALLED, "first", look)
    assert world.submit(UNNAMED).name == "true-41"
    assert len(looks) <= 12
    looks.clear()
    assert world.submit(UNNAMED).name == "true-42"
    assert len(looks) == 1


def submit(work: Work, parts: Parts) -> Job:
    return parts[JobRequests].submit(work, ADA, UNNAMED)


def test_names_of_one_wake_differ(world: World) -> None:
    assert [job.name for job in world.ask_together(submit, submit)] == ["true-1", "true-2"]


def test_others_names_do_not_count(world: World) -> None:
    run(world)
    assert world.submit(UNNAMED, BOB).name == "true-1"


def test_submission_is_refused_while_names_cannot_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> Any:
        reads.append(arguments)
        raise OperationalError("the names", None, Exception("disk I/O error"))

    reads: list[Any] = []
    monkeypatch.setattr(jobs.CALLED, "first", fail)
    answers = world.ask_together(submit, submit)
    assert [type(each) for each in answers] == [NotStored, NotStored]
    assert "disk I/O error" in str(answers[0])
    assert len(reads) == 1, "the second would wait for the database, too"
    monkeypatch.undo()
    world.clock.advance(1.1)
    assert world.submit(UNNAMED).name == "true-1"
