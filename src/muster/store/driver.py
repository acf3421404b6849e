"""SQLite's driver without what SQLAlchemy puts around each statement: ten times the time that the
statement itself takes."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError


def run(connection: Connection, sql: str) -> None:
    """Run a statement without parameters.

    Raises:
        DBAPIError: as from the connection's own methods.
    """
    try:
        _driver(connection).execute(sql)
    except sqlite3.Error as error:
        raise _wrapped(connection, sql, None, error) from error


def run_for_each(connection: Connection, sql: str, rows: Sequence[Sequence[Any]]) -> int:
    """Run a statement for each of the rows, in the connection's transaction; the answer is how many
    rows were changed in all.

    Raises:
        DBAPIError: as from the connection's own methods.
    """
    assert connection.in_transaction(), "a statement that writes is part of a transaction"
    try:
        return int(_driver(connection).executemany(sql, rows).rowcount)
    except sqlite3.Error as error:
        raise _wrapped(connection, sql, rows, error) from error


def _driver(connection: Connection) -> sqlite3.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection), "the database is SQLite's"
    return driver


def _wrapped(
    connection: Connection, sql: str, parameters: Any, error: sqlite3.Error
) -> BaseException:
    return DBAPIError.instance(
        sql,
        parameters,
        error,
        sqlite3.Error,
        hide_parameters=connection.engine.hide_parameters,
        dialect=connection.dialect,
        ismulti=True,
    )
