"""Answers of a PostgreSQL server are waited for, and not for ever."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError
from tests.databases import OF_ITS_OWN, Server

from muster.store.database import open_engine, patience
from muster.store.database.patience import answered_in_time, wait_without_limit

pytestmark = OF_ITS_OWN

SILENT = pytest.raises(OperationalError, match="the server does not answer")


@pytest.fixture
def engine(postgresql: Server) -> Iterator[Engine]:
    name = postgresql.database()
    engine = open_engine(postgresql.url(name))
    yield engine
    engine.dispose()
    postgresql.give_back(name)


def sleep(connection: Connection, seconds: float) -> None:
    connection.execute(text(f"SELECT pg_sleep({seconds})"))


def test_answer_that_does_not_come_breaks_the_connection_and_no_other(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine.connect() as other:
        monkeypatch.setattr(patience, "LONGEST_ANSWER_S", 0.3)
        with engine.connect() as connection:
            with SILENT:
                sleep(connection, 60)
            assert connection.invalidated
        assert other.scalar(text("SELECT 1")) == 1
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT 2")) == 2


def test_answers_have_to_come_in_time_all_together(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "ANSWER_S", 0.5)
    with engine.connect() as connection:
        with answered_in_time(connection):
            sleep(connection, 0.2)
        sleep(connection, 0.4)
        with answered_in_time(connection):
            sleep(connection, 0.2)
            with SILENT:
                sleep(connection, 0.4)


def test_connection_of_the_pool_over_which_nothing_comes_is_replaced(
    engine: Engine, postgresql: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "QUESTION_S", 0.3)
    with engine.connect() as connection:
        pid = connection.scalar(text("SELECT pg_backend_pid()"))
    with postgresql.hanging([pid]), engine.connect() as connection:
        assert connection.scalar(text("SELECT pg_backend_pid()")) != pid


def test_transaction_of_a_command_takes_as_long_as_it_needs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "LONGEST_ANSWER_S", 0.2)
    with engine.connect() as connection:
        connection.execute(text("SET statement_timeout = '0.2s'"))
        wait_without_limit(connection)
        sleep(connection, 0.5)


def test_settings_of_the_server_that_would_harm_are_others_in_connections(
    engine: Engine, postgresql: Server
) -> None:
    harmful = {
        "idle_session_timeout": "1s",
        "synchronous_commit": "off",
        "extra_float_digits": "-10",
        "client_encoding": "LATIN1",
        "default_transaction_isolation": "serializable",
    }
    for name, value in harmful.items():
        postgresql.execute(f"ALTER DATABASE {engine.url.database} SET {name} = '{value}'")
    engine.dispose()
    with engine.connect() as connection:
        found = {name: connection.scalar(text(f"SHOW {name}")) for name in harmful}
        level = connection.scalar(text("SHOW transaction_isolation"))
    for name in harmful:
        postgresql.execute(f"ALTER DATABASE {engine.url.database} RESET {name}")
    del found["default_transaction_isolation"]
    assert (found, level) == (
        {
            "idle_session_timeout": "0",
            "synchronous_commit": "on",
            "extra_float_digits": "1",
            "client_encoding": "UTF8",
        },
        "read committed",
    )


def test_commits_wait_for_standbys_as_the_server_says(engine: Engine, postgresql: Server) -> None:
    name = engine.url.database
    postgresql.execute(f"ALTER DATABASE {name} SET synchronous_commit = 'remote_apply'")
    engine.dispose()
    with engine.connect() as connection:
        assert connection.scalar(text("SHOW synchronous_commit")) == "remote_apply"
    postgresql.execute(f"ALTER DATABASE {name} RESET synchronous_commit")


def test_server_notices_soon_that_the_machine_of_a_controller_is_gone(postgresql: Server) -> None:
    """Else a controller that takes its place is refused for hours."""
    name = postgresql.database()
    engine = open_engine(postgresql.tcp_url(name))
    with engine.connect() as connection:
        idle, interval, count, unanswered_ms = (
            int(connection.scalar(text(f"SELECT setting FROM pg_settings WHERE name = '{each}'")))
            for each in (
                *("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count"),
                "tcp_user_timeout",
            )
        )
    engine.dispose()
    postgresql.give_back(name)
    assert 0 < idle + interval * count <= 30
    assert 0 < unanswered_ms <= 30_000


def test_connection_that_outlasts_its_pool_is_closed_when_it_is_given_back(engine: Engine) -> None:
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        engine.dispose()
    assert driver is not None
    assert driver.closed
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
    assert driver is not None
    assert not driver.closed, "its pool is the present one"
