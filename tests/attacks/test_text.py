"""Text that takes long to match, or that nothing can take: refused at once, its sender alone."""

import re

import httpx
import pytest
from tests.attacks.target import Target

MILLION = " " * 1_000_000


@pytest.mark.parametrize("path", ["/v1/plan", "/v1/jobs"])
def test_memory_of_a_million_blanks_is_refused_at_once(target: Target, path: str) -> None:
    spec = {"command": ["true"], "resources": {"memory": f"1{MILLION}!"}}
    with target.raw("mallory") as mallory:
        answer = mallory.post(path, json=spec)
    assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    assert len(answer.content) < 1000


@pytest.mark.parametrize("text", ['"\\ud800"', '"a\\u0000b"', '"\udcff"', "1" * 30_000])
@pytest.mark.parametrize("media_type", ["application/json", "application/yaml"])
def test_command_that_cannot_be_stored_is_refused_alone(
    target: Target, text: str, media_type: str
) -> None:
    body = f'{{"command": ["true"], "name": {text}, "env": {{"A": {text}}}}}'
    with target.raw("mallory") as mallory:
        for _ in range(20):
            answer = mallory.post(
                "/v1/jobs",
                content=body.encode(errors="surrogateescape"),
                headers={"Content-Type": media_type},
            )
            assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY, answer.text


@pytest.mark.parametrize(
    "url",
    [
        "/v1/jobs/a%00b",
        "/v1/jobs?name=a%00b",
        "/v1/jobs/" + "x" * 2000,
        "/v1/jobs?name=" + "x" * 8000,
    ],
    ids=["NUL in a path", "NUL in a query", "long path", "long query"],
)
def test_url_that_nothing_takes_is_refused(target: Target, url: str) -> None:
    with target.raw("victor") as victor:
        answer = victor.get(url)
    assert answer.status_code == httpx.codes.BAD_REQUEST
    assert len(answer.content) < 300


def test_no_endpoint_takes_text_that_cannot_be_stored(target: Target) -> None:
    """All endpoints that read a body are tried, in each field, with an administrator's token."""
    texts = ['"a\\u0000b"', '"\\ud800"', '"' + "x" * 200_000 + '"']
    headers = {"Authorization": f"Bearer {target.cluster.home.client()['token']}"}
    with httpx.Client(base_url=target.url, headers=headers, timeout=30.0) as admin:
        paths = admin.get("/v1/openapi.json").json()["paths"]
        asked = 0
        for path, methods in paths.items():
            url = re.sub(r"\{[^}]*\}", "user", path)
            for method, operation in methods.items():
                schema = operation.get("requestBody", {}).get("content", {})
                if "application/json" not in schema:
                    continue
                asked += 1
                for text in texts:
                    body = f'{{"name": {text}, "command": {text}, "note": {text}, {text}: 1}}'
                    answer = admin.request(method, url, content=body)
                    assert 400 <= answer.status_code < 500, (url, answer.text)
    assert asked >= 7
