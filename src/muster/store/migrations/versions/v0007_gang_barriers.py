"""when a gang's kernels were first told to run"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sessions", sa.Column("barrier_opened_at", sa.Float(), nullable=True))
