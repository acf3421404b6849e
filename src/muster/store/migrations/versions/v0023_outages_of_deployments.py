"""outages of deployments, and whether channels were told of them"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("deployments", sa.Column("unserved_at", sa.Float(), nullable=True))
    op.add_column(
        "deployments",
        sa.Column("outage_told", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
