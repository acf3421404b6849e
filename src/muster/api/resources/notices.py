"""Notices over HTTP."""

import asyncio

from fastapi import Request
from starlette.responses import Response

from muster.api.answers import answer
from muster.api.bodies import read_spec
from muster.api.context import Call
from muster.api.openapi import spec_body
from muster.api.resource import Resource
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.notice.effects import ANSWER_S
from muster.control.notice.entity import NOTICE, Notice, name_of
from muster.control.notice.explanation import explain_ended_notice, explain_notice
from muster.control.notice.queries import list_notices, read_notice
from muster.control.notice.requests import NoticeRequests
from muster.control.notice.states import NOTICE_TABLE
from muster.core.owner import Principal
from muster.core.specs.notify import Channel, TrialSpec
from muster.core.views.notices import NoticePage, NoticeView
from muster.core.views.placement import WhyView
from muster.store.live import Live


def _explain(live: Live, parts: Parts, name: str, now: float, asker: Principal) -> WhyView:
    return explain_notice(live, name, now)


NOTICES: Resource[Notice, NoticeView] = Resource(
    entity=NOTICE,
    path="/v1/notices",
    view=NoticeView,
    page=NoticePage,
    read=read_notice,
    list_of=list_notices,
    name_of=lambda notice: name_of(notice.id, notice.subject),
    explain=_explain,
    explain_ended=explain_ended_notice,
)

WAIT_S = ANSWER_S + 5.0
"""How long a trial is waited for, until it has an outcome or is known to have none."""


@NOTICES.router.post("/trial", response_model=NoticeView, openapi_extra=spec_body(TrialSpec))
async def try_channel(request: Request, call: Call) -> Response:
    """Send a notice to a channel, once, on the way that every notice takes; the answer is the
    notice with its end."""
    call.must_change()
    channel = Channel(url=(await read_spec(request, TrialSpec)).url)

    def write(work: Work, parts: Parts) -> Notice:
        return parts[NoticeRequests].try_channel(work, call.principal, channel)

    notice = await call.change(write)
    changes = call.api.changes
    with changes.bell(call.principal.owner, ends=[notice.name]) as ended:
        until = asyncio.get_running_loop().time() + WAIT_S
        while True:
            ended.clear()
            view = await call.read(read_notice, call.principal, notice.id)
            if view.status in NOTICE_TABLE.terminal or not await changes.wait(ended, until):
                return answer(view)
