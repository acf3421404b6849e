"""The choice of a controller's database, and a server that is not there yet when it starts."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from tests.databases import Server, running_server

from muster.app.database import only_controller, opened
from muster.app.database_option import named_database, warnings_of
from muster.app.home import Home, Settings
from muster.core.errors import Conflict
from muster.store.database import DatabaseUnreachable, open_engine

URL = "postgresql://ada@db/x"


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


def test_only_a_password_in_the_option_is_warned_of() -> None:
    assert warnings_of(None) == warnings_of(URL) == warnings_of("/data/x.db") == []
    (warning,) = warnings_of("postgresql://ada:secret@db/x")
    assert "secret" not in warning


async def test_controller_that_is_started_again_waits_for_its_server(server: Server) -> None:
    url, stop = server.url(server.database()), asyncio.Event()
    server.stop()
    with pytest.raises(DatabaseUnreachable):
        await opened(url, stop, waits=False)
    waiting = asyncio.create_task(opened(url, stop, waits=True))
    await asyncio.wait([waiting], timeout=0.7)
    assert not waiting.done()
    server.start()
    engine = await waiting
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM jobs")) == 0
    engine.dispose()


async def test_controller_that_is_told_to_stop_waits_no_longer(server: Server) -> None:
    url, stop = "postgresql://muster@127.0.0.1:1/muster", asyncio.Event()
    waiting = asyncio.create_task(opened(url, stop, waits=True))
    await asyncio.wait([waiting], timeout=0.2)
    stop.set()
    with pytest.raises(DatabaseUnreachable):
        await waiting


def test_database_is_held_against_a_second_controller_until_the_first_has_gone(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.store.database.postgresql.LET_GO_S", 0.1)
    url = server.url(server.database())
    first, second = open_engine(url), open_engine(url)
    refused = pytest.raises(Conflict, match="another controller works on")
    with only_controller(first), refused, only_controller(second):
        pass
    with only_controller(second):
        pass
    first.dispose()
    second.dispose()
