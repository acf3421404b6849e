"""How long a request is repeated while the controller does not answer.

A request that may be repeated is repeated briefly if the controller never answered before, longer
if it did, or is known to be started again when it ends, and for ``WAITING_S`` by a caller that
waits for work to end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import msgspec

from muster.client.connection import Connection
from muster.client.errors import (
    ControllerFailed,
    Silent,
    Unauthenticated,
    Unavailable,
    Unreachable,
    error_of,
)
from muster.client.exchange import Answer, Aside, Exchange, NoAnswer, Pause, Request
from muster.client.reaching import speaks_tls
from muster.core.errors import Busy, MusterError

FIRST_CONTACT_S = 1.0
"""How long a client that never had an answer goes on trying."""
PATIENCE_S = 10.0
"""How long any other request is repeated."""
WAITING_S = 600.0
"""How long a wait for the end of work goes on without an answer."""
FAILING_S = 5.0
"""Seconds for which answers of a failing controller are tolerated: a controller that stops fails
for a moment."""
TOLD_AFTER_S = 1.0
"""How long a silence lasts before ``on_contact`` hears of it."""
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_PROXY_STATUSES = frozenset({502, 503, 504})
"""A proxy's statuses for a controller that does not answer."""


class Patience:
    """Repeats requests to one controller, and knows whether it ever answered.

    Args:
        timeout_s: longest wait for one answer.
        on_contact: hears False when the controller has not answered for ``TOLD_AFTER_S``, and True
            when it does again. With this callback every request is repeated for ``WAITING_S``.
        comes_back: tells whether something starts the controller at a URL again when it ends.
    """

    def __init__(
        self,
        connection: Connection,
        timeout_s: float,
        on_contact: Callable[[bool], None] | None = None,
        comes_back: Callable[[str], bool] = lambda url: False,
    ) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._on_contact = on_contact
        self._comes_back = partial(comes_back, connection.url)
        self._answered = on_contact is not None

    def ask(
        self, request: Request, *, patience_s: float = PATIENCE_S, extra_s: float = 0.0
    ) -> Exchange[Answer]:
        """The answer to a request, which is repeated for ``patience_s``; 0 repeats it never.

        Args:
            extra_s: how much longer than usual the answer may take.

        Raises:
            MusterError: no answer, or the server's refusal.
        """
        if not request.opens:
            request = msgspec.structs.replace(request, timeout_s=self._timeout_s + extra_s)
        silence = _Silence(self._on_contact)
        if self._on_contact is not None and patience_s:
            patience_s = WAITING_S
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                if silence.told:  # the answer may take its time
                    self._accept((yield Request("GET", "/health", timeout_s=self._timeout_s)))
                    silence.ends()
                answer = self._accept((yield request))
            except (NoAnswer, Unavailable, Busy, ControllerFailed) as error:
                silence.goes_on(error)
                is_known = self._answered or self._comes_back()
                limit_s = patience_s if is_known else min(patience_s, FIRST_CONTACT_S)
                if silence.waited_s + pause_s > limit_s or silence.failing_s > FAILING_S:
                    if not isinstance(error, NoAnswer):
                        raise
                    secret = error.hung_up and not self._answered and self._plain
                    if secret and (yield Aside(partial(speaks_tls, self._connection.url))):
                        raise self._secret() from None
                    raise self._unreachable(error, silence.waited_s) from None
            except MusterError:  # a refusal is an answer too
                silence.ends()
                raise
            else:
                silence.ends()
                return answer
            import random  # with hashes: only where something is tried again

            # Spread out, so that clients that lost the controller do not all come back at once.
            yield Pause(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _accept(self, answer: Answer) -> Answer:
        """
        Raises:
            MusterError, NoAnswer: the answer is a refusal, or does not come from a controller.
        """
        if answer.status >= 400:
            raise self._refusal(answer)
        self._answered = True
        return answer

    def _refusal(self, answer: Answer) -> Exception:
        from muster.core.views.base import ErrorView

        status, url = answer.status, self._connection.url
        try:
            refusal = error_of(msgspec.json.decode(answer.content, type=ErrorView))
        except (msgspec.DecodeError, UnicodeDecodeError):
            if status in _PROXY_STATUSES:
                return NoAnswer(f"HTTP {status}")
            failed = status >= 500 and self._answered
            kind = ControllerFailed if failed else Unreachable
            return kind(f"what answers at {url} is not a Muster controller: HTTP {status}")
        self._answered = True
        if isinstance(refusal, Unauthenticated) and self._connection.token_remedy:
            return Unauthenticated(
                f"the controller at {url} does not accept, or no longer accepts, "
                f"{self._connection.token_remedy}"
            )
        return refusal

    @property
    def _plain(self) -> bool:
        return self._connection.url.startswith("http://")

    def _secret(self) -> Unreachable:
        url = self._connection.url
        secure = "https" + url.removeprefix("http")
        return Unreachable(f"what listens at {url} speaks TLS only: use {secure}")

    def _unreachable(self, error: Exception, waited_s: float) -> Unreachable:
        tried = f" for {waited_s:.0f} s" if waited_s >= 1 else ""
        remedy = "`muster up` starts one on this machine"
        if context := self._connection.context:
            remedy = f"{context} names it: is it up? `muster context` lists them all"
        elif self._comes_back():
            remedy = "it is being started again: try again shortly, `muster doctor` says more"
        elif not self._connection.loopback:
            remedy = "is its machine up, and the address the controller's?"
        return Silent(f"no controller answers at {self._connection.url}{tried} ({error}); {remedy}")


class _Silence:
    """The time for which one request has had no good answer; ``on_contact`` hears of it."""

    def __init__(self, on_contact: Callable[[bool], None] | None) -> None:
        self.told = False
        self._on_contact = on_contact
        self._began_s = time.monotonic()
        # Not from the beginning of the request: one that waits for a change may have broken just
        # now.
        self._silent_since_s: float | None = None
        self._failing_since_s: float | None = None

    def goes_on(self, error: Exception) -> None:
        """Note that ``error`` came in place of an answer."""
        now_s = time.monotonic()
        if not isinstance(error, ControllerFailed):
            self._failing_since_s = None
        elif self._failing_since_s is None:
            self._failing_since_s = now_s
        if not isinstance(error, NoAnswer):
            self._silent_since_s = None
        elif self._silent_since_s is None:
            self._silent_since_s = now_s
        silent_s = 0.0 if self._silent_since_s is None else now_s - self._silent_since_s
        if self._on_contact and silent_s >= TOLD_AFTER_S and not self.told:
            self.told = True
            self._on_contact(False)

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def failing_s(self) -> float:
        """How long every answer has been a failure of the controller."""
        since_s = self._failing_since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def ends(self) -> None:
        """Note that the controller answers."""
        self._silent_since_s = None
        if self._on_contact and self.told:
            self.told = False
            self._on_contact(True)
