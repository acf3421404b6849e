"""HTTP for the client: one connection pool, typed errors, bounded retries.

A request that may be repeated is, while the controller does not answer: briefly when it never
answered before, longer when it did and is likely to be starting again, and for ``WAITING_S`` by who
waits for work to end.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from muster.client.connection import Connection
from muster.client.errors import (
    ControllerFailed,
    Unauthenticated,
    Unavailable,
    Unreachable,
    error_of,
)
from muster.core.errors import Busy, MusterError

if TYPE_CHECKING:
    import httpx

FIRST_CONTACT_S = 1.0
"""How long a client that never had an answer goes on trying."""
PATIENCE_S = 10.0
"""How long any other request is repeated."""
WAITING_S = 600.0
"""How long what waits for work to end goes on without an answer."""
FAILING_S = 5.0
"""How long a controller may fail inside: one that is being stopped does so for a moment."""
TOLD_AFTER_S = 1.0
"""How long there is no answer before ``on_contact`` hears of it."""
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_CONNECT_TIMEOUT_S = 5.0
_PROXY_STATUSES = frozenset({502, 503, 504})
"""What a proxy says for a controller that does not answer."""

Params = Mapping[str, str | int | float | bool | None]


class Transport:
    """Requests to one cluster.

    Args:
        timeout_s: longest wait for one answer.
        on_contact: hears False when the controller has not answered for ``TOLD_AFTER_S``, and True
            when it does again. Who listens is patient: every request is repeated for ``WAITING_S``.
        pause: waits between two tries.
    """

    def __init__(
        self,
        connection: Connection,
        timeout_s: float,
        on_contact: Callable[[bool], None] | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        _import_httpx()
        import httpx

        self._connection = connection
        self._timeout_s = timeout_s
        self._on_contact = on_contact
        self._pause = pause
        self._answered = on_contact is not None
        self._http = httpx.Client(
            base_url=connection.url,
            headers={"Authorization": f"Bearer {connection.token}"},
            timeout=self._timeouts(timeout_s),
            # A proxy meant for the outside world must not stand before this machine's own cluster.
            trust_env=not connection.loopback,
        )

    def close(self) -> None:
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        repeat: bool = True,
        patience_s: float = PATIENCE_S,
        extra_s: float = 0.0,
    ) -> httpx.Response:
        """The answer to a request.

        Args:
            repeat: whether the request may be sent again when it had no answer.
            patience_s: how long it is.
            extra_s: how much longer than usual the answer may take.

        Raises:
            MusterError: no answer, or the server's refusal.
        """
        request = self._http.build_request(
            method,
            path,
            params=_without_none(params),
            content=body,
            headers={"Content-Type": "application/json", **(headers or {})} if body else headers,
            timeout=self._timeouts(self._timeout_s + extra_s),
        )
        return self._persist(lambda: self._once(request), patience_s if repeat else 0.0)

    @contextmanager
    def stream(
        self, path: str, params: Params, *, silence_s: float | None, patience_s: float = PATIENCE_S
    ) -> Iterator[httpx.Response]:
        """An answer that is read as it comes; what breaks it later is ``StreamBroke``.

        Args:
            silence_s: longest silence within the answer; None is any.

        Raises:
            MusterError: no answer, or the server's refusal.
        """
        import httpx

        timeouts = httpx.Timeout(silence_s, connect=_CONNECT_TIMEOUT_S)
        request = self._http.build_request(
            "GET", path, params=_without_none(params), timeout=timeouts
        )
        response = self._persist(lambda: self._once(request, stream=True), patience_s)
        try:
            yield response
        except httpx.TransportError as error:
            raise StreamBroke(str(error) or type(error).__name__) from None
        finally:
            response.close()

    def _timeouts(self, timeout_s: float) -> httpx.Timeout:
        import httpx

        return httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_TIMEOUT_S))

    def _once(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        import httpx

        try:
            response = self._http.send(request, stream=stream)
            if response.is_error:
                response.read()
        except httpx.TransportError as error:
            raise _NoAnswer(str(error) or type(error).__name__) from None
        if response.is_error:
            raise self._refusal(response)
        self._answered = True
        return response

    def _refusal(self, response: httpx.Response) -> Exception:
        import msgspec

        from muster.core.views import ErrorView

        status = response.status_code
        try:
            refusal = error_of(msgspec.json.decode(response.content, type=ErrorView))
        except (msgspec.DecodeError, UnicodeDecodeError):
            if status in _PROXY_STATUSES:
                return _NoAnswer(f"HTTP {status}")
            said = f"what answers at {self._connection.url} is not a Muster controller: HTTP "
            failed = status >= 500 and self._answered
            return (ControllerFailed if failed else Unreachable)(f"{said}{status}")
        self._answered = True
        if isinstance(refusal, Unauthenticated) and self._connection.token_remedy:
            return Unauthenticated(
                f"the controller at {self._connection.url} does not accept "
                f"{self._connection.token_remedy}"
            )
        return refusal

    def _persist(self, attempt: Callable[[], httpx.Response], patience_s: float) -> httpx.Response:
        silence = _Silence(self._on_contact)
        if self._on_contact is not None and patience_s:
            patience_s = WAITING_S
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                if silence.told:  # the answer itself may be one that takes its time
                    self._once(self._http.build_request("GET", "/health"))
                    silence.ends()
                response = attempt()
            except (_NoAnswer, Unavailable, Busy, ControllerFailed) as error:
                silence.goes_on(error)
                limit_s = patience_s if self._answered else min(patience_s, FIRST_CONTACT_S)
                if silence.waited_s + pause_s > limit_s or silence.failing_s > FAILING_S:
                    if isinstance(error, _NoAnswer):
                        raise self._unreachable(error, silence.waited_s) from None
                    raise
            except MusterError:  # an answer, too
                silence.ends()
                raise
            else:
                silence.ends()
                return response
            # Spread out, so that all who lost the controller do not come back at once.
            self._pause(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _unreachable(self, error: Exception, waited_s: float) -> Unreachable:
        tried = f" for {waited_s:.0f} s" if waited_s >= 1 else ""
        return Unreachable(
            f"no controller answers at {self._connection.url}{tried} ({error}); `muster up` starts "
            f"one on this machine"
        )


class _Silence:
    """How long one request has had no answer that is any good; and who listens hears of it."""

    def __init__(self, on_contact: Callable[[bool], None] | None) -> None:
        self.told = False
        self._on_contact = on_contact
        self._began_s = time.monotonic()
        # Not since the request began: one that waits for a change may have been cut off just now.
        self._silent_since_s: float | None = None
        self._failing_since_s: float | None = None

    def goes_on(self, error: Exception) -> None:
        """It was ``error`` that came."""
        now_s = time.monotonic()
        if not isinstance(error, ControllerFailed):
            self._failing_since_s = None
        elif self._failing_since_s is None:
            self._failing_since_s = now_s
        if not isinstance(error, _NoAnswer):
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
        """How long every answer was that the controller failed."""
        since_s = self._failing_since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def ends(self) -> None:
        """The controller answers."""
        self._silent_since_s = None
        if self._on_contact and self.told:
            self.told = False
            self._on_contact(True)


class StreamBroke(Exception):
    """The connection ended in the middle of an answer."""


class _NoAnswer(Exception):
    """The controller could not be reached, or the connection ended before its answer."""


def _without_none(params: Params | None) -> dict[str, str | int | float | bool]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def _import_httpx() -> None:
    """httpx without its command line, which would import rich, click and pygments: half of the
    time that the import takes."""
    command_line = "httpx._main"
    if "httpx" in sys.modules or command_line in sys.modules:
        return
    sys.modules[command_line] = None  # type: ignore[assignment] # httpx copes, as without click
    try:
        import httpx  # noqa: F401
    finally:
        del sys.modules[command_line]
