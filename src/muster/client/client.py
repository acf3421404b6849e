"""``Client`` and ``AsyncClient``, with which the command line, scripts and notebooks talk to a
cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from muster.client.accounts import AccountCalls
from muster.client.cluster import ClusterCalls
from muster.client.deployments import Deployments
from muster.client.exchange import (
    Aside,
    Exchange,
    ExchangeWalk,
    Give,
    Read,
    Request,
    Step,
    Stream,
)
from muster.client.health import HealthCalls
from muster.client.http import Body, Http
from muster.client.notices import Notices
from muster.client.pools import Pools
from muster.client.recoveries import RecoveryCalls
from muster.client.work import WorkCalls

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from muster.client.async_http import AsyncBody, AsyncHttp
    from muster.core.specs import JobSpec, SessionSpec
    from muster.core.specs.amounts import Spec
    from muster.core.views.base import RecordView
    from muster.core.views.work import JobView, SessionView

R = TypeVar("R")

_OPENING = threading.Lock()


class Methods(
    WorkCalls,
    Notices,
    RecoveryCalls,
    ClusterCalls,
    Pools,
    HealthCalls,
    Deployments,
    AccountCalls,
):
    """The methods of both clients; each class has its kinds of records as attributes."""


class Client(Methods):
    """A connection to a cluster; several threads may use it at once.

    A job is named by its id, any unique prefix of it, or its name. Requests that can be repeated
    without harm are repeated for a while when the controller does not answer; ``wait`` and a
    following ``logs`` survive its restart.

    Args:
        url: of the controller; found as ``connection`` describes when left out.
        token: an API token, found likewise.
        ca: file of the authority that vouches for the controller, in PEM, found likewise.
        timeout_s: longest wait for one answer.
        on_contact: called with False when the controller has not answered for a second, and with
            True when it does again, in the thread that waits. A client with this callback is
            patient: every request goes on for ten minutes without an answer, as ``wait`` does.

    Raises (every method, beside the errors that it names itself):
        NoConnection: no URL or no token is known.
        Unreachable: nothing answers; ``Untrusted`` where the certificate is not accepted.
        ControllerFailed: the controller has a defect.
        Unauthenticated: the token is wrong.
        Forbidden: the token's role does not allow it.
        Busy, Unavailable: the controller cannot do it now.
    """

    _opened: Http | None = None

    @property
    def _http(self) -> Http:
        with _OPENING:
            if self._opened is None:
                self._opened = Http(self._connection)
            return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @overload
    def submit(self, spec: JobSpec) -> JobView: ...
    @overload
    def submit(self, spec: SessionSpec) -> SessionView: ...
    @overload
    def submit(self, spec: Spec | Mapping[str, Any]) -> RecordView: ...
    @overload
    def submit(self, **fields: Any) -> JobView: ...

    def submit(self, spec: Spec | Mapping[str, Any] | None = None, **fields: Any) -> Any:
        """Hand in work, exactly once, however often the connection breaks meanwhile.

        Args:
            spec: a spec, or its keys as they stand in a file; ``kind: session`` makes a session.
            fields: in place of ``spec``, the keys of a JobSpec: ``submit(command=["date"])``.
                Paths, time spans, moments and members of enumerations may be values.
                Among keys a relative ``workdir`` starts from the current directory; without one
                each kernel runs in an empty directory of its own.

        Raises:
            InvalidSpec: with every problem found; nothing was written.
            Conflict: the name is taken.
        """
        return self._perform(self._submitted(spec, fields))

    # -- underneath ----------------------------------------------------------------------------

    def _perform(self, steps: Exchange[R]) -> R:
        """Carry out the steps; their result."""
        walk = ExchangeWalk(steps)
        while walk.goes_on:
            with walk:
                walk.came = self._do(walk.step)
        return walk.result

    def _do(self, step: Step) -> Any:
        if isinstance(step, Request):
            return self._http.ask(step)
        if isinstance(step, Aside):
            return step.function()
        time.sleep(step.seconds)
        return None

    def _iterate(self, steps: Stream) -> Iterator[Any]:
        """Carry out the steps, and yield the values of ``Give``."""
        body: Body | None = None
        try:
            walk = ExchangeWalk(steps)
            while walk.goes_on:
                step = walk.step
                with walk:
                    if isinstance(step, Give):
                        yield step.value
                    elif isinstance(step, Read):
                        assert body is not None, "something was opened"
                        walk.came = body.read()
                    elif isinstance(step, Request) and step.opens:
                        if body is not None:
                            body.close()
                        walk.came, body = self._http.open(step)
                    else:
                        walk.came = self._do(step)
        finally:
            steps.close()
            if body is not None:
                body.close()


class AsyncClient(Methods):
    """``Client``'s twin for asyncio: the same methods, awaited, or iterated with ``async for``.

    Args, Raises: as ``Client``. It belongs to the event loop in which it is used first.
    """

    _opened: AsyncHttp | None = None

    @property
    def _http(self) -> AsyncHttp:
        from muster.client.async_http import AsyncHttp

        if self._opened is None:
            self._opened = AsyncHttp(self._connection)
        return self._opened

    async def close(self) -> None:
        if self._opened is not None:
            opened, self._opened = self._opened, None
            await opened.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @overload
    async def submit(self, spec: JobSpec) -> JobView: ...
    @overload
    async def submit(self, spec: SessionSpec) -> SessionView: ...
    @overload
    async def submit(self, spec: Spec | Mapping[str, Any]) -> RecordView: ...
    @overload
    async def submit(self, **fields: Any) -> JobView: ...

    async def submit(self, spec: Spec | Mapping[str, Any] | None = None, **fields: Any) -> Any:
        """Hand in work, as ``Client.submit`` does."""
        return await self._perform(self._submitted(spec, fields))

    # -- underneath ----------------------------------------------------------------------------

    async def _perform(self, steps: Exchange[R]) -> R:
        """Carry out the steps; their result."""
        walk = ExchangeWalk(steps)
        while walk.goes_on:
            with walk:
                walk.came = await self._do(walk.step)
        return walk.result

    async def _do(self, step: Step) -> Any:
        import asyncio

        if isinstance(step, Request):
            return await self._http.ask(step)
        if isinstance(step, Aside):
            return await asyncio.to_thread(step.function)
        await asyncio.sleep(step.seconds)
        return None

    async def _iterate(self, steps: Stream) -> AsyncIterator[Any]:
        """Carry out the steps, and yield the values of ``Give``."""
        body: AsyncBody | None = None
        try:
            walk = ExchangeWalk(steps)
            while walk.goes_on:
                step = walk.step
                with walk:
                    if isinstance(step, Give):
                        yield step.value
                    elif isinstance(step, Read):
                        assert body is not None, "something was opened"
                        walk.came = await body.read()
                    elif isinstance(step, Request) and step.opens:
                        if body is not None:
                            await body.close()
                        walk.came, body = await self._http.open(step)
                    else:
                        walk.came = await self._do(step)
        finally:
            steps.close()
            if body is not None:
                await body.close()
