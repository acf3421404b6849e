"""an index for the list of one's notices"""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("notices_by_owner", "notices", ["domain", "project", "user", "id"])
