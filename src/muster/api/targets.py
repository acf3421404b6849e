"""What new work is to start after: what has ended is not in the mirror, and is read beforehand."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from muster.api.context import Caller
from muster.control.session.admission import NONE_ENDED, Ended
from muster.core.errors import InvalidSpec
from muster.core.owner import Owner
from muster.core.specs import JobSpec, SessionSpec
from muster.store.queries.targets import read_ended

R = TypeVar("R")


async def knowing_ended(
    call: Caller,
    owner: Owner,
    spec: JobSpec | SessionSpec,
    act: Callable[[Ended], Awaitable[R]],
) -> R:
    """``act`` with that of what ``spec`` is to start after which has ended, of the owner's work.

    Raises:
        InvalidSpec: there is no such work, live or ended; and what else ``act`` raises.
    """
    refs = [dependency.on for dependency in spec.after]
    if not refs:
        return await act(NONE_ENDED)
    ended = await call.read(read_ended, owner, refs)
    try:
        return await act(ended)
    except InvalidSpec:
        # What was live then may have ended before the request came to its turn.
        now_ended = await call.read(read_ended, owner, refs)
        if now_ended == ended:
            raise
        return await act(now_ended)
