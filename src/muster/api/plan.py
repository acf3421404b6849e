"""The fate of work if it were handed in now, over HTTP. Nothing changes."""

from functools import cache
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from muster.api.answers import answer
from muster.api.bodies import read_spec
from muster.api.context import Call
from muster.api.dependencies import knowing_ended, known_group
from muster.api.openapi import spec_body
from muster.api.resource import Resource
from muster.control.session.admission import Ended
from muster.core.views.placement import PlanView


@cache
def plan_router(resources: tuple[Resource[Any, Any], ...]) -> APIRouter:
    """The endpoint for the specs of those resources that can be planned."""
    submissions = [each.submission for each in resources if each.submission is not None]
    plans = {each.spec: each.plan for each in submissions if each.plan is not None}
    router = APIRouter(prefix="/v1/plan", tags=["jobs"])

    @router.post("", response_model=PlanView, openapi_extra=spec_body(*plans))
    async def plan_work(request: Request, call: Call) -> Response:
        """Whether a job or a session (``kind``) would start if it were handed in now, and where, or
        why not. A spec that a submission would refuse is refused in the same way."""
        spec = await read_spec(request, *plans)
        api, principal = call.api, call.principal.within(spec.project)
        api.plane.check(spec)

        async def look(ended: Ended) -> PlanView:
            plane = api.plane
            known_group(plane.live, spec.group)
            plan = plans[type(spec)]
            return plan(plane.live, plane.parts, principal, spec, api.clock.now(), ended)

        return answer(await knowing_ended(call, principal.owner, spec, look))

    return router
