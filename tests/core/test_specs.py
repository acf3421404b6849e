"""What people write, and what they are told when it is wrong."""

from typing import Any

import pytest

from muster.core.errors import InvalidSpec
from muster.core.specs import JobSpec, ScalingGroup, SessionSpec, load_spec, parse_spec


def problems(spec: dict[str, Any], model: Any = JobSpec) -> list[str]:
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(model, spec)
    return [problem.sentence() for problem in caught.value.problems]


def test_job_needs_only_a_command() -> None:
    spec = load_spec("command: [python, train.py]")
    assert isinstance(spec, JobSpec)
    assert spec.tasks == 1
    assert spec.resources.resources().cpu_milli == 1000
    assert spec.max_retries_preemption == 100


def test_spec_is_the_same_after_it_was_written_and_read() -> None:
    spec = load_spec(
        "{command: x, timeout: 5m,"
        " resources: {cpu: 500m, gpu: 0.5, memory: 1GiB, extra: {licence: 2}}}"
    )
    assert isinstance(spec, JobSpec)
    assert JobSpec.model_validate_json(spec.model_dump_json(exclude_defaults=True)) == spec
    assert JobSpec.model_validate(spec.model_dump()) == spec


def test_command_as_text_is_for_the_shell() -> None:
    assert parse_spec(JobSpec, {"command": "echo a | wc"}).command == [
        "/bin/sh",
        "-c",
        "echo a | wc",
    ]


def test_json_is_read_as_well_as_yaml() -> None:
    assert isinstance(load_spec('{"kind": "session", "kernels": [{"command": "x"}]}'), SessionSpec)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"command": "x", "taks": 3}, "taks: unknown key; did you mean tasks?"),
        ({"command": "x", "resources": {"gpus": 1}}, "gpus: unknown key; did you mean gpu?"),
        ({}, "command: missing, and it has no default"),
        ({"command": []}, "command: "),
        ({"command": "  "}, "command is '  ': expected a command"),
        ({"command": "x", "tasks": 0}, "tasks is 0: expected greater than or equal to 1"),
        ({"command": "x", "resources": {"cpu": -1}}, "resources.cpu is -1: expected a number"),
        ({"command": "x", "resources": {"memory": "lots"}}, "memory is 'lots': expected a size"),
        ({"command": "x", "resources": {"gpu": 1.5}}, "gpu is 1.5: expected a whole"),
        ({"command": "x", "tasks": 10_001, "coscheduled": True}, "at most 10000 in a coscheduled"),
        ({"command": "x", "files": {"../x": ""}}, "expected a path inside the working directory"),
        ({"command": "x", "files": {"/etc/x": ""}}, "expected a path inside the working directory"),
        ({"command": "x", "workdir": "../up"}, "workdir is '../up': expected an absolute path"),
        ({"command": "x", "timeout": "soon"}, "timeout is 'soon': expected a duration"),
        ({"command": "x", "name": "a b"}, "name is 'a b': expected letters"),
        ({"command": True}, 'command is true: expected text: quote it, as "true"'),
        ({"command": "x", "name": 7}, 'name is 7: expected text: quote it, as "7"'),
        ({"command": ["a\0b"]}, "command.0 is 'a\\x00b': expected text without NUL"),
    ],
)  # fmt: skip
def test_wrong_job_is_told_field_value_and_what_was_expected(
    spec: dict[str, Any], told: str
) -> None:
    (sentence,) = problems(spec)
    assert told in sentence


def test_all_problems_are_told_not_the_first() -> None:
    assert len(problems({"command": "x", "tasks": 0, "resources": {"cpu": "x"}, "nmae": "a"})) == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "spec is empty"),
        ("just words", "spec is a str"),
        ("kind: jop\ncommand: x", "did you mean job?"),
        ("command: [a, b", "not readable as YAML"),
        ("kind: [1]\ncommand: x", "expected one of job"),
        ("command: x\ntasks: 1\ntasks: 2", "line 3: the key tasks stands here again, after line 2"),
        ("command: x\nenv: {A: 1,\n  A: 2}", "line 3: the key A stands here again, after line 2"),
        ('{"command": "x", "command": "y"}', "line 1: the key command stands here again"),
    ],
)
def test_text_that_is_no_spec_is_refused_with_a_sentence(text: str, told: str) -> None:
    with pytest.raises(InvalidSpec, match=told.replace("?", r"\?")):
        load_spec(text)


def test_spec_that_is_too_large_is_refused_unread() -> None:
    with pytest.raises(InvalidSpec, match="at most"):
        load_spec("command: " + "x" * (1024 * 1024))


def test_group_holds_only_what_is_inside_its_workspaces() -> None:
    group = ScalingGroup(name="g", workspaces=("/data", "/home/ada"))
    assert group.holds("/data")
    assert group.holds("/data/x")
    assert not group.holds("/database")
    assert not group.holds("/home")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("soon", None),
        ("90", 90),
        ("1.5", 1.5),
        ("90s", 90),
        ("1h30m", 5400),
        ("250ms", 0.25),
        (5, 5),
    ],
)
def test_durations_have_units(text: Any, seconds: float | None) -> None:
    spec = {"command": "x", "timeout": text}
    if seconds is None:
        assert "expected a duration" in problems(spec)[0]
    else:
        assert parse_spec(JobSpec, spec).timeout == seconds
