"""Bodies of requests: bounded while they are read, then specs or a list of what is wrong."""

import asyncio
from typing import TypeVar

import yaml
from fastapi import Request
from pydantic_core import from_json
from starlette.requests import ClientDisconnect

from muster.api.answers import TooLarge
from muster.core.errors import InvalidSpec, MusterError, Problem
from muster.core.specs import JobSpec, ScalingGroup, SessionSpec, load_spec, parse_spec
from muster.core.specs.load import MAX_SPEC_BYTES

MAX_BODY_BYTES = MAX_SPEC_BYTES + 4096
MAX_YAML_BYTES = 64 * 1024
"""YAML is parsed a hundred times more slowly than JSON."""
READ_TIMEOUT_S = 30.0

_YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})

S = TypeVar("S", JobSpec, SessionSpec, ScalingGroup)


async def read_spec(request: Request, model: type[S]) -> S:
    """The spec in a request's body: JSON, or YAML if its content type says so.

    Raises:
        TooLarge: longer than a spec may be.
        InvalidSpec: with every problem found.
        TimeoutError: it did not arrive in time.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type in _YAML_TYPES:
        body = await _read(request, MAX_YAML_BYTES, "; send larger ones as JSON")
        return await asyncio.to_thread(_from_yaml, body, model)
    body = await _read(request, MAX_BODY_BYTES)
    try:
        data = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidSpec([Problem("body", "", f"not readable as JSON: {error}")]) from None
    return parse_spec(model, data)


async def _read(request: Request, limit_bytes: int, hint: str = "") -> bytes:
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            async for piece in request.stream():
                size += len(piece)
                if size > limit_bytes:
                    raise TooLarge(f"the body is longer than {limit_bytes} bytes{hint}")
                pieces.append(piece)
    except ClientDisconnect:
        raise MusterError("the connection broke before the whole body had arrived") from None
    return b"".join(pieces)


def _from_yaml(body: bytes, model: type[S]) -> S:
    try:
        text = body.decode()
        # A few aliases of aliases expand without limit; a spec has no need of them.
        aliased = any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text))
    except UnicodeDecodeError:
        raise InvalidSpec([Problem("body", "", "expected text in UTF-8")]) from None
    except (yaml.YAMLError, RecursionError):
        aliased = False  # load_spec says what is wrong, and where
    if aliased:
        raise InvalidSpec([Problem("body", "", "expected YAML without aliases (*name)")])
    spec = load_spec(text)
    if not isinstance(spec, model):
        expected = str(model.model_fields["kind"].default)
        raise InvalidSpec([Problem("kind", repr(spec.kind), f"expected {expected!r} here")])
    return spec
