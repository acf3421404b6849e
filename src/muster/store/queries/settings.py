"""Settings by the names that people call them, and their changes as people may read them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, literal, select

from muster.core.hidden import HIDDEN
from muster.core.ids import IdKind, prefix_range
from muster.core.owner import Owner, Principal, Role
from muster.core.reasons import Reason
from muster.core.reasons.of_pools import PoolChangedBy
from muster.core.reasons.of_settings import SettingChanged
from muster.core.settings import Difference, SettingKind, SettingName
from muster.core.specs import Level
from muster.store import schema

SOMEBODY = "an administrator"
"""In place of the name of an administrator, for those who are none."""
_OF_ADMINS = ("settings", "projects")
"""Keys of groups and pools that only administrators may read."""


def find_setting(connection: Connection, principal: Principal, ref: str) -> SettingName | None:
    """The setting that ``ref`` means, of those that the principal may see: ``kind:name``, or a name
    alone, which is looked for in the order of ``SettingKind``. A domain may be left out before the
    name of a user or a project, if it is the principal's own. None if there is none, and none has
    been removed."""
    named = SettingName.of(ref)
    kinds = [*SettingKind] if named is None else [named.kind]
    name = ref if named is None else named.name
    for kind in kinds:
        for meant in _meanings(connection, kind, principal, name):
            if _may_see(connection, principal, meant) and _is_known(connection, meant):
                return meant
    return None


def _meanings(
    connection: Connection, kind: SettingKind, principal: Principal, name: str
) -> Iterator[SettingName]:
    match kind:
        case SettingKind.USER | SettingKind.PROJECT if "/" not in name:
            yield SettingName(kind, f"{principal.owner.domain}/{name}")
        case SettingKind.TOKEN | SettingKind.JOIN_TOKEN:
            low, high = prefix_range(IdKind.TOKEN, name)
            entity = schema.history.c.entity
            first, last = SettingName(kind, low), SettingName(kind, high)
            told = select(entity).where(entity >= str(first), entity < str(last))
            ids = [text.partition(":")[2] for text in connection.scalars(told.distinct().limit(2))]
            yield from (SettingName(kind, id_) for id_ in ids if len(ids) == 1)
            table, called = _TOKENS[kind]
            by_name = select(table.c.id).where(table.c[called] == name)
            yield from (SettingName(kind, id_) for id_ in connection.scalars(by_name))
            yield SettingName(kind, low)
        case _:
            yield SettingName(kind, name)


_TOKENS = {
    SettingKind.TOKEN: (schema.tokens, "name"),
    SettingKind.JOIN_TOKEN: (schema.join_tokens, "agent"),
}


def _may_see(connection: Connection, principal: Principal, setting: SettingName) -> bool:
    """Whether the principal may know of the setting. Groups are everybody's; of other settings
    people see those that are about themselves."""
    kind, name = setting
    owner = principal.owner
    if principal.is_admin or kind is SettingKind.GROUP:
        return True
    match kind:
        case SettingKind.DOMAIN:
            return name == owner.domain
        case SettingKind.USER:
            return name == f"{owner.domain}/{owner.user}"
        case SettingKind.PROJECT:
            return name in {f"{owner.domain}/{each}" for each in principal.owned_projects()}
        case SettingKind.QUOTA:
            return any(_binds(name, owner, each) for each in principal.owned_projects())
        case SettingKind.TOKEN:
            return _is_own_token(connection, principal, name)
        case _:
            return False


def _is_own_token(connection: Connection, principal: Principal, id_: str) -> bool:
    """Whether the token is the principal's, and has no more rights than the one it came with."""
    its = schema.tokens.c
    tokens = select(its.domain, its.user, its.project, its.role)
    token = connection.execute(tokens.where(its.id == id_)).first()
    mine = connection.execute(tokens.where(its.id == principal.token)).first()
    if token is None or principal.role is not Role.USER:
        return False
    return (
        (token.domain, token.user) == (principal.owner.domain, principal.owner.user)
        and principal.role.includes(Role(token.role))
        and (mine is None or mine.project in (None, token.project))
    )


def _binds(quota: str, owner: Owner, project: str) -> bool:
    """Whether a quota of this name is about the owner, in this project."""
    own = Owner(owner.domain, project, owner.user)
    level = _LEVELS.get(quota.count("/"))
    if level is None:
        return False
    parts = level.of(own).split("/")
    return all(said in ("*", part) for said, part in zip(quota.split("/"), parts, strict=True))


_LEVELS = dict(enumerate(Level))


def _is_known(connection: Connection, setting: SettingName) -> bool:
    """Whether there is such a setting, or was one."""
    entity = schema.history.c.entity
    if _any(connection, schema.history, entity == str(setting)):
        return True
    table, condition = _STORED[setting.kind](setting.name)
    return _any(connection, table, condition)


def _any(connection: Connection, table: Table, condition: ColumnElement[bool]) -> bool:
    found = select(literal(1)).select_from(table).where(condition).limit(1)
    return connection.execute(found).first() is not None


def _in_domain(table: Table) -> Callable[[str], tuple[Table, ColumnElement[bool]]]:
    def condition(path: str) -> tuple[Table, ColumnElement[bool]]:
        domain, _, name = path.partition("/")
        return table, (table.c.domain == domain) & (table.c.name == name)

    return condition


def _by(column: Any) -> Callable[[str], tuple[Table, ColumnElement[bool]]]:
    return lambda name: (column.table, column == name)


_STORED: dict[SettingKind, Callable[[str], tuple[Table, ColumnElement[bool]]]] = {
    SettingKind.GROUP: _by(schema.groups.c.name),
    SettingKind.USER: _in_domain(schema.users),
    SettingKind.PROJECT: _in_domain(schema.projects),
    SettingKind.QUOTA: _by(schema.quotas.c.name),
    SettingKind.DOMAIN: _by(schema.domains.c.name),
    SettingKind.TOKEN: _by(schema.tokens.c.id),
    SettingKind.JOIN_TOKEN: _by(schema.join_tokens.c.id),
}


def as_seen(reasons: Sequence[Reason], principal: Principal) -> tuple[Reason, ...]:
    """The reasons of a change of a setting as the principal may read them: without the names of
    administrators, and without what only they may read of groups and pools."""
    if principal.is_admin:
        return tuple(reasons)
    return tuple(_as_seen(each, principal) for each in reasons)


def _as_seen(why: Reason, principal: Principal) -> Reason:
    if not isinstance(why, SettingChanged | PoolChangedBy):
        return why
    owner = principal.owner
    if why.by and (why.domain, why.by) != (owner.domain, owner.user):
        why = replace(why, by=SOMEBODY)
    return replace(why, changes=tuple(map(_difference_as_seen, why.changes or ())))


def _difference_as_seen(difference: Difference) -> Difference:
    key, was, is_ = difference
    if key.split(".")[0] in _OF_ADMINS:
        return key, was and HIDDEN, is_ and HIDDEN
    return difference
