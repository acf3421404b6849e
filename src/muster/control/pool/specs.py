"""Specs of pools as they are stored, each once: a pool's row has its present one, the table here
the former ones of which there are slices still."""

from collections.abc import Mapping

from sqlalchemy import Column, Connection, Integer, String, Table, Text, select

from muster.core.specs.pool import PoolSpec
from muster.store import schema
from muster.store.batch import deleting, inserting
from muster.store.lookup import Lookup
from muster.store.unit import Unit

Revision = tuple[str, int]
"""A pool's name, and the number of one of its revisions."""

pool_revisions = Table(
    "pool_revisions",
    schema.metadata,
    Column("pool", String, primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("spec", Text, nullable=False),  # JSON, as PoolSpec: the last one of this revision
    sqlite_with_rowid=False,
)

_KEY = ("pool", "revision")
_KEEP = inserting(pool_revisions, (*_KEY, "spec"))
_FORGET = deleting(pool_revisions, _KEY)
_FORMER = Lookup(select(pool_revisions))


def dump_spec(spec: PoolSpec) -> str:
    return spec.model_dump_json(exclude_defaults=True)


def load_spec(text: str) -> PoolSpec:
    return PoolSpec.stored(text)


def keep_spec(unit: Unit, revision: Revision, spec: PoolSpec) -> None:
    """Have the spec of a revision stored that is the present one no more."""
    forget_spec(unit, revision)
    unit.also_rows(_KEEP, (*revision, dump_spec(spec)))


def forget_spec(unit: Unit, revision: Revision) -> None:
    """Have the spec of a former revision stored no more: its last slice has ended."""
    unit.also_rows(_FORGET, revision)


def read_former_specs(connection: Connection) -> Mapping[Revision, PoolSpec]:
    """The specs of all former revisions that have slices."""
    return {(row.pool, row.revision): load_spec(row.spec) for row in _FORMER.named(connection)}
