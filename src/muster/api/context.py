"""The context of every endpoint: the caller, and the parts of the controller behind the API."""

import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

from fastapi import Depends, Request
from sqlalchemy import Connection

from muster.api.allowance import Allowance
from muster.api.answers import RoleForbids, TokenRefused
from muster.api.auth import TokenAccess
from muster.api.changes import Changes
from muster.api.provider_checks import ProviderChecks
from muster.api.reader import Reader
from muster.api.submissions import Submissions
from muster.api.turns import current_turn
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.identity.tokens import principal_now
from muster.control.plane import ControlPlane
from muster.core.clock import Clock
from muster.core.ids import AgentId
from muster.core.owner import Principal, Role
from muster.core.views.base import View
from muster.wire.calls import (
    LogChunk,
    LogRequest,
)
from muster.wire.messages import KernelKey

P = ParamSpec("P")
T = TypeVar("T")

ShortOutputs = Callable[
    [AgentId, Sequence[KernelKey]], Coroutine[Any, Any, Mapping[KernelKey, bytes]]
]
ReadLog = Callable[[AgentId, LogRequest], AsyncGenerator[LogChunk, None]]


_WHILE_NOTHING_IS_STORED = "what runs goes on, and changes are refused until this is mended"


@dataclass(frozen=True, slots=True)
class ClockState:
    """The controller's clock beside the time of day.

    Args:
        leap_s: tells by how much the time of day is ahead.
        suspended_s: tells for how much of that the machine was suspended.
        is_confirmed: whether it is known how much time had passed when the controller started.
    """

    leap_s: Callable[[], float] = lambda: 0.0
    suspended_s: Callable[[], float] = lambda: 0.0
    is_confirmed: bool = True


@dataclass(frozen=True, slots=True)
class Api:
    """The parts behind the API, injected; ``agent_address`` is where agents on other
    machines find the controller, and ``trouble_beside`` tells which parts beside the plane rest."""

    plane: ControlPlane
    reader: Reader
    changes: Changes
    submissions: Submissions
    clock: Clock
    read_log: ReadLog
    short_outputs: ShortOutputs
    access: TokenAccess
    output_readers: Allowance
    agent_address: str
    trouble_beside: Callable[[], str | None]
    clock_state: ClockState
    provider_checks: ProviderChecks

    @property
    def trouble(self) -> str | None:
        """Why nothing can be stored, and what follows from that, or why parts beside the plane
        rest; None if all is well."""
        if self.plane.trouble is not None:
            return f"{self.plane.trouble}; {_WHILE_NOTHING_IS_STORED}"
        return self.trouble_beside()


@dataclass(frozen=True, slots=True)
class Caller:
    principal: Principal
    api: Api

    def must_change(self) -> None:
        """
        Raises:
            Forbidden: the caller may only look. It is raised before anything is looked up, so that
                it reveals nothing.
        """
        if self.principal.role is Role.VIEWER:
            raise RoleForbids("your token is a viewer's: it may look, but not change anything")

    def must_be_admin(self, to: str) -> None:
        """
        Raises:
            Forbidden: the caller is no admin; ``to`` completes the sentence.
        """
        if not self.principal.is_admin:
            raise RoleForbids(f"only an admin's token may {to}")

    def still_allowed(self, action: Callable[[Work, Parts], T]) -> Callable[[Work, Parts], T]:
        """The action, refused if the caller's token is no longer as good as when the request began:
        the body may have taken half a minute to arrive.

        Raises (when the action is carried out):
            Unauthenticated: the token has ended, or is good for something else now.
        """

        turn = current_turn()

        def checked(work: Work, parts: Parts) -> T:
            if principal_now(work.live, self.principal.token, work.now) != self.principal:
                raise TokenRefused
            began_s = time.perf_counter()
            work.asker = self.principal
            try:
                return action(work, parts)
            finally:
                work.asker = None
                if turn is not None:
                    turn.cost_s += time.perf_counter() - began_s

        return checked

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """See ``Reader.read``."""
        return await self.api.reader.read(self.principal.owner, query, *args, **kwargs)

    async def json(
        self, query: Callable[Concatenate[Connection, P], View], *args: P.args, **kwargs: P.kwargs
    ) -> bytes:
        """See ``Reader.json``."""
        return await self.api.reader.json(self.principal.owner, query, *args, **kwargs)

    async def change(self, action: Callable[[Work, Parts], T]) -> T:
        """The action's answer, once its wake has been committed.

        Raises:
            MusterError: the action refused, or its change could not be stored.
            Unauthenticated: see ``still_allowed``.
            TimeoutError: nothing was committed in time; the action may still happen.
        """
        checked = self.still_allowed(action)
        return await self.api.plane.request(checked, owner=self.principal.owner)

    async def report(self, action: Callable[[Work, Parts], T]) -> T:
        """``change``, for what a program reports by itself: no person waits for the answer."""
        return await self.api.plane.request(self.still_allowed(action))


def _caller(request: Request) -> Caller:
    return Caller(request.scope["principal"], request.app.state.api)


Call = Annotated[Caller, Depends(_caller)]
