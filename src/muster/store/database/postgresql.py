"""PostgreSQL: a server that others run, reached over a connection that may break.

Writers commit under READ COMMITTED: a compare-and-set that waited for another's lock then looks at
the row as it is now, and the fence lets one commit after the other (``store.fence``). Readers see
the state of one moment (REPEATABLE READ), as those of SQLite do.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, text

from muster.store.database.address import DatabaseUnusable, shown_url

OLDEST = 14
"""The oldest major version of the server that is supported."""

_CONNECT: dict[str, Any] = {
    "connect_timeout": 5,
    "application_name": "muster",
    # A server that is gone without a word is noticed within half a minute.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_SESSION = """\
SET jit = off;
SET lock_timeout = '10s';
SET statement_timeout = '60s';
SET idle_in_transaction_session_timeout = '60s'
"""

_HOLD = text("SELECT pg_try_advisory_lock(hashtext('muster controller ' || current_schema()))")
LET_GO_S = 3.0
"""How long a server may take to notice that a controller which held the database was killed."""
_COMMITTING = """\
SET lock_timeout = '2s';
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off
"""


def postgresql_engine(address: URL) -> Engine:
    """An engine on a PostgreSQL server; parameters of the URL come before its own.

    Raises:
        DatabaseUnusable: the driver is not installed.
    """
    if find_spec("psycopg") is None:
        raise DatabaseUnusable(
            "PostgreSQL needs a driver that is not installed: "
            "pip install 'muster-scheduler[postgres]'"
        )
    own = {name: value for name, value in _CONNECT.items() if name not in address.query}
    engine = create_engine(
        address,
        connect_args=own,
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,  # so that a server that was restarted fails no read
        pool_timeout=5.0,
        use_native_hstore=False,
    )

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: object) -> None:
        connection.execute(_SESSION)
        connection.commit()

    @event.listens_for(engine, "set_connection_execution_options")
    def _options(_connection: Connection, options: dict[str, Any]) -> None:
        if options.get("readonly"):
            options["isolation_level"] = "REPEATABLE READ"
            options["postgresql_readonly"] = True

    return engine


def writing_connection(engine: Engine) -> Connection:
    """A connection for commits, which is no part of the engine's pool. Their statements join some
    given rows with a table by its key, so each is planned once, and never as a walk through the
    table: the server would take that for cheap as long as it has not counted a young table's rows.
    """
    connection = engine.connect()
    connection.detach()
    try:
        connection.exec_driver_sql(_COMMITTING)
        connection.commit()
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def held_alone(engine: Engine) -> Iterator[bool]:
    """Hold the database until the end of the block, against others who ask for the same; whether
    it is to be had. It is let go with the connection: the fence is what protects the state."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.detach()
        deadline_s = time.monotonic() + LET_GO_S
        while not (is_held := bool(connection.scalar(_HOLD))):
            if time.monotonic() > deadline_s:
                break
            time.sleep(0.1)
        yield is_held


def require_usable(connection: Connection, url: str) -> None:
    """Look at whether the server can hold a cluster's state.

    Raises:
        DatabaseUnusable: it is too old, read-only, or cannot store all text.
    """
    number = connection.scalar(text("SELECT current_setting('server_version_num')::integer"))
    major, minor = divmod(number or 0, 10_000)
    if major < OLDEST:
        raise DatabaseUnusable(
            f"the server of {shown_url(url)} is PostgreSQL {major}.{minor}: version {OLDEST} or a "
            f"newer one is needed"
        )
    read_only, encoding = connection.execute(
        text("SELECT current_setting('transaction_read_only'), current_setting('server_encoding')")
    ).one()
    if read_only == "on":
        raise DatabaseUnusable(
            f"the database {shown_url(url)} is read-only (a standby, or "
            f"default_transaction_read_only is set): name the server that takes changes"
        )
    if encoding != "UTF8":
        raise DatabaseUnusable(
            f"the database {shown_url(url)} stores text as {encoding}: create one with "
            f"ENCODING 'UTF8' TEMPLATE template0"
        )


_TEXT_COLUMNS = text(
    """\
    SELECT table_name, column_name, data_type FROM information_schema.columns
    JOIN information_schema.tables USING (table_schema, table_name)
    WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'
      AND data_type IN ('text', 'character varying') AND collation_name IS DISTINCT FROM 'C'
    """
)


def compare_text_by_bytes(connection: Connection) -> None:
    """Have all columns of text sorted as SQLite does, in whatever language the database is: the
    order of ids is that of time, and prefixes are found as ranges."""
    quote = connection.dialect.identifier_preparer.quote
    changes: dict[str, list[str]] = {}
    for row in connection.execute(_TEXT_COLUMNS):
        changes.setdefault(row.table_name, []).append(
            f'ALTER COLUMN {quote(row.column_name)} TYPE {row.data_type} COLLATE "C"'
        )
    for table, each in changes.items():
        connection.execute(text(f"ALTER TABLE {quote(table)} {', '.join(each)}"))


def what_to_do(cause: str) -> str:
    """The way on for an error with which the server answers, or with which it is not reached; empty
    where the error says it itself. Servers that speak another language than English have none."""
    return next((way for sign, way in _WAYS_ON if sign in cause), "")


_WAYS_ON = (
    ("password authentication failed", "look at the user and the password (PGPASSWORD, ~/.pgpass)"),
    ("no password supplied", "give the password in PGPASSWORD or in ~/.pgpass"),
    ("does not exist", "make it, for example with createuser and createdb"),
    ("no pg_hba.conf entry", "let this machine in, in the server's pg_hba.conf"),
    ("permission denied for schema", "make the user the owner of the database"),
    ("could not translate host name", "look at the name of the host"),
    ("failed to resolve host", "look at the name of the host"),
    ("onnection refused", "look at whether the server runs there"),
    ("No such file or directory", "look at whether the server runs there"),
    ("timeout expired", "look at whether the server runs there, and what is between"),
    ("too many clients", "raise max_connections of the server, or end other programs"),
)
