"""deployments and their routes"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_LIVE_DEPLOYMENTS = (
    "status IN ('CREATED', 'DEPLOYING', 'DESTROYING', 'PENDING', 'READY', 'SCALING')"
)
_LIVE_ROUTES = (
    "status IN ('DEGRADED', 'FAILED_TO_START', 'HEALTHY', 'PROVISIONING', 'TERMINATING', "
    "'UNHEALTHY')"
)


def upgrade() -> None:
    op.create_table(
        "deployments",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=True),
        *_owner(),
        sa.Column("group", sa.String(), nullable=False),
        *_state(),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("revisions", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("stable", sa.Integer(), nullable=False),
        sa.Column("proven", sa.Boolean(), nullable=False),
        sa.Column("replicas", sa.Integer(), nullable=False),
        sa.Column("scaled_at", sa.Float(), nullable=False),
        sa.Column("probe_version", sa.Integer(), nullable=False),
        sa.Column("rollout", sa.Text(), nullable=True),
        sa.Column("failed_starts", sa.Integer(), nullable=False),
        sa.Column("failed_at", sa.Float(), nullable=True),
        *_tries(),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "routes",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("deployment_id", sa.String(), nullable=False),
        *_owner(),
        sa.Column("revision", sa.Integer(), nullable=False),
        *_state(),
        sa.Column("session_id", sa.String(), nullable=True),
        sa.Column("kernel_id", sa.String(), nullable=True),
        sa.Column("address", sa.String(), nullable=True),
        sa.Column("good", sa.Boolean(), nullable=True),
        sa.Column("good_at", sa.Float(), nullable=True),
        sa.Column("healthy_since", sa.Float(), nullable=True),
        *_tries(),
        sqlite_with_rowid=False,
    )
    for table, live in (("deployments", _LIVE_DEPLOYMENTS), ("routes", _LIVE_ROUTES)):
        op.create_index(
            f"{table}_live",
            table,
            ["id"],
            sqlite_where=sa.text(live),
            postgresql_where=sa.text(live),
        )
    op.create_index("deployments_by_owner", "deployments", ["domain", "project", "user", "id"])
    op.create_index("routes_by_deployment", "routes", ["deployment_id", "id"])


def _owner() -> list[sa.Column[str]]:
    return [sa.Column(name, sa.String(), nullable=False) for name in ("domain", "project", "user")]


def _state() -> list[sa.Column[object]]:
    return [
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_changed_at", sa.Float(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=True),
    ]


def _tries() -> list[sa.Column[object]]:
    return [
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("retry_at", sa.Float(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("reason_numbers", sa.Text(), nullable=True),
    ]
