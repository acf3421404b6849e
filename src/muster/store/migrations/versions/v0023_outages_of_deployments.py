"""outages of deployments, whether channels were told of them, and live routes by deployment"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


_LIVE_ROUTES = (
    "status IN ('DEGRADED', 'FAILED_TO_START', 'HEALTHY', 'PROVISIONING', 'TERMINATING', "
    "'UNHEALTHY')"
)


def upgrade() -> None:
    op.add_column("deployments", sa.Column("unserved_at", sa.Float(), nullable=True))
    op.add_column(
        "deployments",
        sa.Column("outage_told", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    op.create_index(
        "routes_live_by_deployment",
        "routes",
        ["deployment_id", "status"],
        sqlite_where=sa.text(_LIVE_ROUTES),
        postgresql_where=sa.text(_LIVE_ROUTES),
    )
