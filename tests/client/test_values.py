"""Values of Python that scripts pass: paths, time spans, members of enumerations, records."""

import enum
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.client import Client, InvalidSpec
from muster.client.encoding import plain_of, query_of, ref_of, said_of
from muster.client.workdir import with_absolute_workdirs
from muster.core.specs import SessionSpec
from muster.core.specs.matrix import as_text
from muster.core.specs.session import SessionType
from muster.core.states import JobState

SMALL: dict[str, Any] = {"command": ["true"], "resources": {"cpu": "10m"}}


class Speed(enum.Enum):
    SLOW = "slow"


class Number(enum.IntEnum):
    TWO = 2


def train() -> None:
    pass


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Path("/data/x"), "/data/x"),
        (timedelta(hours=1, milliseconds=500), 3600.5),
        (Speed.SLOW, "slow"),
        (Number.TWO, 2),
        (JobState.RUNNING, "RUNNING"),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        ({"only": range(0, 861, 4)}, {"only": "0-860:4"}),
        ({"only": range(9, 0, -3)}, {"only": "3-9:3"}),
        ({"ports": range(2)}, {"ports": [0, 1]}),
        (datetime(2027, 1, 31, 8, tzinfo=UTC), "2027-01-31T08:00:00+00:00"),
        ({"a": (Path("b"), {Speed.SLOW: True})}, {"a": ["b", {"slow": True}]}),
        (None, None),
    ],
)
def test_values_of_python_are_sent_as_people_would_write_them(value: Any, plain: Any) -> None:
    assert plain_of(value) == plain
    assert type(plain_of(value)) is type(plain)


def test_job_is_handed_in_with_paths_and_time_spans(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = client.submit(
        command=["python", Path("train.py")],
        resources={"cpu": "10m"},
        workdir=Path("runs"),
        timeout=timedelta(minutes=90),
        not_before=timedelta(hours=2),
        tasks=Number.TWO,
    )
    spec = client.job(job).spec
    assert (spec["command"], spec["workdir"]) == (["python", "train.py"], str(tmp_path / "runs"))
    assert (spec["timeout"], spec["tasks"]) == (5400.0, 2)
    assert abs(spec["not_before"] - datetime.now(UTC).timestamp()) > 3600
    kernels = [{**SMALL, "grace": timedelta(seconds=3)}]
    session = client.submit(
        {"kind": "session", "type": SessionType.INTERACTIVE, "kernels": kernels}
    )
    assert client.session(session.id).type == "interactive"
    client.cancel(job)
    client.cancel(session)


def test_record_stands_for_its_id(client: Client) -> None:
    job = client.submit(**SMALL)
    assert client.why(job).subject == job.id
    assert client.history(job).items
    assert client.task(job, 0).job_id == job.id
    client.cancel(job)
    assert client.wait(job, 20).id == client.wait(client.job(job), 20).id == job.id
    assert client.jobs.show(job).exit_code == 130
    assert job.id in [each.id for each in client.jobs(JobState.KILLED)]


def test_record_is_what_work_waits_for(client: Client) -> None:
    first = client.submit(**SMALL)
    for after in ([first], [client.job(first)], [{"on": first, "condition": "ended"}]):
        then = client.submit(**SMALL, after=after)
        assert [each["on"] for each in client.job(then).spec["after"]] == [first.id]
        client.cancel(then)
    client.cancel(first)


def test_deployment_is_used_by_its_name_and_waited_for_by_its_id(client: Client) -> None:
    made = client.deploy({"name": "chat", **SMALL, "replicas": 0})
    keys = plain_of({"uses": [made], "after": [{"on": made, "condition": "healthy"}]})
    assert keys == {"uses": ["chat"], "after": [{"on": made.id, "condition": "healthy"}]}
    client.cancel(made)


def test_retry_takes_moments_as_submit_does(client: Client) -> None:
    job = client.submit(**SMALL)
    client.cancel(job)
    client.wait(job, 20)
    again = client.retry(job, changes={"not_before": timedelta(hours=2)})
    moment = client.job(again).spec["not_before"]
    assert abs(moment - datetime.now(UTC).timestamp()) > 3600
    client.cancel(again)


@pytest.mark.parametrize("wrong", [None, 7, b"job-1", object()])
def test_no_reference_is_refused_with_what_is_expected(client: Client, wrong: Any) -> None:
    with pytest.raises(TypeError, match="expected a name, an id, or a record"):
        client.wait(wrong)
    with pytest.raises(TypeError, match="expected a name, an id, or a record"):
        ref_of(wrong)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda client: client.submit(train), "is a Python function, and these are not sent"),
        (lambda client: client.deploy(train), "is a Python function"),
        (lambda client: client.submit("echo hi"), r"command='echo hi'"),
        (lambda client: client.submit(["echo", "hi"]), r"command=\['echo', 'hi'\]"),
        (lambda client: client.submit(7), "expected a spec, or the keys of one as a mapping"),
        (
            lambda client: client.submit(SMALL, tasks=3, name="x"),
            "give a spec or its keys, not both: put tasks, name into the spec",
        ),
        (
            lambda client: client.submit(SessionSpec.model_validate({"kernels": [SMALL]}), name=""),
            "not both: put name into the spec",
        ),
    ],
)
def test_arguments_that_are_no_spec_are_refused_with_what_to_do(
    client: Client, call: Callable[[Any], Any], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        call(client)


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"command": train}, "command"),
        ({"command": ["x", train]}, "command.1"),
        ({**SMALL, "env": {"A": object()}}, "env.A"),
        ({"kind": "session", "kernels": [{"command": train}]}, "kernels.0.command"),
    ],
)
def test_value_that_no_request_can_hold_is_named(
    client: Client, keys: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        client.submit(keys)
    assert [problem.field for problem in refused.value.problems] == [field]


def test_query_takes_members_of_enumerations() -> None:
    speed: Any = Speed.SLOW
    assert query_of({"state": JobState.RUNNING, "speed": speed}) == "state=RUNNING&speed=slow"


def test_parameter_that_is_called_as_a_directory_is_left_as_it_was_written() -> None:
    points = [{"workdir": "a"}, {"workdir": "b"}]
    kernels = [{"workdir": "a"}]
    keys = {"matrix": points, "kernels": kernels}
    found = with_absolute_workdirs(keys, "/here")
    assert found == {"matrix": points, "kernels": [{"workdir": "/here/a"}]}


def test_truth_value_of_a_parameter_is_asked_for_as_it_is_stored() -> None:
    assert said_of(True, "fp16") == as_text(True) == "true"
    assert str(said_of(0.1, "lr")) == as_text(0.1)
