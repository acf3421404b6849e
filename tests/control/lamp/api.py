"""Lamps over HTTP."""

from typing import Any

from sqlalchemy import Connection, Row, select
from starlette.responses import Response
from tests.control.lamp.entity import LAMP, Lamp, lamps
from tests.control.lamp.module import LampRequests
from tests.control.lamp.spec import LampSpec
from tests.control.lamp.views import LampPage, LampView

from muster.api.answers import answer
from muster.api.context import Call
from muster.api.resource import Resource, Submission
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.plan import Planner
from muster.control.session.admission import Ended
from muster.control.session.cluster.state import ClusterState
from muster.control.session.cluster.workloads import session_class
from muster.core.owner import Principal
from muster.core.specs import SessionSpec
from muster.core.views.placement import PlanView, WhyView
from muster.store.live import Live
from muster.store.queries.listing import Listing, listed, page_of, reason_view
from muster.store.queries.refs import resolve


def _view(lamp: Lamp, live: Live, parts: Parts) -> LampView:
    return LampView(id=lamp.id, name=lamp.name, status=lamp.status)


def _list(connection: Connection, principal: Principal, listing: Listing) -> LampPage:
    rows = connection.execute(listed(select(lamps), LAMP, principal, listing)).all()
    items, cursor = page_of(rows, listing, _shown)
    return LampPage(items=items, next=cursor)


def _read(connection: Connection, principal: Principal, ref: str) -> LampView:
    id_ = resolve(connection, LAMP, principal, ref)
    return _shown(connection.execute(select(lamps).where(lamps.c.id == id_)).one())


def _shown(row: Row[Any]) -> LampView:
    return LampView(id=row.id, name=row.name, status=row.status, reason=reason_view(row))


def _put_out(work: Work, parts: Parts, principal: Principal, id_: str) -> Lamp:
    return parts[LampRequests].put_out(work, principal, id_)


def _explain(live: Live, parts: Parts, id_: str, now: float, asker: Principal) -> WhyView:
    lamp = live.of(Lamp)[id_]
    return WhyView(subject=lamp.id, status=lamp.status, verdict=f"tried {lamp.tries} times")


def _hang_up(work: Work, parts: Parts, principal: Principal, spec: LampSpec, ended: Ended) -> Lamp:
    return parts[LampRequests].hang_up(work, principal, spec)


def _plan(
    live: Live, parts: Parts, principal: Principal, spec: LampSpec, now: float, ended: Ended
) -> PlanView:
    """The fate of a session with room for a lamp."""
    bulb = {"command": ["glow"], "resources": {"cpu": 1}}
    room = SessionSpec.model_validate({"group": spec.group, "kernels": [bulb]})
    planner = Planner(live, parts[ClusterState], principal, (), now)
    return planner.plan(session_class(principal.owner, room), 1)


LAMPS: Resource[Lamp, LampView] = Resource(
    entity=LAMP,
    path="/v1/lamps",
    view=LampView,
    page=LampPage,
    view_of=_view,
    read=_read,
    list_of=_list,
    named=lambda lamp: f"lamp {lamp.name}",
    submission=Submission(LampSpec, _hang_up, _plan),
    cancel=_put_out,
    explain=_explain,
)


@LAMPS.router.post("/{name}", status_code=201, response_model=LampView)
async def hang_up(call: Call, name: str) -> Response:
    call.must_change()
    lamp: Lamp = await call.change(
        lambda work, parts: parts[LampRequests].hang_up(work, call.principal, LampSpec(name=name))
    )
    plane = call.api.plane
    return answer(_view(lamp, plane.live, plane.parts), 201)
