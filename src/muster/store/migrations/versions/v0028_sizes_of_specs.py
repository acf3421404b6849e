"""sizes of large specs, and which of them were cut"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

_LARGE_BYTES = 16 * 1024
_TABLES = (
    ("jobs", "'FAILED', 'KILLED', 'SUCCEEDED', 'UNSCHEDULABLE'", ("spec",)),
    ("sessions", "'CANCELLED', 'TERMINATED'", ("spec",)),
    ("deployments", "'DESTROYED'", ("spec", "revisions")),
)


def upgrade() -> None:
    for name, terminal, texts in _TABLES:
        op.add_column(name, sa.Column("large_bytes", sa.BigInteger(), nullable=True))
        op.add_column(name, sa.Column("spec_cut", sa.Text(), nullable=True))
        table = sa.table(
            name, sa.column("large_bytes"), sa.column("status"), *map(sa.column, texts)
        )
        size = sum((_bytes_of(table.c[text]) for text in texts), start=sa.literal(0))
        op.execute(table.update().where(size > _LARGE_BYTES).values(large_bytes=size))
        is_whole = sa.text(f"large_bytes IS NOT NULL AND status IN ({terminal})")
        op.create_index(
            f"{name}_whole_specs",
            name,
            ["id", "domain", "project", "user", "large_bytes"],
            sqlite_where=is_whole,
            postgresql_where=is_whole,
        )


def _bytes_of(column: sa.ColumnClause[str]) -> sa.ColumnElement[int]:
    if op.get_bind().dialect.name == "sqlite":
        return sa.func.length(sa.cast(column, sa.LargeBinary))
    return sa.func.octet_length(column)
