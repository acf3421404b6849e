"""Incidents in SQL."""

from typing import Any

from sqlalchemy import Connection, Row, Select, and_, or_, select

from muster.control.health.entity import INCIDENT, Incident, incidents, load_incident
from muster.core.owner import Principal
from muster.core.views.base import ReasonView
from muster.core.views.health import CheckView, IncidentPage, IncidentView
from muster.store import schema
from muster.store.entities import JOB
from muster.store.queries.listing import Listing, listed, page_of
from muster.store.queries.refs import resolve, visible


def read_incident(connection: Connection, principal: Principal, ref: str) -> IncidentView:
    """
    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    id_ = resolve(connection, INCIDENT, principal, ref)
    query = _with_job(principal).where(incidents.c.id == id_)
    return _view(connection.execute(query).one())


def list_incidents(
    connection: Connection, principal: Principal, listing: Listing, *, agent: str | None = None
) -> IncidentPage:
    """Incidents, of the agents with this name or id if it is given."""
    query = _with_job(principal)
    if agent is not None:
        query = query.where(or_(incidents.c.agent == agent, incidents.c.agent_id == agent))
    rows = connection.execute(listed(query, INCIDENT, principal, listing)).all()
    items, cursor = page_of(rows, listing, _view)
    return IncidentPage(items=items, next=cursor)


def _with_job(principal: Principal) -> Select[Any]:
    """Incidents, with the names of the jobs that found them where the principal may see those."""
    jobs = schema.jobs
    seen = and_(jobs.c.id == incidents.c.job_id, *visible(JOB, principal))
    named = select(*incidents.c, jobs.c.name.label("job_name"))
    return named.select_from(incidents.outerjoin(jobs, seen))


def _view(row: Row[Any]) -> IncidentView:
    return view_of(load_incident(row), row.job_name)


def view_of(incident: Incident, job: str | None) -> IncidentView:
    """An incident as people are shown it.

    Args:
        job: the name of the job that found it, if they may see that job.
    """
    heal = incident.heal or incident.progress.last
    return IncidentView(
        id=incident.id,
        agent=incident.agent,
        agent_id=incident.agent_id,
        group=incident.group,
        status=incident.status,
        status_changed_at=incident.status_changed_at,
        why=ReasonView.of(incident.why),
        reason=None if incident.reason is None else ReasonView.of(incident.reason),
        devices=incident.devices,
        confirmed=incident.confirmed,
        is_out=incident.is_out,
        job=job,
        remedy=incident.progress.remedy,
        heal=None if heal is None else heal.name.lower().replace("_", " "),
        rounds=incident.progress.rounds,
        unknowns=incident.progress.unknowns,
        leave_by=incident.leave_by,
        checks=tuple(
            CheckView(
                at=each.at,
                result=each.result,
                sentence=each.sentence,
                took_s=each.took_s,
                rest=each.rest,
            )
            for each in incident.checks
        ),
        began_at=incident.began_at,
        finished_at=incident.finished_at,
    )
