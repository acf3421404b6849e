"""when agents' machines booted, by the controller's time"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("agents", sa.Column("booted_at", sa.Float(), nullable=False, server_default="0"))
