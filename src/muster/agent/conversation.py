"""One stream with the controller: Hello, then reports and heartbeats out, commands in."""

import asyncio
from collections import deque
from collections.abc import Callable

from muster.agent.kernels import Kernels
from muster.wire.client import ControllerStream, Disconnected
from muster.wire.duplex import run_until_one_ends
from muster.wire.messages import (
    Acknowledge,
    Commands,
    ControllerMessage,
    Heartbeat,
    Hello,
    Renew,
    Welcome,
)

BATCH_REPORTS = 500
"""In one message at most. Under load the supervisor lets events wait for company already."""

SILENCE_LIMIT_S = 10.0
SILENCE_LIMIT_HEARTBEATS = 3
"""A controller that answers nothing for both of these is given up, even if its machine is there."""


class Conversation:
    """Carries the messages of one stream."""

    def __init__(self, stream: ControllerStream, kernels: Kernels) -> None:
        self._stream = stream
        self._kernels = kernels
        self._now_s: Callable[[], float] = asyncio.get_running_loop().time
        self._heard_at_s = self._said_at_s = self._now_s()
        # When what the controller has not answered yet was said, the oldest first.
        self._pulses: deque[float] = deque()
        self._batches: deque[tuple[int, float]] = deque()  # by number of the last report
        self._pulse_due = False
        self._welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()

    async def run(self, hello: Hello) -> None:
        """Talk until the stream breaks.

        Raises:
            Refused: the controller does not want this agent.
            Disconnected: the stream is over, or the controller silent.
            MalformedMessage: it said what this version does not understand.
        """
        self._said_at_s = self._now_s()
        await self._stream.send(hello)
        self._kernels.repeat_reports()
        await run_until_one_ends(self._listen(), self._speak(), self._keep_time())

    async def _listen(self) -> None:
        async for message in self._stream:
            self._hear(message)
            await self._kernels.obeyed()

    def _hear(self, message: ControllerMessage) -> None:
        self._heard_at_s = self._now_s()
        match message:
            case Commands():
                self._kernels.obey(message.commands)
            case Acknowledge():
                self._kernels.acknowledge(message.seq)
                while self._batches and self._batches[0][0] <= message.seq:
                    self._renew(self._batches.popleft()[1])
            case Welcome():
                if not self._welcome.done():
                    self._welcome.set_result(message)
                    self._renew(self._said_at_s)
            case Renew():
                if self._pulses:
                    self._renew(self._pulses.popleft())

    def _renew(self, said_at_s: float) -> None:
        """The controller has heard what was said then, and counts the lease from no earlier."""
        if self._welcome.done():
            lease_s = self._welcome.result().lease_s
            left_s = said_at_s + lease_s - self._now_s()
            if left_s > 0:
                self._kernels.renew_lease(lease_s, left_s)

    async def _speak(self) -> None:
        outbox, news = self._kernels.outbox, self._kernels.news
        while True:
            while not outbox and not self._pulse_due:
                news.clear()
                await news.wait()
            self._pulse_due = False  # whatever is said now will do
            message = outbox.take(BATCH_REPORTS) if outbox else Heartbeat()
            self._said_at_s = self._now_s()
            if isinstance(message, Heartbeat):
                self._pulses.append(self._said_at_s)
            elif not self._batches or message.last_seq > self._batches[-1][0]:
                self._batches.append((message.last_seq, self._said_at_s))
            await self._stream.send(message)

    async def _keep_time(self) -> None:
        """Have a heartbeat said when nothing else was, and give up a controller that is silent.

        Apart from ``_speak``, where a timeout would cost each batch more than its own sending.
        """
        try:
            async with asyncio.timeout(SILENCE_LIMIT_S):
                welcome = await self._welcome
        except TimeoutError:
            raise Disconnected(f"no Welcome within {SILENCE_LIMIT_S:g} s") from None
        limit_s = max(SILENCE_LIMIT_S, SILENCE_LIMIT_HEARTBEATS * welcome.heartbeat_s)
        wait_s = 0.0
        while True:
            await asyncio.sleep(wait_s)
            now_s = self._now_s()
            if now_s > self._heard_at_s + limit_s:
                raise Disconnected(f"the controller has said nothing for {limit_s:g} s")
            wait_s = self._said_at_s + welcome.heartbeat_s - now_s
            if wait_s <= 0:
                self._pulse_due = True
                self._kernels.news.set()
                wait_s = welcome.heartbeat_s
