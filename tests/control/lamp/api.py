"""Lamps over HTTP."""

from fastapi import APIRouter
from sqlalchemy import Connection, select
from starlette.responses import Response
from tests.control.lamp.entity import LAMP, Lamp, lamps
from tests.control.lamp.module import LampRequests

from muster.api.answers import answer, json_answer
from muster.api.context import Call
from muster.core.owner import Principal
from muster.core.views.base import ReasonView, View
from muster.store.queries.listing import reason_view
from muster.store.queries.refs import resolve, visible

router = APIRouter(prefix="/v1/lamps")


class LampView(View):
    id: str
    name: str
    status: str
    reason: ReasonView | None = None


class LampPage(View):
    items: tuple[LampView, ...]


@router.post("/{name}", status_code=201)
async def hang_up(call: Call, name: str) -> Response:
    call.must_change()
    lamp: Lamp = await call.change(
        lambda work, parts: parts[LampRequests].hang_up(work, call.principal, name)
    )
    return answer(LampView(id=lamp.id, name=lamp.name, status=lamp.status), 201)


@router.get("")
async def list_lamps(call: Call) -> Response:
    return json_answer(await call.json(_list, call.principal))


@router.get("/{ref}")
async def show_lamp(call: Call, ref: str) -> Response:
    return json_answer(await call.json(_read, call.principal, ref))


@router.post("/{ref}/cancel")
async def put_out(call: Call, ref: str) -> Response:
    call.must_change()
    found = await call.read(_read, call.principal, ref)
    lamp: Lamp = await call.change(
        lambda work, parts: parts[LampRequests].put_out(work, call.principal, found.id)
    )
    return answer(LampView(id=lamp.id, name=lamp.name, status=lamp.status))


def _list(connection: Connection, principal: Principal) -> LampPage:
    rows = connection.execute(select(lamps).where(*visible(lamps, principal)))
    return LampPage(items=tuple(LampView(id=r.id, name=r.name, status=r.status) for r in rows))


def _read(connection: Connection, principal: Principal, ref: str) -> LampView:
    id_ = resolve(connection, LAMP, principal, ref)
    row = connection.execute(select(lamps).where(lamps.c.id == id_)).one()
    return LampView(id=row.id, name=row.name, status=row.status, reason=reason_view(row))
