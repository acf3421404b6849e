"""names of hosts that deployments of each project may have"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("projects", sa.Column("hosts", sa.Text(), nullable=False, server_default="[]"))
