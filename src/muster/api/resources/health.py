"""Incidents over HTTP, and operators' decisions about the health of machines."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from starlette.responses import Response

from muster.api.answers import answer
from muster.api.bodies import read_spec
from muster.api.context import Call
from muster.api.openapi import json_body
from muster.api.resource import Resource
from muster.api.resources.agents import AGENTS, Note, agent_of
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.health.entity import INCIDENT, Incident, name_of
from muster.control.health.explanation import explain_ended_incident, explain_incident
from muster.control.health.queries import list_incidents, read_incident
from muster.control.health.requests import HealthDecision, HealthRequests
from muster.core.owner import Principal
from muster.core.specs.amounts import Spec
from muster.core.views.health import IncidentPage, IncidentView
from muster.core.views.placement import WhyView
from muster.store.live import Live


def _explain(live: Live, parts: Parts, name: str, now: float, asker: Principal) -> WhyView:
    return explain_incident(live, parts, live.of(Incident)[name], now)


def _filters(
    agent: Annotated[
        str | None, Query(description="of this agent, by its name or id", max_length=64)
    ] = None,
) -> Mapping[str, Any]:
    return {"agent": agent}


INCIDENTS: Resource[Incident, IncidentView] = Resource(
    entity=INCIDENT,
    path="/v1/incidents",
    view=IncidentView,
    page=IncidentPage,
    read=read_incident,
    list_of=list_incidents,
    filters=_filters,
    name_of=lambda incident: name_of(incident.id, incident.agent_id),
    explain=_explain,
    explain_ended=explain_ended_incident,
)


class DecisionSpec(Spec):
    """A decision about a machine, which outranks every check: to have it checked, to have it healed
    as a faulty one is, to isolate it until another decision, or to have it take work again.

    ``note`` is an explanation for people, which history keeps.
    """

    decision: Literal["check", "heal", "isolate", "return"]
    note: Note = ""


@AGENTS.router.post(
    "/{ref}/health", response_model=IncidentView, openapi_extra=json_body(DecisionSpec)
)
async def decide(request: Request, call: Call, ref: str) -> Response:
    """Decide about the health of a machine; for admins. The answer is its incident."""
    call.must_be_admin("decide about the health of machines")
    spec = await read_spec(request, DecisionSpec)
    principal, id_ = call.principal, await agent_of(call, ref)

    def act(work: Work, parts: Parts) -> Incident:
        decision = HealthDecision(spec.decision)
        return parts[HealthRequests].decide(work, principal, id_, decision, spec.note)

    incident = await call.change(act)
    return answer(await call.read(read_incident, principal, incident.id))
