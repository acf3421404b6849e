"""The parts of every listing: filters, pages, and columns that each view has."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Column, ColumnElement, Row, Select, Table

from muster.core.errors import InvalidSpec, Problem
from muster.core.owner import Owner, Principal
from muster.core.reasons import ReasonCode
from muster.core.reasons.catalogue import reason_from_json
from muster.core.specs.notify import shown_url
from muster.core.views.base import OwnerView, ReasonView, RecordView
from muster.store.entity import Entity
from muster.store.fields import load_reason
from muster.store.queries.refs import owned_by, visible
from muster.store.sql import one_of

V = TypeVar("V", bound=RecordView)


@dataclass(frozen=True, slots=True)
class Listing:
    """The filters of a listing and the page that is wanted; newest first.

    Args:
        states: only these; None is all.
        name: exactly this, or names that begin with it if the last character is ``*``.
        owner: a user, or domain/project/user.
        cursor: rows before this id only.
        left: the numbers of kernels that hold room still, by the ids of ended jobs.
        with_left: whether these jobs are listed too, whatever the ``states``.
    """

    states: Collection[str] | None = None
    name: str | None = None
    owner: str | None = None
    group: str | None = None
    limit: int = 100
    cursor: str | None = None
    left: Mapping[str, int] = field(default_factory=dict)
    with_left: bool = False


def listed(
    query: Select[Any], entity: Entity[Any], principal: Principal, listing: Listing
) -> Select[Any]:
    """``query`` with a listing's conditions, and one row more than its limit.

    Raises:
        InvalidSpec: the listing filters by a name, an owner or a group, which records of this
            entity do not have.
    """
    table, status = entity.table, entity.table.c.status
    given = {
        "name": (listing.name, "name"),
        "owner": (listing.owner, "user"),
        "group": (listing.group, "group"),
    }
    problems = [
        Problem(key, repr(value), f"a {entity.name} has no {key}: leave it out")
        for key, (value, column) in given.items()
        if value is not None and column not in table.c
    ]
    if problems:
        raise InvalidSpec(problems)
    conditions = visible(entity, principal)
    if listing.states is not None:
        if frozenset(listing.states) <= entity.states.live:
            conditions.append(one_of(status, entity.states.live))  # the partial index of the live
        elif frozenset(listing.states) <= entity.unsuccessful:
            conditions.append(one_of(status, entity.unsuccessful))  # its partial index
        conditions.append(one_of(status, listing.states))
    if listing.name is not None:
        conditions += _named(table.c.name, listing.name)
    if listing.group is not None:
        conditions.append(table.c.group == listing.group)
    if listing.owner is not None:
        conditions.append(_owned(table, listing.owner))
    if listing.cursor is not None:
        conditions.append(table.c.id < listing.cursor)
    return query.where(*conditions).order_by(table.c.id.desc()).limit(listing.limit + 1)


def page_of(
    rows: Sequence[Row[Any]], listing: Listing, view: Callable[[Row[Any]], V]
) -> tuple[tuple[V, ...], str | None]:
    """The views of the rows that ``listed`` found, and the cursor of the next page; None where this
    one is the last."""
    items = tuple(view(row) for row in rows[: listing.limit])
    return items, items[-1].id if len(rows) > listing.limit else None


def _named(column: Column[str], name: str) -> list[ColumnElement[bool]]:
    """The condition on a name as a range rather than a LIKE pattern, so that an index answers
    it."""
    if not name.endswith("*"):
        return [column == name]
    stem = name.removesuffix("*")
    return [column >= stem, column < stem + "~"]


def _owned(table: Table, owner: str) -> ColumnElement[bool]:
    levels = owner.split("/")
    if len(levels) == 3:
        return owned_by(table, Owner(*levels))
    return table.c.user == owner


def owner_of(row: Row[Any]) -> Owner:
    return Owner(row.domain, row.project, row.user)


def owner_view(row: Row[Any]) -> OwnerView:
    return OwnerView.of(owner_of(row))


def spec_view(text: str) -> dict[str, Any]:
    """A stored spec as it is shown: the channels that it names are secrets."""
    spec: dict[str, Any] = json.loads(text)
    if channels := spec.get("notify"):
        spec["notify"] = [each | {"url": shown_url(each["url"])} for each in channels]
    return spec


def spec_cut_view(row: Row[Any]) -> ReasonView | None:
    """Why long values are missing in the stored spec of ended work; None if it is whole."""
    if row.spec_cut is None:
        return None
    return ReasonView.of(reason_from_json(ReasonCode.SPEC_NOT_KEPT, row.spec_cut))


def reason_view(row: Row[Any]) -> ReasonView | None:
    reason = load_reason(row.reason, row.reason_numbers)
    return None if reason is None else ReasonView.of(reason)
