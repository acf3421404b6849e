"""The early end of requests: when the controller stops, and when a request's token is no longer
good."""

import asyncio

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from muster.api.answers import error_answer
from muster.core.views.base import ErrorCode

FINISH_S = 1.0
"""How long requests under way may go on when the controller stops. The server waits longer, so that
no request is cut off without an answer."""


class OpenRequests:
    """The requests under way, and whether new ones are accepted."""

    def __init__(self) -> None:
        self.closed = False
        self._under_way: dict[asyncio.Task[object], Response | None] = {}  # with its refusal

    def close(self) -> None:
        """Accept no more requests, and end the others soon. To be called on the event loop."""
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_later(FINISH_S, self._end_all)

    def begin(self, task: asyncio.Task[object]) -> None:
        self._under_way[task] = None

    def end(self, task: asyncio.Task[object], refusal: Response) -> None:
        """End a request now, with ``refusal`` if no part of another answer was sent. A request that
        was told to end before keeps its first refusal."""
        if task in self._under_way and self._under_way[task] is None:
            self._under_way[task] = refusal
            task.cancel()

    def refusal_of(self, task: asyncio.Task[object]) -> Response | None:
        """The answer with which the request was told to end; None if it was not."""
        return self._under_way[task]

    def done(self, task: asyncio.Task[object]) -> None:
        del self._under_way[task]

    def _end_all(self) -> None:
        sentence = "the controller is stopping; what was asked for may still be carried out"
        for task in self._under_way:
            self.end(task, error_answer(503, ErrorCode.UNAVAILABLE, sentence))


class Stopping:
    """Refuses requests once the controller stops, and ends requests as ``requests`` says.

    ``requests`` is shared with the parts that end them.
    """

    def __init__(self, app: ASGIApp, requests: OpenRequests) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
            # connection, and the reader's next request is told the reason.
            if not answering:
                await told(scope, receive, send)
        finally:
            self._requests.done(task)
