"""The database's server goes away: requests are refused, agents work on, and control returns by
itself; nothing is lost and nothing is done twice."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import Connection, Engine
from tests.control.conftest import cpus
from tests.control.world import ADA, World
from tests.databases import OF_ITS_OWN, SETTINGS, Server, on_server, running_server
from tests.patience import until

from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.group.requests import GroupRequests
from muster.control.inbox import NotStored
from muster.control.job.requests import JobRequests
from muster.core.specs import JobSpec, ScalingGroup
from muster.core.states import JobState
from muster.store.database import committing, patience
from muster.store.database.committing import DatabaseAway
from muster.store.database.postgresql import writing_connection
from muster.store.fence import Fenced, WentBack
from muster.store.records import Job
from muster.store.store import CommitFailed, Store

pytestmark = OF_ITS_OWN
LIMIT_S = 30.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that tests may stop."""
    with running_server(SETTINGS | {"synchronous_commit": "on"}) as server:
        yield server


@pytest.fixture
def world(server: Server, tmp_path: Path) -> Iterator[World]:
    with on_server(server):
        world = World(tmp_path, {"a": cpus(2)}, behaviour=lambda start: Run(5.0))
        yield world
        world.close()


def let_time_pass(world: World, until: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not until():
        assert time.monotonic() < deadline_s, world.plane.trouble
        time.sleep(0.02)  # the server is looked for in real time
        world.clock.advance(0.2)
        world.plane.step()


def let_return(world: World) -> None:
    """Time passes until control has come back by itself."""
    let_time_pass(world, lambda: not world.plane.is_broken and world.plane.trouble is None)
    world.connect_again()


def submission(name: str) -> Callable[[Work, Parts], Job]:
    """A request that needs nothing of the database but its commit."""
    spec = JobSpec(name=name, command=["x"])
    return lambda work, parts: parts[JobRequests].submit(work, ADA, spec)


class Asked:
    """A submission, and its answers."""

    def __init__(self, world: World, name: str) -> None:
        self.answers: list[Any] = []
        world.plane.ask(
            submission(name), lambda result, error: self.answers.append(error or result)
        )


def test_requests_are_refused_while_the_server_is_away_and_all_goes_on_after_it(
    world: World, server: Server
) -> None:
    first = world.submit(JobSpec(name="first", command=["x"]))
    assert world.plane.live.jobs[first.id].status is JobState.RUNNING
    server.stop()
    for moment in range(3):
        with pytest.raises(NotStored, match=r"could not be stored|cannot be read"):
            world.ask(submission(f"refused-{moment}"))
        world.clock.advance(1.1)
    for _ in range(20):  # its kernel ends meanwhile, and the agent keeps the report
        world.clock.advance(0.5)
        world.agent("a").tick()
    server.start()
    let_return(world)
    world.run(1.0)
    assert first.id not in world.plane.live.jobs, "its end was told"
    last = world.submit(JobSpec(name="last", command=["x"]))
    world.run_until(lambda: last.id not in world.plane.live.jobs)
    assert len(world.agent("a").starts) == 2


def lose_the_next_answer(
    store: Store, monkeypatch: pytest.MonkeyPatch, server: Server, *, written: bool
) -> None:
    """The server goes away at the next commit: before, or after it was made."""
    dialect = store.engine.dialect
    commit: Callable[[Any], None] = dialect.do_commit

    def lost(raw: Any) -> None:
        monkeypatch.setattr(dialect, "do_commit", commit)
        if written:
            commit(raw)
        server.stop()
        raw.dbapi_connection.execute("SELECT 1")

    monkeypatch.setattr(dialect, "do_commit", lost)


@pytest.mark.parametrize("written", [True, False])
def test_request_whose_commit_has_no_answer_is_answered_once_it_is_settled(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    lose_the_next_answer(world.store, monkeypatch, server, written=written)
    doubtful = Asked(world, "doubtful")
    world.settle()
    assert doubtful.answers == [], "nobody can tell yet"
    world.clock.advance(1.1)
    refused = Asked(world, "refused")
    world.settle()
    assert [type(each) for each in refused.answers] == [NotStored]
    assert doubtful.answers == []
    server.start()
    let_return(world)
    world.run(1.0)
    (answer,) = doubtful.answers
    if written:
        assert world.plane.live.jobs[answer.id].status is JobState.RUNNING
    else:
        assert isinstance(answer, NotStored)
    assert len(world.plane.live.jobs) == len(world.agent("a").starts) == int(written)


def test_server_that_comes_back_and_goes_away_again_at_once_is_looked_for_further(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.stop()
    with pytest.raises(NotStored):
        world.ask(submission("x"))
    server.start()
    tries: list[Engine] = []

    def goes_away_again(engine: Engine) -> Connection:
        if not tries:
            server.stop()
        tries.append(engine)
        return writing_connection(engine)

    monkeypatch.setattr(committing, "writing_connection", goes_away_again)
    let_time_pass(world, lambda: bool(tries))
    server.start()
    let_return(world)
    assert world.submit(JobSpec(command=["x"])).status is JobState.RUNNING


def test_connection_that_an_operator_ends_costs_the_requests_of_one_wake(
    world: World, server: Server
) -> None:
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'muster'"
    )
    with pytest.raises(NotStored):
        world.ask(submission("x"))
    let_return(world)
    assert world.submit(JobSpec(command=["x"])).status is JobState.RUNNING


def take_over(world: World, server: Server) -> None:
    server.execute("UPDATE fence SET epoch = epoch + 1, holder = 'the other'", database_of(world))


def database_of(world: World) -> str:
    database = world.store.engine.url.database
    assert database is not None
    return database


def test_server_that_hangs_is_given_up_and_reached_anew(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "ANSWER_S", 0.5)
    monkeypatch.setattr(patience, "QUESTION_S", 0.5)
    with server.hanging(server.backends(database_of(world))):
        with pytest.raises(NotStored, match="the server does not answer"):
            world.ask(submission("x"))
        let_return(world)
        assert world.submit(JobSpec(command=["x"])).status is JobState.RUNNING


def test_server_that_hangs_while_the_state_is_read_again_is_given_up(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "ANSWER_S", 0.5)
    monkeypatch.setattr(patience, "QUESTION_S", 0.5)
    world.plane.read_again()
    with server.hanging(server.backends(database_of(world))):
        with pytest.raises(NotStored, match="the server does not answer"):
            world.ask(submission("x"))
        let_return(world)
        assert world.submit(JobSpec(command=["x"])).status is JobState.RUNNING


def test_lock_of_a_person_costs_requests_and_nothing_else(world: World, server: Server) -> None:
    with psycopg.connect(server.url(database_of(world))) as person:
        person.execute("LOCK TABLE jobs")
        for _ in range(2):
            with pytest.raises(NotStored, match="lock timeout"):
                world.ask(submission("x"))
            world.clock.advance(1.1)
    let_return(world)
    assert world.submit(JobSpec(command=["x"])).status is JobState.RUNNING


def test_server_that_takes_no_changes_any_more_is_away_until_one_does(
    world: World, server: Server
) -> None:
    name = database_of(world)
    server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    for pid in server.backends(name):  # as where a standby takes the place of the server
        server.execute(f"SELECT pg_terminate_backend({pid})")
    with pytest.raises(NotStored):
        world.ask(submission("x"))
    let_time_pass(world, lambda: "is read-only" in (world.plane.trouble or ""))
    server.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    let_return(world)
    assert world.submit(JobSpec(command=["x"])).status is JobState.RUNNING


def refusal_of_a_group(world: World) -> str:
    """The refusal of a request that may be made any number of times; empty if it is carried out."""
    group = ScalingGroup(name="default")
    try:
        world.ask(lambda work, parts: parts[GroupRequests].put_group(work, group))
    except NotStored as refusal:
        return str(refusal)
    return ""


def test_connection_to_a_server_that_became_read_only_is_made_anew(
    world: World, server: Server
) -> None:
    before = server.backends(database_of(world))
    server.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    server.execute("SELECT pg_reload_conf()")
    deadline_s = time.monotonic() + LIMIT_S
    while "read-only" not in refusal_of_a_group(world):  # its processes hear of it one by one
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    server.execute("ALTER SYSTEM RESET default_transaction_read_only")
    server.execute("SELECT pg_reload_conf()")
    let_return(world)
    assert world.submit(JobSpec(command=["x"])).status is JobState.RUNNING
    assert not {*before} & {*server.backends(database_of(world))}


def test_connection_on_which_nothing_can_be_stored_is_given_up_where_the_server_became_read_only(
    world: World, server: Server
) -> None:
    server.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    server.execute("SELECT pg_reload_conf()")
    until(lambda: refusal_of_a_write(world) == CommitFailed)
    assert refusal_of_a_write(world) == DatabaseAway
    server.execute("ALTER SYSTEM RESET default_transaction_read_only")
    server.execute("SELECT pg_reload_conf()")
    until(lambda: refusal_of_a_write(world) is None)


def refusal_of_a_write(world: World) -> type[Exception] | None:
    try:
        world.store.try_to_write()
    except (CommitFailed, DatabaseAway) as refusal:
        return type(refusal)
    return None


def test_control_whose_database_went_back_ends_and_the_next_one_goes_on_from_there(
    world: World, server: Server
) -> None:
    """A standby that lacks the last commits takes the server's place."""
    world.agent("a").behaviour = lambda start: Run(1e6)  # time passes while the server is away
    kept = world.submit(JobSpec(name="kept", command=["x"]))
    name = database_of(world)
    world.store.engine.dispose()
    standby = f"{name}_standby"
    for pid in server.backends(name):
        server.execute(f"SELECT pg_terminate_backend({pid})")
    server.execute(f"CREATE DATABASE {standby} TEMPLATE {name}")
    with pytest.raises(NotStored):
        world.ask(submission("refused"))
    let_return(world)
    world.submit(JobSpec(name="lost", command=["x"]))
    agent = world.agent("a")
    assert len(agent.running) == 2
    for pid in server.backends(name):
        server.execute(f"SELECT pg_terminate_backend({pid})")
    server.execute(f"DROP DATABASE {name} WITH (FORCE)")
    server.execute(f"ALTER DATABASE {standby} RENAME TO {name}")
    with pytest.raises(NotStored):
        world.ask(submission("refused"))
    with pytest.raises(WentBack):
        let_return(world)
    world.restart_controller()
    world.connect_again()
    world.run(1.0)
    assert [*world.plane.live.jobs] == [kept.id]
    assert [*agent.running] == agent.starts[:1], "the kernel of the other is stopped"


def test_control_whose_database_was_taken_over_ends(world: World, server: Server) -> None:
    take_over(world, server)
    asked = Asked(world, "x")
    with pytest.raises(Fenced, match="the other"):
        world.plane.step()
    assert [type(each) for each in asked.answers] == [NotStored]
    world.clock.advance(5.0)
    with pytest.raises(Fenced):
        world.plane.step()


def test_idle_control_that_is_told_to_read_again_finds_that_it_was_taken_over(
    world: World, server: Server
) -> None:
    take_over(world, server)
    assert world.store.is_fenced()
    world.plane.read_again()
    with pytest.raises(Fenced):
        world.plane.step()
