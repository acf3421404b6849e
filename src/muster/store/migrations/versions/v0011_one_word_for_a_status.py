"""one word for a status"""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("jobs", "tasks"):
        op.alter_column(table, "state", new_column_name="status")
        op.alter_column(table, "state_changed_at", new_column_name="status_changed_at")
