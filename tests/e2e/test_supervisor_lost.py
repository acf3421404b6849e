"""kill -9 of the supervisor: its kernels end before they are tried again; no task runs twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster import Cluster, agent, started
from tests.e2e.markers import Mark, marked, read_marks
from tests.patience import until

from muster.core.reasons import ReasonCode
from muster.core.states import JobState, KernelStatus

# First attempts stay, with a child that has left the session, holds the task's lock as well and
# outlives whoever is not told to kill it, until the test lets them go; later ones end at once.
_WORK = """
code=0
if [ $MUSTER_ATTEMPT -eq 1 ]; then
    setsid sh -c 'echo $$ >>"$MARKERS/children"; exec sleep 1000' &
    until [ -e "$MARKERS/go" ]; do sleep 0.05; done
fi
"""
TASKS = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    agents = [agent(name, cpu_milli=2000) for name in ("one", "two")]
    path = tmp_path_factory.mktemp("supervisor_lost") / "home"
    with started(Cluster(path, agents)) as cluster:
        yield cluster


@pytest.mark.parametrize("with_it", ["nothing", "its agent", "everything"])
def test_kill9_of_the_supervisor_ends_its_kernels_before_they_are_tried_again(
    cluster: Cluster, tmp_path: Path, with_it: str
) -> None:
    markers = tmp_path / "markers"
    markers.mkdir()

    def begun(attempt: int) -> dict[int, Mark]:
        found = [mark for mark in read_marks(markers) if mark.what == "begin"]
        return {mark.task: mark for mark in found if mark.attempt == attempt}

    with cluster.client() as client:
        job = client.submit(
            name="staying", command=marked(_WORK), tasks=TASKS, env={"MARKERS": str(markers)}
        )
        until(lambda: (markers / "children").exists() and len(lines(markers)) == TASKS)
        attempts = {task: client.task(job.id, task).attempts[0] for task in range(TASKS)}
        lost = {task for task, attempt in attempts.items() if attempt.agent == "one"}
        assert len(lost) == 2, "both agents have work"

        if with_it == "everything":
            cluster.kill_controller()
        if with_it != "nothing":
            cluster.kill_agent("one")
        cluster.kill_supervisor("one")
        if with_it != "nothing":
            cluster.start_agent("one")
        if with_it == "everything":
            cluster.start_controller()

        until(lambda: begun(2).keys() == lost)
        (markers / "go").touch()
        ended = client.wait(job.id, 30.0)
        assert ended.state == JobState.SUCCEEDED
        for task in range(TASKS):
            detail = client.task(job.id, task)
            first, *others = detail.attempts
            if task in lost:
                assert first.status == KernelStatus.ERROR
                assert first.reason is not None
                assert first.reason.code == ReasonCode.SUPERVISOR_LOST
                assert [each.exit_code for each in others] == [0]
                assert detail.preemption_count == 1
            else:
                assert (first.exit_code, others, detail.preemption_count) == (0, [], 0)
    marks = read_marks(markers)
    assert [mark for mark in marks if mark.what == "overlap"] == []
    assert {mark.task for mark in marks if (mark.what, mark.attempt) == ("end", 2)} == lost
    assert {mark.task for mark in marks if (mark.what, mark.attempt) == ("end", 1)} == (
        set(range(TASKS)) - lost
    )
    until(lambda: cluster.kernels() == [])
    until(lambda: cluster.query("SELECT count(*) FROM allocations") == [(0,)])


@pytest.mark.parametrize("repetition", range(5))  # it depends on a millisecond
def test_kill9_of_the_supervisor_just_after_a_start_runs_no_attempt_twice(
    cluster: Cluster, tmp_path: Path, repetition: int
) -> None:
    with cluster.client() as client:
        job = client.submit(
            command=marked("code=0; sleep 0.1"), tasks=2, env={"MARKERS": str(tmp_path)}
        )
        until((tmp_path / "lines").exists, pause_s=0.0)
        # What it has started by now may not be in its journal yet.
        for name in cluster.agents:
            cluster.kill_supervisor(name)
        assert client.wait(job.id, 30.0).state == JobState.SUCCEEDED
    began = [(mark.task, mark.attempt) for mark in read_marks(tmp_path) if mark.what == "begin"]
    assert len(began) == len(set(began))


def lines(markers: Path) -> list[str]:
    return (markers / "children").read_text().splitlines()
