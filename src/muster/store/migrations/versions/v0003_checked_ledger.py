"""the ledger is found by agent, and a kernel's failed tries by their time"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("kernels", sa.Column("failed_at", sa.Float(), nullable=True))
    op.create_index(
        "allocations_charged",
        "allocations",
        ["agent_id", "charged", "cpu_milli", "memory_bytes", "disk_bytes", "devices", "extra"],
        sqlite_where=sa.text("charged IS 1"),
        postgresql_where=sa.text("charged IS TRUE"),
    )
