"""How long answers of a PostgreSQL server are waited for; SQLite is no server."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, text

ANSWER_S = 20.0
"""How long a commit may take, with all its statements, and so may the reads of a wake."""
LONGEST_ANSWER_S = 70.0
"""How long any one answer may take: more than the server lets a statement take."""
QUESTION_S = 5.0
"""How long an answer may take outside of transactions: the question is whether the server is there,
or who holds the database."""
LOCK_S = 10.0
"""How long a command waits for a lock that somebody else has."""


@contextmanager
def answered_in_time(connection: Connection) -> Iterator[None]:
    """Break the connection off where the statements of the block take longer than ``ANSWER_S`` all
    together."""
    raw = _on_server(connection)
    if raw is None:
        yield
        return
    raw.until = time.monotonic() + ANSWER_S
    try:
        yield
    finally:
        raw.until = None


def wait_without_limit(connection: Connection) -> None:
    """Have statements of this transaction take as long as they need: all rows are many. Only locks
    of others are waited for no longer than ``LOCK_S``."""
    raw = _on_server(connection)
    if raw is not None:
        raw.is_limited = False
        for setting in ("statement_timeout", "idle_in_transaction_session_timeout"):
            connection.execute(text(f"SET LOCAL {setting} = 0"))
        connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_S}s'"))


def _on_server(connection: Connection) -> Any:
    """The driver's connection to a server; None where there is no server."""
    return (
        connection.connection.dbapi_connection if connection.dialect.name == "postgresql" else None
    )
