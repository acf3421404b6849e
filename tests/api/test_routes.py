"""The way from a request to its endpoint, and to that one's arguments, is the one by which FastAPI
describes the API."""

from collections.abc import Collection
from typing import Any

import httpx
import msgspec
import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic_core import PydanticUndefined
from starlette.routing import Match

from muster.api.app import RESOURCES, routes_of
from muster.api.arguments import Arguments, Parameter, arguments_of
from muster.api.routes import NoSuchMethod, NoSuchPath, RouteTable

ROUTES = routes_of(tuple(RESOURCES))
PATHS = sorted(
    {
        route.path.replace("{ref:path}", ref).replace("{name:path}", ref).replace("{ref}", ref)
        for route in ROUTES
        for ref in ("job-1", "a/b", "trial", "")
    }
    | {"", "/", "/v1", "/v1/", "/v1/jobs/", "//", "/v1//jobs", "/health/", "/v1/jobs/a/tasks/"}
)
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS")


def found_by_fastapi(method: str, path: str) -> tuple[Any, dict[str, str]] | int:
    """The endpoint and the parts of the path, or the status of the refusal."""
    scope = {"type": "http", "method": method, "path": path, "root_path": ""}
    status = 404
    for route in ROUTES:
        match, child = route.matches(scope)
        if match is Match.FULL:
            return child["endpoint"], child["path_params"]
        if match is Match.PARTIAL:
            status = 405
    return status


@pytest.mark.parametrize("method", METHODS)
def test_every_path_leads_where_fastapi_would_lead(method: str) -> None:
    table = RouteTable(ROUTES)
    for path in PATHS:
        found: tuple[Any, dict[str, str]] | int
        allowed: Collection[str] = ()
        try:
            endpoint, parts = table.find(method, path)
            found = endpoint.arguments.function, parts
        except NoSuchMethod as no_method:
            found = 405
            allowed = no_method.allowed
        except NoSuchPath:
            found = 404
        others = {each for each in METHODS if each != "HEAD" and is_found(each, path)}
        if found == 405:
            assert allowed == others | ({"HEAD"} if "GET" in others else set()), path
        asked = "GET" if method == "HEAD" else method
        assert found == found_by_fastapi(asked, path), path


def is_found(method: str, path: str) -> bool:
    return not isinstance(found_by_fastapi(method, path), int)


def declared(dependant: Dependant) -> dict[str, tuple[str, Any]]:
    """The parameters as FastAPI reads a declaration: alias and default, by name."""
    groups = dependant.path_params, dependant.query_params, dependant.header_params
    found = {}
    for each in (field for group in groups for field in group):
        alias = each.alias
        if each in dependant.header_params:
            alias = alias.replace("_", "-")
        required = each.field_info.default is PydanticUndefined
        found[each.name] = alias, "required" if required else each.field_info.default
    return found


def read(arguments: Arguments) -> dict[str, tuple[str, Any]]:
    def default(each: Parameter) -> Any:
        return "required" if each.default is msgspec.NODEFAULT else each.default

    return {each.name: (each.alias, default(each)) for each in arguments.parameters}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_arguments_are_those_that_the_description_names(route: APIRoute) -> None:
    arguments = arguments_of(route.endpoint, route.param_convertors)
    assert not route.dependant.body_params, "endpoints read their bodies themselves"
    assert not route.dependant.cookie_params
    assert read(arguments) == declared(route.dependant)
    assert arguments.request == route.dependant.request_param_name
    parts = {each.name: declared(each) for each in route.dependant.dependencies}
    assert {name: read(part) for name, part in arguments.parts.items()} == parts


@pytest.mark.parametrize(
    ("query", "value", "problem"),
    [
        ("limit=0", "'0'", "expected at least 1"),
        ("limit=1001", "'1001'", "expected at most 1000"),
        ("limit=", "''", "expected a whole number"),
        ("limit=1e3", "'1e3'", "expected a whole number"),
        ("limit=null", "'null'", "expected a whole number"),
        ("limit=" + "9" * 30, f"'{'9' * 30}'", "expected at most 1000"),
        ("name=" + "x" * 65, f"'{'x' * 65}'", "expected at most 64 characters"),
    ],
)
def test_value_that_is_wrong_is_named(
    ada: httpx.Client, query: str, value: str, problem: str
) -> None:
    answer = ada.get(f"/v1/jobs?{query}")
    assert answer.status_code == 422
    (found,) = answer.json()["problems"]
    assert (found["field"], found["value"]) == (query.partition("=")[0], value)
    assert found["expected"] == problem


def test_every_wrong_value_is_named(ada: httpx.Client) -> None:
    answer = ada.get("/v1/jobs/a/tasks?limit=0&offset=-1&failed=perhaps&state=LOST")
    assert answer.status_code == 422
    named = [each["field"] for each in answer.json()["problems"]]
    assert named == ["state", "failed", "offset", "limit"]


@pytest.mark.parametrize("query", ["limit=+7", "limit=7.0", "limit=%207", "limit=1&limit=7"])
def test_number_may_be_written_as_pydantic_takes_it(ada: httpx.Client, query: str) -> None:
    assert ada.get(f"/v1/jobs?{query.replace('+', '%2B')}").status_code == 200


def test_name_that_reads_null_is_a_name(ada: httpx.Client) -> None:
    ada.post("/v1/jobs", json={"name": "null", "command": ["true"]}).raise_for_status()
    found = ada.get("/v1/jobs", params={"name": "null", "state": "all"}).json()["items"]
    assert [each["name"] for each in found] == ["null"]


def test_value_of_the_query_is_no_header(ada: httpx.Client) -> None:
    body = {"command": ["true"]}
    made = [ada.post("/v1/jobs?idempotency-key=k&idempotency_key=k", json=body) for _ in range(2)]
    assert len({each.json()["id"] for each in made}) == 2


def test_parameters_that_lack_are_named(ada: httpx.Client) -> None:
    answer = ada.get("/v1/jobs/a/outputs")
    assert answer.status_code == 422
    (problem,) = answer.json()["problems"]
    assert problem["field"] == "tasks"
    assert problem["expected"] == "missing, and it has no default"
