"""The last decision about each group's demand, as it is stored: a row for each group with pools.
People are answered from it until a controller that has started decides itself (design:
Autoscaling)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from msgspec.structs import replace
from sqlalchemy import Column, Connection, Float, String, Table, Text, select

from muster.control.engine.work import Work
from muster.control.pool.decisions import decision_view
from muster.control.pool.outlook import GroupOutlook
from muster.core.ids import SessionId
from muster.core.owner import Owner, Principal, Role
from muster.core.views.pools import DecisionView, ShapeView
from muster.store import schema
from muster.store.batch import deleting, inserting
from muster.store.live import Live
from muster.store.lookup import Lookup
from muster.store.unit import Unit

MAX_BYTES = 128 * 1024
"""Of a stored decision; one that is larger names fewer entries and shapes."""
STORE_S = 1.0
"""The time from one stored decision of a group until the next, at least."""
STORE_S_AN_ENTRY = 2e-4
"""By so much that time grows with each entry: to sum up one takes some 10 us."""
_EVERYTHING = Principal(Owner("", "", ""), Role.ADMIN)
"""Sees all: whose work is whose is looked up when somebody asks."""

group_decisions = Table(
    "group_decisions",
    schema.metadata,
    Column("group", String, primary_key=True),
    Column("decided_at", Float, nullable=False),
    Column("decision", Text, nullable=False),  # JSON, as DecisionView
)

_STORE = inserting(group_decisions, ("group", "decided_at", "decision"))
_FORGET = deleting(group_decisions, ("group",))
_ALL = Lookup(select(group_decisions))


class StoredDecision(NamedTuple):
    """A decision, and when it was made."""

    decided_at: float
    view: DecisionView


@dataclass(slots=True)
class DecisionKeeper:
    """Has the decisions about one group stored: each that differs from the one before, unless the
    next one comes soon.

    Args:
        stored_at: when one was stored last.
        is_due: whether one is to be stored.
    """

    stored_at: float = float("-inf")
    is_due: bool = True

    def note(
        self,
        group: str,
        outlook: GroupOutlook,
        pool_of: Mapping[str, str],
        work: Work,
        *,
        new: bool,
    ) -> float | None:
        """Have the last decision stored, if there is a ``new`` one; when it is to be looked at
        again for that, None if it need not be."""
        self.is_due = self.is_due or new
        if not self.is_due:
            return None
        pause_s = max(STORE_S, len(outlook.decision.routed) * STORE_S_AN_ENTRY)
        if work.now < self.stored_at + pause_s:
            return self.stored_at + pause_s
        self.stored_at, self.is_due = work.now, False
        view = decision_view(outlook, work.live, pool_of, _EVERYTHING)
        _store(work.unit, group, StoredDecision(outlook.decided_at, view))
        return None


def _store(unit: Unit, group: str, stored: StoredDecision) -> None:
    forget_decision(unit, group)
    text = msgspec.json.encode(_bounded(stored.view)).decode()
    unit.also_rows(_STORE, (group, stored.decided_at, text))


def forget_decision(unit: Unit, group: str) -> None:
    """Have no decision stored of a group: its last pool is gone."""
    unit.also_rows(_FORGET, (group,))


def _bounded(view: DecisionView) -> DecisionView:
    """The decision with as many entries and shapes as there is room for."""
    for names in ("entries", "unmet", "withheld", "routed", "pending"):
        while (told := getattr(view, names)) and len(msgspec.json.encode(view)) > MAX_BYTES:
            kept = told[: len(told) // 2]
            others = f"other_{names}"
            left_out = {others: getattr(view, others) + len(told) - len(kept)}
            view = replace(view, **{names: kept}, **(left_out if hasattr(view, others) else {}))
    return view


def read_decisions(connection: Connection) -> Mapping[str, StoredDecision]:
    """The stored decisions by group; one that cannot be read is left out, as another follows."""
    found = {}
    for row in _ALL.named(connection):
        try:
            view = msgspec.json.decode(row.decision, type=DecisionView)
        except msgspec.DecodeError:
            continue  # of another version
        found[row.group] = StoredDecision(row.decided_at, view)
    return found


def seen_by(asker: Principal, view: DecisionView, live: Live) -> DecisionView:
    """A stored decision as the asker may see it: sessions of others, and such as are there no more,
    are named to admins alone."""

    def may_see(id_: str | None) -> bool:
        session = live.sessions.get(SessionId(id_ or ""))
        return asker.is_admin or (session is not None and asker.may_see(session.owner))

    def seen(shape: ShapeView) -> ShapeView:
        return shape if may_see(shape.first) else replace(shape, first=None)

    entries = tuple(each for each in view.entries if may_see(each.session))
    withheld = tuple(each for each in view.withheld if may_see(each.shape.first))
    return replace(
        view,
        routed=tuple(replace(each, shape=seen(each.shape)) for each in view.routed),
        unmet=tuple(replace(each, shape=seen(each.shape)) for each in view.unmet),
        withheld=withheld,
        other_withheld=view.other_withheld + len(view.withheld) - len(withheld),
        entries=entries,
        other_entries=view.other_entries + len(view.entries) - len(entries),
    )
