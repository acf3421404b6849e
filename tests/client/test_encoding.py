"""Arguments that no request can hold are refused where the caller gave them."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from muster.client.encoding import json_of, query_of, quoted, quoted_path
from muster.core.errors import InvalidSpec

NO_TEXT = "a\udcff"  # as Python has the byte 0xff of a command line


@pytest.mark.parametrize(
    ("encode", "value"),
    [
        (quoted, NO_TEXT),
        (quoted_path, f"{NO_TEXT}/3"),
        (query_of, {"name": NO_TEXT}),
        (json_of, {"command": ["echo", NO_TEXT]}),
        (json_of, {NO_TEXT: 1}),
    ],
)
def test_what_is_no_text_is_refused(encode: Callable[[Any], object], value: Any) -> None:
    with pytest.raises(InvalidSpec, match=r"a\\udcff.*expected UTF-8"):
        encode(value)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_number_that_json_has_not_is_refused(number: float) -> None:
    with pytest.raises(InvalidSpec, match="expected a finite one"):
        json_of({"resources": {"cpu": number}})


def test_one_segment_of_a_path_stays_one() -> None:
    assert (quoted("a/b"), quoted_path("a/b"), quoted("")) == ("a%2Fb", "a/b", "-")


def test_query_has_what_is_not_none_and_says_truth_as_json_does() -> None:
    assert query_of({"follow": True, "tail": None, "name": "é*", "limit": 3}) == (
        "follow=true&name=%C3%A9%2A&limit=3"
    )
