"""Deployments and routes in SQL."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, func, select

from muster.control.deployment.entity import (
    DEPLOYMENT,
    ROUTE,
    deployments,
    load_revisions,
    load_rollout,
    routes,
)
from muster.control.deployment.revisions import Revision
from muster.core.owner import Principal
from muster.core.specs import SessionType
from muster.core.specs.deployment import DeploymentSpec
from muster.core.states.deployment import (
    ROUTE_TABLE,
    UP,
    EndpointLifecycle,
    RouteStatus,
    Unready,
    unready,
)
from muster.core.views.deployments import (
    DeploymentDetail,
    DeploymentPage,
    DeploymentView,
    RevisionView,
    RolloutView,
    RoutePage,
    RouteView,
)
from muster.core.views.projection import view_of
from muster.serving.rollout import Rollout, weights_of
from muster.store import schema
from muster.store.queries.listing import (
    Listing,
    listed,
    owner_view,
    page_of,
    reason_view,
    spec_cut_view,
)
from muster.store.queries.refs import resolve
from muster.store.sql import one_of

MAX_ROUTES = 1000
"""Routes that are shown with their deployment."""


def is_replica() -> ColumnElement[bool]:
    """Whether a session is one that a route handed in."""
    sessions = schema.sessions.c
    handed_in = select(routes.c.session_id).where(routes.c.session_id.is_not(None))
    return and_(sessions.type == SessionType.INFERENCE, sessions.id.in_(handed_in))


def read_deployment(connection: Connection, principal: Principal, ref: str) -> DeploymentView:
    """
    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    return _views(connection, [_row(connection, principal, ref)])[0]


def read_deployment_detail(
    connection: Connection, principal: Principal, ref: str
) -> DeploymentDetail:
    """A deployment with its revisions and its live routes.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    row = _row(connection, principal, ref)
    live = (
        select(routes)
        .where(routes.c.deployment_id == row.id, one_of(routes.c.status, ROUTE_TABLE.live))
        .order_by(routes.c.id.desc())
        .limit(MAX_ROUTES)
    )
    return DeploymentDetail(
        **_fields(row, _counts(connection, [row.id])),
        spec=json.loads(row.spec),
        spec_cut=spec_cut_view(row),
        revisions=tuple(view_of(RevisionView, each) for each in load_revisions(row.revisions)),
        routes=tuple(map(_route_view, connection.execute(live))),
    )


def list_deployments(
    connection: Connection, principal: Principal, listing: Listing
) -> DeploymentPage:
    """Deployments that the principal may see."""
    rows = connection.execute(listed(select(deployments), DEPLOYMENT, principal, listing)).all()
    counts = _counts(connection, [row.id for row in rows])
    items, cursor = page_of(rows, listing, lambda row: DeploymentView(**_fields(row, counts)))
    return DeploymentPage(items=items, next=cursor)


def read_route(connection: Connection, principal: Principal, ref: str) -> RouteView:
    """
    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    id_ = resolve(connection, ROUTE, principal, ref)
    return _route_view(connection.execute(select(routes).where(routes.c.id == id_)).one())


def list_routes(
    connection: Connection, principal: Principal, listing: Listing, of: str | None = None
) -> RoutePage:
    """Routes that the principal may see, of one deployment if ``of`` names one.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    query = listed(select(routes), ROUTE, principal, listing)
    if of is not None:
        query = query.where(
            routes.c.deployment_id == resolve(connection, DEPLOYMENT, principal, of)
        )
    items, cursor = page_of(connection.execute(query).all(), listing, _route_view)
    return RoutePage(items=items, next=cursor)


def _row(connection: Connection, principal: Principal, ref: str) -> Row[Any]:
    id_ = resolve(connection, DEPLOYMENT, principal, ref)
    return connection.execute(select(deployments).where(deployments.c.id == id_)).one()


_Counts = dict[str, list[tuple[RouteStatus, bool, int]]]
"""Of deployments, how many live routes there are by status, and by whether they were healthy."""


def _counts(connection: Connection, ids: list[str]) -> _Counts:
    counts: _Counts = {}
    if not ids:
        return counts
    served = routes.c.good_at.is_not(None)
    found = connection.execute(
        select(routes.c.deployment_id, routes.c.status, served, func.count())
        .where(routes.c.deployment_id.in_(ids), one_of(routes.c.status, ROUTE_TABLE.live))
        .group_by(routes.c.deployment_id, routes.c.status, served)
    )
    for id_, status, has_served, count in found:
        counts.setdefault(id_, []).append((RouteStatus(status), bool(has_served), count))
    return counts


def unready_counts(counts: Iterable[tuple[RouteStatus, bool, int]]) -> dict[str, int]:
    """How many routes are not healthy, by the way in which they are not.

    Args:
        counts: numbers of routes by status, and by whether they were ever healthy.
    """
    found: Counter[str] = Counter()
    for status, served, count in counts:
        if (how := unready(status, served=served)) is not None:
            found[how] += count
    return {how: found[how] for how in Unready if found[how]}


def _views(connection: Connection, rows: list[Row[Any]]) -> list[DeploymentView]:
    counts = _counts(connection, [row.id for row in rows])
    return [DeploymentView(**_fields(row, counts)) for row in rows]


def _fields(row: Row[Any], counts: _Counts) -> dict[str, Any]:
    of = counts.get(row.id, [])
    rollout = None
    if row.rollout is not None:
        rollout = rollout_view(
            load_rollout(row.rollout),
            DeploymentSpec.stored(row.spec),
            row.replicas,
            load_revisions(row.revisions),
        )
    return {
        "id": row.id,
        "name": row.name,
        "host": row.host,
        "group": row.group,
        "owner": owner_view(row),
        "status": EndpointLifecycle(row.status),
        "status_changed_at": row.status_changed_at,
        "created_at": row.created_at,
        "finished_at": row.finished_at,
        "revision": row.revision,
        "stable": row.stable,
        "replicas": row.replicas,
        "up": sum(count for status, _, count in of if status in UP),
        "healthy": sum(count for status, _, count in of if status is RouteStatus.HEALTHY),
        "unready": unready_counts(of),
        "rollout": rollout,
        "reason": reason_view(row),
    }


def rollout_view(
    rollout: Rollout, spec: DeploymentSpec, replicas: int, revisions: Sequence[Revision]
) -> RolloutView:
    """The update under way, as people see it."""
    weights = weights_of(rollout, spec.update, replicas)
    return RolloutView(
        from_revision=rollout.from_revision,
        to_revision=rollout.to_revision,
        strategy=spec.update.strategy,
        step=rollout.step,
        weights={str(number): part for number, part in weights.items()},
        failed_starts=rollout.failed_starts,
        progress_at=rollout.progress_at,
        paused_at=rollout.paused_at,
        of=next((each.of for each in revisions if each.number == rollout.to_revision), None),
    )


def _route_view(row: Row[Any]) -> RouteView:
    return view_of(
        RouteView,
        row,
        deployment=row.deployment_id,
        session=row.session_id,
        reason=reason_view(row),
    )
