"""kill -9 of the controller, of agents, of both, at any time: nothing is lost, nothing runs twice.

The tasks prove it themselves, by the marks that they write.
"""

import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.databases import url_at
from tests.e2e.cluster import Cluster, agent, started
from tests.e2e.markers import Mark, marked, read_marks
from tests.patience import until

from muster.app.maintenance.checking import check
from muster.client import Client, Unavailable, Unreachable
from muster.core.specs import JobSpec
from muster.core.states import JobState, TaskState

SEED = int(os.environ.get("MUSTER_TEST_SEED", "2"))
MOMENTS = {"sqlite": 30, "postgresql": 12}
"""When something is killed, by the kind of the database."""
MOST_TIMES = 3
"""So many times as often it is killed at most, as long as nothing was shown."""
LONGEST_GAP_S = 0.6
LONGEST_OUTAGE_S = 0.3
KILLED_WHILE_STARTING = 0.3  # of the moments; at the others the controller has come up before
AGENTS = {"one": 2, "two": 1, "three": 1}  # processors, each of which one task takes
JOBS, TASKS, GANG = 8, 37, 4  # 8 x 37 + 4 = 300
FLAKY, NEVER = 5, 1000  # each fifth task of every other job fails at first
WORKLOAD_TIMEOUT_S = 120.0  # a server may be away for a minute of it

# 0 to 200 ms; "flaky" tasks fail at first, all with codes that tell them apart.
_WORK = """
ms=$(( (MUSTER_TASK_INDEX * 73 + SALT * 31) % 201 ))
sleep $(printf 0.%03d $ms)
code=0
if [ $(( (MUSTER_TASK_INDEX + 1) % FLAKY )) -eq 0 ] && [ $MUSTER_ATTEMPT -eq 1 ]; then
    code=$(( MUSTER_TASK_INDEX + 1 ))
fi
"""
# Waits until all of the gang are there: each depends on all the others having been started.
_GANG_WORK = """
code=0
until [ $(grep -c "^$MUSTER_JOB_NAME .* begin" "$MARKERS/lines") -ge $MUSTER_TASK_COUNT ]; do
    sleep 0.02
done
"""


def specs(markers: Path) -> list[dict[str, Any]]:
    """The workload, in the order in which it is handed in: the gang comes in the middle."""
    jobs: list[dict[str, Any]] = [
        {
            "name": f"work-{number}",
            "command": marked(_WORK),
            "tasks": TASKS,
            "max_retries_failure": 1,
            "env": {
                "MARKERS": str(markers),
                "SALT": str(number),
                "FLAKY": str(FLAKY if number % 2 else NEVER),
            },
        }
        for number in range(JOBS)
    ]
    gang = {
        "name": "gang",
        "command": marked(_GANG_WORK),
        "tasks": GANG,
        "coscheduled": True,
        "env": {"MARKERS": str(markers)},
    }
    return [*jobs[: JOBS // 2], gang, *jobs[JOBS // 2 :]]


def attempts_expected(spec: dict[str, Any], task: int) -> list[int]:
    """The exit codes of a task's attempts, in order."""
    flaky = int(spec["env"].get("FLAKY", NEVER))
    return [0] if (task + 1) % flaky else [task + 1, 0]


@pytest.fixture
def cluster(tmp_path: Path, database: str) -> Iterator[Cluster]:
    agents = [agent(name, cpu_milli=1000 * cpus) for name, cpus in AGENTS.items()]
    url = url_at(tmp_path) if database == "postgresql" else None
    with started(Cluster(tmp_path / "home", agents, url)) as cluster:
        yield cluster


def boot_clock() -> float:
    """The clock of the marks, which is /proc/uptime."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def kill_and_start(cluster: Cluster, rng: random.Random) -> tuple[float, float]:
    """SIGKILL for the controller, for agents, or for both, and a new life for them soon after.

    Between the two moments that are returned all of them were dead.
    """
    kind = rng.choice(("controller", "agent", "agent", "agent", "both", "all"))
    victims: list[str | None] = [] if kind == "agent" else [None]  # None is the controller
    if kind == "all":
        victims += cluster.agents
    elif kind != "controller":
        victims.append(rng.choice(cluster.agents))
    rng.shuffle(victims)
    for victim in victims:
        if victim is None:
            cluster.kill_controller()
        else:
            cluster.kill_agent(victim)
    died_at = boot_clock()
    time.sleep(rng.uniform(0.0, LONGEST_OUTAGE_S))
    back_at = boot_clock()
    rng.shuffle(victims)
    for victim in victims:
        if victim is None:
            cluster.start_controller()
        else:
            cluster.start_agent(victim)
    return died_at, back_at


def hand_in(
    cluster: Cluster, workload: Sequence[dict[str, Any]], turns: Sequence[Event]
) -> list[str]:
    """Submit each job when its turn comes, whoever is dead at that time."""
    ids = []
    with cluster.client() as client:
        for spec, turn in zip(workload, turns, strict=True):
            turn.wait()
            ids.append(submitted(client, spec))
    return ids


def submitted(client: Client, spec: dict[str, Any]) -> str:
    """The job's id. Submits again if no controller answered, or could store it, for long, once one
    has said that it does not have the job."""
    deadline_s = time.monotonic() + WORKLOAD_TIMEOUT_S
    asking = False
    while True:
        assert time.monotonic() < deadline_s
        with suppress(Unreachable, Unavailable):
            for job in client.jobs("all", name=spec["name"]) if asking else ():
                return job.id
            asking = True
            return client.submit(JobSpec(**spec)).id


@pytest.mark.timeout(300)  # a minute or so, where nothing else runs
@pytest.mark.parametrize("database", MOMENTS, indirect=True)
def test_kill9_of_controller_and_agents_at_many_moments_loses_and_doubles_nothing(
    cluster: Cluster, database: str, tmp_path: Path
) -> None:
    moments = MOMENTS[database]
    markers = tmp_path / "markers"
    markers.mkdir()
    rng = random.Random(SEED)
    workload = specs(markers)
    outages: list[tuple[float, float]] = []
    turns = [Event() for _ in workload]

    def is_shown() -> bool:
        """Whether an attempt ended while nobody listened."""
        found = ends(read_marks(markers))
        return any(died <= at <= back for at in found for died, back in outages)

    with ThreadPoolExecutor(1) as pool:
        handed_in = pool.submit(hand_in, cluster, workload, turns)
        try:
            for moment in range(MOST_TIMES * moments):
                if moment >= moments and is_shown():
                    break
                turn = moment * len(workload) // (moments - 5)
                for event in turns[: turn + 1]:
                    event.set()
                if rng.random() >= KILLED_WHILE_STARTING:
                    cluster.running()
                time.sleep(rng.uniform(0.0, LONGEST_GAP_S))
                outages.append(kill_and_start(cluster, rng))
        finally:
            for event in turns:
                event.set()
        ids = handed_in.result(WORKLOAD_TIMEOUT_S)
    cluster.running()
    with cluster.client() as client:
        for id_, spec in zip(ids, workload, strict=True):
            job = client.wait(id_, WORKLOAD_TIMEOUT_S)
            assert job.state == JobState.SUCCEEDED, (job, spec["name"])
            assert job.counts == {TaskState.SUCCEEDED: spec["tasks"]}, job
        marks = read_marks(markers)
        assert_ran_once(marks, workload)
        assert_known(client, ids, workload, marks)
    until(lambda: cluster.query("SELECT count(*) FROM allocations") == [(0,)])
    until(lambda: cluster.kernels() == [])
    assert is_shown(), "some attempts must end while nobody listens"
    differing = [each for each in check(cluster.database_url) if each.found or each.trouble]
    assert differing == []


def ends(marks: Sequence[Mark]) -> list[float]:
    return [mark.at for mark in marks if mark.what == "end"]


def assert_ran_once(marks: Sequence[Mark], workload: Sequence[dict[str, Any]]) -> None:
    """Each attempt of each task began once and ended once, after the one before it was gone."""
    assert [mark for mark in marks if mark.what == "overlap"] == []
    ran: dict[tuple[str, int], list[Mark]] = defaultdict(list)
    for mark in marks:
        ran[mark.job, mark.task].append(mark)
    expected = {}
    found = {}
    for spec in workload:
        for task in range(spec["tasks"]):
            key = spec["name"], task
            expected[key] = [
                step
                for attempt, code in enumerate(attempts_expected(spec, task), 1)
                for step in ((attempt, "begin", None), (attempt, "end", code))
            ]
            found[key] = [(mark.attempt, mark.what, mark.exit_code) for mark in ran[key]]
            assert len({mark.pid for mark in ran[key]}) == len(attempts_expected(spec, task))
    assert found == expected
    assert ran.keys() == expected.keys()


def assert_known(
    client: Client, ids: Sequence[str], workload: Sequence[dict[str, Any]], marks: Sequence[Mark]
) -> None:
    """The API tells of each attempt what the attempt itself wrote."""
    wrote: dict[tuple[str, int], list[int | None]] = defaultdict(list)
    for mark in marks:
        if mark.what == "end":
            wrote[mark.job, mark.task].append(mark.exit_code)
    for id_, spec in zip(ids, workload, strict=True):
        for task in range(spec["tasks"]):
            detail = client.task(id_, task)
            assert detail.state == TaskState.SUCCEEDED
            assert [attempt.exit_code for attempt in detail.attempts] == wrote[spec["name"], task]
            assert detail.preemption_count == 0, detail
