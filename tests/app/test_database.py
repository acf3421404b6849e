"""The choice of a controller's database, and a server that is not there yet when it starts."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import permutations
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import OperationalError
from tests.databases import ON_BOTH, Server, empty_url_at, running_server
from tests.patience import until_awaited

from muster.agent.trouble import read_trouble
from muster.app.database import holder, home_held, only_controller, opened
from muster.app.database_option import named_database, warnings_of
from muster.app.home import Home, RunningController, Settings
from muster.app.maintenance.place import held
from muster.control.modules import cluster_entities
from muster.core.errors import Conflict
from muster.store.database import (
    HEAD,
    DatabaseUnreachable,
    DatabaseUnusable,
    open_engine,
    sqlite_url,
)
from muster.store.database.address import parsed
from muster.store.database.migrating import migrate, migrations_after
from muster.store.store import Store

OLDER = migrations_after(None)[-2][0]
URL = "postgresql://ada@db/x"
LOCKS = {"sqlite": "BEGIN EXCLUSIVE", "postgresql": "LOCK TABLE sessions, fence"}
"""Statements that keep others from reading or writing."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create()
    return home


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that tests may stop."""
    with running_server() as server:
        yield server


@pytest.mark.parametrize(
    ("option", "variable", "kept", "named"),
    [
        ("postgresql://a/x", "postgresql://b/x", "postgresql://c/x", "postgresql://a/x"),
        (None, "postgresql://b/x", "postgresql://c/x", "postgresql://b/x"),
        (None, None, "postgresql://c/x", "postgresql://c/x"),
        ("/data/x.db", None, "postgresql://c/x", "sqlite:////data/x.db"),
        (None, None, None, None),
    ],
)
def test_database_is_that_of_the_option_the_environment_or_the_last_time(
    home: Home, option: str | None, variable: str | None, kept: str | None, named: str | None
) -> None:
    home.write_settings(Settings(database=kept))
    environment = {"MUSTER_DATABASE": variable} if variable else {}
    assert named_database(option, home, environment) == named


def test_empty_name_of_a_database_is_refused_and_an_empty_variable_is_none(home: Home) -> None:
    for option in "", " ":
        with pytest.raises(DatabaseUnusable, match="the name of the database is empty"):
            named_database(option, home, {})
    assert named_database(None, home, {"MUSTER_DATABASE": ""}) is None


def test_only_passwords_in_a_command_are_warned_of_and_once() -> None:
    assert warnings_of(None, URL, "/data/x.db") == []
    (warning,) = warnings_of("postgresql://ada:secret@db/x", URL, "postgresql://ada:secret@db/y")
    assert "secret" not in warning


async def looked_into(url: str, home: Home, stop: asyncio.Event, *, waits: bool) -> str:
    """Open the database as a controller does, which reads it; the answer is its migration."""
    async with opened(url, home, stop, waits=waits) as database:
        return version(database.engine)


def version(engine: Engine) -> str:
    with engine.connect() as connection:
        return str(connection.scalar(text("SELECT version_num FROM alembic_version")))


async def test_controller_that_is_started_again_waits_for_its_server(
    server: Server, home: Home
) -> None:
    url, stop = server.url(server.database()), asyncio.Event()
    server.stop()
    with pytest.raises(DatabaseUnreachable):
        await looked_into(url, home, stop, waits=False)
    waiting = asyncio.create_task(looked_into(url, home, stop, waits=True))
    await asyncio.wait([waiting], timeout=0.7)
    assert not waiting.done()
    server.start()
    assert await waiting == HEAD


async def test_controller_that_is_started_again_waits_for_its_server_to_take_changes(
    server: Server, home: Home
) -> None:
    name = server.database()
    server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    url = server.url(name)
    waiting = asyncio.create_task(looked_into(url, home, asyncio.Event(), waits=True))
    await asyncio.wait([waiting], timeout=0.7)
    assert not waiting.done()
    server.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    assert await waiting == HEAD


async def state_read(url: str, home: Home) -> None:
    """Start on the database as a controller does, up to its state."""
    async with opened(url, home, asyncio.Event(), waits=True) as database:
        store = await database.patience.done(
            lambda: Store(database.engine, cluster_entities(), holder(home, database.engine))
        )
        store.close()


@ON_BOTH
async def test_controller_that_is_started_again_waits_for_locks_of_others_on_its_database(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.store.database.sqlite.BUSY_TIMEOUT_S", 0.05)
    url = empty_url_at(tmp_path / "elsewhere")
    open_engine(url).dispose()
    other = create_engine(parsed(url))
    with home.locked(), other.connect() as locking:
        locking.execute(text(LOCKS[other.dialect.name]))
        waiting = asyncio.create_task(state_read(url, home))
        while not read_trouble(home.path):
            assert not waiting.done()
            await asyncio.sleep(0.01)
        assert read_trouble(home.path).startswith("waits for its database: the database ")
        locking.rollback()
        locking.execute(text("SELECT 1"))  # a lock of this one hinders nobody
        await waiting
    assert read_trouble(home.path) == ""
    other.dispose()


async def test_controller_that_is_started_again_waits_for_who_works_on_its_home_or_database(
    home: Home, tmp_path: Path
) -> None:
    """As `muster db restore` does, for minutes."""
    elsewhere = sqlite_url(tmp_path / "elsewhere.db")

    async def started() -> str:
        stop = asyncio.Event()
        held_here = home_held(home, elsewhere, stop, waits=True)
        async with held_here, opened(elsewhere, home, stop, waits=True) as database:
            with database.engine.connect() as connection:
                connection.execute(text("SELECT x FROM of_the_restored"))
            return version(database.engine)

    open_engine(elsewhere).dispose()
    with ExitStack() as at_home, held(elsewhere):
        at_home.enter_context(home.locked())
        waiting = asyncio.create_task(started())
        await until_awaited(partial(_told, home, "a cluster already runs on"))
        at_home.close()
        await until_awaited(partial(_told, home, "works on the database"))
        assert not waiting.done()
        restored = create_engine(sqlite_url(tmp_path / "restored.db"))
        with restored.begin() as connection:
            migrate(connection, HEAD)
            connection.execute(text("CREATE TABLE of_the_restored (x INTEGER)"))
        restored.dispose()
        (tmp_path / "restored.db").replace(tmp_path / "elsewhere.db")
    assert await waiting == HEAD
    assert read_trouble(home.path) == ""


def _told(home: Home, words: str) -> bool:
    return words in read_trouble(home.path)


async def test_first_start_on_a_home_that_another_process_holds_fails_at_once(home: Home) -> None:
    with home.locked(), pytest.raises(Conflict, match="already runs"):
        async with home_held(home, sqlite_url(home.database), asyncio.Event(), waits=False):
            pass


def test_home_that_another_process_holds_than_its_last_controller_says_so(home: Home) -> None:
    url = "http://127.0.0.1:1"
    home.write_running(RunningController(1, url, "127.0.0.1:2", "", 0.0))
    refused = pytest.raises(Conflict, match=f"process {os.getpid()} holds {home.path}")
    with home.locked(), refused, home.locked():
        pass


@pytest.mark.parametrize("waits", [False, True])
async def test_trouble_that_time_does_not_cure_is_not_waited_out(home: Home, waits: bool) -> None:
    home.database.write_bytes(b"no database at all, but a text that is long enough" * 100)
    with pytest.raises(DatabaseUnusable, match="file is not a database"):
        await looked_into(sqlite_url(home.database), home, asyncio.Event(), waits=waits)


async def test_controller_that_is_told_to_stop_waits_no_longer(home: Home) -> None:
    url, stop = "postgresql://muster@127.0.0.1:1/muster", asyncio.Event()
    waiting = asyncio.create_task(looked_into(url, home, stop, waits=True))
    await asyncio.wait([waiting], timeout=0.2)
    stop.set()
    with pytest.raises(DatabaseUnreachable):
        await waiting


def older(url: str) -> Engine:
    """A database whose newest migration is not run yet."""
    engine = create_engine(parsed(url))
    with engine.begin() as connection:
        migrate(connection, OLDER)
    return engine


@ON_BOTH
async def test_tables_of_a_controller_that_runs_are_not_migrated_by_another(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.store.database.postgresql.LET_GO_S", 0.1)
    url = empty_url_at(tmp_path / "elsewhere")
    engine = older(url)
    with only_controller(engine), pytest.raises(Conflict):
        await looked_into(url, home, asyncio.Event(), waits=False)
    assert version(engine) == OLDER
    assert await looked_into(url, home, asyncio.Event(), waits=False) == HEAD
    engine.dispose()


def test_database_is_held_against_a_second_controller_until_the_first_has_gone(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.url(server.database())
    first, second = open_engine(url), open_engine(url)
    refused = pytest.raises(Conflict, match="another controller, or a command of `muster db`")
    with monkeypatch.context() as patch, only_controller(first):
        patch.setattr("muster.store.database.postgresql.LET_GO_S", 0.1)
        with refused, only_controller(second):
            pass
    with only_controller(second):
        pass
    first.dispose()
    second.dispose()


@pytest.mark.parametrize("its_name", ["muster.db", "other.db"])
def test_file_is_held_whatever_it_is_called(home: Home, tmp_path: Path, its_name: str) -> None:
    file, link, directory = home.path / its_name, tmp_path / "link.db", tmp_path / "directory"
    open_engine(sqlite_url(file)).dispose()
    link.symlink_to(file)
    directory.symlink_to(home.path)
    names = file, link, directory / its_name, home.path / ".." / "home" / its_name
    for first, second in permutations(names, 2):
        with held(sqlite_url(first)), pytest.raises(Conflict), held(sqlite_url(second)):
            pass
    engine = open_engine(sqlite_url(file))
    for same_home in home, Home(directory):
        with home.locked(), only_controller(engine, same_home):
            pass
    engine.dispose()


def test_database_is_held_again_after_its_server_was_away(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.store.database.postgresql.LET_GO_S", 0.1)
    url = server.url(server.database())
    first, second = open_engine(url), open_engine(url)
    with only_controller(first) as hold_on:
        server.stop()
        for _ in range(2):
            with pytest.raises(OperationalError):
                hold_on()
        server.start()
        hold_on()
        with pytest.raises(Conflict), only_controller(second):
            pass
        with pytest.raises(Conflict), held(url):
            pass
    with held(url):
        pass
    first.dispose()
    second.dispose()


def test_home_at_the_path_of_another_proves_no_controller_gone(home: Home, tmp_path: Path) -> None:
    engine = open_engine(empty_url_at(tmp_path))
    with home.locked():
        first = holder(home, engine).home
        assert holder(home, engine).home == first
        home.path.rename(tmp_path / "elsewhere")
        home.create()
        with home.locked():  # so both of them run
            assert holder(home, engine).home != first
    engine.dispose()
