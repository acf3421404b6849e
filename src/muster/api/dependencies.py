"""The group and the work to which new work refers. Ended work is not in the mirror, so it is read
from SQL beforehand."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from muster.api.context import Caller
from muster.control.session.admission import NONE_ENDED, Ended
from muster.core.errors import InvalidSpec, NotFound, Problem
from muster.core.owner import Owner
from muster.core.specs import WorkSpec
from muster.store.live import Live
from muster.store.queries.dependencies import read_ended

R = TypeVar("R")


async def knowing_ended(
    call: Caller,
    owner: Owner,
    spec: WorkSpec,
    act: Callable[[Ended], Awaitable[R]],
) -> R:
    """The answer of ``act``, called with the owner's ended work on which ``spec`` depends.

    Raises:
        InvalidSpec: there is no such work, live or ended; other errors are those of ``act``.
    """
    refs = [dependency.on for dependency in spec.after]
    if not refs:
        return await act(NONE_ENDED)
    ended = await call.read(read_ended, owner, refs)
    try:
        return await act(ended)
    except InvalidSpec:
        # Work that was live at the first look may have ended before the request came to its turn.
        now_ended = await call.read(read_ended, owner, refs)
        if now_ended == ended:
            raise
        return await act(now_ended)


def known_group(live: Live, group: str) -> None:
    """
    Raises:
        InvalidSpec: there is no such group, which is a problem of the spec and so not NotFound.
    """
    try:
        live.group(group)
    except NotFound as error:
        raise InvalidSpec([Problem("group", repr(group), str(error))]) from None
