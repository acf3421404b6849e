"""From a reference that a person typed to an id: a reference is an id, a unique prefix of one, or a
name.

Work of others is not found, and is never among the candidates (design: Access).
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Table, and_, bindparam, select

from muster.core.errors import Ambiguous, NotFound
from muster.core.ids import KINDS, prefix_range
from muster.core.owner import Owner, Principal, Role
from muster.core.states import AGENT_TABLE, JOB_TABLE, SESSION_TABLE
from muster.store import schema

_CANDIDATES = 5  # shown of an ambiguous reference
_BODY = r"[0-9a-hjkmnp-tv-z]{1,16}"
_IDS = {kind: re.compile(f"(?:{short}-)?{_BODY}") for kind, short in KINDS.items()}


@dataclass(frozen=True, slots=True)
class Named:
    """A kind of thing that people refer to; ``kind`` is a key of ``core.ids.KINDS``.
    ``unsuccessful`` are states that have a partial index of their own."""

    kind: str
    table: Table
    status: Column[str]
    live: Collection[str]
    owned: bool = True
    unsuccessful: frozenset[str] = frozenset()


JOBS = Named(
    "job",
    schema.jobs,
    schema.jobs.c.status,
    JOB_TABLE.live,
    unsuccessful=frozenset(schema.UNSUCCESSFUL_JOBS),
)
SESSIONS = Named("session", schema.sessions, schema.sessions.c.status, SESSION_TABLE.live)
AGENTS = Named("agent", schema.agents, schema.agents.c.status, AGENT_TABLE.live, owned=False)


def one_of(column: Column[str], values: Collection[str]) -> ColumnElement[bool]:
    """``column IN (…)`` with the values in the text of the statement: only then does SQLite see
    that a partial index holds the answer."""
    return column.in_(bindparam(None, sorted(values), expanding=True, literal_execute=True))


def owned_by(table: Table, owner: Owner) -> ColumnElement[bool]:
    return and_(
        table.c.domain == owner.domain,
        table.c.project == owner.project,
        table.c.user == owner.user,
    )


def visible(table: Table, principal: Principal) -> list[ColumnElement[bool]]:
    """The conditions under which the principal may see a row; see ``Principal.may_see``."""
    return [] if principal.role is Role.ADMIN else [_own(table, principal)]


def _own(table: Table, principal: Principal) -> ColumnElement[bool]:
    """The condition for work of the principal's own, in any of its projects."""
    return and_(
        table.c.domain == principal.owner.domain,
        table.c.project.in_(sorted(principal.owned_projects())),
        table.c.user == principal.owner.user,
    )


def resolve(connection: Connection, named: Named, principal: Principal, ref: str) -> str:
    """The id that ``ref`` means: an id, else a name (live work before ended, the newest among
    ended), else a prefix. An admin's own work comes before that of others.

    Raises:
        NotFound: there is none that the principal may see.
        Ambiguous: several; the message names some.
    """
    found = None
    is_id = _IDS[named.kind].fullmatch(ref.lower()) is not None
    if is_id:
        found = _by_id(connection, named, principal, ref)
    found = found or _by_name(connection, named, principal, ref)
    if found is None and is_id:
        found = _by_prefix(connection, named, principal, ref)
    if found is None:
        raise NotFound(f"there is no {named.kind} {ref!r}")
    return found


def _conditions(named: Named, principal: Principal) -> list[ColumnElement[bool]]:
    return visible(named.table, principal) if named.owned else []


def _by_id(connection: Connection, named: Named, principal: Principal, ref: str) -> str | None:
    id_ = named.table.c.id
    low, _ = prefix_range(named.kind, ref)
    found: str | None = connection.execute(
        select(id_).where(id_ == low, *_conditions(named, principal))
    ).scalar()
    return found


def _by_name(connection: Connection, named: Named, principal: Principal, ref: str) -> str | None:
    table = named.table
    is_live = one_of(named.status, named.live)
    scopes = [_conditions(named, principal)]
    if named.owned and principal.role is Role.ADMIN:
        scopes.insert(0, [_own(table, principal)])
    for scope in scopes:
        named_so = [table.c.name == ref, *scope]
        found = _newest(connection, table, [*named_so, is_live])
        if len(found) > 1:
            raise _ambiguous(named, ref, found)
        found = found or _newest(connection, table, named_so)[:1]
        if found:
            return found[0][0]
    return None


def _by_prefix(connection: Connection, named: Named, principal: Principal, ref: str) -> str | None:
    id_ = named.table.c.id
    low, high = prefix_range(named.kind, ref)
    found = _newest(
        connection, named.table, [id_ >= low, id_ < high, *_conditions(named, principal)]
    )
    if len(found) > 1:
        raise _ambiguous(named, ref, found)
    return found[0][0] if found else None


def _newest(
    connection: Connection, table: Table, conditions: list[ColumnElement[bool]]
) -> list[tuple[str, str | None]]:
    query = select(table.c.id, table.c.name).where(*conditions)
    rows: list[Any] = list(
        connection.execute(query.order_by(table.c.id.desc()).limit(_CANDIDATES + 1))
    )
    return [(row.id, row.name) for row in rows]


def _ambiguous(named: Named, ref: str, found: list[tuple[str, str | None]]) -> Ambiguous:
    shown = ", ".join(f"{id_} ({name})" if name else id_ for id_, name in found[:_CANDIDATES])
    more = ", and more" if len(found) > _CANDIDATES else ""
    return Ambiguous(f"{ref!r} means several {named.kind}s: {shown}{more}; type more of the id")


def owners_of(connection: Connection, named: Named, ids: Collection[str]) -> dict[str, Owner]:
    """The owners of these rows, by id; ids that do not exist are left out."""
    c = named.table.c
    rows = connection.execute(select(c.id, c.domain, c.project, c.user).where(c.id.in_(ids)))
    return {row.id: Owner(row.domain, row.project, row.user) for row in rows}
