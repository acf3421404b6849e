"""The ids to which people's references lead: a reference is an id, a unique prefix of one, or a
name.

Work of others is not found, and is never among the candidates (design: Access).
"""

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Any, assert_never

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    and_,
    false,
    null,
    select,
)

from muster.core.errors import Ambiguous, nothing_named
from muster.core.ids import prefix_range
from muster.core.owner import Owner, Principal
from muster.store.entity import Entity, Visible
from muster.store.lookup import Lookup, given
from muster.store.sql import one_of

_CANDIDATES = 5  # shown of an ambiguous reference
_BODY = r"[0-9a-hjkmnp-tv-z]{1,16}"
_ID = re.compile(f"(?:([a-z]{{3}})-)?{_BODY}")


def owned_by(table: Table, owner: Owner) -> ColumnElement[bool]:
    return and_(
        table.c.domain == owner.domain,
        table.c.project == owner.project,
        table.c.user == owner.user,
    )


def visible(entity: Entity[Any], principal: Principal) -> list[ColumnElement[bool]]:
    """The conditions under which the principal may see a row of the entity; see ``Visible``."""
    if principal.is_admin:
        return []
    match entity.visible:
        case Visible.TO_ALL:
            return []
        case Visible.TO_OWNER:
            return [_own(entity.table, principal)]
        case Visible.TO_ADMINS:
            return [false()]
        case unknown:
            assert_never(unknown)


def _own(table: Table, principal: Principal) -> ColumnElement[bool]:
    """The condition for work of the principal's own, in any of its projects."""
    return and_(
        table.c.domain == principal.owner.domain,
        table.c.project.in_(sorted(principal.owned_projects())),
        table.c.user == principal.owner.user,
    )


def resolve(connection: Connection, entity: Entity[Any], principal: Principal, ref: str) -> str:
    """The id that ``ref`` means: an id, else a name (live before ended, the newest of those that
    ended), else a prefix. An admin's own come before those of others.

    Raises:
        NotFound: there is none that the principal may see.
        Ambiguous: several; the message names some.
    """
    found = None
    is_id = _may_be_id(entity, ref)
    if is_id:
        found = _by_id(connection, entity, principal, ref)
    found = found or _by_name(connection, entity, principal, ref)
    if found is None and is_id:
        found = _by_prefix(connection, entity, principal, ref)
    if found is None:
        raise nothing_named(ref, entity.name)
    return found


def _may_be_id(entity: Entity[Any], ref: str) -> bool:
    found = _ID.fullmatch(ref.lower())
    return found is not None and found[1] in (None, entity.prefix)


def _by_id(
    connection: Connection, entity: Entity[Any], principal: Principal, ref: str
) -> str | None:
    low, _ = prefix_range(entity.prefix, ref)
    found = _with_id(entity, principal).first(connection, {"exact": low})
    return None if found is None else found[0]


@lru_cache(maxsize=1000)
def _with_id(entity: Entity[Any], principal: Principal) -> Lookup:
    id_ = entity.table.c.id
    return Lookup(select(id_).where(id_ == given("exact"), *visible(entity, principal)))


def _by_name(
    connection: Connection, entity: Entity[Any], principal: Principal, ref: str
) -> str | None:
    table = entity.table
    if "name" not in table.c:
        return None
    is_live = one_of(entity.table.c.status, entity.states.live)
    scopes = [visible(entity, principal)]
    if entity.visible is Visible.TO_OWNER and principal.is_admin:
        scopes.insert(0, [_own(table, principal)])
    for scope in scopes:
        named_so = [table.c.name == ref, *scope]
        found = _newest(connection, table, [*named_so, is_live])
        if len(found) > 1:
            raise _ambiguous(entity, ref, found)
        found = found or _newest(connection, table, named_so)[:1]
        if found:
            return found[0][0]
    return None


def _by_prefix(
    connection: Connection, entity: Entity[Any], principal: Principal, ref: str
) -> str | None:
    id_ = entity.table.c.id
    low, high = prefix_range(entity.prefix, ref)
    found = _newest(connection, entity.table, [id_ >= low, id_ < high, *visible(entity, principal)])
    if len(found) > 1:
        raise _ambiguous(entity, ref, found)
    return found[0][0] if found else None


def _newest(
    connection: Connection, table: Table, conditions: list[ColumnElement[bool]]
) -> list[tuple[str, str | None]]:
    name = table.c.name if "name" in table.c else null()
    query = select(table.c.id, name.label("name")).where(*conditions)
    rows: list[Any] = list(
        connection.execute(query.order_by(table.c.id.desc()).limit(_CANDIDATES + 1))
    )
    return [(row.id, row.name) for row in rows]


def _ambiguous(entity: Entity[Any], ref: str, found: list[tuple[str, str | None]]) -> Ambiguous:
    shown = ", ".join(f"{id_} ({name})" if name else id_ for id_, name in found[:_CANDIDATES])
    more = ", and more" if len(found) > _CANDIDATES else ""
    return Ambiguous(f"{ref!r} means several {entity.name}s: {shown}{more}; type more of the id")


def owners_of(connection: Connection, table: Table, ids: Collection[str]) -> dict[str, Owner]:
    """The owners of these rows, by id; ids that do not exist are left out."""
    c = table.c
    rows = connection.execute(select(c.id, c.domain, c.project, c.user).where(c.id.in_(ids)))
    return {row.id: Owner(row.domain, row.project, row.user) for row in rows}
