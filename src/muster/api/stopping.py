"""Requests that are told to end before they have been answered: when the controller stops, and
when the token that they came with is no longer good."""

import asyncio

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from muster.api.answers import error_answer
from muster.core.views import ErrorCode

FINISH_S = 1.0
"""How long requests may go on that were under way when the controller stops. The server waits
longer, so that none is cut off without an answer."""


class OpenRequests:
    """The requests that are under way, and whether there may be more."""

    def __init__(self) -> None:
        self.closed = False
        self._under_way: dict[asyncio.Task[object], Response | None] = {}  # what they end with

    def close(self) -> None:
        """No more; those under way end soon. To be called on the event loop."""
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_later(FINISH_S, self._end_all)

    def begin(self, task: asyncio.Task[object]) -> None:
        self._under_way[task] = None

    def end(self, task: asyncio.Task[object], refusal: Response) -> None:
        """Have a request end now, with ``refusal`` if nothing of another answer has been sent. One
        that was told so before is left to it."""
        if task in self._under_way and self._under_way[task] is None:
            self._under_way[task] = refusal
            task.cancel()

    def refusal_of(self, task: asyncio.Task[object]) -> Response | None:
        """What the request was told to end with; None if it was not."""
        return self._under_way[task]

    def done(self, task: asyncio.Task[object]) -> None:
        del self._under_way[task]

    def _end_all(self) -> None:
        sentence = "the controller is stopping; what was asked for may still be carried out"
        for task in self._under_way:
            self.end(task, error_answer(503, ErrorCode.UNAVAILABLE, sentence))


class Stopping:
    """Refuses requests once the controller stops, and ends those that are told to end.

    ``requests`` is shared with whoever tells them.
    """

    def __init__(self, app: ASGIApp, requests: OpenRequests) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._requests.closed:
            refusal = error_answer(503, ErrorCode.UNAVAILABLE, "the controller is stopping")
            await refusal(scope, receive, send)
            return
        answering = False

        async def noted(message: Message) -> None:
            nonlocal answering
            answering = True
            await send(message)

        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._requests.begin(task)
        try:
            await self._app(scope, receive, noted)
        except asyncio.CancelledError:
            told = self._requests.refusal_of(task)
            if told is None:
                raise
            task.uncancel()
            # Half an answer must not look like a whole one: without its end the server breaks the
            # connection, and whoever asks again is told why.
            if not answering:
                await told(scope, receive, send)
        finally:
            self._requests.done(task)
