"""The last decision about a group's demand, entry by entry: for people, and for the log."""

import logging
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from muster.autoscaling.decision import RoutingDecision
from muster.autoscaling.demand import TO_COME
from muster.autoscaling.modelled import Destination
from muster.control.pool.outlook import GroupOutlook
from muster.core.ids import SessionId
from muster.core.owner import Principal
from muster.core.views.pools import EntryView, PendingView
from muster.store.live import Live
from muster.store.records import Session

log = logging.getLogger(__name__)

MAX_ENTRIES = 200
"""Entries that are shown."""
MAX_TASKS = 20
"""Tasks of an entry that are named."""
MAX_SLICES = 20
"""Slices of an entry that are named."""
MOST_LOOKED_AT = 500
"""Entries of a decision that are looked at for the log, the first in the queue."""
MOST_UNMET = 50
"""Classes of unmet demand that are looked at for the log."""
MOST_POOLS = 5
"""Pools whose reasons are logged for each of them, those first that have the machines."""
MOST_LOGGED = 100
"""Lines of one kind that a decision logs; another line counts the others."""
BOUND = {"most_of_kind": 1_000}
"""The bound on what the log of the process keeps in a minute of one kind of line of one group: more
than of others, because these are the record of what was decided and why."""
_WHY = {
    Destination.FREE: "agents have room for it, and its turn has to come",
    Destination.COMING: "the slice is coming and has room for it",
    Destination.LAUNCH: "no agent or slice in flight has room: the first pool by rank makes one",
}


class _Entry(NamedTuple):
    """An entry with its destination."""

    session: SessionId
    destination: Destination
    pool: str | None
    slices: tuple[str, ...]


def _entries(outlook: GroupOutlook, pool_of: Mapping[str, str]) -> Iterator[_Entry]:
    for routed in outlook.decision.routed:
        session = routed.entry.session
        if session != TO_COME:
            slices = outlook.slices_for(session)
            pool = pool_of.get(slices[0]) or slices[0].rpartition("+")[0] if slices else None
            yield _Entry(session, routed.destination, pool, slices)


def entry_views(
    outlook: GroupOutlook, live: Live, pool_of: Mapping[str, str], asker: Principal
) -> tuple[tuple[EntryView, ...], int]:
    """The first entries that the asker may see, and how many others there are.

    Args:
        pool_of: the pool of each slice that exists.
    """
    found, others = list[EntryView](), 0
    for entry in _entries(outlook, pool_of):
        session = live.sessions.get(entry.session)
        if session is None or not asker.may_see(session.owner) or len(found) == MAX_ENTRIES:
            others += 1
            continue
        view = EntryView(
            session=entry.session,
            tasks=_tasks(session),
            destination=entry.destination,
            pool=entry.pool,
            slices=entry.slices[:MAX_SLICES],
            other_slices=max(0, len(entry.slices) - MAX_SLICES),
            why=_WHY[entry.destination],
        )
        found.append(view)
    return tuple(found), others


def _tasks(session: Session) -> tuple[str, ...]:
    """The ids of the session's tasks, the first ones."""
    if session.job is None:
        return ()
    indexes = [kernel.task_index for kernel in session.kernels[:MAX_TASKS]]
    return tuple(f"{session.job.id}/{index}" for index in indexes if index is not None)


def pending_views(decision: RoutingDecision, pool_of: Mapping[str, str]) -> tuple[PendingView, ...]:
    """The slices in flight by pool, with the number of entries that are routed to them."""
    entries: dict[str, int] = {}
    for routed in decision.routed:
        names = (kernel.agent_id.rpartition("/")[0] for kernel in routed.kernels)
        pools = {pool_of.get(name) or name.rpartition("+")[0] for name in names}
        for pool in pools if routed.destination is not Destination.FREE else ():
            entries[pool] = entries.get(pool, 0) + 1
    return tuple(
        PendingView(
            pool=each.pool,
            slices=each.slices,
            machines=each.machines,
            entries=entries.get(each.pool, 0),
            remaining=each.remaining.describe(),
        )
        for each in decision.pending()
    )


class DecisionLog:
    """The lines that were logged about one group's decisions: each is logged when it is news."""

    def __init__(self) -> None:
        self._logged: dict[str, frozenset[str]] = {}
        self._counts: tuple[int, ...] = ()

    def note(self, group: str, outlook: GroupOutlook, pool_of: Mapping[str, str]) -> bool:
        """Log what is new in a decision; whether it differs from the one before."""
        before = dict(self._logged), self._counts
        decision = outlook.decision
        self._counts = len(decision.routed), len(decision.unmet), len(decision.withheld)
        self._log("entry", group, self._of_entries(outlook, pool_of))
        self._log("unmet", group, self._of_unmet(outlook))
        self._log("withheld", group, self._of_withheld(outlook))
        if outlook.decision.launches or self._logged.get("pending"):
            views = pending_views(outlook.decision, pool_of)
            lines = (
                f"pool={each.pool} slices={each.slices} machines={each.machines} "
                f"entries={each.entries} remaining={each.remaining!r}"
                for each in views
            )
            self._log("pending", group, lines)
        return before != (self._logged, self._counts)

    def _of_entries(self, outlook: GroupOutlook, pool_of: Mapping[str, str]) -> Iterator[str]:
        for each in islice(_entries(outlook, pool_of), MOST_LOOKED_AT):
            slices = ",".join(each.slices[:MAX_SLICES]) or "-"
            why = _WHY[each.destination]
            yield f"session={each.session} pool={each.pool or '-'} slice={slices} why={why!r}"

    def _of_unmet(self, outlook: GroupOutlook) -> Iterator[str]:
        for each in outlook.decision.unmet[:MOST_UNMET]:
            for pool, reasons in each.why.some(MOST_POOLS).items():
                for why in reasons:
                    numbers = why.numbers()
                    yield f"session={each.first} pool={pool} code={why.code} numbers={numbers}"

    def _of_withheld(self, outlook: GroupOutlook) -> Iterator[str]:
        for each in outlook.decision.withheld[:MOST_UNMET]:
            for why in each.reasons:
                numbers = why.numbers()
                yield f"session={each.first} sessions={each.sessions} code={why.code} {numbers}"

    def _log(self, kind: str, group: str, lines: Iterator[str]) -> None:
        """Log the lines of one kind that were not in the last decision."""
        now = dict.fromkeys(lines)
        before = self._logged.get(kind, frozenset())
        news = [line for line in now if line not in before]
        self._logged[kind] = frozenset(now)
        message = f"autoscaler {kind} group={group} %s"  # each kind and group is bounded by itself
        for line in news[:MOST_LOGGED]:
            log.info(message, line, extra=BOUND)
        if len(news) > MOST_LOGGED:
            log.info(message, f"and {len(news) - MOST_LOGGED} more", extra=BOUND)
