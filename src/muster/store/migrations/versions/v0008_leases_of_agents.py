"""leases of agents"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("agents", sa.Column("instance", sa.String(), nullable=False, server_default=""))
    # Agents that joined before may count with the lease that was the default.
    op.add_column("agents", sa.Column("lease_s", sa.Float(), nullable=False, server_default="300"))
