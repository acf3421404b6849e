"""jobs that run some of their tasks, and runs again of others"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    task_count = sa.Column("task_count", sa.BigInteger(), nullable=False, server_default="0")
    op.add_column("jobs", task_count)
    op.add_column("jobs", sa.Column("only", sa.Text(), nullable=True))
    op.add_column("jobs", sa.Column("retry_of", sa.String(), nullable=True))
    op.execute("UPDATE jobs SET task_count = tasks_total")
    op.create_index(
        "jobs_by_retried",
        "jobs",
        ["retry_of"],
        sqlite_where=sa.text("retry_of IS NOT NULL"),
        postgresql_where=sa.text("retry_of IS NOT NULL"),
    )
