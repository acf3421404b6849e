"""History over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from muster.api.answers import json_answer
from muster.api.context import Call
from muster.api.listing import Cursor, Limit
from muster.core.errors import InvalidSpec, Problem
from muster.core.settings import SettingKind
from muster.core.views.settings import ChangePage
from muster.core.views.work import HistoryPage
from muster.store.queries.history import read_changes, read_history

router = APIRouter(tags=["history"])

Ref = Annotated[
    str,
    Path(
        description="a record of any kind, by name or id; job/index for one task of a job; or a "
        "setting such as group:default, user:ann, quota:default/research"
    ),
]


@router.get("/v1/history/{ref:path}", response_model=HistoryPage)
async def get_history(call: Call, ref: Ref, limit: Limit = 200) -> Response:
    """The newest ``limit`` entries of a history, the oldest of them first."""
    return json_answer(
        await call.json(read_history, call.api.plane.live.entities, call.principal, ref, limit)
    )


Kind = Annotated[str | None, Query(description=f"{', '.join(SettingKind)}, or pool", max_length=40)]
By = Annotated[str | None, Query(description="a user, or domain/user", max_length=200)]


@router.get("/v1/changes", response_model=ChangePage)
async def get_changes(
    call: Call, kind: Kind = None, by: By = None, cursor: Cursor = None, limit: Limit = 100
) -> Response:
    """Changes of groups, users, projects, quotas, domains, tokens and pools, with who made them,
    the newest first; for admins."""
    call.must_be_admin("see who changed what")
    kinds = [*SettingKind, "pool"]
    problems = []
    if kind is not None and kind not in kinds:
        problems.append(Problem("kind", repr(kind), f"expected one of {', '.join(kinds)}"))
    if cursor is not None and not cursor.isdecimal():
        problems.append(Problem("cursor", repr(cursor), "expected `next` of a page"))
    if problems:
        raise InvalidSpec(problems)
    return json_answer(
        await call.json(
            read_changes,
            call.api.plane.live.entities,
            call.principal,
            kind=kind,
            by=by,
            cursor=None if cursor is None else int(cursor[:18]),
            limit=limit,
        )
    )
