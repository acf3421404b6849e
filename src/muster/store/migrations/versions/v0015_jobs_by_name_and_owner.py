"""an index that finds the jobs of one owner that have a name, however many either has"""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("jobs_by_name", "jobs")
    op.create_index("jobs_by_name", "jobs", ["name", "domain", "project", "user"])
