"""Waiting over HTTP until one of several pieces of work is over, whatever their kinds."""

import asyncio
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from muster.api.answers import answer
from muster.api.bodies import read_spec
from muster.api.context import Call, Caller
from muster.api.openapi import json_body
from muster.api.resource import Resource
from muster.core.errors import NotFound, nothing_named
from muster.core.specs.work import WaitSpec
from muster.core.views.work import WaitedView, WaitView

LOOK_S = 0.5
"""How often a deployment is looked at: it is over by what became of its replicas, whose changes are
not its own."""


class _Waited(msgspec.Struct, frozen=True):
    """A record that a reference of the request means."""

    id: str
    resource: Resource[Any, Any]


@cache
def wait_router(resources: tuple[Resource[Any, Any], ...]) -> APIRouter:
    """The endpoint that waits for records of those resources that people hand in."""
    among = [each for each in resources if each.submission is not None]
    router = APIRouter(prefix="/v1/wait", tags=["jobs"])

    @router.post("", response_model=WaitView, openapi_extra=json_body(WaitSpec))
    async def wait_for_work(request: Request, call: Call) -> Response:
        """The jobs, sessions and deployments, each with whether it is over, once any is, or at the
        timeout. A deployment is over when it is healthy, and when it will not be by itself. Nothing
        changes."""
        asked = await read_spec(request, WaitSpec)
        found = [await _find(call, among, ref) for ref in asked.refs]
        waited = [*{each.id: each for each in found}.values()]
        over = await _over(call, waited, asked.timeout_s)
        items = (
            WaitedView(id=each.id, kind=each.resource.entity.name, over=each.id in over)
            for each in waited
        )
        return answer(WaitView(items=tuple(items)))

    return router


async def _find(call: Caller, among: Sequence[Resource[Any, Any]], ref: str) -> _Waited:
    """
    Raises:
        NotFound, Ambiguous: see ``refs.resolve``.
    """
    ids = ref.lower()
    for resource in sorted(among, key=lambda each: not ids.startswith(f"{each.entity.prefix}-")):
        live = call.api.plane.live.of(resource.entity.record).get(ref)
        if live is not None and call.principal.may_see(live.owner):
            return _Waited(ref, resource)
        try:
            found = await call.read(resource.read, call.principal, ref)
        except NotFound:
            continue
        return _Waited(found.id, resource)
    raise nothing_named(ref, *(each.entity.name for each in among))


async def _over(call: Caller, waited: Sequence[_Waited], timeout_s: float) -> set[str]:
    """The ids of those that are over, once any is, or at the timeout."""
    loop, changes = asyncio.get_running_loop(), call.api.changes
    until_s = loop.time() + timeout_s
    is_looked_at = any(each.resource.settled is not None for each in waited)
    with changes.bell(call.principal.owner, ends=[each.id for each in waited]) as bell:
        while True:
            bell.clear()
            over = {each.id for each in waited if await _is_over(call, each)}
            look_s = min(until_s, loop.time() + LOOK_S) if is_looked_at else until_s
            if over or loop.time() >= until_s or not await changes.wait(bell, look_s):
                return over


async def _is_over(call: Caller, waited: _Waited) -> bool:
    resource, plane = waited.resource, call.api.plane
    record = None if plane.is_broken else plane.live.of(resource.entity.record).get(waited.id)
    if record is not None and record.status in resource.entity.states.live:
        if resource.settled is None:
            return False
        assert resource.view_of is not None, "declared with settled"
        return resource.settled(resource.view_of(record, plane.live, plane.parts))
    found = await call.read(resource.read, call.principal, waited.id)
    return found.status in resource.entity.states.terminal
