"""Commands that fail in many ways: the right reason, all processes gone, the agent unharmed."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.e2e.cluster import Cluster, agent, started
from tests.patience import until

from muster.core.reasons import ReasonCode
from muster.core.states import JobState
from muster.core.views.work import KernelView

LOG_MAX_BYTES = 4 * 2**20
GRACE_S = 0.5
FLOOD_S = 1.0  # at some 100 MB/s


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    one = agent("one", cpu_milli=4000, memory_bytes=2**30, log_max_bytes=LOG_MAX_BYTES)
    path = tmp_path_factory.mktemp("commands") / "home"
    with started(Cluster(path, [one])) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _agent_is_well_afterwards(cluster: Cluster) -> Iterator[None]:
    """The next command runs at once, and nothing of the last one is left, after each test."""
    yield
    with cluster.client() as client:
        job = client.submit(command=["/bin/echo", "well"])
        assert client.wait(job.id, 30.0).state == JobState.SUCCEEDED
        assert b"".join(client.logs(job.id)) == b"well\n"
    until(lambda: cluster.kernels() == [])
    until(lambda: cluster.query("SELECT count(*) FROM allocations") == [(0,)])


def ended_attempt(cluster: Cluster, job: str, state: JobState) -> KernelView:
    """The only attempt of a job's only task, once the job has ended in ``state``."""
    with cluster.client() as client:
        ended = client.wait(job, 30.0)
        assert ended.state == state, ended
        until(lambda: all(attempt.ended for attempt in client.task(job, 0).attempts))
        (attempt,) = client.task(job, 0).attempts
        return attempt


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("program", ["/no/such/program", "no-such-program-in-any-path"])
def test_command_that_does_not_exist_fails_with_127_and_says_so(
    cluster: Cluster, program: str
) -> None:
    with cluster.client() as client:
        job = client.submit(command=[program])
        attempt = ended_attempt(cluster, job.id, JobState.FAILED)
        assert attempt.exit_code == 127
        assert attempt.reason is not None
        assert attempt.reason.code == ReasonCode.COMMAND_NOT_FOUND
        assert program in attempt.reason.sentence
        reason = client.job(job.id).reason
        assert reason is not None
        assert program in reason.sentence, "the job itself names the program"


def test_command_that_is_not_executable_fails_with_126(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    with cluster.client() as client:
        job = client.submit(command=[str(tmp_path / "text")])
    attempt = ended_attempt(cluster, job.id, JobState.FAILED)
    assert attempt.exit_code == 126
    assert attempt.reason is not None
    assert attempt.reason.code == ReasonCode.COMMAND_NOT_EXECUTABLE


def test_cancel_of_a_command_that_ignores_sigterm_kills_it_after_its_grace(
    cluster: Cluster, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    script = f"trap '' TERM; echo $$ >{pid_file}.new; mv {pid_file}.new {pid_file}; sleep 1000"
    with cluster.client() as client:
        job = client.submit(command=f"{script} & while :; do wait; done", grace=GRACE_S)
        until(pid_file.exists)
        pid = int(pid_file.read_text())
        cancelled_at = time.time()
        assert client.cancel(job.id).changed
        attempt = ended_attempt(cluster, job.id, JobState.KILLED)
    assert attempt.signal == 9
    assert attempt.ended_at is not None
    assert attempt.ended_at - cancelled_at >= GRACE_S
    assert not alive(pid)


def test_command_that_floods_its_output_neither_silences_the_agent_nor_fills_the_disk(
    cluster: Cluster,
) -> None:
    with cluster.client() as client:
        flood = client.submit(command=["dd", "if=/dev/zero", "bs=1M"], grace=GRACE_S)
        until(lambda: client.task(flood.id, 0).started_at)
        logs = cluster.home.agent_directory("one") / "logs"
        until(lambda: size_bytes(logs) > LOG_MAX_BYTES)
        other = client.submit(command=["/bin/echo", "still here"])
        assert client.wait(other.id, 30.0).state == JobState.SUCCEEDED
        assert b"".join(client.logs(other.id)) == b"still here\n"
        time.sleep(FLOOD_S)
        client.cancel(flood.id)
        assert ended_attempt(cluster, flood.id, JobState.KILLED).signal == 15, "it went on till now"
        kept = b"".join(client.logs(flood.id))
        assert LOG_MAX_BYTES <= len(kept) <= 2 * LOG_MAX_BYTES
    assert size_bytes(logs) <= 2 * LOG_MAX_BYTES + 2**20


def size_bytes(directory: Path) -> int:
    size = 0
    for path in directory.iterdir():
        with suppress(FileNotFoundError):  # a log that is being rotated
            size += path.stat().st_size
    return size


@pytest.mark.parametrize("environment", ["its own", "none"])
def test_children_that_left_the_session_are_gone_when_the_task_has_ended(
    cluster: Cluster, tmp_path: Path, environment: str
) -> None:
    pid_file = tmp_path / "pid"
    child = f"echo $$ >{pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 1000"
    leave = "setsid env -i" if environment == "none" else "setsid"
    script = f"({leave} sh -c '{child}' &) & until [ -e {pid_file} ]; do sleep 0.01; done"
    with cluster.client() as client:
        job = client.submit(command=script)
        attempt = ended_attempt(cluster, job.id, JobState.SUCCEEDED)
    assert attempt.exit_code == 0
    pid = int(pid_file.read_text())
    # Without a cgroup one that hides its kernel's name is found a moment later.
    until(lambda: not alive(pid), 0.0 if environment == "its own" else 1.0)


def test_command_above_its_memory_limit_is_out_of_memory(cluster: Cluster) -> None:
    with cluster.client() as client:
        limits = client.agents()[0].attributes["limits"]
        if limits == "none":
            pytest.skip("no writable cgroup here: kernels run without memory limits")
        job = client.submit(command=["tail", "/dev/zero"], resources={"memory": "64MiB"})
        attempt = ended_attempt(cluster, job.id, JobState.FAILED)
    assert attempt.signal == 9
    assert attempt.reason is not None
    assert attempt.reason.code == ReasonCode.OUT_OF_MEMORY
