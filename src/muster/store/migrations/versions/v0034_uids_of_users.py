"""the uids that users have on all machines"""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "uids",
        sa.Column("uid", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("domain", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("given_at", sa.Float(), nullable=False),
    )
    op.create_index("uids_by_user", "uids", ["domain", "user"], unique=True)
