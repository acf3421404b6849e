"""Waits and streams that one user opens without end: past a number they are refused, its own."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.attacks.target import Target
from tests.patience import until

from muster.api.app import MAX_OUTPUT_READERS_OF_ONE
from muster.api.changes import MAX_FEEDS_OF_ONE


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("/v1/events", MAX_FEEDS_OF_ONE),
        ("/v1/jobs/{job}/logs?follow=true", MAX_OUTPUT_READERS_OF_ONE),
    ],
)
def test_streams_of_one_user_are_bounded_and_another_may_have_its_own(
    target: Target, path: str, limit: int
) -> None:
    with target.client("mallory") as client:
        path = path.format(job=client.submit(command=["sleep", "1000"]).id)
    with target.raw("mallory") as mallory, contextlib.ExitStack() as stack:

        def open_stream(_: int) -> int:
            return stack.enter_context(mallory.stream("GET", path)).status_code

        mallory.timeout = httpx.Timeout(10.0)
        with ThreadPoolExecutor(8) as pool:
            codes = list(pool.map(open_stream, range(limit + 5)))
        assert sorted(codes) == [httpx.codes.OK] * limit + [httpx.codes.TOO_MANY_REQUESTS] * 5
        with target.client("ada") as ada:
            assert ada.job("long").name == "long"

    def opened_again() -> bool:
        with target.raw("mallory") as mallory, mallory.stream("GET", path) as again:
            return again.status_code == httpx.codes.OK

    until(opened_again)  # those that ended make room
