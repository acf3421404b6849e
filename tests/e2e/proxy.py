"""A TCP proxy between an agent and its controller that can hold back what passes through it."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PIECE_BYTES = 65536


class StallingProxy:
    """Connections to ``port`` go on to ``target``; while a direction is stalled, what comes in it
    waits, and is passed on late once it flows again."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._up, self._down = asyncio.Event(), asyncio.Event()

    def stall(self, *, up: bool = True, down: bool = True) -> None:
        """Hold back what the agent says (``up``), and what it is told (``down``)."""
        for gate, stalled in ((self._up, up), (self._down, down)):
            self._loop.call_soon_threadsafe(gate.clear if stalled else gate.set)

    def flow(self) -> None:
        self.stall(up=False, down=False)

    def start(self) -> None:
        self._thread.start()
        self.flow()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10.0)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10.0)
        self._loop.close()

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _end(self) -> None:
        self._server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        try:
            far, forth = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            back.close()
            return
        with suppress(asyncio.CancelledError):  # the test is over
            await asyncio.gather(_pump(near, forth, self._up), _pump(far, back, self._down))


async def _pump(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event
) -> None:
    try:
        with suppress(OSError):
            while data := await source.read(_PIECE_BYTES):
                await gate.wait()
                sink.write(data)
                await sink.drain()
    finally:
        sink.close()


@contextmanager
def stalling(target: int) -> Iterator[StallingProxy]:
    proxy = StallingProxy(target)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
