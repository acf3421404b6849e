"""silences of agents"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # The silence is known once the agent is looked at; until then a long one is safe to assume.
    op.add_column(
        "agents", sa.Column("silence_s", sa.Float(), nullable=False, server_default="300")
    )
