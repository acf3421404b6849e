"""Bringing the tables of a database up to this version of Muster.

All migrations that are needed run in one transaction, on SQLite too: one that is interrupted leaves
the database as it was before.
"""

from collections.abc import Collection
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from muster.store.database.address import DatabaseUnusable
from muster.store.database.patience import wait_without_limit

MIGRATIONS = Path(__file__).parents[1] / "migrations"
_OURS = frozenset({"agents", "allocations", "cluster", "history", "jobs", "outbox", "sessions"})
"""Tables of each version, by which a database is known as Muster's."""


def _known_migrations() -> list[str]:
    """The numbers of all migrations, oldest first: reading Alembic's scripts would take longer."""
    files = (MIGRATIONS / "versions").glob("v[0-9]*_*.py")
    return sorted(file.stem[1:].partition("_")[0] for file in files)


HEAD = _known_migrations()[-1]
"""The newest migration."""


def known_version(version: str) -> bool:
    """Whether this version of Muster can migrate a database of migration ``version`` to its own."""
    return version in _known_migrations()


def lock_migrations(connection: Connection) -> None:
    """Have everybody else who wants to migrate the database wait for this transaction's end, and
    wait for theirs; the transaction may take as long as it needs."""
    if connection.dialect.name == "postgresql":  # SQLite has locked the database already
        wait_without_limit(connection)
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('muster migration'))"))


def migration_of(connection: Connection, shown: str) -> str | None:
    """The newest migration that was run on the database; None for an empty database.

    Raises:
        DatabaseUnusable: the database is another program's, or a newer Muster's.
    """
    tables = {*inspect(connection).get_table_names()}
    found: str | None = None
    if "alembic_version" in tables:
        version = text("SELECT version_num FROM alembic_version")
        found = connection.execute(version).scalar_one_or_none()
    others = tables - {"alembic_version"}
    is_ours = not others if found is None else others >= _OURS
    if not is_ours:
        raise DatabaseUnusable(
            f"the database {shown} is another program's{_such_as(others)}: give Muster an empty "
            f"one of its own"
        )
    if found is not None and not known_version(found):
        raise DatabaseUnusable(
            f"the database {shown} was written by a newer version of Muster (migration {found}, "
            f"this one knows {HEAD}): install that version again, or use another database"
        )
    return found


def _such_as(tables: Collection[str]) -> str:
    named = ", ".join(sorted(tables)[:3])
    more = ", …" if len(tables) > 3 else ""
    return f" (it has the tables {named}{more})" if tables else ""


def migrations_after(found: str | None) -> list[tuple[str, str]]:
    """The number and the words of each migration that a database of migration ``found`` lacks, in
    their order; None lacks all."""
    from alembic.script import ScriptDirectory

    newest_first = ScriptDirectory(str(MIGRATIONS)).walk_revisions()
    later = [(each.revision, each.doc) for each in newest_first if each.revision > (found or "")]
    return later[::-1]


def migrate(connection: Connection, to: str = "head") -> None:
    """Run the migrations up to ``to`` that the database lacks, in the connection's transaction."""
    # Imported late: a database that is up to date does not pay for it.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, to)
