"""SQLite's driver without what SQLAlchemy puts around each statement: ten times the time that the
statement itself takes."""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError


def run(connection: Connection, sql: str) -> None:
    """Run a statement without parameters.

    Raises:
        DBAPIError: as from the connection's own methods.
    """
    driver = _driver(connection)
    try:
        driver.execute(sql)
    except sqlite3.Error as error:
        raise _wrapped(connection, sql, None, error) from error


def run_for_each(connection: Connection, sql: str, rows: Sequence[Sequence[Any]]) -> int:
    """Run a statement for each of the rows, in the connection's transaction; the answer is how many
    rows were changed in all.

    Raises:
        DBAPIError: as from the connection's own methods.
    """
    driver = _driver(connection, in_transaction=True)
    try:
        return int(driver.executemany(sql, rows).rowcount)
    except sqlite3.Error as error:
        raise _wrapped(connection, sql, rows, error) from error


def rows_of(connection: Connection, sql: str, parameters: Sequence[Any]) -> list[Sequence[Any]]:
    """The rows that a statement finds, in the connection's transaction, which begins with it if
    there is none.

    Raises:
        DBAPIError: as from the connection's own methods.
    """
    driver = _driver_within(connection)
    try:
        return driver.execute(sql, parameters).fetchall()
    except sqlite3.Error as error:
        raise _wrapped(connection, sql, parameters, error) from error


def each_of(connection: Connection, sql: str, parameters: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """``rows_of``, one by one, for what may find many.

    Raises:
        DBAPIError: as from the connection's own methods.
    """
    driver = _driver_within(connection)
    try:
        yield from driver.execute(sql, parameters)
    except sqlite3.Error as error:
        raise _wrapped(connection, sql, parameters, error) from error


def _driver_within(connection: Connection) -> sqlite3.Connection:
    """The driver of a connection whose transaction has begun."""
    if not connection.in_transaction():
        connection.begin()
    return _driver(connection)


def _driver(connection: Connection, *, in_transaction: bool = False) -> sqlite3.Connection:
    assert connection.in_transaction() or not in_transaction, "the driver would begin none itself"
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
