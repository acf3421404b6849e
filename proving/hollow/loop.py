"""An event loop under virtual time: coroutines run as calls of a timeline, in its order."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, cast
from weakref import WeakSet

from proving.hollow.timeline import Timeline

T = TypeVar("T")


class TimelineLoop:
    """The part of an event loop that code needs which waits for futures and time alone, without
    sockets and threads. Its calls run on the timeline. It ends with ``close``, even if coroutines
    still wait."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._is_closed = False
        self._coroutines: WeakSet[Coroutine[Any, Any, Any]] = WeakSet()
        self._as_loop = cast(asyncio.AbstractEventLoop, self)

    def close(self) -> None:
        self._is_closed = True
        for each in self._coroutines:
            if inspect.getcoroutinestate(each) == inspect.CORO_CREATED:
                each.close()  # else Python warns of a coroutine that nobody awaits

    def is_closed(self) -> bool:
        return self._is_closed

    def is_running(self) -> bool:
        return not self._is_closed

    def get_debug(self) -> bool:
        return False

    def time(self) -> float:
        return self._timeline.clock.now()

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._as_loop, context)
        self._timeline.after(0.0, lambda: self._run(handle))
        return handle

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self._as_loop, context)
        self._timeline.at(when, lambda: self._run(handle))
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self._as_loop)

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, **options: Any
    ) -> "asyncio.Task[T]":
        self._coroutines.add(coro)
        return asyncio.Task(coro, loop=self._as_loop, name=name, **options)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tell nobody: what was under way when the loop was closed is given up without a word."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def _run(self, handle: asyncio.Handle) -> None:
        if self._is_closed or handle.cancelled():
            return
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self._as_loop)
        try:
            handle._run()
        finally:
            asyncio._set_running_loop(outer)
