"""A cluster whose state is on a PostgreSQL server: of real processes, some of which are killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from tests.databases import SETTINGS, Server, running_server
from tests.e2e.cluster import Cluster, agent, assert_no_survivors, started
from tests.e2e.markers import read_marks
from tests.e2e.test_kill9 import assert_ran_once, hand_in, specs
from tests.patience import until

from muster.app.home import Home
from muster.app.keeper import last_kept
from muster.app.local import down
from muster.core.errors import Superseded
from muster.core.states import JobState, TaskState

AWAY_S = float(os.environ.get("MUSTER_TEST_AWAY_S", "4"))
"""How long the server is away: a minute where there is time for that."""
KILLS = 4
MUSTER = Path(sys.executable).with_name("muster")
LIMIT_S = 120.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that tests may kill; what it answered is on its disk."""
    with running_server(SETTINGS | {"synchronous_commit": "on"}) as server:
        yield server


@pytest.fixture
def database(server: Server) -> str:
    return server.url(server.database())


@pytest.fixture
def cluster(tmp_path: Path, database: str) -> Iterator[Cluster]:
    agents = [agent(name, cpu_milli=cpus * 1000) for name, cpus in (("one", 2), ("two", 2))]
    with started(Cluster(tmp_path / "home", agents, database)) as cluster:
        yield cluster


@pytest.mark.timeout(300)
def test_server_that_is_killed_and_away_under_load_loses_and_doubles_nothing(
    cluster: Cluster, server: Server, tmp_path: Path
) -> None:
    markers = tmp_path / "markers"
    markers.mkdir()
    workload = specs(markers)
    rng = random.Random(1)
    turns = [Event() for _ in workload]
    with ThreadPoolExecutor(1) as pool:
        handed_in = pool.submit(hand_in, cluster, workload, turns)
        try:
            for number, turn in enumerate(turns):
                turn.set()
                if number % (len(turns) // KILLS) == 0:
                    time.sleep(rng.uniform(0.1, 0.5))
                    server.stop(rng.choice([signal.SIGQUIT, signal.SIGINT]))
                    time.sleep(AWAY_S if number == 0 else rng.uniform(0.1, 1.0))
                    server.start()
                    time.sleep(rng.uniform(0.5, 1.5))
        finally:  # the other thread is waited for
            for turn in turns:
                turn.set()
        ids = handed_in.result(LIMIT_S)
    with cluster.client() as client:
        for id_, spec in zip(ids, workload, strict=True):
            job = client.wait(id_, LIMIT_S)
            assert job.state == JobState.SUCCEEDED, (job, spec["name"])
            assert job.counts == {TaskState.SUCCEEDED: spec["tasks"]}, job
    assert_ran_once(read_marks(markers), workload)
    until(lambda: cluster.query("SELECT count(*) FROM allocations") == [(0,)])


@pytest.mark.timeout(300)
def test_request_is_refused_with_503_while_the_server_is_away_and_kernels_run_on(
    cluster: Cluster, server: Server, tmp_path: Path
) -> None:
    import httpx

    with cluster.client() as client:
        job = client.submit(command=["sleep", "2"]).id
        until(lambda: client.job(job).state == JobState.RUNNING)
        headers = {"Authorization": f"Bearer {cluster.home.client()['token']}"}
        url = f"http://127.0.0.1:{cluster.port}"
        server.stop()
        try:
            for request in ("POST", "GET"):
                answer = httpx.request(
                    request, f"{url}/v1/jobs", headers=headers, json={"command": ["true"]}
                )
                assert answer.status_code == 503
                assert int(answer.headers["Retry-After"]) > 0
            until(lambda: httpx.get(f"{url}/health").json()["status"] == "degraded")
            time.sleep(2.0)  # its kernel ends meanwhile
        finally:
            server.start()  # others need it
        done = client.wait(job, LIMIT_S)
        assert (done.state, done.counts) == (JobState.SUCCEEDED, {TaskState.SUCCEEDED: 1})


def muster(home: Home, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name[:7] != "MUSTER_"}
    return subprocess.run(
        [str(MUSTER), *words],
        env=environment | {"MUSTER_HOME": str(home.path)} | variables,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    yield home
    down(home.path)
    assert_no_survivors(home.path)


def test_up_keeps_the_database_for_the_next_time_and_its_password_to_itself(
    server: Server, home: Home
) -> None:
    url = server.tcp_url(server.database())
    first = muster(home, "up", "--database", url)
    assert first.returncode == 0, first.stderr
    assert "others on this machine can see the password" in first.stderr
    assert muster(home, "run", "--", "true").returncode == 0
    assert muster(home, "down").returncode == 0
    assert muster(home, "up").returncode == 0
    assert len(json.loads(muster(home, "ps", "-a", "--json").stdout)) == 1
    assert not home.database.exists()
    doctor = muster(home, "doctor").stdout
    assert f"postgresql://muster:***@127.0.0.1:{server.port}/" in doctor
    everything = first.stdout + first.stderr + doctor + home.log.read_text()
    assert server.password not in everything


def test_second_controller_on_a_database_is_refused(
    server: Server, home: Home, tmp_path: Path
) -> None:
    url = server.url(server.database())
    assert muster(home, "up", "--agents", "0", MUSTER_DATABASE=url).returncode == 0
    running = home.running()
    assert running is not None
    second = muster(Home(tmp_path / "second"), "up", "--agents", "0", "--database", url)
    assert second.returncode == 1
    assert "another controller, or a command of `muster db`, works on the data" in second.stderr
    assert f"process {running.pid} on " in second.stderr
    assert_no_survivors(tmp_path / "second")


def test_controller_that_is_overtaken_ends_and_is_not_started_again(
    server: Server, home: Home
) -> None:
    name = server.database()
    up = muster(home, "up", "--agents", "0", "--database", server.url(name))
    assert up.returncode == 0, up.stderr
    server.execute("UPDATE fence SET epoch = epoch + 1, holder = 'the other'", name)
    until(lambda: not home.is_running())
    assert "another controller writes to the database now (the other" in home.log.read_text()

    def given_up() -> bool:
        kept = last_kept(home)
        return kept is not None and kept.gave_up

    until(given_up)
    assert f"exit code {Superseded.exit_code}" not in home.log.read_text()


def test_controller_whose_database_went_back_is_started_again(server: Server, home: Home) -> None:
    name = server.database()
    up = muster(home, "up", "--agents", "0", "--database", server.url(name))
    assert up.returncode == 0, up.stderr
    before = home.running()
    assert before is not None
    server.execute("UPDATE fence SET commits = commits - 1", name)

    def is_another() -> bool:
        running = home.running()
        return home.is_running() and running is not None and running.pid != before.pid

    until(is_another)
    log = home.log.read_text()
    assert "the database has gone back to an older state" in log
    assert "Traceback" not in log


def test_wrong_password_is_refused_in_one_sentence(server: Server, home: Home) -> None:
    refused = muster(home, "up", "--database", server.tcp_url(server.database(), "wrong"))
    assert refused.returncode == 1
    assert "password authentication failed" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "wrong@" not in refused.stderr + home.log.read_text()
