"""Submissions that a caller may repeat: accepted once, however often they arrive."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from sqlalchemy import Engine

from muster.api.reader import Reader
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.inbox import NotStored
from muster.control.plane import ControlPlane
from muster.core.clock import Clock
from muster.core.errors import InvalidSpec, MusterError, Problem
from muster.core.owner import Owner
from muster.store.submissions import (
    forget_before,
    read_submission,
    read_submissions,
    remember,
    submission_key,
)

KEPT_S = 300.0
"""How long a submission can be repeated."""
MAX_KEPT = 50_000
"""Submissions that are kept for ``KEPT_S``; past this number the oldest are forgotten earlier."""
FORGET_EVERY_S = 60.0
TIMEOUT_S = 30.0
MAX_KEY_LENGTH = 255


class Accepted(Protocol):
    """A record of work that was accepted."""

    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=Accepted)


class Submissions:
    """Keys of the last minutes, as in the database: read once, and kept in memory since.

    A repetition of a submission under way waits for that one. Where a commit failed, it may have
    been made all the same, and only its answer lost: then a repetition reads the key.
    """

    def __init__(self, engine: Engine, plane: ControlPlane, clock: Clock, reader: Reader) -> None:
        self._plane = plane
        self._clock = clock
        self._reader = reader
        self._unsettled: dict[str, float] = {}  # keys of commits that failed, since when
        with engine.connect().execution_options(readonly=True) as connection:
            self._accepted = read_submissions(connection)
        self._under_way: dict[str, asyncio.Future[Any]] = {}
        self._forgotten_at = 0.0

    async def once(
        self, owner: Owner, chosen: str | None, action: Callable[[Work, Parts], R]
    ) -> R | str:
        """Let ``action`` accept work, unless work was accepted under the same key: then the answer
        is the id of that work.

        Raises:
            MusterError: the action refused, its change could not be stored, or nobody can read
                whether it was.
            TimeoutError: nothing was committed in time; the work may still be accepted, and the
                request can be repeated.
        """
        if chosen is None:
            return await self._plane.request(action, TIMEOUT_S, owner)
        if not chosen or len(chosen) > MAX_KEY_LENGTH:
            raise InvalidSpec(
                [Problem("Idempotency-Key", "", f"expected 1 to {MAX_KEY_LENGTH} characters")]
            )
        key = submission_key(owner, chosen)
        if key in self._unsettled:
            await self._settle(owner, key)
        if key in self._accepted:
            return self._accepted[key][0]
        begun = self._under_way.get(key) or self._begin(key, owner, action)
        return await asyncio.wait_for(asyncio.shield(begun), TIMEOUT_S)

    async def _settle(self, owner: Owner, key: str) -> None:
        """Find out whether the work of a key was accepted when its commit failed.

        Raises:
            MusterError: see ``Reader.read``.
        """
        accepted = await self._reader.read(owner, read_submission, key)
        if accepted is not None:
            self._accepted[key] = accepted
        self._unsettled.pop(key, None)

    def _begin(
        self, key: str, owner: Owner, action: Callable[[Work, Parts], R]
    ) -> "asyncio.Future[R]":
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        now = self._clock.now()
        forget = self._too_old(now)

        def accept(work: Work, parts: Parts) -> R:
            accepted = action(work, parts)
            if forget is not None:
                work.unit.also_rows(*forget_before(forget))
            work.unit.also_rows(*remember(key, accepted.id, now))
            return accepted

        def answered(accepted: R | None, error: Exception | None) -> None:
            del self._under_way[key]
            if accepted is None:
                if isinstance(error, NotStored):
                    self._unsettled[key] = now
                future.set_exception(error or MusterError("the submission had no answer"))
                future.exception()  # perhaps no request waits any more
                return
            self._accepted[key] = (accepted.id, now)
            if forget is not None:
                self._forget(forget, now)
            future.set_result(accepted)

        self._plane.ask(accept, answered, owner)
        self._under_way[key] = future
        return future

    def _too_old(self, now: float) -> float | None:
        """The moment before which submissions are to be forgotten; None if not now."""
        surplus = len(self._accepted) - MAX_KEPT
        if surplus > MAX_KEPT // 10:
            _, at = next(itertools.islice(self._accepted.values(), surplus, None))
            return max(at, now - KEPT_S)
        return now - KEPT_S if now - self._forgotten_at > FORGET_EVERY_S else None

    def _forget(self, before: float, now: float) -> None:
        self._forgotten_at = now
        old = [key for key, (_, at) in self._accepted.items() if at < before]
        for key in old:
            del self._accepted[key]
        self._unsettled = {key: at for key, at in self._unsettled.items() if at >= before}
