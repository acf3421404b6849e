"""Agents that take no new work, over HTTP."""

from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import AfterValidator, StringConstraints
from starlette.responses import Response

from muster.api.answers import answer
from muster.api.bodies import read_spec
from muster.api.context import Call
from muster.api.live_views import agent_view
from muster.control.agent.requests import AgentRequests
from muster.control.session.cluster.state import ClusterState
from muster.core.errors import NotFound, Problem
from muster.core.ids import AgentId
from muster.core.specs.amounts import Duration, Spec
from muster.core.states import AgentBar
from muster.core.views.cluster import AgentView
from muster.store.entities import AGENT
from muster.store.queries.refs import resolve

router = APIRouter(prefix="/v1/agents", tags=["cluster"])


def _line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("expected one line of text")
    return text


Note = Annotated[str, StringConstraints(max_length=200), AfterValidator(_line)]


class BarSpec(Spec):
    """The reason for which an agent is to take no new work; null has it take work again.

    ``note`` is an explanation for people. Kernels that still run on a draining agent after
    ``deadline`` are stopped, to run elsewhere; without a deadline they run to their end.
    """

    bar: Literal["cordoned", "draining"] | None
    note: Note = ""
    deadline: Duration | None = None

    def contradictions(self) -> Iterator[Problem]:
        if self.deadline is not None and self.bar != "draining":
            yield Problem("deadline", "", "this is for agents that are drained")


_BODY = {"application/json": {"schema": BarSpec.model_json_schema()}}


@router.post(
    "/{ref}/bar",
    response_model=AgentView,
    openapi_extra={"requestBody": {"required": True, "content": _BODY}},
)
async def bar_agent(request: Request, call: Call, ref: str) -> Response:
    """Have an agent take no new work, or take work again; for admins."""
    call.must_be_admin("cordon or drain agents")
    spec = await read_spec(request, BarSpec)
    principal, plane = call.principal, call.api.plane
    id_ = AgentId(await call.read(resolve, AGENT, principal, ref))
    bar = AgentBar(spec.bar) if spec.bar is not None else None
    await call.change(
        lambda work, parts: parts[AgentRequests].bar(
            work, principal, id_, bar, spec.note, spec.deadline
        )
    )
    agent = plane.live.agents.get(id_)
    if agent is None:
        raise NotFound(f"agent {ref!r} was removed meanwhile")
    return answer(agent_view(agent, plane.live, plane.parts[ClusterState]))
