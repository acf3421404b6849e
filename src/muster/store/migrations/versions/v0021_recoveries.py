"""recoveries of jobs from faults of machines"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_LIVE = "status IN ('IN_PROGRESS', 'PENDING_HEALTHCHECK', 'PENDING_RESTART', 'RESTARTING')"


def upgrade() -> None:
    op.create_table(
        "recoveries",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("group", sa.String(), nullable=False),
        sa.Column("domain", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_changed_at", sa.Float(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.Column("restarts", sa.Integer(), nullable=False),
        sa.Column("rounds", sa.Integer(), nullable=False),
        sa.Column("open", sa.Text(), nullable=True),
        sa.Column("next", sa.Text(), nullable=True),
        sa.Column("kept", sa.Text(), nullable=False),
        sa.Column("lost_gpu_s", sa.Float(), nullable=False),
        sa.Column("ran_s", sa.Float(), nullable=False),
        sa.Column("runs_since", sa.Float(), nullable=True),
        sa.Column("started_at", sa.Float(), nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("reason_numbers", sa.Text(), nullable=True),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "recoveries_live",
        "recoveries",
        ["id"],
        sqlite_where=sa.text(_LIVE),
        postgresql_where=sa.text(_LIVE),
    )
    op.create_index("recoveries_by_job", "recoveries", ["job_id"])
    op.create_index("recoveries_by_owner", "recoveries", ["domain", "project", "user", "id"])
