"""History over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from muster.api.answers import json_answer
from muster.api.context import Call
from muster.api.listing import Limit
from muster.core.views.work import HistoryPage
from muster.store.queries.history import read_history

router = APIRouter(tags=["history"])

Ref = Annotated[
    str, Path(description="a record of any kind, by name or id; job/index for one task of a job")
]


@router.get("/v1/history/{ref:path}", response_model=HistoryPage)
async def get_history(call: Call, ref: Ref, limit: Limit = 200) -> Response:
    """The newest ``limit`` entries of a history, the oldest of them first."""
    return json_answer(
        await call.json(read_history, call.api.plane.live.entities, call.principal, ref, limit)
    )
