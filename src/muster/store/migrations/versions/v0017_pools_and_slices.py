"""pools, the slices that their providers make, and attributes that agents have by their slice"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_LIVE_POOLS = "status IN ('ACTIVE', 'DELETING', 'PAUSED', 'TRIPPED')"
_LIVE_SLICES = "status IN ('BOOTING', 'INITIALIZING', 'READY', 'REQUESTING')"


def upgrade() -> None:
    op.add_column("agents", sa.Column("fixed", sa.Text(), nullable=False, server_default="{}"))
    op.create_table(
        "pools",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("group", sa.String(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_changed_at", sa.Float(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.Column("standing", sa.Text(), nullable=False),
        sa.Column("reported", sa.Text(), nullable=False),
        sa.Column("losses", sa.Text(), nullable=False),
        sa.Column("pardoned_at", sa.Float(), nullable=False),
        sa.Column("replacing", sa.Integer(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("retry_at", sa.Float(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("reason_numbers", sa.Text(), nullable=True),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "pools_by_name",
        "pools",
        ["name"],
        unique=True,
        sqlite_where=sa.text(_LIVE_POOLS),
        postgresql_where=sa.text(_LIVE_POOLS),
    )
    op.create_table(
        "slices",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("pool", sa.String(), nullable=False),
        sa.Column("group", sa.String(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_changed_at", sa.Float(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("ready_at", sa.Float(), nullable=True),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.Column("machines", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("doomed", sa.String(), nullable=True),
        sa.Column("doomed_numbers", sa.Text(), nullable=True),
        sa.Column("doomed_at", sa.Float(), nullable=True),
        sa.Column("leave_by", sa.Float(), nullable=True),
        sa.Column("held_by", sa.String(), nullable=True),
        sa.Column("idle_since", sa.Float(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("retry_at", sa.Float(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("reason_numbers", sa.Text(), nullable=True),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "slices_live",
        "slices",
        ["id"],
        sqlite_where=sa.text(_LIVE_SLICES),
        postgresql_where=sa.text(_LIVE_SLICES),
    )
    op.create_index("slices_by_pool", "slices", ["pool", "id"])
