"""What callers are told while the controller stops."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from muster.api.answers import error_answer
from muster.core.views import ErrorCode

FINISH_S = 1.0
"""How long requests may go on that were under way. The server waits longer, so that none is cut
off without an answer."""


class OpenRequests:
    """The requests that are under way, and whether there may be more.

    ``ended`` says that they were told to end, each by the cancellation of its task.
    """

    def __init__(self) -> None:
        self.closed = False
        self.ended = False
        self.under_way: set[asyncio.Task[object]] = set()

    def close(self) -> None:
        """No more; those under way end soon. To be called on the event loop."""
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_later(FINISH_S, self._end)

    def _end(self) -> None:
        self.ended = True
        for task in self.under_way:
            task.cancel()


class Stopping:
    """Refuses requests once the controller stops, and ends those that then take too long.

    ``requests`` is shared with whoever tells that it stops.
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
        self._requests.under_way.add(task)
        try:
            await self._app(scope, receive, noted)
        except asyncio.CancelledError:
            if answering or not self._requests.ended:
                raise  # half an answer must not look like a whole one
            task.uncancel()
            sentence = "the controller is stopping; what was asked for may still be carried out"
            refusal = error_answer(503, ErrorCode.UNAVAILABLE, sentence)
            await refusal(scope, receive, send)
        finally:
            self._requests.under_way.discard(task)
