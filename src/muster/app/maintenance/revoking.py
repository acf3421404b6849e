"""Revoking in a restored state what was revoked after its backup was made, or all tokens."""

import secrets
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from sqlalchemy import Connection, Table, delete, select, update
from sqlalchemy.sql import ColumnElement

from muster.app.revocations import RevokedKind, RevokedName
from muster.control.deployment.entity import deployments
from muster.core.reasons.of_settings import SettingChanged
from muster.core.results import SchedulingResult
from muster.core.settings import SETTING_PHASE, SettingChange, SettingKind, SettingName
from muster.core.states import AGENT_TABLE, JOB_TABLE, SESSION_TABLE
from muster.core.states.deployment import DEPLOYMENT_TABLE
from muster.store import schema
from muster.store.history import History
from muster.store.tokens import token_hash

_AT_A_TIME = 500
"""Names in one statement."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """Names and counts of what was good in a backup, and is good no more. ``kept_users`` were
    removed since and have live work in the backup, so they are still there, without a token."""

    tokens: int = 0
    join_tokens: int = 0
    agents: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    kept_users: tuple[str, ...] = ()

    def plus(self, other: "Revoked") -> "Revoked":
        return Revoked(
            self.tokens + other.tokens,
            self.join_tokens + other.join_tokens,
            (*self.agents, *other.agents),
            (*self.users, *other.users),
            (*self.kept_users, *other.kept_users),
        )


def revoke(connection: Connection, history: History, names: Collection[RevokedName]) -> Revoked:
    """Revoke in the state what has these names; what it does not know is left out. What
    was revoked is added to ``history``."""
    of_kind = {kind: [each.name for each in names if each.kind is kind] for kind in RevokedKind}
    tokens = _drop(connection, schema.tokens, of_kind[RevokedKind.TOKEN])
    join_tokens = _drop(connection, schema.join_tokens, of_kind[RevokedKind.JOIN_TOKEN])
    agents = _dismiss(connection, of_kind[RevokedKind.AGENT])
    users, kept = _drop_users(connection, of_kind[RevokedKind.USER])
    _note(history, SettingKind.TOKEN, tokens)
    _note(history, SettingKind.JOIN_TOKEN, join_tokens)
    _note(history, SettingKind.USER, users)
    return Revoked(len(tokens), len(join_tokens), agents, users, kept)


def revoke_tokens(connection: Connection, history: History) -> Revoked:
    """Revoke all tokens of people and all with which machines join. What was revoked is
    added to ``history``."""
    tokens = connection.execute(select(schema.tokens.c.id)).scalars().all()
    join_tokens = connection.execute(select(schema.join_tokens.c.id)).scalars().all()
    connection.execute(delete(schema.tokens))
    connection.execute(delete(schema.join_tokens))
    _note(history, SettingKind.TOKEN, tokens)
    _note(history, SettingKind.JOIN_TOKEN, join_tokens)
    return Revoked(len(tokens), len(join_tokens))


def _drop(connection: Connection, table: Table, ids: Iterable[str]) -> list[str]:
    """Drop the rows with these ids; the answer is the ids of those that were there."""
    dropped: list[str] = []
    for some in _parts(ids):
        are_named = table.c.id.in_(some)
        dropped += connection.execute(select(table.c.id).where(are_named)).scalars()
        connection.execute(delete(table).where(are_named))
    return dropped


def _note(history: History, kind: SettingKind, names: Iterable[str]) -> None:
    """Have history tell that the restore has removed settings."""
    why = SettingChanged(changes=(("restore", "good in the backup", "revoked since"),))
    for name in names:
        setting = str(SettingName(kind, name))
        removed, success = SettingChange.REMOVED, SchedulingResult.SUCCESS
        history.add(setting, SETTING_PHASE, None, removed, success, (why,))


def _dismiss(connection: Connection, ids: Iterable[str]) -> tuple[str, ...]:
    """Have the agents' credentials be good no more; the answer is their names."""
    agents, dismissed = schema.agents, []
    for some in _parts(ids):
        there = select(agents.c.id, agents.c.name).where(
            agents.c.id.in_(some), agents.c.status.in_(sorted(AGENT_TABLE.live))
        )
        for id_, name in connection.execute(there).all():
            nobodys = token_hash(secrets.token_urlsafe(32))
            changed = update(agents).where(agents.c.id == id_)
            connection.execute(changed.values(credential_hash=nobodys))
            dismissed.append(name)
    return tuple(sorted(dismissed))


def _drop_users(
    connection: Connection, paths: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Drop the users who have no live work; the answer is these, and the others."""
    users, dropped, kept = schema.users, [], []
    for path in sorted(paths):
        domain, _, name = path.partition("/")
        is_theirs = (users.c.domain == domain) & (users.c.name == name)
        if connection.execute(select(users.c.name).where(is_theirs)).first() is None:
            continue
        tokens = schema.tokens
        connection.execute(delete(tokens).where(_is_of(tokens, domain, name)))
        if _has_live_work(connection, domain, name):
            kept.append(path)
        else:
            connection.execute(delete(users).where(is_theirs))
            dropped.append(path)
    return tuple(dropped), tuple(kept)


def _has_live_work(connection: Connection, domain: str, user: str) -> bool:
    for table, live in (
        (schema.jobs, JOB_TABLE.live),
        (schema.sessions, SESSION_TABLE.live),
        (deployments, DEPLOYMENT_TABLE.live),
    ):
        is_live = table.c.status.in_(sorted(live))
        found = select(table.c.id).where(_is_of(table, domain, user), is_live).limit(1)
        if connection.execute(found).first() is not None:
            return True
    return False


def _is_of(table: Table, domain: str, user: str) -> ColumnElement[bool]:
    return (table.c.domain == domain) & (table.c.user == user)


def _parts(ids: Iterable[str]) -> Iterator[list[str]]:
    left = iter(ids)
    while some := list(islice(left, _AT_A_TIME)):
        yield some
