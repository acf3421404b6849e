"""Bodies of requests: bounded while they are read, then made into specs or a list of problems.

A small body is parsed on the event loop. A larger one is parsed in a thread, after the owner's
earlier bodies, so that an owner's bodies delay that owner alone. A thread cannot be stopped, and it
shares the interpreter with the event loop; so the work itself is bounded by the length of the body,
its depth and the number of its values (``core.specs.shape``), and no step that holds the
interpreter takes more than some 10 ms. A process could be killed, but would have to send its result
back, which costs about as much as the parsing.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, TypeVar

import anyio
from anyio import to_thread
from fastapi import Request
from pydantic_core import from_json
from starlette.requests import ClientDisconnect

from muster.api.allowance import Allowance, ConcurrencyLimit
from muster.api.answers import TooLarge
from muster.core.errors import InvalidSpec, MusterError, Problem
from muster.core.owner import Owner
from muster.core.specs import load_spec, parse_spec
from muster.core.specs.amounts import Spec
from muster.core.specs.documents import MAX_SPEC_BYTES
from muster.core.specs.load import kind_of

MAX_BODY_BYTES = MAX_SPEC_BYTES + 4096
MAX_YAML_BYTES = 64 * 1024
"""YAML is parsed a hundred times more slowly than JSON."""
SMALL_BYTES = 4 * 1024
"""A body up to this is parsed at once, in a millisecond or two at worst."""
MAX_LARGE_OF_ONE = 16
"""Larger bodies of one owner that are in memory at a time, while they are read or parsed."""
MAX_LARGE = 256
"""Larger bodies of all owners together."""
READ_TIMEOUT_S = 30.0

_YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})

S = TypeVar("S", bound=Spec)
T = TypeVar("T")


class LargeBodies:
    """Bodies that are parsed off the event loop, one at a time; owners take turns."""

    def __init__(self) -> None:
        self._thread = anyio.CapacityLimiter(1)
        self._concurrency = ConcurrencyLimit(
            Allowance("large requests", MAX_LARGE_OF_ONE, MAX_LARGE), at_once=1
        )

    def admitted(self, owner: Owner) -> AbstractContextManager[asyncio.Semaphore]:
        """
        Raises:
            Busy: too many are under way, in all or of the owner.
        """
        return self._concurrency.admitted(owner)

    async def parse(self, slots: asyncio.Semaphore, parse: Callable[[], T]) -> T:
        async with slots:
            return await to_thread.run_sync(parse, limiter=self._thread)


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """The body of a request of an admin's program.

    Raises:
        TooLarge: it is longer than that.
        TimeoutError: it did not arrive in time.
    """
    body = b""
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            async for piece in request.stream():
                body += piece
                if len(body) > limit_bytes:
                    raise TooLarge(f"the body is longer than {limit_bytes} bytes")
    except ClientDisconnect:
        raise MusterError("the connection broke before the whole body had arrived") from None
    return body


async def read_spec(request: Request, *models: type[S]) -> S:
    """The spec in a request's body: JSON, or YAML if its content type says so.

    Args:
        models: the specs that the body may be; ``kind`` selects among several, the first if it is
            absent.

    Raises:
        TooLarge: the body is longer than a spec may be.
        InvalidSpec: with every problem found.
        Busy: the caller has too many large bodies under way.
        TimeoutError: the body did not arrive in time.
    """
    large: LargeBodies = request.app.state.large_bodies
    owner = request.scope["principal"].owner
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_yaml = content_type in _YAML_TYPES and "kind" in models[0].model_fields
    limit_bytes = MAX_YAML_BYTES if is_yaml else MAX_BODY_BYTES
    hint = "; send larger ones as JSON" if is_yaml else ""
    with ExitStack() as stack:
        slots = stack.enter_context(large.admitted(owner)) if is_yaml else None
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                async for piece in request.stream():
                    size += len(piece)
                    if size > limit_bytes:
                        raise TooLarge(f"the body is longer than {limit_bytes} bytes{hint}")
                    if size > SMALL_BYTES and slots is None:
                        slots = stack.enter_context(large.admitted(owner))
                    pieces.append(piece)
        except ClientDisconnect:
            raise MusterError("the connection broke before the whole body had arrived") from None
        parse = partial(_from_yaml if is_yaml else _from_json, b"".join(pieces), models)
        return parse() if slots is None else await large.parse(slots, parse)


def _from_json(body: bytes, models: tuple[type[S], ...]) -> S:
    try:
        data = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        said = str(error).replace("EOF while parsing", "it ends within")
        raise InvalidSpec([Problem("body", "", f"not readable as JSON: {said}")]) from None
    return parse_spec(_model_of(data, models), data)


def _model_of(data: Any, models: tuple[type[S], ...]) -> type[S]:
    """
    Raises:
        InvalidSpec: its kind is that of none of the models.
    """
    if len(models) == 1 or not isinstance(data, dict) or "kind" not in data:
        return models[0]
    kinds = {kind_of(model): model for model in models}
    if not isinstance(data["kind"], str) or data["kind"] not in kinds:
        expected = f"expected one of {', '.join(kinds)} here"
        raise InvalidSpec([Problem("kind", repr(data["kind"])[:80], expected)])
    return kinds[data["kind"]]


def _from_yaml(body: bytes, models: tuple[type[S], ...]) -> S:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise InvalidSpec([Problem("body", "", "expected text in UTF-8")]) from None
    spec = load_spec(text, aliases=False)
    if not isinstance(spec, models):
        expected = " or ".join(repr(kind_of(model)) for model in models)
        found = kind_of(type(spec))
        raise InvalidSpec([Problem("kind", repr(found), f"expected {expected} here")])
    return spec
