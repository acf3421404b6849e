"""what a controller must know of those before it: where the last one ran, and how long they may
renew leases without the database"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("fence", sa.Column("home", sa.Text(), nullable=False, server_default=""))
    for name in ("renews_s", "others_until"):
        op.add_column("fence", sa.Column(name, sa.Float(), nullable=False, server_default="0"))
