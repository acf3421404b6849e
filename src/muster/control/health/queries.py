"""Incidents in SQL."""

from typing import Any

from sqlalchemy import Connection, Row, Select, and_, or_, select

from muster.control.health.entity import INCIDENT, INCIDENTS, Incident, incidents
from muster.control.health.ladder import words
from muster.core.owner import Principal
from muster.core.views.health import IncidentPage, IncidentView
from muster.core.views.projection import view_of
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
    return incident_view(INCIDENTS.load(row), row.job_name)


def incident_view(incident: Incident, job: str | None) -> IncidentView:
    """An incident as people are shown it.

    Args:
        job: the name of the job that found it, if they may see that job.
    """
    heal = incident.heal or incident.progress.last
    return view_of(
        IncidentView,
        incident,
        job=job,
        remedy=incident.progress.remedy,
        heal=None if heal is None else words(heal),
        rounds=incident.progress.rounds,
        unknowns=incident.progress.unknowns,
    )
