"""Indexes of the mirror follow the records."""

import random

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from proving.hollow.virtual_clock import VirtualClock
from tests.store.watching import Watch

from muster.core.ids import IdFactory
from muster.core.owner import Owner
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, JobState
from muster.store.entities import ENTITIES
from muster.store.index import Index
from muster.store.live import Live
from muster.store.records import Job
from muster.store.unit import Unit

IDS = IdFactory(VirtualClock(), random.Random(1))
GROUPS = ("a", "b", "none")
SPEC = JobSpec(command=["x"])
PLACES = st.integers(0, 9)
STEPS: SearchStrategy[tuple[str, int, str]] = st.tuples(
    st.sampled_from(("add", "change", "end", "commit")), PLACES, st.sampled_from(GROUPS)
)


def a_job(group: str) -> Job:
    id_ = IDS.job()
    return Job(
        id=id_,
        name=id_,
        owner=Owner("default", "default", "ada"),
        group=group,
        spec=SPEC,
        resources=SPEC.resources.resources(),
        status=JobState.PENDING,
        status_changed_at=0.0,
        tasks_total=1,
        next_task=0,
        counts={},
        submitted_at=0.0,
    )


def group_of(job: Job) -> str | None:
    return None if job.group == "none" else job.group


class Naive:
    """The jobs of each group, looked for anew after each step."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Job]] = []

    def look(self, live: Live) -> None:
        jobs = [job for job in live.jobs.values() if job.status in JOB_TABLE.live]
        now = [(group, job) for job in jobs if (group := group_of(job)) is not None]
        kept = [each for each in self.found if each in now]
        self.found = kept + [each for each in now if each not in kept]

    def of(self, group: str) -> list[Job]:
        return [job for its, job in self.found if its == group]


def take(live: Live, unit: Unit, step: str, place: int, group: str) -> Unit:
    """Take a step; the answer is the unit of the next one."""
    jobs = [job for job in live.jobs.values() if job.status in JOB_TABLE.live]
    if step == "commit":
        unit.settle()
        return Unit(live, unit.now + 1.0, 0, Watch())
    if step == "add":
        unit.add(a_job(group))
    elif place < len(jobs) and step == "change":
        jobs[place].group = group
        unit.touch(jobs[place])
    elif place < len(jobs):
        unit.move(jobs[place], JOB_TABLE.live, JobState.KILLED, "x")
    return unit


def assert_equal(index: Index[Job], naive: Naive) -> None:
    for group in GROUPS:
        of_group = naive.of(group)
        assert [*index.of(group)] == of_group
        assert index.newest(group) is (of_group[-1] if of_group else None)
        assert (group in index) is bool(of_group)
    assert {*index} == {job for _, job in naive.found}
    assert len(index) == len(naive.found)


@given(st.lists(STEPS, max_size=30), PLACES)
def test_index_holds_what_is_found_by_looking_at_all_records(
    steps: list[tuple[str, int, str]], declared_after: int
) -> None:
    live, naive = Live(ENTITIES), Naive()
    unit = Unit(live, 0.0, 0, Watch())
    for step in steps[:declared_after]:
        unit = take(live, unit, *step)
    index = live.index(Job, by=group_of)
    naive.look(live)
    assert_equal(index, naive)
    for step in steps[declared_after:]:
        unit = take(live, unit, *step)
        naive.look(live)
        assert_equal(index, naive)


def test_index_by_a_field_leaves_out_records_without_it() -> None:
    live = Live(ENTITIES)
    unit = Unit(live, 0.0, 0, Watch())
    index = live.index(Job, by="finished_at")
    job = a_job("a")
    unit.add(job)
    assert [*index] == []
    job.finished_at = 1.0
    unit.touch(job)
    assert [*index.of(1.0)] == [job]
    job.finished_at = 2.0
    unit.rewrite(job)
    assert ([*index.of(1.0)], [*index.of(2.0)]) == ([], [job])


def test_record_that_ends_leaves_an_index_before_it_leaves_the_mirror() -> None:
    live = Live(ENTITIES)
    unit = Unit(live, 0.0, 0, Watch())
    index = live.index(Job, by="group")
    unit.add(a_job("a"), a_job("a"))
    for job in [*index.of("a")]:
        unit.move(job, JOB_TABLE.live, JobState.KILLED, "x")
    assert [*index.of("a")] == []
    assert len(live.jobs) == 2  # until the commit
