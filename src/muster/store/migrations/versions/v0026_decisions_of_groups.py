"""the last decision about the demand of each group"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "group_decisions",
        sa.Column("group", sa.String(), primary_key=True),
        sa.Column("decided_at", sa.Float(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
    )
