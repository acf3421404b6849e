"""quotas say no key that was not said: each falls back to that of the next quota by itself"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

_QUOTAS = sa.table("quotas", sa.column("level"), sa.column("name"), sa.column("spec"))
_DEFAULT_WEIGHT = 1.0


def upgrade() -> None:
    connection, its = op.get_bind(), _QUOTAS.c
    for level, name, text in connection.execute(sa.select(_QUOTAS)).all():
        said = _said(json.loads(text))
        if said.get("weight") == _DEFAULT_WEIGHT:
            del said["weight"]
        where = sa.and_(its.level == level, its.name == name)
        connection.execute(_QUOTAS.update().where(where).values(spec=json.dumps(said)))


def _said(spec: dict[str, object]) -> dict[str, object]:
    """The keys that have a value, at each depth."""
    return {
        key: _said(value) if isinstance(value, dict) else value
        for key, value in spec.items()
        if value is not None
    }
