"""Opening the database: the engine, its pragmas, its migrations."""

import sqlite3
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import make_url

from muster.core.errors import MusterError
from muster.core.reasons import ReasonCode
from muster.core.results import SchedulingResult
from muster.core.specs import SessionType
from muster.core.states import AgentStatus, JobState, KernelStatus, SessionStatus, TaskState

_MIGRATIONS = Path(__file__).parent / "migrations"


def _known_migrations() -> list[str]:
    """The numbers of all migrations, oldest first: reading Alembic's scripts would take longer."""
    files = (_MIGRATIONS / "versions").glob("v[0-9]*_*.py")
    return sorted(file.stem[1:].partition("_")[0] for file in files)


HEAD = _known_migrations()[-1]
"""The newest migration."""


class DatabaseUnusable(MusterError):
    """The database cannot be opened; the text says why and what to do."""


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


def sqlite_url(path: Path) -> str:
    """The URL of the SQLite database in this file."""
    return f"sqlite:///{path}"


def open_engine(url: str) -> Engine:
    """An engine for ``url``, migrated to this version's tables.

    SQLite runs in WAL mode with ``synchronous=FULL``: a commit that was answered survives the loss
    of power (design: Storage).

    Raises:
        DatabaseUnusable: not reachable, not a database, or of a newer version.
    """
    engine = create_engine(url, connect_args=_connect_args(url))
    if engine.dialect.name == "sqlite":
        _tune_sqlite(engine)
    shown = make_url(url).render_as_string(hide_password=True)
    try:
        with engine.connect() as connection:
            found = _version(connection)
            if found != HEAD:
                _migrate(connection, found, shown)
    except DatabaseUnusable:
        engine.dispose()
        raise
    except Exception as error:
        engine.dispose()
        cause = getattr(error, "orig", None) or error
        raise DatabaseUnusable(f"the database {shown} cannot be used: {cause}") from error
    return engine


def _connect_args(url: str) -> dict[str, object]:
    if make_url(url).get_backend_name() == "sqlite":
        # One thread writes at a time (the leader's); the API reads from a pool of threads.
        return {"check_same_thread": False, "timeout": 10.0}
    return {}


def _tune_sqlite(engine: Engine) -> None:
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
        connection.exec_driver_sql("BEGIN" if readonly else "BEGIN IMMEDIATE")


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


def _version(connection: Connection) -> str | None:
    """The newest migration that was run on the database; None for an empty database."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def known_version(version: str) -> bool:
    """Whether this version of Muster can migrate a database of migration ``version`` to its own."""
    return version in _known_migrations()


def _migrate(connection: Connection, found: str | None, shown: str) -> None:
    # Imported late: a database that is up to date does not pay for it.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise DatabaseUnusable(
            f"the database {shown} was written by a newer version of Muster (migration {found}, "
            f"this one knows {HEAD}): install that version again, or use another data directory"
        )
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    connection.commit()
