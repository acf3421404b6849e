"""Sessions and their kernels as the API tells them."""

from collections.abc import Collection
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Select, not_, select

from muster.core.owner import Principal
from muster.core.views.projection import view_of
from muster.core.views.work import KernelView, SessionDetail, SessionPage, SessionView, ShareView
from muster.store import schema
from muster.store.entities import SESSION
from muster.store.queries.listing import (
    Listing,
    listed,
    owner_view,
    page_of,
    reason_view,
    spec_cut_view,
    spec_view,
)
from muster.store.queries.refs import resolve
from muster.store.sql import one_of
from muster.store.stored_values import load_list, load_shares

_WITHOUT_SPEC = [column for column in schema.sessions.c if column is not schema.sessions.c.spec]


def list_sessions(
    connection: Connection,
    principal: Principal,
    listing: Listing,
    *,
    of_jobs: bool,
    but: ColumnElement[bool] | None = None,
    ids: Collection[str] | None = None,
) -> SessionPage:
    """Sessions without a job; with ``of_jobs`` the sessions of jobs too. Those for which ``but``
    holds are left out, and all but those with these ``ids``, if they are given."""
    query = listed(select(*_WITHOUT_SPEC), SESSION, principal, listing)
    if not of_jobs:
        query = query.where(schema.sessions.c.job_id.is_(None))
    if ids is not None:
        query = query.where(one_of(schema.sessions.c.id, ids))
    if but is not None:
        query = query.where(not_(but))
    rows = connection.execute(query).all()
    items, cursor = page_of(rows, listing, _view)
    return SessionPage(items=items, next=cursor)


def read_session(connection: Connection, principal: Principal, ref: str) -> SessionView:
    """One session.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    id_ = resolve(connection, SESSION, principal, ref)
    row = connection.execute(select(*_WITHOUT_SPEC).where(schema.sessions.c.id == id_)).one()
    return _view(row)


def read_session_detail(connection: Connection, principal: Principal, ref: str) -> SessionDetail:
    """One session, with its kernels.

    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    sessions, kernels = schema.sessions, schema.kernels
    id_ = resolve(connection, SESSION, principal, ref)
    row = connection.execute(select(sessions).where(sessions.c.id == id_)).one()
    members = kernels_with_agents().where(kernels.c.session_id == id_).order_by(kernels.c.idx)
    return SessionDetail(
        **msgspec.structs.asdict(_view(row)),
        kernels=tuple(kernel_view(kernel) for kernel in connection.execute(members)),
        spec={"name": row.name} | spec_view(row.spec) if row.spec else None,
        spec_cut=spec_cut_view(row),
    )


def kernels_with_agents() -> Select[Any]:
    """Kernels, each with the name of its agent as ``agent_name``."""
    kernels, agents = schema.kernels, schema.agents
    joined = kernels.outerjoin(agents, agents.c.id == kernels.c.agent_id)
    return select(kernels, agents.c.name.label("agent_name")).select_from(joined)


def kernel_view(row: Row[Any]) -> KernelView:
    """The view of a kernel, of a row of ``kernels_with_agents``."""
    devices = (
        ShareView(index=share.index, share=share.milli / 1000) for share in load_shares(row.devices)
    )
    return view_of(
        KernelView,
        row,
        index=row.idx,
        agent=row.agent_name,
        devices=tuple(devices),
        ports=load_list(row.ports),
        reason=reason_view(row),
    )


def _view(row: Row[Any]) -> SessionView:
    return view_of(SessionView, row, owner=owner_view(row), reason=reason_view(row))
