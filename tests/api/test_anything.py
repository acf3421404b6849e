"""Any request is answered with JSON or with the output asked for, and never with a defect."""

import json
from typing import Any
from urllib.parse import quote

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

paths = st.sampled_from(
    [
        "/v1/jobs",
        "/v1/jobs/{ref}",
        "/v1/jobs/{ref}/tasks",
        "/v1/jobs/{ref}/tasks/{number}",
        "/v1/jobs/{ref}/tasks/{number}/why",
        "/v1/jobs/{ref}/wait",
        "/v1/jobs/{ref}/why",
        "/v1/jobs/{ref}/logs",
        "/v1/sessions",
        "/v1/sessions/{ref}",
        "/v1/sessions/{ref}/logs",
        "/v1/history/{ref}",
        "/v1/history/{ref}/{number}",
        "/v1/agents",
    ]
)
numbers = st.one_of(st.integers(-2, 3), st.integers(), st.just(2**63), st.just(10**30))
texts = st.one_of(
    st.sampled_from(["known", "job-", "live", "all", "PENDING", "nan"]), st.text(max_size=50)
)
names = st.sampled_from(
    [
        *("state", "limit", "cursor", "offset", "since", "task", "attempt", "kernel"),
        *("tail_bytes", "name", "owner", "group", "of_jobs"),
    ]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)
specs = st.dictionaries(
    st.sampled_from(["command", "tasks", "resources", "env", "files", "timeout", "name", "kind"]),
    anything,
)


@given(
    path=paths,
    ref=texts,
    number=numbers,
    params=st.dictionaries(names, st.one_of(texts, numbers.map(str)), max_size=4),
)
@settings(max_examples=300, deadline=None)
def test_no_request_finds_a_defect(
    ada: httpx.Client, path: str, ref: str, number: int, params: dict[str, str]
) -> None:
    url = path.format(ref=quote(ref, safe=""), number=number)
    answer = ada.get(url, params={**params, "timeout_s": "0"})
    assert answer.status_code < 500, answer.text
    if answer.is_error:
        assert answer.json()["error"]


@given(spec=anything | specs)
@settings(max_examples=200, deadline=None)
def test_no_body_finds_a_defect(ada: httpx.Client, spec: Any) -> None:
    answer = ada.post("/v1/jobs", content=json.dumps(spec))
    assert answer.status_code in (201, 409, 422), answer.text
    if answer.status_code == 422:
        assert all(problem["expected"] for problem in answer.json()["problems"])
