"""Bodies of requests: bounded while they are read, then specs or a list of what is wrong."""

import asyncio
from typing import Any, TypeVar

import yaml
from fastapi import Request
from pydantic_core import from_json
from starlette.requests import ClientDisconnect

from muster.api.answers import TooLarge
from muster.core.errors import InvalidSpec, MusterError, Problem
from muster.core.specs import load_spec, parse_spec
from muster.core.specs.amounts import Spec
from muster.core.specs.load import MAX_SPEC_BYTES

MAX_BODY_BYTES = MAX_SPEC_BYTES + 4096
MAX_YAML_BYTES = 64 * 1024
"""YAML is parsed a hundred times more slowly than JSON."""
READ_TIMEOUT_S = 30.0

_YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})

S = TypeVar("S", bound=Spec)


async def read_spec(request: Request, *models: type[S]) -> S:
    """The spec in a request's body: JSON, or YAML if its content type says so.

    Args:
        models: what it may be; of several its ``kind`` says which, the first where it says none.

    Raises:
        TooLarge: longer than a spec may be.
        InvalidSpec: with every problem found.
        TimeoutError: it did not arrive in time.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type in _YAML_TYPES and "kind" in models[0].model_fields:
        body = await _read(request, MAX_YAML_BYTES, "; send larger ones as JSON")
        return await asyncio.to_thread(_from_yaml, body, models)
    body = await _read(request, MAX_BODY_BYTES)
    try:
        data = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidSpec([Problem("body", "", f"not readable as JSON: {error}")]) from None
    return parse_spec(_model_of(data, models), data)


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


def _model_of(data: Any, models: tuple[type[S], ...]) -> type[S]:
    """
    Raises:
        InvalidSpec: it is of another kind than all of several.
    """
    if len(models) == 1 or not isinstance(data, dict) or "kind" not in data:
        return models[0]
    kinds = {_kind(model): model for model in models}
    if not isinstance(data["kind"], str) or data["kind"] not in kinds:
        expected = f"expected one of {', '.join(kinds)} here"
        raise InvalidSpec([Problem("kind", repr(data["kind"])[:80], expected)])
    return kinds[data["kind"]]


def _kind(model: type[Spec]) -> str:
    return str(model.model_fields["kind"].default)


def _from_yaml(body: bytes, models: tuple[type[S], ...]) -> S:
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
    if not isinstance(spec, models):
        expected = " or ".join(repr(_kind(model)) for model in models)
        raise InvalidSpec([Problem("kind", repr(spec.kind), f"expected {expected} here")])
    return spec
