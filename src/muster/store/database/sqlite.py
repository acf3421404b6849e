"""SQLite: one file in WAL mode, for the controller of its directory."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event

from muster.core.reasons import ReasonCode
from muster.core.results import SchedulingResult
from muster.core.specs import SessionType
from muster.core.states import AgentStatus, JobState, KernelStatus, SessionStatus, TaskState
from muster.store.database.address import DatabaseUnusable, sqlite_url
from muster.store.driver import run

BUSY_TIMEOUT_S = 10.0
OLDEST = (3, 35)
"""The oldest version of the library that has all that statements and migrations use."""

# The driver looks in three places for a way to adapt a value that is no plain number or text, None
# included: the search takes 230 ns for each value, and 90 where an adapter is registered.
sqlite3.register_adapter(type(None), dict[None, None]().get)
sqlite3.register_adapter(bool, int)
for _words in (
    AgentStatus,
    JobState,
    TaskState,
    SessionStatus,
    SessionType,
    KernelStatus,
    SchedulingResult,
    ReasonCode,
):
    sqlite3.register_adapter(_words, str.__str__)


def sqlite_engine(address: URL) -> Engine:
    """An engine in WAL mode with ``synchronous=FULL``: a commit that was answered survives the loss
    of power (design: Storage).

    Raises:
        DatabaseUnusable: Python's SQLite is too old.
    """
    if sqlite3.sqlite_version_info < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise DatabaseUnusable(
            f"this Python has SQLite {sqlite3.sqlite_version}: version {needed} or a newer one is "
            f"needed, or a PostgreSQL server"
        )
    # One thread writes at a time (the leader's); the API reads from a pool of threads.
    arguments = {"check_same_thread": False, "timeout": BUSY_TIMEOUT_S}
    engine = create_engine(address, connect_args=arguments, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def _connect(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # SQLAlchemy says BEGIN, below
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA cache_size=-16384")
        cursor.execute("PRAGMA wal_autocheckpoint=16000")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        readonly = connection.get_execution_options().get("readonly", False)
        run(connection, "BEGIN" if readonly else "BEGIN IMMEDIATE")

    return engine


def reading_engine(file: Path) -> Engine:
    """An engine that only reads a file, which is left as it is. Writers go on meanwhile."""
    uri = f"{file.absolute().as_uri()}?mode=ro"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S)

    return _transactional(file, connect, "BEGIN")


def scratch_engine(file: Path) -> Engine:
    """An engine on a file that nobody else opens, and that is thrown away unless everything goes
    well: nothing of it is safe before the file is synchronized to the disk as a whole."""

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(file)
        connection.execute("PRAGMA journal_mode=MEMORY")
        connection.execute("PRAGMA synchronous=OFF")
        return connection

    return _transactional(file, connect, "BEGIN IMMEDIATE")


def _transactional(file: Path, connect: Callable[[], sqlite3.Connection], begin: str) -> Engine:
    """An engine whose connections begin transactions when SQLAlchemy does."""
    engine = create_engine(
        sqlite_url(file), creator=connect, poolclass=NullPool, hide_parameters=True
    )

    @event.listens_for(engine, "connect")
    def _connect(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        run(connection, begin)

    return engine


def checkpoint(engine: Engine) -> int:
    """Copy the content of SQLite's log into the database, as far as no reader is in the way; the
    answer is how many pages are still to be copied. Writers go on meanwhile.

    Raises:
        OSError, sqlite3.Error: the disk is full, say.
    """
    if engine.dialect.name != "sqlite":
        return 0
    connection = engine.raw_connection()
    try:
        cursor = connection.cursor()
        cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")
        _, pages, copied = cursor.fetchone() or (0, 0, 0)
        return int(pages - copied)
    finally:
        connection.close()


WAYS_ON = (
    ("unable to open database file", "look at whether its directory is there and can be written"),
    ("readonly database", "make it and its directory writable"),
    (
        "file is not a database",
        "name another file, or put a backup in its place with `muster db restore`",
    ),
    ("malformed", "put a backup in its place with `muster db restore`"),
    ("database is locked", "end the program that works on it"),
    ("disk is full", "make room on its disk"),
    ("disk I/O error", "look at its disk"),
)
"""Signs of errors in their words, and the way on after each."""

MAY_PASS = (
    "unable to open database file",
    "readonly database",
    "locked",
    "disk is full",
    "disk I/O error",
)
"""Signs of errors that a later try may not meet."""
