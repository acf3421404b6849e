"""the fence that lets one store at a time write"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    fence = op.create_table(
        "fence",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("commits", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
    )
    op.execute(fence.insert().values(id=1, epoch=0, commits=0, holder="", since=0.0))
