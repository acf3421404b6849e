"""Recoveries in SQL."""

from typing import Any

from sqlalchemy import Connection, Row, select

from muster.control.recovery.entity import (
    RECOVERY,
    load_next,
    load_open,
    load_rounds,
    recoveries,
)
from muster.control.recovery.rounds import Round
from muster.core.owner import Principal
from muster.core.states.recovery import RecoveryStatus
from muster.core.views.base import ReasonView
from muster.core.views.projection import view_of
from muster.core.views.recoveries import (
    RecoveryDetail,
    RecoveryPage,
    RecoveryView,
    RoundAgentView,
    RoundView,
)
from muster.store.queries.listing import Listing, listed, owner_view, page_of, reason_view
from muster.store.queries.refs import resolve


def read_recovery(connection: Connection, principal: Principal, ref: str) -> RecoveryView:
    """
    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    return _view(_row(connection, principal, ref))


def read_recovery_detail(connection: Connection, principal: Principal, ref: str) -> RecoveryDetail:
    """A recovery with its last rounds.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    row = _row(connection, principal, ref)
    rounds = [*load_rounds(row.kept)]
    rounds += filter(None, (load_open(row.open), load_next(row.next)))
    return RecoveryDetail(**_fields(row), rounds=tuple(map(_round_view, rounds)))


def list_recoveries(connection: Connection, principal: Principal, listing: Listing) -> RecoveryPage:
    """Recoveries that the principal may see."""
    rows = connection.execute(listed(select(recoveries), RECOVERY, principal, listing)).all()
    items, cursor = page_of(rows, listing, _view)
    return RecoveryPage(items=items, next=cursor)


def _row(connection: Connection, principal: Principal, ref: str) -> Row[Any]:
    id_ = resolve(connection, RECOVERY, principal, ref)
    return connection.execute(select(recoveries).where(recoveries.c.id == id_)).one()


def _view(row: Row[Any]) -> RecoveryView:
    return RecoveryView(**_fields(row))


def _fields(row: Row[Any]) -> dict[str, Any]:
    open_ = load_open(row.open)
    return {
        "id": row.id,
        "job": row.job_id,
        "name": row.name,
        "group": row.group,
        "owner": owner_view(row),
        "status": RecoveryStatus(row.status),
        "status_changed_at": row.status_changed_at,
        "created_at": row.created_at,
        "finished_at": row.finished_at,
        "restarts": row.restarts,
        "rounds_begun": row.rounds,
        "agents": () if open_ is None else tuple(agent.name for agent in open_.agents),
        "gpu_hours_lost": row.lost_gpu_s / 3600,
        "ran_s": row.ran_s,
        "runs_since": row.runs_since,
        "started_at": row.started_at,
        "reason": reason_view(row),
    }


def _round_view(round_: Round) -> RoundView:
    agents = (
        view_of(
            RoundAgentView,
            each,
            agent=each.name,
            agent_id=each.id,
            incident=each.incident or None,
        )
        for each in round_.agents
    )
    outcome = None if round_.outcome is None else ReasonView.of(round_.outcome.reason())
    return view_of(
        RoundView,
        round_,
        why=ReasonView.of(round_.why.reason()),
        outcome=outcome,
        tasks=tuple(task.index for task in round_.tasks),
        attempt=round_.tasks[0].attempt,
        agents=tuple(agents),
        gpus=round_.gpu_milli / 1000,
    )
