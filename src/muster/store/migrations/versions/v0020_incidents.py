"""incidents: stretches of a machine's ill health"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_LIVE = "status IN ('CHECKING', 'ISOLATED', 'REBOOTING', 'RESETTING', 'SUSPECT', 'VERIFYING')"


def upgrade() -> None:
    op.create_table(
        "incidents",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("group", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_changed_at", sa.Float(), nullable=False),
        sa.Column("why", sa.String(), nullable=False),
        sa.Column("why_numbers", sa.Text(), nullable=False),
        sa.Column("devices", sa.Text(), nullable=False),
        sa.Column("confirmed", sa.Integer(), nullable=False),
        sa.Column("is_out", sa.Integer(), nullable=False),
        sa.Column("has_turn", sa.Integer(), nullable=False),
        sa.Column("needs_no_turn", sa.Integer(), nullable=False),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.Column("heal", sa.Integer(), nullable=True),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("leave_by", sa.Float(), nullable=True),
        sa.Column("acted_at", sa.Float(), nullable=True),
        sa.Column("session", sa.String(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("result", sa.String(), nullable=True),
        sa.Column("checks", sa.Text(), nullable=False),
        sa.Column("began_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("retry_at", sa.Float(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("reason_numbers", sa.Text(), nullable=True),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "incidents_live",
        "incidents",
        ["id"],
        sqlite_where=sa.text(_LIVE),
        postgresql_where=sa.text(_LIVE),
    )
    op.create_index("incidents_by_agent", "incidents", ["agent_id", "id"])
