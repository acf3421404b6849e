"""Answers that come piece by piece."""

import asyncio
import logging
from contextlib import AbstractContextManager, nullcontext

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

log = logging.getLogger(__name__)

STALLED_S = 60.0
"""A reader that takes nothing for so long is cut off."""


class Streamed(StreamingResponse):
    """A stream that ends when its reader has stopped reading."""

    _held: AbstractContextManager[object] = nullcontext()

    def close_after(self, held: AbstractContextManager[object]) -> None:
        """Leave the context ``held`` once the answer has ended, however it ends."""
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        async def sent_in_time(message: Message) -> None:
            async with asyncio.timeout(STALLED_S):
                await send(message)

        try:
            await super().stream_response(sent_in_time)
        except TimeoutError:
            # The reader's part must not look whole: without an end the server breaks the
            # connection.
            log.info("a reader took nothing for %.0f s and was cut off", STALLED_S)
