"""pauses between the tries of a task, its failed agents, its time limits; remarks of jobs"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tasks", sa.Column("retry_at", sa.Float(), nullable=False, server_default="0"))
    op.add_column(
        "tasks", sa.Column("failed_agents", sa.Text(), nullable=False, server_default="[]")
    )
    op.add_column(
        "tasks", sa.Column("timeout_count", sa.Integer(), nullable=False, server_default="0")
    )
    op.add_column("jobs", sa.Column("remarks", sa.Text(), nullable=False, server_default="[]"))
