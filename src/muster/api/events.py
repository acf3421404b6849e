"""Changes over HTTP as server-sent events, coalesced, each reader's backlog bounded."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, assert_never, cast

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from muster.api.changes import ChangeFeed
from muster.api.context import Call, Caller
from muster.api.streamed import Streamed
from muster.control.plane import Events
from muster.core.errors import MusterError
from muster.core.owner import Owner
from muster.core.views.events import EventView
from muster.store.entity import Entity, Visible
from muster.store.live import Live
from muster.store.queries.refs import owners_of

router = APIRouter(tags=["events"])

COALESCE_S = 0.1
"""Changes of the same thing within this time are told as one."""
HEARTBEAT_S = 15.0
LONGEST_S = 3600.0
"""The longest life of a stream; a reader whose token is still good connects again."""


@router.get("/v1/events", response_class=Response)
async def get_events(call: Call) -> Response:
    """A stream of changes. A ``reset`` comes first and after each gap, and means: read the state
    anew.

    Each event's data is an ``EventView``; a comment is sent when there was no event for a while.
    """
    told = _events(call)
    first = await anext(told, "")  # so that one reader too many gets an error, not a broken stream

    async def stream() -> AsyncIterator[str]:
        async with contextlib.aclosing(told):
            yield first
            with contextlib.suppress(MusterError):  # the database cannot be read: it comes back
                async for text in told:
                    yield text

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Streamed(stream(), headers=headers, media_type="text/event-stream")


async def _events(call: Caller) -> AsyncGenerator[str, None]:
    """
    Raises:
        Busy: too many readers.
    """
    changes = call.api.changes
    loop = asyncio.get_running_loop()
    end_s = loop.time() + LONGEST_S
    with changes.feed(call.principal.owner) as feed:
        while not changes.closing.is_set() and loop.time() < end_s:
            gap, events = feed.take()
            told = [EventView(kind="reset")] if gap else []
            told += [EventView(kind=k, id=i, status=s) for k, i, s in await _visible(call, events)]
            if told:
                yield "".join(f"data: {msgspec.json.encode(event).decode()}\n\n" for event in told)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(COALESCE_S):
                        await changes.closing.wait()
            if not await _changed(feed):
                yield ": nothing changed\n\n"


async def _changed(feed: ChangeFeed) -> bool:
    """Wait for a change; False if none came for a while."""
    try:
        async with asyncio.timeout(HEARTBEAT_S):
            await feed.changed.wait()
    except TimeoutError:
        return False
    return True


async def _visible(call: Caller, events: Events) -> Events:
    """The events that the caller may see."""
    if call.principal.is_admin or not events:
        return events
    live = call.api.plane.live
    ids: dict[Entity[Any], set[str]] = {}
    for kind, id_, _ in events:
        entity = live.entities.named(kind)
        if entity is not None and entity.visible is Visible.TO_OWNER:
            ids.setdefault(entity, set()).add(id_)
    owners: dict[str, Owner] = {}
    for entity, changed in ids.items():
        owners |= await _owners(call, live, entity, changed)
    return [event for event in events if _may_see(call, live, event, owners)]


def _may_see(
    call: Caller, live: Live, event: tuple[str, str, str], owners: dict[str, Owner]
) -> bool:
    kind, id_, _ = event
    entity = live.entities.named(kind)
    if entity is None:
        return False
    match entity.visible:
        case Visible.TO_ALL:
            return True
        case Visible.TO_OWNER:
            owner = owners.get(id_)
            return owner is not None and call.principal.may_see(owner)
        case Visible.TO_ADMINS:
            return False
        case unknown:
            assert_never(unknown)


async def _owners(call: Caller, live: Live, entity: Entity[Any], ids: set[str]) -> dict[str, Owner]:
    """The owners of records, from the mirror if live, else from SQL. A part without an owner of its
    own, ``job/3``, belongs to its whole's."""
    part = 0 if entity.owned_with is not None else -1
    said_by = {id_: id_.split("/")[part] for id_ in ids}
    found = {told: live.find(id_ if part else told) for id_, told in said_by.items()}
    owners = {told: cast(Any, record).owner for told, record in found.items() if record is not None}
    table = (entity.owned_with or entity).table
    ended = found.keys() - owners.keys()
    if ended:
        owners |= await call.read(owners_of, table, ended)
    return {id_: owners[told] for id_, told in said_by.items() if told in owners}
