"""Text that no process, file name or row of SQL takes is refused wherever a spec has it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.errors import MAX_PROBLEMS, InvalidSpec
from muster.core.resources import parse_bytes, parse_milli
from muster.core.specs import JobSpec, QuotaSpec, ScalingGroup, SessionSpec, load_spec, parse_spec
from muster.core.specs.amounts import parse_duration
from muster.core.specs.shape import MAX_DEPTH, MAX_KEYS, MAX_VALUES, check_shape
from muster.core.text import check_text

FULL: list[tuple[Any, dict[str, Any]]] = [
    (
        JobSpec,
        {
            "name": "a",
            "group": "default",
            "command": ["a"],
            "env": {"A": "a"},
            "workdir": "/a",
            "resources": {"memory": "1GiB", "gpu": 1, "gpu_model": "a", "extra": {"a": 1}},
            "timeout": "1h",
            "not_before": "2027-01-31T08:00:00+01:00",
            "placement": {
                "constraints": ["a=b", {"attribute": "a", "values": ["a"]}],
                "agents": ["a"],
                "together": "a",
                "set": "a",
            },
            "after": ["a", {"on": "a", "condition": "ended", "name": "a"}],
        },
    ),
    (SessionSpec, {"name": "a", "kernels": [{"command": "a", "files": {"a": "a"}}]}),
    (
        ScalingGroup,
        {
            "name": "a",
            "validators": ["a"],
            "selector": "a",
            "hooks": {"batch": "a"},
            "options": {"a": {"a": ["a"]}},
            "projects": ["a/a"],
            "workspaces": ["/a"],
        },
    ),
    (QuotaSpec, {"level": "user", "name": "a/a/a", "limits": {"extra": {"a": 1}}}),
]
BAD = {"half of a pair": "a\ud800", "NUL": "a\0b", "a million characters": "x" * 1_000_001}


def with_each_text(data: Any, text: str) -> Iterator[Any]:
    """``data`` with each of its texts, keys too, replaced by ``text`` in turn."""
    match data:
        case str():
            yield text
        case dict():
            for key, value in data.items():
                rest = {name: each for name, each in data.items() if name != key}
                yield {text: value, **rest}
                yield from ({**data, key: each} for each in with_each_text(value, text))
        case list():
            for index, value in enumerate(data):
                for each in with_each_text(value, text):
                    yield [*data[:index], each, *data[index + 1 :]]


@pytest.mark.parametrize("bad", BAD)
def test_bad_text_in_any_place_of_any_spec_is_refused_with_a_short_sentence(bad: str) -> None:
    count = 0
    for model, spec in FULL:
        parse_spec(model, spec)
        for poisoned in with_each_text(spec, BAD[bad]):
            count += 1
            with pytest.raises(InvalidSpec) as refused:
                parse_spec(model, poisoned)
            assert 0 < len(str(refused.value).encode()) < 5_000
    assert count > 50


@given(st.text(st.characters(), max_size=20))
def test_text_that_is_accepted_can_be_stored_and_given_to_a_process(text: str) -> None:
    try:
        check_text(text)
    except ValueError:
        assert "\0" in text or any(0xD800 <= ord(each) < 0xE000 for each in text)
    else:
        assert "\0" not in text
        assert text.encode().decode() == text


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**400, float("inf"), float("nan")])
@pytest.mark.parametrize("key", ["tasks", "timeout", "not_before", "priority", "resources"])
def test_number_that_cannot_be_stored_is_refused(key: str, number: float) -> None:
    value = {"cpu": number} if key == "resources" else number
    with pytest.raises(InvalidSpec):
        parse_spec(JobSpec, {"command": "x", key: value})


@pytest.mark.parametrize("parse", [parse_bytes, parse_milli, parse_duration])
def test_long_text_is_no_amount(parse: Any) -> None:
    for text in ("1" * 256, "1" + " " * 256, "9" * 10_000, "1m" * 200):
        with pytest.raises(ValueError, match="expected"):
            parse(text)


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else []


@pytest.mark.parametrize(
    "data",
    [
        nested(MAX_DEPTH + 1),
        nested(10_000 // 100),
        {str(number): 1 for number in range(MAX_KEYS + 1)},
        [[0] * (MAX_VALUES // 2)] * 3,
    ],
    ids=["a level too deep", "far too deep", "too many keys", "too many values"],
)
def test_data_beyond_its_shape_is_refused(data: Any) -> None:
    with pytest.raises(InvalidSpec, match="at most"):
        check_shape(data)


def test_data_as_large_as_it_may_be_is_accepted() -> None:
    check_shape(nested(MAX_DEPTH))
    check_shape({str(number): 1 for number in range(MAX_KEYS)})
    check_shape([0] * MAX_VALUES)


def test_of_many_problems_fifty_are_told_and_how_many_more_there_are() -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_spec(JobSpec, {"command": "x"} | {f"wrong{n}": 1 for n in range(200)})
    problems = refused.value.problems
    assert len(problems) == MAX_PROBLEMS == 50
    assert "151 more problems" in problems[-1].expected
    assert all(len(problem.sentence()) < 1_000 for problem in problems)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 65_000, "levels"),
        ("- " * 30_000, "levels"),
        ("{" * 65_000, "levels"),
        ("command: [" + "x," * 90_000 + "]", "values in all"),
        ("command: !!binary aGVsbG8=", "tags"),
        ("tasks: !!int '1'", "tags"),
        ("a: &a [x]\ncommand: *a", "aliases"),
    ],
)
def test_yaml_that_costs_much_is_given_up_where_it_becomes_so(text: str, told: str) -> None:
    with pytest.raises(InvalidSpec, match=told):
        load_spec(text, aliases=False)


def test_long_word_of_yaml_is_text_whatever_it_looks_like() -> None:
    spec = load_spec(json.dumps({"command": ["echo", "x"]}).replace('"x"', "1" * 300))
    assert isinstance(spec, JobSpec)
    assert spec.command[1] == "1" * 300
