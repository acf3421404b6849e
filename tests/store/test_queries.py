"""Queries of people: rows are written by the real control plane, and read back through SQL."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from proving.hollow.supervisor import Run
from sqlalchemy import Connection, event, insert, select, text
from tests.control.driven_agent import task_index
from tests.control.world import ADA, World
from tests.databases import ON_BOTH, ONLY_SQLITE

from muster.control.job.requests import JobRequests
from muster.core.errors import InvalidSpec, NotFound
from muster.core.owner import Owner, Principal, Role
from muster.core.resources import Resources
from muster.core.specs import JobSpec, SessionSpec
from muster.core.states import KernelStatus, TaskState
from muster.core.views.work import TaskView
from muster.store import schema
from muster.store.entities import AGENT, ENTITIES, JOB
from muster.store.queries.failures import list_failures
from muster.store.queries.history import read_history
from muster.store.queries.jobs import list_jobs, read_job, read_job_detail
from muster.store.queries.listing import Listing, listed
from muster.store.queries.output import session_output, task_output
from muster.store.queries.refs import owners_of, resolve
from muster.store.queries.sessions import list_sessions, read_session_detail
from muster.store.queries.tasks import TaskFilter, list_tasks, read_task
from muster.wire.messages import Start

pytestmark = ON_BOTH

BOB = Principal(Owner("default", "default", "bob"), Role.USER)
ROOT = Principal(Owner("default", "default", "root"), Role.ADMIN)
SMALL = Resources(cpu_milli=2000, memory_bytes=2**30)


def job(name: str | None = None, **fields: Any) -> JobSpec:
    return JobSpec.model_validate({"command": ["true"], "name": name, **fields})


def fresh(connection: Connection) -> Connection:
    """The connection, seeing what was committed last."""
    connection.rollback()
    return connection


# -- listings ------------------------------------------------------------------------------------


def test_pages_hold_every_job_once_newest_first(world: World, connection: Connection) -> None:
    ids = [world.submit(job()).id for _ in range(7)]
    for limit in (1, 2, 3, 6, 7, 8):
        found: list[str] = []
        cursor = None
        while True:
            page = list_jobs(connection, ADA, Listing(limit=limit, cursor=cursor))
            assert len(page.items) <= limit
            found += [item.id for item in page.items]
            cursor = page.next
            if cursor is None:
                break
        assert found == ids[::-1]


def test_jobs_are_listed_by_state_name_and_owner(world: World, connection: Connection) -> None:
    done = world.submit(job("done"))
    world.run(5)
    mine, bobs = world.submit(job("new")), world.submit(job("new"), BOB)

    def ids(principal: Principal = ROOT, **filters: Any) -> list[str]:
        return [item.id for item in list_jobs(connection, principal, Listing(**filters)).items]

    assert ids() == [bobs.id, mine.id, done.id]
    assert ids(states={"PENDING", "RUNNING"}) == [bobs.id, mine.id]
    assert ids(states={"RUNNING"}) == [bobs.id, mine.id]
    assert ids(states={"SUCCEEDED", "FAILED"}) == [done.id]
    assert ids(name="done") == [done.id]
    assert ids(owner="bob") == ids(owner="default/default/bob") == [bobs.id]
    assert ids(ADA) == [mine.id, done.id]
    assert ids(ADA, owner="bob") == []


def test_records_without_an_owner_are_listed_for_all_and_not_by_owner(
    world: World, connection: Connection
) -> None:
    agents = select(AGENT.table.c.name)
    assert connection.execute(listed(agents, AGENT, BOB, Listing())).scalars().all() == ["a1"]
    with pytest.raises(InvalidSpec, match="agent has no owner"):
        listed(agents, AGENT, BOB, Listing(owner="ada"))


def test_job_counts_tasks_that_have_no_rows_yet(world: World, connection: Connection) -> None:
    id_ = world.submit(job(tasks=1000)).id
    shown = read_job(connection, ADA, id_)
    assert sum(shown.counts.values()) == shown.tasks_total == 1000
    assert shown.counts[TaskState.RUNNING] == 2


def test_job_detail_has_the_spec_as_it_was_written(world: World, connection: Connection) -> None:
    id_ = world.submit(job("train", tasks=3, env={"A": "b"})).id
    assert read_job_detail(connection, ADA, id_).spec == {
        "command": ["true"],
        "name": "train",
        "tasks": 3,
        "env": {"A": "b"},
    }


# -- tasks ---------------------------------------------------------------------------------------


def test_tasks_without_rows_are_pending_and_killed_once_the_job_ended(
    world: World, connection: Connection
) -> None:
    submitted = world.submit(job(tasks=5000))
    assert submitted.next_task < 5000
    page = list_tasks(connection, ADA, submitted.id, TaskFilter(), 4998, 10)
    assert [(item.index, item.state) for item in page.items] == [
        (4998, TaskState.PENDING),
        (4999, TaskState.PENDING),
    ]
    assert page.total == 5000
    assert read_task(connection, ADA, submitted.id, 4999).attempts == ()

    world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, submitted.id))
    world.run(5)
    page = list_tasks(fresh(connection), ADA, submitted.id, TaskFilter(TaskState.KILLED), 4990, 100)
    assert [item.index for item in page.items] == list(range(4990, 5000))
    assert page.total == 5000
    assert (
        list_tasks(connection, ADA, submitted.id, TaskFilter(TaskState.PENDING), 0, 10).items == ()
    )


GRID = {"a": "0-3", "b": ["x", "y", "z"], "exclude": [{"a": "2", "b": "z"}]}


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[World]:
    """Job "grid" of 12 tasks: those with b=y fail, the last ones have no rows yet."""

    def behaviour(start: Start) -> Run:
        fails = start.env["MUSTER_PARAM_B"] == "y"
        return Run(1.0, exit_code=7) if fails else Run(1.0 if task_index(start) < 6 else 1e9)

    world = World(tmp_path, {"a1": SMALL}, behaviour=behaviour)
    world.submit(job("grid", matrix=GRID, keep_going=True))
    world.run(20)
    yield world
    world.close()


@pytest.mark.parametrize("where", [{"a": "1"}, {"b": "z"}, {"a": "3", "b": "y"}, {"b": "none"}])
@pytest.mark.parametrize("state", [None, *TaskState])
def test_tasks_with_values_are_those_of_all_that_have_them(
    grid: World, where: dict[str, str], state: TaskState | None
) -> None:
    with grid.store.engine.connect().execution_options(readonly=True) as connection:
        everything = list_tasks(connection, ADA, "grid", TaskFilter(), 0, 100).items
        assert [item.index for item in everything] == [*range(8), *range(9, 12)]
        assert {item.state for item in everything} >= {TaskState.FAILED, TaskState.PENDING}
        wanted = [
            item
            for item in everything
            if where.items() <= item.parameters.items() and state in (None, item.state)
        ]
        page = list_tasks(connection, ADA, "grid", TaskFilter(state, where=where), 1, 2)
        assert (list(page.items), page.total) == (wanted[1:3], len(wanted))


def test_failures_tell_the_values_that_only_they_have_in_common(grid: World) -> None:
    with grid.store.engine.connect().execution_options(readonly=True) as connection:
        (failure,) = list_failures(connection, ADA, "grid").items
        assert failure.parameters == {"b": "y"}
        assert failure.tasks == len(failure.such_as) >= 2
        with pytest.raises(InvalidSpec, match="no such parameter; known are a, b"):
            list_tasks(connection, ADA, "grid", TaskFilter(where={"c": "1"}), 0, 10)


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[World]:
    """Job "mixed" of 400 tasks: some ended either way, some run, some wait, some have no rows."""
    world = World(
        tmp_path,
        {"a1": SMALL},
        behaviour=lambda start: Run(seconds=1.0, exit_code=task_index(start) % 2),
    )
    world.submit(job("mixed", tasks=400, max_task_failures=400))
    world.run(10)
    yield world
    world.close()


@given(
    state=st.sampled_from([None, *TaskState]), offset=st.integers(0, 450), limit=st.integers(1, 450)
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_page_of_tasks_is_that_part_of_all_of_them(
    mixed: World, state: TaskState | None, offset: int, limit: int
) -> None:
    with mixed.store.engine.connect().execution_options(readonly=True) as connection:
        everything = list_tasks(connection, ADA, "mixed", TaskFilter(), 0, 1000).items
        assert [item.index for item in everything] == list(range(400))
        assert len({item.state for item in everything}) >= 4
        wanted: list[TaskView] = [item for item in everything if state in (None, item.state)]
        page = list_tasks(connection, ADA, "mixed", TaskFilter(state), offset, limit)
        assert list(page.items) == wanted[offset : offset + limit]
        assert page.total == len(wanted)


def test_task_shows_its_attempts_with_where_and_how_they_ended(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, {"a1": SMALL}, behaviour=lambda start: Run(exit_code=3))
    submitted = world.submit(job(max_retries_failure=1))
    world.run(10)
    with world.store.engine.connect() as connection:
        shown = read_task(connection, ADA, submitted.id, 0)
    world.close()
    assert shown.state is TaskState.FAILED
    assert [(a.attempt, a.status, a.agent, a.exit_code) for a in shown.attempts] == [
        (1, KernelStatus.TERMINATED, "a1", 3),
        (2, KernelStatus.TERMINATED, "a1", 3),
    ]
    assert [a.reason.sentence for a in shown.attempts if a.reason] == ["exited with code 3"] * 2


@pytest.mark.parametrize("index", [-1, 3, 10**12])
def test_task_that_the_job_does_not_have_is_not_found(
    world: World, connection: Connection, index: int
) -> None:
    id_ = world.submit(job(tasks=3)).id
    with pytest.raises(NotFound, match="its tasks are 0 to 2"):
        read_task(connection, ADA, id_, index)


def test_job_of_one_task_has_no_other(world: World, connection: Connection) -> None:
    id_ = world.submit(job()).id
    with pytest.raises(NotFound, match=r"its only task is 0$"):
        read_task(connection, ADA, id_, 1)


# -- sessions ------------------------------------------------------------------------------------

PAIR = SessionSpec.model_validate(
    {"name": "pair", "kernels": [{"command": ["true"], "replicas": 2}]}
)


def test_session_shows_its_kernels_and_spec(world: World, connection: Connection) -> None:
    session = world.submit_session(PAIR)
    shown = read_session_detail(connection, ADA, "pair")
    assert shown.id == session.id
    assert [(k.index, k.status, k.agent) for k in shown.kernels] == [
        (0, KernelStatus.RUNNING, "a1"),
        (1, KernelStatus.RUNNING, "a1"),
    ]
    assert shown.spec == {"name": "pair", "kernels": [{"command": ["true"], "replicas": 2}]}
    with pytest.raises(NotFound):
        read_session_detail(connection, BOB, session.id)


def test_sessions_of_jobs_are_listed_only_when_asked_for(
    world: World, connection: Connection
) -> None:
    alone = world.submit_session(PAIR)
    of_job = next(iter(world.submit(job()).tasks.values())).session_id
    found = list_sessions(connection, ADA, Listing(), of_jobs=False)
    assert [item.id for item in found.items] == [alone.id]
    found = list_sessions(connection, ADA, Listing(), of_jobs=True)
    assert [item.id for item in found.items] == [of_job, alone.id]


# -- where output is -----------------------------------------------------------------------------


def test_output_is_at_the_agent_of_the_latest_attempt(tmp_path: Path) -> None:
    world = World(tmp_path, {"a1": SMALL}, behaviour=lambda start: Run(exit_code=1))
    submitted = world.submit(job(max_retries_failure=1))
    world.run(10)
    with world.store.engine.connect() as connection:
        attempts = read_task(connection, ADA, submitted.id, 0).attempts
        first = task_output(connection, ADA, submitted.id, 0, 1)
        latest = task_output(connection, ADA, submitted.id, 0, None)
        none = task_output(connection, ADA, submitted.id, 0, 3)
    world.close()
    assert (first.kernel, first.last, first.ended) == (attempts[0].id, False, True)
    assert (latest.kernel, latest.last, latest.attempt) == (attempts[1].id, True, 2)
    assert (none.kernel, none.last, none.ended) == (None, True, True)


def test_output_of_what_has_not_started_is_nowhere_yet(
    world: World, connection: Connection
) -> None:
    id_ = world.submit(job(resources={"cpu": 99})).id
    source = task_output(connection, ADA, id_, 0, None)
    assert (source.kernel, source.ended, source.state) == (None, False, "PENDING")
    assert (source.entity, source.attempt) == (f"{id_}/0", 1)


def test_output_of_a_session_is_that_of_its_kernel(world: World, connection: Connection) -> None:
    session = world.submit_session(PAIR)
    source = session_output(connection, ADA, session.id, 1)
    assert source.kernel == session.kernels[1].id
    with pytest.raises(NotFound, match="has no kernel 2"):
        session_output(connection, ADA, session.id, 2)


# -- history -------------------------------------------------------------------------------------


def test_history_of_a_job_has_its_sessions_and_tasks_in_order(
    world: World, connection: Connection
) -> None:
    submitted = world.submit(job(tasks=2))
    other = world.submit(job())
    sessions = {task.session_id for task in submitted.tasks.values()}
    world.run(10)
    found = read_history(connection, ENTITIES, ADA, submitted.id, 1000)
    entities = {item.entity for item in found.items}
    assert entities >= {submitted.id, *sessions}
    assert other.id not in entities
    assert [item.seq for item in found.items] == sorted(item.seq for item in found.items)
    assert found.items[-1].to_status == "SUCCEEDED"


def test_history_beyond_the_limit_keeps_the_newest(world: World, connection: Connection) -> None:
    submitted = world.submit(job())
    world.run(10)
    everything = read_history(connection, ENTITIES, ADA, submitted.id, 1000)
    assert not everything.left_out
    some = read_history(connection, ENTITIES, ADA, submitted.id, 3)
    assert some.items == everything.items[-3:]
    assert some.left_out


def test_history_of_a_task_is_its_own(tmp_path: Path) -> None:
    world = World(tmp_path, {"a1": SMALL}, behaviour=lambda start: Run(exit_code=1))
    submitted = world.submit(job(tasks=2))
    mine = submitted.tasks[1].session_id
    world.run(10)
    with world.store.engine.connect() as connection:
        found = read_history(connection, ENTITIES, ADA, f"{submitted.id}/1", 1000)
        with pytest.raises(NotFound):
            read_history(connection, ENTITIES, ADA, f"{submitted.id}/2", 10)
        with pytest.raises(NotFound):
            read_history(connection, ENTITIES, ADA, f"{submitted.id}/x", 10)
    world.close()
    assert {item.entity for item in found.items} == {f"{submitted.id}/1", mine}
    sentences = [reason.sentence for item in found.items for reason in item.reasons]
    assert "exited with code 1" in sentences


def test_history_of_an_agent_is_found_by_its_name(world: World, connection: Connection) -> None:
    found = read_history(connection, ENTITIES, ADA, "a1", 10)
    assert found.items[0].entity == next(iter(world.agents))
    with pytest.raises(NotFound, match="no job, session or agent 'a2'"):
        read_history(connection, ENTITIES, ADA, "a2", 10)


def test_history_of_others_is_not_found(world: World, connection: Connection) -> None:
    theirs = world.submit(job("theirs"), BOB)
    for ref in (theirs.id, "theirs", f"{theirs.id}/0", theirs.tasks[0].session_id or ""):
        with pytest.raises(NotFound):
            read_history(connection, ENTITIES, ADA, ref, 10)


# -- whose ---------------------------------------------------------------------------------------


def test_owners_are_known_of_what_exists(world: World, connection: Connection) -> None:
    mine, theirs = world.submit(job()), world.submit(job(), BOB)
    found = owners_of(connection, schema.jobs, {mine.id, theirs.id, "job-none"})
    assert found == {mine.id: ADA.owner, theirs.id: BOB.owner}


def test_reading_does_not_lock_the_writer_out(world: World, connection: Connection) -> None:
    connection.execute(text("SELECT * FROM jobs")).all()
    with world.store.engine.begin() as writer:
        writer.execute(insert(schema.cluster), {"key": "k", "value": "v"})
    world.submit(job("while-reading"))
    assert resolve(fresh(connection), JOB, ADA, "while-reading")


@ONLY_SQLITE
@pytest.mark.parametrize(
    ("listing", "index"),
    [
        (Listing(states={"RUNNING"}), "jobs_live"),
        (Listing(states={"FAILED"}), "jobs_unsuccessful"),
        (Listing(name="train*"), "jobs_by_name"),
        (Listing(group="gpu"), "jobs_by_group"),
        (Listing(owner="ada"), "jobs_by_user"),
    ],
)
def test_filter_of_a_listing_is_answered_by_an_index(
    world: World, connection: Connection, listing: Listing, index: str
) -> None:
    statements: list[tuple[str, Any]] = []
    event.listen(
        world.store.engine,
        "before_cursor_execute",
        lambda _connection, _cursor, sql, parameters, _context, _many: statements.append(
            (sql, parameters)
        ),
    )
    list_jobs(connection, ROOT, listing)
    sql, parameters = statements[-1]
    plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", parameters).all()
    assert index in plan[0].detail
