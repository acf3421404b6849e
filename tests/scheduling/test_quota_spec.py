"""Quotas as operators write them, and the sentences on wrong ones."""

from typing import Any

import pytest

from muster.core.errors import InvalidSpec
from muster.core.specs import Level, QuotaSpec, load_spec, parse_spec

GIB = 2**30


def test_quota_is_read_in_the_units_of_people() -> None:
    spec = load_spec(
        "{kind: quota, level: project, name: default/research, sessions: 20, weight: 2.5,"
        " limits: {cpu: 64, memory: 1TiB, gpu: 7.5, extra: {licence: 3}}, largest: {gpu: 4}}"
    )
    assert isinstance(spec, QuotaSpec)
    assert (spec.level, spec.sessions, spec.pending_sessions) == (Level.PROJECT, 20, None)
    assert spec.limits.amounts == {
        "cpu": 64_000,
        "memory": 1024 * GIB,
        "gpu": 7500,
        "licence": 3000,
    }
    assert spec.largest.amounts == {"gpu": 4000}
    assert spec.weight == 2.5


def test_limit_of_nothing_is_a_limit_and_no_limit_is_none() -> None:
    spec = parse_spec(QuotaSpec, {"name": "*/*/*", "limits": {"gpu": 0}})
    assert spec.limits.amounts == {"gpu": 0}
    assert spec.largest.amounts == {}


def test_quota_is_the_same_after_it_was_written_and_read() -> None:
    spec = parse_spec(
        QuotaSpec,
        {"name": "d/p/*", "limits": {"cpu": "500m", "memory": "3GiB", "extra": {"licence": 1}}},
    )
    assert spec.limits.amounts["cpu"] == 500  # worked out before it is written
    assert QuotaSpec.model_validate_json(spec.model_dump_json()) == spec
    assert QuotaSpec.model_validate(spec.model_dump()) == spec


@pytest.mark.parametrize(
    ("level", "name"),
    [
        ("user", "default/research/ann"),
        ("user", "default/research/ann.lee@example.org"),
        ("user", "default/*/*"),
        ("project", "default/*"),
        ("project", "*/*"),
        ("domain", "default"),
        ("domain", "*"),
    ],
)
def test_names_of_a_level_are_taken(level: str, name: str) -> None:
    assert parse_spec(QuotaSpec, {"level": level, "name": name}).name == name


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"name": "ann"}, "name is 'ann': expected domain/project/user, as level is user"),
        ({"name": "*/research/ann"}, "as level is user; the last parts may be *"),
        ({"name": "default//ann"}, "expected domain/project/user"),
        ({"name": "default/re search/ann"}, "expected domain/project/user"),
        ({"level": "project", "name": "a/b/c"}, "expected domain/project, as level is project"),
        ({"level": "domain", "name": ""}, "name is '': expected domain, as level is domain"),
        ({"level": "team", "name": "a/b"}, "level is 'team': expected 'domain', 'project' or"),
        ({"name": "*/*/*", "limits": {"gpus": 3}}, "limits.gpus: unknown key; did you mean gpu?"),
        ({"name": "*/*/*", "limits": {"cpu": -1}}, "limits.cpu is -1: expected a number"),
        ({"name": "*/*/*", "sessions": -1}, "sessions is -1: expected a whole number, at least 0"),
        ({"name": "*/*/*", "weight": 0}, "weight is 0: expected more than 0"),
    ],
)
def test_wrong_quota_is_told_field_value_and_what_was_expected(
    spec: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(QuotaSpec, spec)
    (problem,) = caught.value.problems
    assert told in problem.sentence()
