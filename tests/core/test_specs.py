"""Specs as people write them, and the sentences on wrong ones."""

import re
from typing import Any

import pytest

from muster.core.errors import InvalidSpec
from muster.core.specs import (
    Dependency,
    DependencyCondition,
    JobSpec,
    ScalingGroup,
    SessionSpec,
    load_keys,
    load_spec,
    parse_spec,
    spec_of,
)


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
        ({"command": []}, "command is []: expected at least 1 item"),
        ({"command": "  "}, "command is '  ': expected a command"),
        ({"command": "x", "tasks": 0}, "tasks is 0: expected at least 1"),
        ({"command": "x", "priority": 101}, "priority is 101: expected at most 100"),
        ({"command": "x", "gpu": 1}, "gpu: unknown key; did you mean resources.gpu?"),
        ({"command": "x", "retries": 2}, "unknown key; did you mean max_retries_failure?"),
        ({"command": "x", "time": "1h"}, "time: unknown key; did you mean timeout?"),
        ({"command": "x", "workingDir": "/"}, "workingDir: unknown key; did you mean workdir?"),
        ({"command": "x", "needs": ["prep"]}, "needs: unknown key; did you mean after?"),
        ({"command": "x", "env": {"1A": ""}}, "at most 255 of them, the first no digit"),
        ({"command": "x", "resources": {"gpu_model": "T4"}}, "gpu_model is 'T4': expected only"),
        ({"command": "x", "resources": {"cpu": -1}}, "resources.cpu is -1: expected a number"),
        ({"command": "x", "resources": {"memory": "lots"}}, "memory is 'lots': expected a size"),
        ({"command": "x", "resources": {"gpu": 1.5}}, "gpu is 1.5: expected a whole"),
        ({"command": "x", "tasks": 10_001, "coscheduled": True}, "at most 10000 in a coscheduled"),
        ({"command": "x", "files": {"../x": ""}}, "expected a path inside the working directory"),
        ({"command": "x", "files": {"/etc/x": ""}}, "expected a path inside the working directory"),
        ({"command": "x", "files": {"": ""}}, "expected a path inside the working directory"),
        ({"command": "x", "files": {".": ""}}, "expected a path without '.'"),
        ({"command": "x", "files": {"./x": ""}}, "expected a path without '.'"),
        ({"command": "x", "files": {"a//b": ""}}, "expected a path without '.'"),
        ({"command": "x", "files": {"a/": ""}}, "expected a path without '.'"),
        ({"command": "x", "files": {"a/" + "é" * 128: ""}}, "at most 255 bytes between two"),
        ({"command": "x", "files": {"a/" * 512 + "b": ""}}, "expected at most 1024 bytes"),
        ({"command": "x", "files": {"a/b/c": "", "a/b": ""}}, "'a/b': this is a file, and a dir"),
        ({"command": "x", "workdir": "../up"}, "workdir is '../up': expected an absolute path"),
        ({"command": "x", "timeout": "soon"}, "timeout is 'soon': expected a duration"),
        ({"command": "x", "timeout": 0}, "timeout is 0: expected more than 0"),
        ({"command": "x", "grace": "2h"}, "grace is '2h': expected at most 1h00m"),
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


def test_value_of_another_type_is_told_as_it_was_written_with_what_is_expected() -> None:
    cases = {
        "not_before: 2027-01-31T08:00:00": "not_before is 2027-01-31T08:00:00: expected a moment",
        "after: prep": "after is 'prep': expected a list, such as [prep]",
        "after: [3]": "after.0 is 3: expected the name or id of work",
        "after: ['prep:']": "expected one of running, succeeded, ended, failed, healthy after",
        "resources: 4": "resources is 4: expected keys with values; known are cpu, disk",
        "resources: {cpu: [4]}": "resources.cpu: expected a number such as 4",
        "resources: {gpu: 1, gpu_model: ''}": "gpu_model is '': expected models such as H100",
        "tasks: two": "tasks is 'two': expected a whole number",
        "coscheduled: maybe": "coscheduled is 'maybe': expected true or false",
        "env: {DEBUG: true}": "env.DEBUG is true: expected text",
        "env: [A]": 'env is ["A"]: expected keys with values',
        "name: yes": 'name is true: expected text: quote it, as "true"',
        "name: []": "name is []: expected text",
        "kind: session\nkernels: 2": "kernels is 2: expected a list, such as [{command:",
        "kind: session\nkernels: '2'": "kernels is '2': expected a list, such as [{command:",
        "kind: session\nkernels: [x]": "kernels.0 is 'x': expected keys with values; known are c",
        "kind: group\nname: g\npreemption: true": "preemption is true: expected keys with values; "
        "known are before_scaling, least_difference, minimum_lease, mode, scope",
    }
    for text, told in cases.items():
        command = "" if text.startswith("kind") else "command: x\n"
        with pytest.raises(InvalidSpec, match=re.escape(told)) as refused:
            load_spec(command + text)
        assert len(refused.value.problems) == 1


def test_unknown_key_is_told_with_those_of_where_it_stands() -> None:
    told = problems({"command": "x", "placement": {"constraints": [{"attribute": "a", "is": 1}]}})
    assert told == [
        "placement.constraints.0.is: unknown key; known are attribute, op, soft, values"
    ]
    near = {"constraints": [{"attribute": "a", "value": "b"}]}
    assert "did you mean values?" in problems({"command": "x", "placement": near})[0]


def test_after_may_be_written_with_the_key_that_yaml_takes_for_true() -> None:
    spec = load_spec("{command: x, after: [{on: prep, condition: ended}]}")
    assert isinstance(spec, JobSpec)
    assert spec.after == (Dependency(on="prep", condition=DependencyCondition.ENDED),)


def test_rules_between_kernels_are_refused_where_each_kernel_is_placed_by_itself() -> None:
    rules: dict[str, Any] = {"mode": "single-node", "together": "rack", "rank_by": "slot"}
    rules["max_kernels_per_agent"] = 2
    several = {"command": "x", "tasks": 4, "placement": rules}
    assert problems(several) == [
        f"placement.{key} is {value!r}: this is for gangs: set coscheduled: true"
        for key, value in rules.items()
    ]
    for spec in ({**several, "coscheduled": True}, {**several, "tasks": 1}):
        assert parse_spec(JobSpec, spec).placement.together == "rack"
    JobSpec.model_validate(several)  # one that was accepted before this was refused goes on


@pytest.mark.parametrize("kind", ["command: x", "{kind: session, kernels: [{command: x}]}"])
def test_grouping_of_no_set_is_refused(kind: str) -> None:
    spec = {**load_keys(kind), "placement": {"set_grouping": "spread"}}
    with pytest.raises(InvalidSpec, match=r"placement.set_grouping is 'spread': this is for the"):
        spec_of(spec)
    spec_of({**spec, "placement": {"set_grouping": "pack", "set": "trial"}})


@pytest.mark.parametrize("project", ["research", "a/b/c", "/b", "*/b", ""])
def test_project_of_a_group_has_its_domain(project: str) -> None:
    told = problems({"name": "g", "projects": ["default/research", project]}, ScalingGroup)
    assert told == [f"projects.1 is {project!r}: expected domain/project, such as default/research"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "spec is empty"),
        ("just words", "spec is text: expected keys and values"),
        ("- a", "spec is a list"),
        ("5", "spec is a single value"),
        ("kind: jop\ncommand: x", "did you mean job?"),
        ("command: [a, b", "not readable as YAML"),
        ("kind: [1]\ncommand: x", "expected one of deployment, group, job"),
        ("command: x\ntasks: 1\ntasks: 2", "line 3: the key tasks stands here again, after line 2"),
        ("command: x\nenv: {A: 1,\n  A: 2}", "line 3: the key A stands here again, after line 2"),
        ('{"command": "x", "command": "y"}', "line 1: the key command stands here again"),
        ("notify: {'https://h/k': 1, 'https://h/k': 2}", "line 1: the key … stands here again"),
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
    assert group.has_workspace_of("/data")
    assert group.has_workspace_of("/data/x")
    assert not group.has_workspace_of("/database")
    assert not group.has_workspace_of("/home")


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


@pytest.mark.parametrize(
    ("keys", "field", "told"),
    [
        ({"tasks": True}, "tasks", "whole number"),
        ({"tasks": "3"}, "tasks", "whole number"),
        ({"tasks": 3.0}, "tasks", "whole number"),
        ({"priority": False}, "priority", "whole number"),
        ({"coscheduled": "yes"}, "coscheduled", "true or false"),
        ({"keep_going": 1}, "keep_going", "true or false"),
        ({"name": "job-01kaec7mc2qv3x9p"}, "name", "taken for an id"),
        ({"name": "01KAEC7MC2QV3X9P"}, "name", "taken for an id"),
        ({"name": "ses-1"}, "name", "taken for an id"),
        ({"env": {"MUSTER_TASK_INDEX": "3"}}, "env.MUSTER_TASK_INDEX", "Muster sets MUSTER_*"),
    ],
)
def test_slip_of_the_pen_is_said_at_submission(
    keys: dict[str, object], field: str, told: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_spec(JobSpec, {"command": ["x"], **keys})
    (problem,) = refused.value.problems
    assert problem.field == field
    assert told in problem.expected


@pytest.mark.parametrize("name", ["job-1", "train", "beef", "sessions", "01kaec7m"])
def test_name_that_only_begins_like_an_id_is_accepted(name: str) -> None:
    assert parse_spec(JobSpec, {"command": ["x"], "name": name}).name == name


def test_client_of_a_cluster_may_be_told_where_that_is() -> None:
    env = {"MUSTER_URL": "http://127.0.0.1:1", "MUSTER_TOKEN": "x"}
    assert parse_spec(JobSpec, {"command": ["x"], "env": env}).env == env


def test_session_with_a_slip_names_the_kernel() -> None:
    kernels = [{"command": ["x"]}, {"command": ["x"], "env": {"MUSTER_JOB_ID": "1"}}]
    with pytest.raises(InvalidSpec, match=r"kernels\.1\.env\.MUSTER_JOB_ID"):
        parse_spec(SessionSpec, {"kernels": kernels})


def test_session_of_too_many_kinds_of_kernels_is_refused_and_one_accepted_before_is_read() -> None:
    kinds = [{"command": ["x"], "resources": {"memory": f"{n}MiB"}} for n in range(1, 258)]
    spec = SessionSpec.model_validate({"kernels": kinds})
    (problem,) = spec.contradictions()
    assert problem.field == "kernels"
    assert not list(SessionSpec.model_validate({"kernels": kinds[1:]}).contradictions())


def test_port_of_its_own_is_for_the_kernel_of_a_session_of_one() -> None:
    kernel = {"command": ["x"], "port": 9777}
    parse_spec(SessionSpec, {"kernels": [kernel]})
    for kernels in ([{**kernel, "replicas": 2}], [{"command": ["y"]}, kernel]):
        with pytest.raises(InvalidSpec, match=r"kernels\.[01]\.port.*use ports"):
            parse_spec(SessionSpec, {"kernels": kernels})
