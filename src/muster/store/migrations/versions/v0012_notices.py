"""notices of work that has ended"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_LIVE = "status IN ('PENDING', 'SENDING')"


def upgrade() -> None:
    op.create_table(
        "notices",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("subject", sa.String(), nullable=True),
        sa.Column("domain", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("shown", sa.String(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("tone", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_changed_at", sa.Float(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("retry_at", sa.Float(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("reason_numbers", sa.Text(), nullable=True),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "notices_live",
        "notices",
        ["id"],
        sqlite_where=sa.text(_LIVE),
        postgresql_where=sa.text(_LIVE),
    )
