"""Plans over HTTP: the fate of work if it were handed in now. Nothing changes."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from muster.api.answers import answer
from muster.api.bodies import read_spec
from muster.api.context import Call
from muster.api.dependencies import knowing_ended, known_group
from muster.api.openapi import spec_body
from muster.control.plan import plan_job, plan_session
from muster.control.session.admission import Ended
from muster.control.session.cluster.state import ClusterState
from muster.core.specs import JobSpec, SessionSpec
from muster.core.views.placement import PlanView

router = APIRouter(prefix="/v1/plan", tags=["jobs"])


@router.post("", response_model=PlanView, openapi_extra=spec_body(JobSpec, SessionSpec))
async def plan_work(request: Request, call: Call) -> Response:
    """Whether a job or a session (``kind``) would start if it were handed in now, and where, or why
    not. A spec that a submission would refuse is refused in the same way."""
    spec: JobSpec | SessionSpec = await read_spec(request, JobSpec, SessionSpec)
    api, principal = call.api, call.principal.within(spec.project)
    api.plane.check(spec)

    async def look(ended: Ended) -> PlanView:
        live, cluster, now = api.plane.live, api.plane.parts[ClusterState], api.clock.now()
        known_group(live, spec.group)
        if isinstance(spec, JobSpec):
            return plan_job(live, cluster, principal, spec, now, ended)
        return plan_session(live, cluster, principal, spec, now, ended)

    return answer(await knowing_ended(call, principal.owner, spec, look))
