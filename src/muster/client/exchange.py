"""Methods that are written once and serve the blocking and the asynchronous client alike.

A method is a generator: it yields steps, is sent the result of each, and returns its own.
``Client`` and ``AsyncClient`` carry out the same steps, each in its own way.

Steps are structures of msgspec: every command imports them, and a dataclass takes as long to make
as a module to import.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeAlias,
    TypeVar,
    overload,
)

import msgspec

if TYPE_CHECKING:
    from types import TracebackType

    from muster.client.client import AsyncClient, Client
    from muster.client.resource import Records

    Blocking: TypeAlias = Client | Records[Client, ..., Any, Any]
    Asynchronous: TypeAlias = AsyncClient | Records[AsyncClient, ..., Any, Any]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class Request(msgspec.Struct, frozen=True):
    """A step: one try of one HTTP request. Its result is an ``Answer``.

    Args:
        path: with its query, escaped.
        timeout_s: longest silence; None is without a limit. Connecting has a limit of its own.
        opens: whether the answer's content is left to ``Read`` steps that follow.

    Raises (at the ``yield``):
        NoAnswer: no answer came, or only a part of it.
        Unreachable: no answer can come, for instance because the certificate is not trusted.
    """

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    timeout_s: float | None = None
    opens: bool = False


class Answer(msgspec.Struct, frozen=True):
    """``headers`` are by their name in lower case; ``content`` is empty after ``opens``, unless the
    status is an error's."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Read:
    """A step: read the next piece of the answer that was opened last. Its result is empty at the
    end.

    Raises (at the ``yield``):
        StreamBroke: the connection ended before the answer did.
    """


class Pause(msgspec.Struct, frozen=True):
    """A step: wait so long."""

    seconds: float


class Aside(msgspec.Struct, frozen=True):
    """A step: call a function that blocks. Its result is the function's."""

    function: Callable[[], bool]


class Give(msgspec.Struct, frozen=True):
    """A step of a method that iterates: yield this value to the caller."""

    value: Any


class NoAnswer(Exception):
    """The controller could not be reached, or the connection ended before its answer.

    ``hung_up`` says that a server accepted the connection and closed it.
    """

    def __init__(self, said: str, *, hung_up: bool = False) -> None:
        super().__init__(said)
        self.hung_up = hung_up


class StreamBroke(Exception):
    """The connection ended in the middle of an answer."""


Step = Request | Pause | Aside
Exchange = Generator[Step, Any, R]
"""A method's steps to one result."""
Stream = Generator[Step | Read | Give, Any, None]
"""A method's steps through many values."""


class ExchangeWalk(Generic[S, R]):
    """Goes through the steps of a method, for a client that carries them out.

    While it ``goes_on``, a ``with`` block carries out ``step`` and leaves its result in ``came``;
    an exception of the block is raised in the method. At the end ``result`` is the method's.
    """

    step: S
    result: R

    def __init__(self, steps: Generator[S, Any, R]) -> None:
        self._steps = steps
        self.goes_on = True
        self._move(functools.partial(next, steps))

    def __enter__(self) -> None:
        self.came: Any = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None:
            self._move(functools.partial(self._steps.send, self.came))
        elif isinstance(error, Exception):
            self._move(functools.partial(self._steps.throw, error))
        return isinstance(error, Exception)

    def _move(self, move: Callable[[], S]) -> None:
        try:
            self.step = move()
        except StopIteration as end:
            self.goes_on, self.result = False, end.value


class exchange(Generic[P, R]):
    """A method described by its steps: blocking on a ``Client``, awaited on an ``AsyncClient``."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Exchange[R]]) -> None:
        self._steps = steps
        self.__doc__ = steps.__doc__

    @overload
    def __get__(self, client: Blocking, owner: type | None = None) -> Callable[P, R]: ...
    @overload
    def __get__(
        self, client: Asynchronous, owner: type | None = None
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...
    @overload
    def __get__(self, client: None, owner: type | None = None) -> exchange[P, R]: ...

    def __get__(self, client: Any, owner: type | None = None) -> Any:
        return self if client is None else _bound(self._steps, client, client._perform)


class stream(Generic[P, R]):
    """A method described by its steps that iterates over the values of ``Give``."""

    def __init__(self, kind: type[R] | None, steps: Callable[Concatenate[Any, P], Stream]) -> None:
        self._steps = steps
        self.__doc__ = steps.__doc__

    @overload
    def __get__(self, client: Blocking, owner: type | None = None) -> Callable[P, Iterator[R]]: ...
    @overload
    def __get__(
        self, client: Asynchronous, owner: type | None = None
    ) -> Callable[P, AsyncIterator[R]]: ...
    @overload
    def __get__(self, client: None, owner: type | None = None) -> stream[P, R]: ...

    def __get__(self, client: Any, owner: type | None = None) -> Any:
        return self if client is None else _bound(self._steps, client, client._iterate)


def streaming(
    kind: type[R],
) -> Callable[[Callable[Concatenate[Any, P], Stream]], stream[P, R]]:
    """Decorate a method whose steps give values of this type."""
    return functools.partial(stream, kind)


def _bound(
    steps: Callable[..., Any], client: object, carry_out: Callable[[Any], R]
) -> Callable[..., R]:
    @functools.wraps(steps)
    def method(*args: Any, **kwargs: Any) -> R:
        return carry_out(steps(client, *args, **kwargs))

    return method
