"""The API's description of itself: the parts that do not follow from the types of its endpoints."""

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from muster.core.specs.amounts import Spec
from muster.core.views.base import VIEW_KEY, ErrorView, View

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


def describe(app: FastAPI) -> None:
    """Make ``app.openapi`` describe specs, tokens and errors too."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign] # FastAPI's own way to extend it


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    views = {ErrorView} | _refer_to_views(document)
    schemas.update(msgspec.json.schema_components(views, ref_template=_SCHEMAS + "{name}")[1])
    for model in _SPECS:
        schema = model.model_json_schema(ref_template=_SCHEMAS + "{model}")
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
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
