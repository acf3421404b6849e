"""secrets of deployments, by which their programs know requests that came through a proxy"""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

_DEPLOYMENTS = sa.table("deployments", sa.column("id"), sa.column("status"), sa.column("secret"))


def upgrade() -> None:
    op.add_column("deployments", sa.Column("secret", sa.Text(), nullable=False, server_default=""))
    connection, its = op.get_bind(), _DEPLOYMENTS.c
    live = connection.scalars(sa.select(its.id).where(its.status != "DESTROYED")).all()
    for id_ in live:
        made = _DEPLOYMENTS.update().where(its.id == id_).values(secret=secrets.token_urlsafe(32))
        connection.execute(made)
