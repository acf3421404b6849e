"""Bearer tokens: checked before anything else looks at a request, and for as long as its answer
lasts."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from muster.api.answers import TokenRefused, error_answer
from muster.api.stopping import OpenRequests
from muster.api.turns import Caller, Metered, Turns
from muster.control.identity.tokens import principal_now, verify
from muster.control.plane import ControlPlane, Events
from muster.core.clock import Clock
from muster.core.errors import Busy
from muster.core.origins import origin_of
from muster.core.owner import Principal, Role
from muster.core.views.base import ErrorCode

log = logging.getLogger(__name__)

PUBLIC = frozenset({"/health"})
DISCOVERY = frozenset({"/v1/traffic/prometheus", "/v1/traffic/traefik"})
"""The endpoints that a token of the role ``discovery`` may read; every other one, of whatever later
version, refuses it here."""
TELL_REFUSED_EVERY_S = 60.0
"""How often the log says how many requests came without a good token."""
_LATE_S = 0.01
"""Seconds after the end of a token at which it is checked again, because the clocks of the event
loop and of the controller differ a little."""
_READS = frozenset({"GET", "HEAD"})
_ABOUT_TOKENS = frozenset({"token", "user"})


def _caller(scope: Scope, principal: Principal | None) -> Caller:
    """The caller whose turn a request takes: an address, where there is no good token."""
    if principal is not None:
        return principal.owner.domain, principal.owner.user
    return "", origin_of(scope["client"][0]) if scope["client"] else ""


def _may_discover(scope: Scope) -> bool:
    return scope["method"] in _READS and scope["path"] in DISCOVERY


def _only_discovery() -> Response:
    read = " and ".join(sorted(DISCOVERY))
    sentence = f"your token is for discovery: it may read {read}, and nothing else"
    return error_answer(403, ErrorCode.FORBIDDEN, sentence)


def _refusal() -> Response:
    return error_answer(401, ErrorCode.UNAUTHENTICATED, str(TokenRefused()))


class TokenAccess:
    """The principals of tokens, and the reads, waits and streams that end when the token of their
    caller ends.

    A request that changes something goes on when its token ends, and is refused at its turn: see
    ``Caller.change``. ``refused`` counts the requests without a good token.
    """

    def __init__(self, plane: ControlPlane, clock: Clock, requests: OpenRequests) -> None:
        self.refused = 0
        self._plane = plane
        self._clock = clock
        self.requests = requests
        self._reading: dict[asyncio.Task[object], Principal] = {}
        self._untold = 0
        self._told_at = 0.0
        plane.watch(self._heard)

    def principal(self, secret: str) -> Principal | None:
        """The principal of a token; None if the token is not good."""
        return verify(self._plane.live, secret, self._clock.now())

    @contextmanager
    def reading(self, principal: Principal) -> Iterator[None]:
        """End the current task's request once its token would no longer let it in as the same
        principal."""
        task = asyncio.current_task()
        assert task is not None, "a request is a task"
        token = self._plane.live.accounts.tokens.get(principal.token)
        alarm = None
        if token is not None and token.expires_at is not None:
            left_s = token.expires_at - self._clock.now() + _LATE_S
            alarm = asyncio.get_running_loop().call_later(left_s, self._look_again)
        self._reading[task] = principal
        try:
            yield
        finally:
            del self._reading[task]
            if alarm is not None:
                alarm.cancel()

    def _heard(self, events: Events) -> None:
        if any(kind in _ABOUT_TOKENS for kind, _, _ in events):
            self._look_again()

    def _look_again(self) -> None:
        """End the reads of callers whose token is no longer good, or stands for something else."""
        now = self._clock.now()
        for task, principal in self._reading.items():
            if principal_now(self._plane.live, principal.token, now) != principal:
                self.requests.end(task, _refusal())

    def count_refusal(self) -> None:
        """Count a request without a good token."""
        self.refused += 1
        self._untold += 1
        now = self._clock.now()
        if now >= self._told_at + TELL_REFUSED_EVERY_S:
            log.info("refused without a good token: %d requests", self._untold)
            self._told_at, self._untold = now, 0


class BearerAuth:
    """Refuses requests without a good token; other requests carry their ``principal`` in the
    scope. Each waits for its caller's turn."""

    def __init__(self, app: ASGIApp, access: TokenAccess, turns: Turns) -> None:
        self._app = app
        self._access = access
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal = self._principal(scope)
        caller = _caller(scope, principal)
        try:
            turn = await self._turns.begin(caller)
        except Busy as busy:
            await error_answer(429, ErrorCode.BUSY, str(busy))(scope, receive, send)
            return
        try:
            if turn.in_debt:  # it has waited, and tokens end meanwhile
                principal = self._principal(scope)
            await Metered(self._serve(scope, receive, send, principal), turn)
        finally:
            self._turns.end(turn)

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, principal: Principal | None
    ) -> None:
        if scope["path"] in PUBLIC:
            await self._app(scope, receive, send)
            return
        if principal is None:
            self._access.count_refusal()
            await _refusal()(scope, receive, send)
            return
        if principal.role is Role.DISCOVERY and not _may_discover(scope):
            await _only_discovery()(scope, receive, send)
            return
        scope["principal"] = principal
        log.debug("%s %s by %s", scope["method"], scope["path"], principal.owner)
        if scope["method"] not in _READS:
            await self._app(scope, receive, send)
            return
        with self._access.reading(principal):
            await self._app(scope, receive, send)

    def _principal(self, scope: Scope) -> Principal | None:
        for name, value in scope["headers"]:
            if name == b"authorization":
                scheme, _, token = value.decode("latin-1").partition(" ")
                if scheme.lower() == "bearer":
                    return self._access.principal(token.strip())
        return self._access.principal("")
