"""jobs that people hold"""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("held", sa.String(), nullable=True))
    op.add_column("jobs", sa.Column("held_numbers", sa.Text(), nullable=True))
    op.add_column("jobs", sa.Column("released_at", sa.Float(), nullable=True))
