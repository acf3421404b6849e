"""``muster wait``: lines as work ends, and exit codes."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proving.hollow.supervisor import Run
from tests.api.served import LARGE, ServedCluster
from tests.cli.deployed import passing_time, typed

from muster.cli.exits import ExitCode
from muster.wire.messages import Start

SMALL: dict[str, Any] = {"resources": {"cpu": "10m"}}


def behaviour(start: Start) -> Run:
    """A kernel whose command is its exit code, or ``forever``."""
    word = start.template.command[0]
    return Run(3600.0) if word == "forever" else Run(2.0 + int(word), exit_code=int(word))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    cluster = ServedCluster(tmp_path, {"a1": LARGE}, behaviour=behaviour)
    cluster.start()
    with cluster.client() as client:
        for name, word in [("good", "0"), ("bad", "7"), ("worse", "9"), ("stays", "forever")]:
            client.submit(**SMALL, name=name, command=[word])
    yield cluster
    cluster.stop()


def test_line_for_each_end_and_the_worst_exit_code(cluster: ServedCluster) -> None:
    with passing_time(cluster):
        result = typed(cluster, "wait", "worse", "bad", "good")
    assert result.exit_code == 9
    lines = [line.partition(" after ")[0] for line in result.stdout.splitlines()]
    assert lines[0] == "good succeeded", "lines come as work ends, not in the order of the request"
    assert sorted(lines) == ["bad failed", "good succeeded", "worse failed"]
    assert "exited with code 9" in result.stdout
    assert typed(cluster, "wait", "good").exit_code == 0


def test_first_exit_code_with_any(cluster: ServedCluster) -> None:
    with passing_time(cluster):
        result = typed(cluster, "wait", "--any", "stays", "bad", "worse")
    assert (result.exit_code, result.stdout.split()[0]) == (7, "bad")


def test_session_and_deployment(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        session = {"kind": "session", "name": "nb", "kernels": [{**SMALL, "command": ["0"]}]}
        client.submit(session)
        client.deploy({**SMALL, "name": "web", "command": ["forever"], "drain": 0})
    with passing_time(cluster):
        result = typed(cluster, "wait", "nb", "web", "--all")
    assert result.exit_code == 0, result.output
    assert sorted(line.split(":")[0] for line in result.stdout.splitlines()) == [
        "deployment web",
        "nb succeeded",
    ]
    assert "deployment web: 1 of 1 replica healthy" in result.stdout


def test_time_that_is_over_leaves_the_work_alone(cluster: ServedCluster) -> None:
    with cluster.client() as client:
        client.cancel("good")
    result = typed(cluster, "wait", "stays", "good", "--timeout", "50ms")
    assert result.exit_code == ExitCode.NOT_ENDED
    assert result.stdout.startswith("good cancelled")
    assert result.stderr == "the time is over; these go on: stays\n"
    with cluster.client() as client:
        assert not client.job("stays").ended


def test_interrupt_leaves_the_work_alone(cluster: ServedCluster) -> None:
    before = cluster.call(cluster.requests_under_way)

    def interrupt() -> None:
        cluster.until(lambda: cluster.requests_under_way() > before)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    result = typed(cluster, "wait", "stays")
    thread.join()
    assert result.exit_code == ExitCode.NOT_ENDED
    assert result.stderr == "nobody waits any more: the work goes on\n"
    with cluster.client() as client:
        assert not client.job("stays").ended


def test_json_is_what_is_over(cluster: ServedCluster) -> None:
    with passing_time(cluster):
        result = typed(cluster, "wait", "bad", "--json")
    (found,) = json.loads(result.stdout)
    assert (found["name"], found["exit_code"], result.exit_code) == ("bad", 7, 7)


def test_wrong_uses_are_told(cluster: ServedCluster) -> None:
    task = typed(cluster, "wait", "bad/0")
    assert (task.exit_code, "wait for its job" in task.stderr) == (2, True)
    assert "did you mean worse?" in typed(cluster, "wait", "worze").stderr
    assert "a1 is an agent" in typed(cluster, "wait", "a1").stderr
    assert "--timeout is 'soon'" in typed(cluster, "wait", "bad", "--timeout", "soon").stderr
