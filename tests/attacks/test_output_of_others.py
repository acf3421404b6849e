"""One user's output, or scratch directories, fill the room that an agent has for them: nobody else
loses any, and who lost some is told when and why."""

from collections.abc import Iterator

import pytest
from tests.e2e.cluster import Cluster, agent, started
from tests.living_files import bytes_below, files_below
from tests.patience import until

from muster.cli.removed_output import removed_outputs
from muster.client import Client, OutputRemoved
from muster.core.states import JobState, SessionStatus
from muster.core.views.work import HistoryView

MIB = 2**20
ROOM_BYTES = 8 * MIB
KERNELS = 40
"""Of the attacker, each with a MiB of output: five times the room."""
RESULT = "0.9812\n"
LEFT = "weights"
"""A file that the victim's kernel leaves in its scratch directory."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    rooms = {"logs_max_bytes": ROOM_BYTES, "kept_scratch_max_bytes": ROOM_BYTES}
    one = agent("one", cpu_milli=16_000, gpus="none", tidy_period_s=0.2, **rooms)
    made = Cluster(tmp_path_factory.mktemp("outputs") / "home", [one])
    with started(made):
        yield made


@pytest.fixture(scope="module")
def victim(cluster: Cluster) -> Iterator[Client]:
    with cluster.client(cluster.add_user("ada")) as client:
        yield client


@pytest.fixture(scope="module")
def flood(cluster: Cluster, victim: Client) -> Iterator[tuple[str, str, Client]]:
    """The victim's job, and the attacker's, which came after it and has ended."""
    said = f"printf '{RESULT}'; touch {LEFT}".replace("\n", "\\n")
    job = victim.submit(command=["sh", "-c", said])
    assert victim.wait(job.id, 30.0).state is JobState.SUCCEEDED
    noise = ["sh", "-c", "head -c 1048576 /dev/zero | tr '\\0' x"]
    with cluster.client(cluster.add_user("mallory")) as mallory:
        many = mallory.submit(command=noise, tasks=KERNELS, resources={"cpu": 0.1})
        assert mallory.wait(many.id, 120.0).state is JobState.SUCCEEDED
        yield job.id, many.id, mallory


def removed(client: Client, job: str) -> list[int]:
    """The tasks of a job whose output was removed."""
    found = []
    for task in range(KERNELS):
        try:
            list(client.logs(job, task=task, tail_bytes=1))
        except OutputRemoved:
            found.append(task)
    return found


def test_output_of_one_user_removes_nobody_elses(
    cluster: Cluster, victim: Client, flood: tuple[str, str, Client]
) -> None:
    job, many, mallory = flood
    gone = until(lambda: found if len(found := removed(mallory, many)) > KERNELS // 2 else None)
    assert len(gone) < KERNELS
    assert b"".join(victim.logs(job)).decode() == RESULT
    assert removed_outputs(victim, victim.job(job), None) == []
    places = [cluster.home.agent_directory("one") / "kernels", cluster.users_directory]
    kernel = victim.task(job, 0).attempts[0].id
    assert any(any(files_below(place, f"{kernel}.*/{LEFT}")) for place in places)
    assert bytes_below(cluster.home.agent_directory("one") / "logs") <= ROOM_BYTES


def rows_of_removals(client: Client, ref: str) -> list[HistoryView]:
    """The rows of a history that tell what an agent removed."""
    return [row for row in client.history(ref, limit=1000).items if row.phase == "Retention"]


def test_whoever_lost_output_is_told_when_and_why(
    victim: Client, flood: tuple[str, str, Client]
) -> None:
    job, many, mallory = flood
    (first, *_) = until(lambda: removed(mallory, many))
    with pytest.raises(OutputRemoved) as told:
        list(mallory.logs(many, task=first))
    assert "its output was removed at 20" in str(told.value)
    assert "because output of its owner took" in str(told.value)
    assert "more than the share of" in str(told.value)
    (line,) = removed_outputs(mallory, mallory.job(many), first)
    assert str(line) == f"task {first}: {told.value}"
    row = until(lambda: rows_of_removals(mallory, f"{many}/{first}"))[0]
    (why,) = row.reasons
    assert str(told.value).startswith(why.sentence)
    assert row.task_index == first
    assert rows_of_removals(victim, job) == []


def test_removed_output_of_a_session_is_told_too(flood: tuple[str, str, Client]) -> None:
    mallory = flood[2]
    noise = ["sh", "-c", "head -c 12582912 /dev/zero | tr '\\0' x"]
    session = mallory.submit({"kind": "session", "kernels": [{"command": noise}]})
    until(lambda: mallory.session(session.id).status == SessionStatus.TERMINATED)

    def is_removed() -> bool:
        try:
            list(mallory.session_logs(session.id, tail_bytes=1))
        except OutputRemoved:
            return True
        return False

    until(is_removed)
    (line,) = removed_outputs(mallory, mallory.session(session.id), None)
    assert str(line).startswith("kernel 0: its output was removed at 20")
    until(lambda: rows_of_removals(mallory, session.id))


def test_scratch_of_one_user_removes_nobody_elses(
    cluster: Cluster, victim: Client, flood: tuple[str, str, Client]
) -> None:
    job, _, mallory = flood
    fills = ["sh", "-c", "head -c 1048576 /dev/zero > filled"]
    many = mallory.submit(command=fills, tasks=KERNELS, resources={"cpu": 0.1})
    assert mallory.wait(many.id, 120.0).state is JobState.SUCCEEDED
    rows = until(lambda: rows_of_removals(mallory, many.id))
    assert rows[0].reasons[0].sentence.startswith("its scratch directory was removed at 20")
    places = [cluster.home.agent_directory("one") / "kernels", cluster.users_directory]

    def kept(client: Client, work: str, task: int, name: str) -> bool:
        kernel = client.task(work, task).attempts[0].id
        return any(any(files_below(at, f"{kernel}.*/{name}")) for at in places)

    until(lambda: sum(kept(mallory, many.id, task, "filled") for task in range(KERNELS)) <= 8)
    assert kept(victim, job, 0, LEFT)
    assert rows_of_removals(victim, job) == []


def test_why_output_is_gone_is_known_over_a_restart_of_the_agent(
    cluster: Cluster, flood: tuple[str, str, Client]
) -> None:
    _, many, mallory = flood
    before = set(until(lambda: removed(mallory, many)))
    cluster.kill_agent("one")
    cluster.start_agent("one")
    until(lambda: before <= set(removed(mallory, many)))  # it may be away for a moment
