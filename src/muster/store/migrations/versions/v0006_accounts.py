"""domains, projects, users; tokens that end, and tokens with which agents join"""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    former = op.get_bind().execute(sa.text("SELECT * FROM tokens ORDER BY created_at")).all()
    op.drop_table("tokens")
    domains = op.create_table(
        "domains",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    projects = op.create_table(
        "projects",
        sa.Column("domain", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("domain", "name"),
    )
    users = op.create_table(
        "users",
        sa.Column("domain", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("projects", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("domain", "name"),
    )
    tokens = op.create_table(
        "tokens",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("domain", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=True),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=True),
        sa.Column("last_used_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    join_tokens = op.create_table(
        "join_tokens",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=True),
        sa.Column("group", sa.String(), nullable=True),
        sa.Column("uses_left", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=True),
        sa.Column("made_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    _carry_over(former, domains, projects, users, tokens, join_tokens)


def _carry_over(
    former: Sequence[sa.Row[Any]],
    domains: sa.Table,
    projects: sa.Table,
    users: sa.Table,
    tokens: sa.Table,
    join_tokens: sa.Table,
) -> None:
    """Make everybody who had a token a user, in the projects that the tokens named."""
    people = [row for row in former if row.kind == "user"]
    memberships: dict[tuple[str, str], list[str]] = {}
    for row in people:  # the oldest first
        of_user = memberships.setdefault((row.domain, row.user), [])
        if row.project not in of_user:
            of_user.append(row.project)
    for domain in {row.domain: None for row in people}:
        since = min(row.created_at for row in people if row.domain == domain)
        op.execute(domains.insert().values(name=domain, created_at=since))
    for domain, name in {(row.domain, row.project): None for row in people}:
        since = min(row.created_at for row in people if (row.domain, row.project) == (domain, name))
        op.execute(projects.insert().values(domain=domain, name=name, created_at=since))
    for (domain, name), of_user in memberships.items():
        since = min(row.created_at for row in people if (row.domain, row.user) == (domain, name))
        kept = users.insert().values(
            domain=domain, name=name, projects=json.dumps(of_user), created_at=since
        )
        op.execute(kept)
    for row in former:
        shared = {"id": f"tok-{row.hash[:16]}", "hash": row.hash, "created_at": row.created_at}
        if row.kind == "user":
            owner = {"domain": row.domain, "user": row.user, "project": None}
            op.execute(tokens.insert().values(**shared, **owner, name=row.name, role=row.role))
        else:
            op.execute(join_tokens.insert().values(**shared, made_by=row.user))
