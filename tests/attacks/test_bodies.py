"""Bodies that cost much to parse: they cost it in a thread, after each other, and their sender."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.attacks.target import Target

YAML = "application/yaml"
JSON = "application/json"
REFUSED = {httpx.codes.UNPROCESSABLE_ENTITY, httpx.codes.TOO_MANY_REQUESTS}

BODIES: dict[str, tuple[str, bytes]] = {
    "deep yaml": (YAML, b"[" * 65_000),
    "deep blocks": (YAML, b"- " * 32_000),
    "many items": (YAML, b"command: [" + b"x," * 32_000),
    "many documents": (YAML, b"---\n" * 16_000),
    "aliases": (YAML, b"a: &a [1]\nb: [" + b"*a," * 20_000 + b"]"),
    "deep json": (JSON, b"[" * 1_000_000),
    "unknown keys": (JSON, json.dumps({f"{n:x}": 1 for n in range(90_000)}).encode()),
    "many kernels": (JSON, json.dumps({"kernels": [{"a": 1}] * 90_000}).encode()),
    "many values": (JSON, json.dumps({"command": [[]] * 19_000}).encode()),
    "large number": (JSON, b'{"tasks": ' + b"9" * 1_000_000 + b"}"),
    "huge text": (JSON, json.dumps({"command": "x" * 1_000_000}).encode()),
}


@pytest.mark.parametrize("kind", BODIES)
def test_costly_body_is_refused_and_delays_nobody_else(target: Target, kind: str) -> None:
    media_type, body = BODIES[kind]

    def send(path: str) -> httpx.Response:
        with target.raw("mallory") as mallory:
            return mallory.post(path, content=body, headers={"Content-Type": media_type})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, ["/v1/jobs", "/v1/sessions", "/v1/plan"] * 8))
    assert {answer.status_code for answer in answers} <= REFUSED
    assert all(len(answer.content) < 50_000 for answer in answers)


def test_body_that_never_ends_is_cut_off_where_it_is_too_long(target: Target) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b" " * 65_536

    with target.raw("mallory") as mallory:
        try:
            answer = mallory.post("/v1/jobs", content=endless())
        except httpx.TransportError:  # it was cut off while it still sent
            return
        assert answer.status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE
