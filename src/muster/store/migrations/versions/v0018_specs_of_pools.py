"""specs of pools stored once, slices that count their machines, and pools that were paused"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_ENDED = ("FAILED", "TERMINATED")
_ROWS_AT_A_TIME = 50  # a spec may have a MiB

_POOLS = sa.table(
    "pools",
    *map(sa.column, ("id", "name", "revision", "status", "was_paused", "reason_numbers")),
)
_REVISIONS = sa.table("pool_revisions", *map(sa.column, ("pool", "revision", "spec")))
_SLICES = sa.table(
    "slices",
    *map(
        sa.column,
        ("id", "pool", "revision", "status", "spec", "machines", "size", "made", "machine_price"),
    ),
)


def upgrade() -> None:
    op.create_table(
        "pool_revisions",
        sa.Column("pool", sa.String(), primary_key=True),
        sa.Column("revision", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sqlite_with_rowid=False,
    )
    for table, name, kind in (
        ("pools", "was_paused", sa.Integer()),
        ("slices", "size", sa.Integer()),
        ("slices", "made", sa.Integer()),
        ("slices", "machine_price", sa.Float()),
    ):
        op.add_column(table, sa.Column(name, kind, nullable=False, server_default="0"))
    _note_paused_pools()
    _keep_specs()
    _count_machines()
    op.drop_column("slices", "spec")


def _note_paused_pools() -> None:
    """Note the pools that stand still and were paused before."""
    bind, c = op.get_bind(), _POOLS.c
    for row in bind.execute(sa.select(c.id, c.reason_numbers).where(c.status == "TRIPPED")).all():
        if json.loads(row.reason_numbers or "{}").get("was_paused"):
            bind.execute(sa.update(_POOLS).where(c.id == row.id).values(was_paused=1))


def _keep_specs() -> None:
    """Keep the spec of the newest slice of each former revision that has slices."""
    bind, c = op.get_bind(), _SLICES.c
    there = sa.select(_POOLS.c.name, _POOLS.c.revision).where(_POOLS.c.status != "DELETED")
    presents = {tuple(row) for row in bind.execute(there)}
    newest = sa.select(c.pool, c.revision, sa.func.max(c.id).label("id"))
    live = newest.where(c.status.not_in(_ENDED)).group_by(c.pool, c.revision)
    for row in bind.execute(live).all():
        if (row.pool, row.revision) not in presents:
            spec = bind.execute(sa.select(c.spec).where(c.id == row.id)).scalar()
            bind.execute(
                sa.insert(_REVISIONS).values(pool=row.pool, revision=row.revision, spec=spec)
            )


def _count_machines() -> None:
    """Write the machines of each slice, those of them that were made, and their price."""
    bind, c = op.get_bind(), _SLICES.c
    counts = (
        sa.update(_SLICES)
        .where(c.id == sa.bindparam("its"))
        .values({name: sa.bindparam(f"new_{name}") for name in ("size", "made", "machine_price")})
    )
    after = ""
    while True:
        page = sa.select(c.id, c.machines, c.spec).where(c.id > after).order_by(c.id)
        rows = bind.execute(page.limit(_ROWS_AT_A_TIME)).all()
        if not rows:
            return
        after = rows[-1].id
        found = []
        for row in rows:
            machines = json.loads(row.machines)  # names, ids, addresses
            found.append(
                {
                    "its": row.id,
                    "new_size": len(machines),
                    "new_made": sum(bool(id_) for _, id_, _ in machines),
                    "new_machine_price": json.loads(row.spec).get("price", 0.0),
                }
            )
        bind.execute(counts, found)
