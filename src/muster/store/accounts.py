"""Domains, projects, users and tokens in memory: there are few of them, and every request reads
them."""

import json
from dataclasses import dataclass

from sqlalchemy import Connection, select

from muster.core.owner import Role
from muster.store import schema
from muster.store.lookup import Lookup
from muster.store.tokens import JoinToken, Token, TokensByHash

_UIDS = Lookup(select(schema.uids).order_by(schema.uids.c.uid))
_DOMAINS, _PROJECTS, _USERS, _TOKENS, _JOIN_TOKENS = (
    Lookup(select(table).order_by(table.c.created_at))
    for table in (
        schema.domains,
        schema.projects,
        schema.users,
        schema.tokens,
        schema.join_tokens,
    )
)


@dataclass(slots=True, eq=False)
class User:
    """Somebody who hands in work. Work that names no project belongs to the first of
    ``projects``."""

    domain: str
    name: str
    projects: tuple[str, ...]
    created_at: float


@dataclass(slots=True, eq=False)
class Project:
    """A project, for which work is counted. Its deployments may have these ``hosts``, and names
    below them."""

    domain: str
    name: str
    created_at: float
    hosts: tuple[str, ...] = ()


class GivenUids:
    """The uids that were ever given to users, also to those that were removed since."""

    def __init__(self) -> None:
        self._of_user: dict[tuple[str, str], int] = {}
        self._given: set[int] = set()

    def __contains__(self, uid: int) -> bool:
        return uid in self._given

    def among(self, uids: range) -> int:
        """How many of a range are given."""
        return sum(uid in uids for uid in self._given)

    def of(self, domain: str, user: str) -> int | None:
        """The uid of a user; None if it was given none yet."""
        return self._of_user.get((domain, user))

    def give(self, domain: str, user: str, uid: int) -> None:
        """Note that a user has this uid, which nobody else had before."""
        assert uid not in self._given
        self._of_user[domain, user] = uid
        self._given.add(uid)


class Accounts:
    """Users, tokens and their domains and projects. They are part of the mirror, equal to SQL."""

    def __init__(self) -> None:
        self.domains: dict[str, float] = {}  # by name; the time since which it exists
        self.projects: dict[tuple[str, str], Project] = {}  # by domain and name
        self.users: dict[tuple[str, str], User] = {}  # by domain and name
        self.uids = GivenUids()
        self.tokens: TokensByHash[Token] = TokensByHash()
        self.join_tokens: TokensByHash[JoinToken] = TokensByHash()


def read_accounts(connection: Connection) -> Accounts:
    """All accounts, the oldest of each kind first."""
    accounts = Accounts()
    for row in _DOMAINS.named(connection):
        accounts.domains[row.name] = row.created_at
    for row in _PROJECTS.named(connection):
        hosts = tuple(json.loads(row.hosts))
        project = Project(row.domain, row.name, row.created_at, hosts)
        accounts.projects[project.domain, project.name] = project
    for row in _USERS.named(connection):
        projects = tuple(json.loads(row.projects))
        user = User(row.domain, row.name, projects, row.created_at)
        accounts.users[user.domain, user.name] = user
    for row in _UIDS.named(connection):
        accounts.uids.give(row.domain, row.user, row.uid)
    for row in _TOKENS.named(connection):
        token = Token(**row._asdict())
        token.role = Role(token.role)
        accounts.tokens.add(token)
    for row in _JOIN_TOKENS.named(connection):
        accounts.join_tokens.add(JoinToken(**row._asdict()))
    return accounts
