"""notes on barred agents, when work must have left, and what listings filter by"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("agents", sa.Column("bar_note", sa.Text(), nullable=False, server_default=""))
    op.add_column("agents", sa.Column("leave_by", sa.Float(), nullable=True))
    op.create_index("jobs_by_group", "jobs", ["group", "id"])
    op.create_index("jobs_by_user", "jobs", ["user", "id"])
    unsuccessful = sa.text("state IN ('FAILED', 'KILLED', 'UNSCHEDULABLE')")
    op.create_index(
        "jobs_unsuccessful",
        "jobs",
        ["id"],
        sqlite_where=unsuccessful,
        postgresql_where=unsuccessful,
    )
    op.create_index(
        "sessions_alone_by_id",
        "sessions",
        ["id"],
        sqlite_where=sa.text("job_id IS NULL"),
        postgresql_where=sa.text("job_id IS NULL"),
    )
