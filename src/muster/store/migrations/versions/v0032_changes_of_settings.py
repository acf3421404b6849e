"""changes of settings in history, found by their number"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    of_settings = sa.text("phase = 'Setting'")
    op.create_index(
        "history_of_settings",
        "history",
        ["seq"],
        sqlite_where=of_settings,
        postgresql_where=of_settings,
    )
