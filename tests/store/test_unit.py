"""The one way to change a status, the ledger, and what a failed commit leaves."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from proving.hollow.virtual_clock import VirtualClock
from sqlalchemy import update
from tests.databases import ON_BOTH, open_unsynced, url_at
from tests.store.watching import Watch

from muster.core.ids import AgentId, IdFactory
from muster.core.owner import Owner
from muster.core.reasons.of_agents import AgentSilent
from muster.core.resources import Device, DeviceShare, Resources
from muster.core.specs import JobSpec
from muster.core.states import AGENT_TABLE, AgentStatus, IllegalTransition, JobState, TaskState
from muster.store import schema
from muster.store.database import open_engine
from muster.store.records import Agent, Allocation, Job, Task
from muster.store.store import CommitFailed, Store, Unstorable
from muster.store.unit import Unit

pytestmark = ON_BOTH
ADA = Owner("default", "default", "ada")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(open_unsynced(url_at(tmp_path)))
    yield opened
    opened.close()


def unit(store: Store, now: float = 100.0) -> Unit:
    return store.unit(now, Watch())


def a_job(seed: int = 1) -> Job:
    spec = JobSpec(command=["x"], tasks=3)
    return Job(
        id=IdFactory(VirtualClock(), random.Random(seed)).job(),
        name="x-1",
        owner=ADA,
        group="default",
        spec=spec,
        resources=spec.resources.resources(),
        status=JobState.PENDING,
        status_changed_at=100.0,
        tasks_total=3,
        next_task=0,
        counts={},
        submitted_at=100.0,
    )


def test_only_records_with_the_expected_status_change_and_the_rest_is_reported(
    store: Store,
) -> None:
    job = a_job()
    work = unit(store)
    work.add(job)
    tasks = [
        Task(job=job, index=index, status=TaskState.PENDING, status_changed_at=100.0)
        for index in range(2)
    ]
    for task in tasks:
        work.add(task)
    assert work.move(tasks[0], {TaskState.PENDING}, TaskState.ASSIGNED, "x")
    moved = [work.move(task, {TaskState.ASSIGNED}, TaskState.RUNNING, "x") for task in tasks]
    assert moved == [True, False]
    assert [task.status for task in tasks] == [TaskState.RUNNING, TaskState.PENDING]
    assert job.counts == {TaskState.PENDING: 1, TaskState.ASSIGNED: 0, TaskState.RUNNING: 1}


def test_change_that_the_table_does_not_hold_is_refused(store: Store) -> None:
    job = a_job()
    work = unit(store)
    work.add(job)
    work.move(job, {JobState.PENDING}, JobState.KILLED, "x")
    with pytest.raises(IllegalTransition):
        work.move(job, {JobState.KILLED}, JobState.PENDING, "x")


def test_row_that_somebody_else_changed_fails_the_commit_and_the_mirror_is_read_again(
    store: Store,
) -> None:
    job = a_job()
    work = unit(store)
    work.add(job)
    store.commit(work)
    with store.engine.begin() as other:
        other.execute(update(schema.jobs).values(status="RUNNING"))
    work = unit(store)
    work.move(job, {JobState.PENDING}, JobState.KILLED, "x")
    with pytest.raises(CommitFailed):
        store.commit(work)
    store.reload()
    assert [found.status for found in store.live.jobs.values()] == [JobState.RUNNING]
    assert store.live.jobs[job.id] is not job


def test_freeing_twice_is_harmless_and_the_row_is_gone(store: Store) -> None:
    work = unit(store)
    row = Allocation(
        "krn-1", 0, AgentId("agt-1"), True, Resources(1000), (DeviceShare(0, 500),), "boot", 1.0  # type: ignore[arg-type]
    )  # fmt: skip
    store.live.allocate(row)
    watch = Watch()
    work = store.unit(100.0, watch)
    assert work.release((row.kernel_id, 0)) is row
    assert work.release((row.kernel_id, 0)) is None
    assert watch.told == ["released"]
    assert not store.live.ledger
    assert not store.live.allocations_of


def an_agent(id_: str = "agt-1") -> Agent:
    return Agent(
        id=AgentId(id_),
        name="a",
        group="default",
        status=AgentStatus.ALIVE,
        status_changed_at=1.0,
        credential_hash="hash",
        boot_id="boot",
        version="0.1",
        host="host",
        capacity=Resources.with_extra(1, 2, 3, 0, {"licence": 5}),
        devices=(Device(0, "H100", "GPU-1", 80),),
        attributes={"rack": "r1"},
        joined_at=1.0,
        seen_at=2.0,
        reason=AgentSilent(silent_s=3),
    )


def test_everything_of_an_agent_is_the_same_after_reading_it_again(store: Store) -> None:
    agent = an_agent()
    work = unit(store)
    work.add(agent)
    store.commit(work)
    store.reload()
    (found,) = store.live.agents.values()
    for name in Agent.__slots__:
        assert getattr(found, name) == getattr(agent, name), name


def test_two_agents_of_one_name_are_refused(store: Store) -> None:
    work = unit(store)
    work.add(an_agent("agt-1"))
    work.add(an_agent("agt-2"))
    with pytest.raises(CommitFailed):
        store.commit(work)


@pytest.mark.parametrize("status", sorted(AGENT_TABLE.live))
def test_name_of_an_agent_is_free_for_another_only_once_it_was_removed(
    store: Store, status: AgentStatus
) -> None:
    former = an_agent("agt-1")
    former.status = status
    work = unit(store)
    work.add(former)
    store.commit(work)
    for removed in (False, True):
        work = unit(store)
        if removed:
            former = store.live.agents[former.id]
            work.move(former, AGENT_TABLE.live, AgentStatus.REMOVED, "x")
        work.add(an_agent("agt-2"))
        if removed:
            store.commit(work)
        else:
            with pytest.raises(CommitFailed):
                store.commit(work)
            store.reload()
    assert list(store.live.agents) == ["agt-2"]


def test_moment_of_the_last_commit_is_known_to_the_next_process(tmp_path: Path) -> None:
    url = url_at(tmp_path)
    moments = [0.0]
    for now in (100.0, 250.0):
        opened = Store(open_engine(url))
        assert opened.last_commit_at == moments[-1]
        work = unit(opened, now)
        work.add(a_job(seed=int(now)))
        opened.commit(work)
        opened.close()
        moments.append(now)
    last = Store(open_engine(url))
    assert last.last_commit_at == 250.0
    last.close()


def test_failure_for_a_value_does_not_tell_the_values_of_other_rows(store: Store) -> None:
    other, spoilt = a_job(1), a_job(2)
    other.name, spoilt.name = "a-secret", "\ud800"
    work = unit(store)
    for job in (other, spoilt):
        work.add(job)
    with pytest.raises(Unstorable, match="surrogates not allowed") as refused:
        store.commit(work)
    assert "a-secret" not in str(refused.value)
