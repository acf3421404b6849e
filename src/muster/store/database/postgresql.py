"""PostgreSQL: a server that others run, reached over a connection that may break.

Writers commit under READ COMMITTED: a compare-and-set that waited for another's lock then looks at
the row as it is now, and the fence lets one commit after the other (``store.fence``). Readers see
the state of one moment (REPEATABLE READ), as those of SQLite do.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from muster.store.database.address import DatabaseUnreachable, DatabaseUnusable, shown_url
from muster.store.database.patience import ANSWER_S

if TYPE_CHECKING:
    from muster.store.database.server_connection import ServerConnection

OLDEST = 14
"""The oldest major version of the server that is supported."""

_CONNECT: dict[str, Any] = {
    "connect_timeout": 5,
    "application_name": "muster",
    "client_encoding": "utf8",
    # A server that is gone without a word is noticed within half a minute.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_SESSION = """\
SET jit = off;
SET extra_float_digits = 1;
SET lock_timeout = '2s';
SET statement_timeout = '60s';
SET idle_in_transaction_session_timeout = '60s';
SET idle_session_timeout = 0;
SET tcp_keepalives_idle = 10;
SET tcp_keepalives_interval = 5;
SET tcp_keepalives_count = 3;
SET tcp_user_timeout = 20000;
SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off'
"""
"""Settings of each connection, whatever the server's own are: numbers are read back as they were
written, an idle connection is kept, a commit that was answered survives a loss of power, and the
server too notices within half a minute that a controller's machine is gone, and lets go of what
that one held."""

_HOLD = text("SELECT pg_try_advisory_lock(hashtext('muster controller ' || current_schema()))")
LET_GO_S = 3.0
"""How long a server may take to notice that a controller which held the database was killed."""
_COMMITTING = """\
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off
"""


class _ClosingPool(QueuePool):
    """A pool that, once it was disposed of, closes the connections that are given back to it, which
    would stay open until they are collected."""

    _is_disposed = False

    def dispose(self) -> None:
        self._is_disposed = True
        super().dispose()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        super()._do_return_conn(record)
        if self._is_disposed:  # looked at last: it may be disposed of at this moment
            super().dispose()


def postgresql_engine(address: URL) -> Engine:
    """An engine on a PostgreSQL server; parameters of the URL come before its own.

    Its connections raise DatabaseUnusable where the server is too old.

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
        hide_parameters=True,  # rows, which may hold secrets, are not for the log
        isolation_level="READ COMMITTED",
        poolclass=_ClosingPool,
        pool_pre_ping=True,  # so that a server that was restarted fails no read
        pool_timeout=5.0,
        use_native_hstore=False,
    )

    @event.listens_for(engine, "do_connect")
    def _connect(
        _dialect: object, _record: object, words: Sequence[Any], options: dict[str, Any]
    ) -> "ServerConnection":
        return _connected(shown_url(address), words, options)

    @event.listens_for(engine, "set_connection_execution_options")
    def _options(_connection: Connection, options: dict[str, Any]) -> None:
        if options.get("readonly"):
            options["isolation_level"] = "REPEATABLE READ"
            options["postgresql_readonly"] = True

    return engine


def _connected(shown: str, words: Sequence[Any], options: dict[str, Any]) -> "ServerConnection":
    """A new connection with the settings of all.

    Raises:
        DatabaseUnusable: the server is too old.
    """
    from muster.store.database.server_connection import ServerConnection  # it needs the driver

    connection = ServerConnection.connect(*words, **options)
    try:
        major, minor = divmod(connection.info.server_version, 10_000)
        if major < OLDEST:
            raise DatabaseUnusable(
                f"the server of {shown} is PostgreSQL {major}.{minor}: version {OLDEST} or a newer "
                f"one is needed"
            )
        connection.until = time.monotonic() + ANSWER_S
        connection.execute(_SESSION)
        connection.commit()
        connection.until = None
    except BaseException:
        connection.close()
        raise
    return connection


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


class Hold:
    """The hold of a database against others who ask for it too, for as long as its connection
    lasts: the fence is what protects the state."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None

    def take(self) -> bool:
        """Hold the database, or go on to: whether it is to be had.

        Raises:
            SQLAlchemyError: the server is not reached.
        """
        if self._connection is None:
            engine = self._engine.execution_options(isolation_level="AUTOCOMMIT")
            self._connection = engine.connect()
            self._connection.detach()
        try:
            return bool(self._connection.scalar(_HOLD))
        except SQLAlchemyError:
            self.let_go()
            raise

    def let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


@contextmanager
def held_alone(engine: Engine) -> Iterator[Hold | None]:
    """Hold the database until the end of the block; None if somebody else does."""
    hold = Hold(engine)
    deadline_s = time.monotonic() + LET_GO_S
    try:
        while not (is_held := hold.take()) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        yield hold if is_held else None
    finally:
        hold.let_go()


def require_usable(connection: Connection) -> None:
    """Look at whether the server can hold a cluster's state.

    Raises:
        DatabaseUnusable: it cannot store all text, or has no schema for tables; DatabaseUnreachable
            if it takes no changes.
    """
    shown = shown_url(connection.engine.url)
    read_only, encoding, schema = connection.execute(_PROPERTIES).one()
    if read_only == "on":
        raise DatabaseUnreachable(
            f"the database {shown} is read-only (a standby, or default_transaction_read_only is "
            f"set): name the server that takes changes"
        )
    if encoding != "UTF8":
        raise DatabaseUnusable(
            f"the database {shown} stores text as {encoding}: create one with "
            f"ENCODING 'UTF8' TEMPLATE template0"
        )
    if schema is None:
        raise DatabaseUnusable(
            f"the database {shown} has no schema of those in the search path: make one, or give "
            f"the user rights on it"
        )


_PROPERTIES = text(
    """\
    SELECT current_setting('transaction_read_only'), current_setting('server_encoding'),
        current_schema()
    """
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


def takes_no_changes(error: SQLAlchemyError) -> bool:
    """Whether the server refused a change because it is read-only."""
    return getattr(getattr(error, "orig", None), "sqlstate", None) == "25006"


WAYS_ON = (
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
    ("connection slots are reserved", "raise max_connections of the server, or end other programs"),
    ("permission denied for database", "make the user the owner of the database"),
    ("permission denied to create database", "let the user create databases (CREATEDB)"),
    ("permission denied for table", "make the user the owner of the database and of all in it"),
    ("must be owner of", "make the user the owner of the database and of all in it"),
    (
        "lock timeout",
        "somebody else's transaction holds a lock: end that one, which pg_stat_activity shows",
    ),
)
"""Signs of errors in their words, and the way on after each. A server that speaks another language
than English gives no sign."""
