"""`muster db migrate`: the tables of an older version become this version's."""

from collections.abc import Sequence
from dataclasses import dataclass

from muster.app.maintenance.place import held
from muster.store.database import open_engine
from muster.store.database.migrating import migrations_after
from muster.store.database.reading import EmptyDatabase, reading


@dataclass(frozen=True, slots=True)
class Migrations:
    """The way of a database from the migration ``found``, None of an empty one, to this version's:
    the number of each ``missing`` migration, and what it brings."""

    found: str | None
    missing: Sequence[tuple[str, str]]


def missing_migrations(url: str) -> Migrations:
    """
    Raises:
        DatabaseUnusable: the database cannot be read, or is another program's or a newer Muster's.
    """
    try:
        with reading(url) as (_, found):
            return Migrations(found, migrations_after(found))
    except EmptyDatabase:
        return Migrations(None, migrations_after(None))


def migrate(url: str) -> Migrations:
    """Bring the tables of a database up to this version, in one transaction: interrupted at any
    moment, it is as before. A controller does the same when it starts.

    Raises:
        Conflict, DatabaseUnusable: a controller runs on the database, or its migrations cannot be
            known or run.
    """
    with held(url):
        migrations = missing_migrations(url)
        if migrations.missing:
            open_engine(url).dispose()
    return migrations
