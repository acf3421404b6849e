"""The API's description of itself: the parts that do not follow from the types of its endpoints."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from anyio import to_thread
from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi
from starlette.requests import Request
from starlette.responses import Response

from muster.api.answers import json_answer
from muster.core.specs.amounts import Spec
from muster.core.views.base import VIEW_KEY, ErrorView, View
from muster.version import __version__

PATH = "/v1/openapi.json"
router = APIRouter()
_ABOUT = (
    "Batch jobs and sessions on a cluster. Every request but /health carries "
    "`Authorization: Bearer TOKEN`; amounts and times are canonical: thousandths, bytes, "
    "seconds since the epoch."
)
_SCHEMAS = "#/components/schemas/"
_SPECS: dict[type[Spec], None] = {}
"""The specs that request bodies are read as, collected as endpoints are defined."""


def spec_body(*models: type[Spec]) -> dict[str, Any]:
    """The description of a body that an endpoint reads itself: one of ``models``."""
    _SPECS.update(dict.fromkeys(models))
    refs = [{"$ref": _SCHEMAS + model.__name__} for model in models]
    schema = {"schema": refs[0] if len(refs) == 1 else {"oneOf": refs}}
    content = {"application/json": schema, "application/yaml": schema}
    return {"requestBody": {"required": True, "content": content}}


def json_body(model: type[Spec]) -> dict[str, Any]:
    """The description of a body in JSON alone that an endpoint reads itself."""
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


class Description:
    """The description of an API, which never changes: it is written once.

    Args:
        make: makes it, and calls the function that it is given with the seconds that each piece
            took.
    """

    def __init__(self, make: Callable[[Callable[[float], None]], dict[str, Any]]) -> None:
        self._make = make
        self._written: bytes | None = None
        self._writing = asyncio.Lock()

    async def json(self) -> bytes:
        async with self._writing:
            if self._written is None:
                self._written = await to_thread.run_sync(self._write)
        return self._written

    def _write(self) -> bytes:
        return msgspec.json.encode(self._make(time.sleep))


@router.get(PATH, include_in_schema=False)
async def get_description(request: Request) -> Response:
    """The description of the API."""
    description: Description = request.app.state.description
    return json_answer(await description.json())


def document(
    routers: Iterable[APIRouter], rest: Callable[[float], None] = lambda seconds: None
) -> dict[str, Any]:
    """The description of endpoints, made by FastAPI piece by piece: after each one ``rest`` is
    called with the seconds that it took, so that a thread that makes it leaves the interpreter to
    others for as long."""
    document: dict[str, Any] = {}
    for router in routers:
        for route in router.routes:
            began_s = time.perf_counter()
            part = get_openapi(
                title="Muster", version=__version__, description=_ABOUT, routes=[route]
            )
            _add(document, part)
            rest(time.perf_counter() - began_s)
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    views = {ErrorView} | _refer_to_views(document)
    schemas.update(msgspec.json.schema_components(views, ref_template=_SCHEMAS + "{name}")[1])
    for model in _SPECS:
        began_s = time.perf_counter()
        schema = model.model_json_schema(ref_template=_SCHEMAS + "{model}")
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
        rest(time.perf_counter() - began_s)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    error = {"application/json": {"schema": {"$ref": _SCHEMAS + "ErrorView"}}}
    refusal = {"description": "Refused: one sentence, and every problem found", "content": error}
    for path, methods in document["paths"].items():
        for operation in methods.values():
            operation["responses"].pop("422", None)
            operation["responses"]["4XX"] = refusal
            if path != "/health":
                operation["security"] = [{"token": []}]
    return document


def _add(document: dict[str, Any], part: dict[str, Any]) -> None:
    """Add the description of one route."""
    for key, value in part.items():
        if isinstance(value, dict) and isinstance(document.get(key), dict):
            _add(document[key], value)
        else:
            document[key] = value


def _refer_to_views(document: dict[str, Any]) -> set[type[View]]:
    """Make every answer refer to the schema of its view; the result is the set of these views."""
    known = _kinds_of(View)
    found = set()
    for methods in document["paths"].values():
        for operation in methods.values():
            for response in operation["responses"].values():
                for content in response.get("content", {}).values():
                    if (name := content["schema"].get(VIEW_KEY)) is not None:
                        content["schema"] = {"$ref": _SCHEMAS + name}
                        found.add(known[name])
    return found


def _kinds_of(view: type[View]) -> dict[str, type[View]]:
    """The views derived from this one, by name."""
    found: dict[str, type[View]] = {}
    for each in view.__subclasses__():
        found |= {each.__name__: each} | _kinds_of(each)
    return found
