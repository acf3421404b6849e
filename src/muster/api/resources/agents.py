"""Agents over HTTP."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from anyio import to_thread
from fastapi import Query, Request
from pydantic import AfterValidator, StringConstraints
from starlette.responses import Response

from muster.api.answers import answer, json_answer
from muster.api.bodies import read_spec
from muster.api.context import Call, Caller
from muster.api.live_views import agent_view
from muster.api.openapi import json_body
from muster.api.resource import Resource
from muster.control.agent.explanation import explain_agent, explain_removed_agent
from muster.control.agent.requests import AgentRequests
from muster.control.engine.module import Parts
from muster.control.health.explanation import health_of
from muster.control.health.incidents import Incidents
from muster.control.pool.explanation import kept_until
from muster.control.pool.records import Slice
from muster.control.session.cluster.state import ClusterState
from muster.control.session.explaining.on_agent import kernels_on
from muster.core.errors import NotFound, Problem
from muster.core.ids import AgentId
from muster.core.owner import Principal
from muster.core.specs.amounts import Duration, Flag, Spec
from muster.core.specs.pool import SLICE
from muster.core.states import AgentBar
from muster.core.views.cluster import AgentPage, AgentView, HeldKernelPage
from muster.core.views.placement import WhyView
from muster.store.entities import AGENT
from muster.store.live import Live
from muster.store.queries.agents import read_agent
from muster.store.queries.refs import resolve
from muster.store.records import Agent

OnAgent = Annotated[
    str | None,
    Query(description="work that holds room of this agent now, by its name or id", max_length=64),
]
AGENTS_AT_ONCE = 100
"""Agents that are described before other work gets its turn."""


def _explain(live: Live, parts: Parts, id_: str, now: float, asker: Principal) -> WhyView:
    incident = parts[Incidents].of(AgentId(id_))
    health = None if incident is None else health_of(live, parts, incident, now)
    guard = parts[ClusterState].guard
    slice_ = live.of(Slice).get(live.agents[AgentId(id_)].fixed.get(SLICE, ""))
    until = None if slice_ is None else kept_until(slice_)
    return explain_agent(live, guard, AgentId(id_), now, asker, health, until)


AGENTS: Resource[Agent, AgentView] = Resource(
    entity=AGENT,
    path="/v1/agents",
    view=AgentView,
    page=AgentPage,
    view_of=lambda agent, live, parts: agent_view(agent, live, parts),
    read=read_agent,
    explain=_explain,
    explain_ended=explain_removed_agent,
)


@AGENTS.router.get("", response_model=AgentPage)
async def get_agents(call: Call, group: str | None = None) -> Response:
    """Agents by name, with their free resources."""
    plane = call.api.plane
    if group is not None:
        plane.live.group(group)
    wanted = [a for a in plane.live.agents.values() if group is None or a.group == group]
    wanted.sort(key=lambda agent: agent.name)
    views: list[AgentView] = []
    for start in range(0, len(wanted), AGENTS_AT_ONCE):
        for agent in wanted[start : start + AGENTS_AT_ONCE]:
            current = plane.live.agents.get(agent.id)
            if current is not None:
                views.append(agent_view(current, plane.live, plane.parts))
        await asyncio.sleep(0)
    page = AgentPage(items=tuple(views))
    return json_answer(await to_thread.run_sync(msgspec.json.encode, page))


@AGENTS.router.get("/{ref}/kernels", response_model=HeldKernelPage)
async def get_agent_kernels(call: Call, ref: str) -> Response:
    """The kernels that hold room of an agent, with the work that they are of; those of others,
    which the caller may not see, are counted."""
    id_ = AgentId(await call.read(resolve, AGENT, call.principal, ref))
    found = kernels_on(call.api.plane.live, id_, call.principal)
    page = HeldKernelPage(
        items=tuple(found.seen), others=found.others, other_gpu_milli=found.other_gpu_milli
    )
    return json_answer(await to_thread.run_sync(msgspec.json.encode, page))


async def on_agent(call: Call, agent: OnAgent = None) -> Mapping[str, Any]:
    """The filter of listings of work by the agent on which it holds room now."""
    if agent is None:
        return {}
    id_ = await agent_of(call, agent)
    live = call.api.plane.live
    rows = live.allocations_on.get(id_, {}).values()
    work = (live.work_of(row.kernel_id) for row in rows if row.charged)
    return {"ids": frozenset(filter(None, work))}


@AGENTS.router.delete("/{ref}", status_code=204)
async def delete_agent(call: Call, ref: str, lost: bool = False) -> Response:
    """Forget an agent that is gone for good; for admins. With ``lost`` they vouch that its machine
    is gone or was rebooted: what it may still run counts as lost."""
    call.must_be_admin("remove agents")
    id_, principal = await agent_of(call, ref), call.principal
    await call.change(
        lambda work, parts: parts[AgentRequests].remove(work, principal, id_, lost=lost)
    )
    return Response(status_code=204)


async def agent_of(call: Caller, ref: str) -> AgentId:
    """
    Raises:
        NotFound: there is no such agent, or none any more.
    """
    id_ = AgentId(await call.read(resolve, AGENT, call.principal, ref))
    if id_ not in call.api.plane.live.agents:
        raise NotFound(f"agent {ref!r} was removed already")
    return id_


def _line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("expected one line of text")
    return text


Note = Annotated[str, StringConstraints(max_length=200), AfterValidator(_line)]


class BarSpec(Spec):
    """The reason for which an agent is to take no new work; null has it take work again.

    ``note`` is an explanation for people; an agent that is cordoned or draining already keeps its
    note where none is given. Kernels that still run on a draining agent after ``deadline`` are
    stopped, to run elsewhere; without a deadline they run to their end. With ``keep_deadline`` an
    agent that is draining already keeps its deadline instead.
    """

    bar: Literal["cordoned", "draining"] | None
    note: Note = ""
    deadline: Duration | None = None
    keep_deadline: Flag = False

    def contradictions(self) -> Iterator[Problem]:
        if self.deadline is not None and self.bar != "draining":
            yield Problem("deadline", "", "this is for agents that are drained")


@AGENTS.router.post("/{ref}/bar", response_model=AgentView, openapi_extra=json_body(BarSpec))
async def bar_agent(request: Request, call: Call, ref: str) -> Response:
    """Have an agent take no new work, or take work again; for admins."""
    call.must_be_admin("cordon or drain agents")
    spec = await read_spec(request, BarSpec)
    principal, plane = call.principal, call.api.plane
    id_ = await agent_of(call, ref)
    bar = AgentBar(spec.bar) if spec.bar is not None else None
    note = spec.note if "note" in spec.model_fields_set else None
    await call.change(
        lambda work, parts: parts[AgentRequests].bar(
            work, principal, id_, bar, note, spec.deadline, keeps_deadline=spec.keep_deadline
        )
    )
    agent = plane.live.agents.get(id_)
    if agent is None:
        raise NotFound(f"agent {ref!r} was removed meanwhile")
    return answer(agent_view(agent, plane.live, plane.parts))
