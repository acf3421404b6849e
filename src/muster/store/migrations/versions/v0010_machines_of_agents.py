"""machines and supervisors of agents"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("machine", "supervisor"):
        op.add_column("agents", sa.Column(name, sa.String(), nullable=False, server_default=""))
