"""Answers that come piece by piece."""

import asyncio
import logging

from starlette.responses import StreamingResponse
from starlette.types import Message, Send

log = logging.getLogger(__name__)

STALLED_S = 60.0
"""A reader that takes nothing for so long is cut off."""


class Streamed(StreamingResponse):
    """A stream that a reader who has stopped reading does not hold for ever."""

    async def stream_response(self, send: Send) -> None:
        async def sent_in_time(message: Message) -> None:
            async with asyncio.timeout(STALLED_S):
                await send(message)

        try:
            await super().stream_response(sent_in_time)
        except TimeoutError:
            # What it has got must not look whole: without an end the server breaks the connection.
            log.info("a reader took nothing for %.0f s and was cut off", STALLED_S)
