"""`muster up` as a person meets it: what it says, what it leaves, and who may read that."""

import asyncio
import fcntl
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from tests.e2e.cluster import assert_no_survivors, client_of, free_ports, lines_told
from tests.patience import until, until_awaited

from muster.agent.config import AgentConfig
from muster.agent.identity import LOCK_FILE
from muster.agent.supervisor import lock_file
from muster.agent.supervisor.shutdown import shut_down
from muster.app import local
from muster.app.background_parts import BackgroundParts
from muster.app.detached import has_ended
from muster.app.home import Home, LocalAgentSettings
from muster.app.local import UpOptions, down, up
from muster.app.local_agent_settings import agent_configs, warnings
from muster.app.local_agents import LocalAgents as AgentProcesses
from muster.cli.program import app
from muster.core.errors import MusterError

MUSTER = Path(sys.executable).with_name("muster")


def modes(directory: Path) -> dict[Path, int]:
    """Of everything in it, by the path from there."""
    found = {}
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):  # temporary files come and go
            found[path.relative_to(directory)] = path.lstat().st_mode
    return found


def muster(home: Home, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(MUSTER), *words, "--home", str(home.path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def names(home: Home) -> list[str]:
    with client_of(home) as cluster:
        return [agent.name for agent in cluster.agents()]


def test_up_leaves_nothing_to_wait_for(tmp_path: Path) -> None:
    """Neither a child, nor a word about one when the interpreter ends."""
    script = (
        "import pathlib, sys, psutil; from muster.app.local import UpOptions, down, up; "
        "home = pathlib.Path(sys.argv[1]); up(UpOptions(home, agents=0)); "
        "print(psutil.Process().children()); "
        "sys.argv[2:] and down(home)"
    )
    command = [sys.executable, "-X", "dev", "-c", script, str(tmp_path / "home")]
    try:
        for last in ([], ["down"]):
            done = subprocess.run(
                [*command, *last], capture_output=True, text=True, timeout=60, check=True
            )
            assert (done.stdout, done.stderr) == ("[]\n", "")
            down(tmp_path / "home")
    finally:
        down(tmp_path / "home")
        assert_no_survivors(tmp_path / "home")


def test_up_returns_once_its_agents_take_work(home: Home) -> None:
    report = up(UpOptions(home.path, agents=2))
    with client_of(home) as cluster:
        agents = cluster.agents()
    assert [agent.name for agent in agents if agent.connected] == ["agent-1", "agent-2"]
    assert report.parts.missing == ()


def test_advice_about_a_damaged_client_file_mends_it(home: Home) -> None:
    up(UpOptions(home.path, agents=0))
    home.client_file.write_text("{")
    refused = muster(home, "ps")
    assert refused.returncode == 3
    words = re.findall("`muster ([^`]+)`", refused.stderr)
    assert words == ["down --keep", "up"]
    for each in words:
        assert muster(home, *each.split()).returncode == 0
    assert muster(home, "ps").returncode == 0


def test_up_says_which_agents_have_not_joined(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "JOINED_WITHIN_S", 0.1)
    home.create()
    directory = home.agent_directory("agent-1")
    directory.mkdir(parents=True)
    lock = lock_file.take(directory / LOCK_FILE)  # as if it ran for somebody else
    (directory / LOCK_FILE).write_text("0")
    try:
        monkeypatch.setenv("MUSTER_HOME", str(home.path))
        result = CliRunner().invoke(app, ["up", "--agents", "1"])
    finally:
        os.close(lock)
    assert result.exit_code == 0, result.stderr
    assert f"warning: not joined yet: agent-1; see {directory / 'agent.log'}" in result.stderr


def test_up_in_the_foreground_says_when_it_is_ready_and_stops_at_a_signal(home: Home) -> None:
    command = [str(MUSTER), "up", "--foreground", "--agents", "1", "--home", str(home.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Muster runs at http://127.0.0.1:")
        assert "1 agent (agent-1)" in line
        with client_of(home) as cluster:
            assert cluster.health().status == "ok"
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 0
    assert rest.endswith("the cluster has stopped\n")
    assert not home.is_running()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_up_in_the_foreground_that_is_told_to_stop_while_it_starts_leaves_nothing(
    home: Home, signum: signal.Signals
) -> None:
    command = [str(MUSTER), "up", "--foreground", "--agents", "1", "--home", str(home.path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        until(home.is_running)
        process.send_signal(signum)
        process.communicate(timeout=60)
    assert_no_survivors(home.path)


async def test_agents_that_have_only_just_begun_are_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hold no lock yet by which `down` would find them."""
    beginner = tmp_path / "python"
    beginner.write_text("#!/bin/sh\nexec sleep 600\n")
    beginner.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(beginner))

    async def prepare(config: AgentConfig) -> None:
        pass

    config = AgentConfig(tmp_path / "agents" / "agent-1", "127.0.0.1:1", "agent-1", token="any")
    others = set(psutil.Process().children())  # servers of other tests
    running = asyncio.create_task(AgentProcesses([config], prepare, BackgroundParts()).run())
    await until_awaited(lambda: "sleep" in [each.name() for each in psutil.Process().children()])
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert set(psutil.Process().children()) <= others


def test_supervisor_that_does_not_listen_yet_is_not_taken_for_none(tmp_path: Path) -> None:
    lock = os.open(tmp_path / "supervisor.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="does not listen"):
            shut_down(tmp_path, grace_s=0.1, timeout_s=0.1)
    finally:
        os.close(lock)
    assert shut_down(tmp_path, grace_s=0.1, timeout_s=0.1) == 0


def test_up_in_the_foreground_whose_controller_dies_says_so_and_leaves_nothing(home: Home) -> None:
    command = [str(MUSTER), "up", "--foreground", "--agents", "1", "--home", str(home.path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        until(lambda: names(home) == ["agent-1"])
        running = home.running()
        assert running is not None
        psutil.Process(running.pid).kill()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert lines_told(said)[0].startswith("muster: the controller has ended")
    assert_no_survivors(home.path)


def test_second_up_names_the_options_that_were_not_applied(home: Home) -> None:
    report = up(UpOptions(home.path, agents=0, cpus="2"))
    again = muster(home, "up", "--agents", "3", "--cpus", "2", "--gpus", "4", "--port", "1")
    assert again.returncode == 1
    assert len(lines_told(again.stderr)) == 1
    assert report.url in again.stderr
    assert "with 0 agents, to which --agents 3 --gpus 4 --port 1 was not applied" in again.stderr
    assert "muster down" in again.stderr
    same = muster(home, "up", "--agents", "0", "--cpus", "2")
    assert same.returncode == 1
    assert "not applied" not in same.stderr
    controller = psutil.Process(report.pid)
    down(home.path)
    assert has_ended(controller), "`down` returns when it is gone, and not before"


def test_agent_needs_processors_and_a_warning_tells_of_memory_that_is_not_there(
    home: Home,
) -> None:
    with pytest.raises(MusterError, match="--cpus is '0': expected more than 0"):
        up(UpOptions(home.path, cpus="0"))
    assert not home.is_running()
    large, fitting, unknown = "900TiB", "1MiB", None
    told = [
        warnings(agent_configs(home, LocalAgentSettings(memory=memory)), users=1)
        for memory in (large, fitting, unknown)
    ]
    assert told[1:] == [(), ()]
    assert told[0][0].startswith("--memory 900TiB is more than the ")


def test_warning_says_that_users_are_not_kept_apart_where_agents_are_not_root(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = agent_configs(home, LocalAgentSettings())
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert warnings(configs, users=1) == ()
    assert "each of them acts as your account" in " ".join(warnings(configs, users=2))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert warnings(configs, users=2) == ()


def test_port_is_kept_when_it_was_chosen_and_only_then(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    default, chosen = free_ports(2)
    monkeypatch.setattr(local, "DEFAULT_PORT", default)

    def port(asked: int = 0) -> int:
        """Of a cluster that is started and stopped."""
        url = up(UpOptions(home.path, agents=0, port=asked)).url
        down(home.path)
        return int(url.rpartition(":")[2])

    with socket.create_server(("127.0.0.1", default)):
        assert port() != default
    assert port() == default
    assert [port(chosen), port()] == [chosen, chosen]


def test_clusters_that_are_started_at_one_moment_take_ports_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "DEFAULT_PORT", free_ports(1)[0])
    homes = [tmp_path / f"home-{number}" for number in range(3)]
    together = threading.Barrier(len(homes))

    def start(path: Path) -> list[str]:
        together.wait()
        report = up(UpOptions(path, agents=0))
        return [report.url.removeprefix("http://"), report.agent_address]

    try:
        with ThreadPoolExecutor(len(homes)) as pool:
            taken = [address for both in pool.map(start, homes) for address in both]
        assert len(set(taken)) == 2 * len(homes), taken
        for path in homes:
            with client_of(Home(path)) as cluster:
                assert cluster.health().status == "ok"
    finally:
        for path in homes:
            down(path)
            assert_no_survivors(path)


def test_chosen_port_that_is_taken_is_refused(home: Home) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(MusterError, match="another program uses it; choose another"),
    ):
        up(UpOptions(home.path, agents=0, port=taken.getsockname()[1]))


def test_attributes_of_local_agents_are_kept_until_others_are_given(home: Home) -> None:
    said = muster(home, "up", "--attribute", "zone=a", "--attribute", "rack=r1", "--agents", "2")
    assert said.returncode == 0, said.stderr
    with client_of(home) as cluster:
        until(lambda: [each.attributes.get("zone") for each in cluster.agents()] == ["a", "a"])
        job = cluster.submit(command="true", placement={"constraints": ["zone=a", "rack=r1"]})
        assert cluster.wait(job.id, 30.0).state == "SUCCEEDED"
    again = muster(home, "up", "--attribute", "zone=b")
    assert "with 2 agents, to which --attribute zone=b was not applied" in again.stderr
    down(home.path)
    kept = [
        local._agents(home.settings().agents, UpOptions(home.path, attributes=asked)).attributes
        for asked in (None, {"zone": "b"}, {})
    ]
    assert kept == [{"zone": "a", "rack": "r1"}, {"zone": "b"}, {}]


@pytest.mark.parametrize(
    ("attribute", "told"),
    [
        ("zone", "expected NAME=VALUE, such as zone=a"),
        ("1zone=a", "--attribute is '1zone=a': expected a name of at most 63 letters"),
        ("gpu_model=H100", "agents find out gpu_model themselves, choose another name"),
        ("pool=gpus", "machines of a pool alone have pool, choose another name"),
        ("zone= a", "expected a value of at most 255 characters, no blanks around it"),
    ],
)
@pytest.mark.parametrize("command", [["up"], ["agent", "--controller", "127.0.0.1:1"]])
def test_attribute_that_no_constraint_could_look_at_is_refused(
    home: Home, command: list[str], attribute: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_HOME", str(home.path))
    result = CliRunner().invoke(app, [*command, "--attribute", attribute])
    assert result.exit_code != 0
    assert told in result.stderr
    assert len(lines_told(result.stderr)) == 1
    assert not home.is_running()


def test_help_of_up_names_one_default_for_the_port(home: Home) -> None:
    said = muster(home, "up", "--help").stdout.partition("--port")[2].partition("--foreground")[0]
    assert said.count("default") == 1


def test_up_without_agents_says_how_to_add_one(home: Home) -> None:
    said = muster(home, "up", "--agents", "0")
    running = home.running()
    assert running is not None
    add = f"muster agent --controller {running.agent_address} --token-file {home.join_token_file}"
    assert add in said.stdout


@pytest.mark.parametrize("umask", [0o022, 0o000])
def test_everything_in_the_home_is_for_its_owner_only(home: Home, umask: int) -> None:
    before = os.umask(umask)
    try:
        home.path.chmod(0o755)
        for directory in home.path / "agents", home.providers:
            directory.mkdir(exist_ok=True)
            directory.chmod(0o777)
        (home.path / "controller.log").write_text("from an earlier version, open to all\n")
        up(UpOptions(home.path, agents=1))
        with client_of(home) as cluster:
            job = cluster.submit(command="umask")
            assert cluster.wait(job.id, 30.0).ended
            said = b"".join(cluster.logs(job.id)).decode()
            assert said == f"{umask:04o}\n", "kernels keep the user's"
        found = modes(home.path)
    finally:
        os.umask(before)
    assert {Path(f"muster.db{end}") for end in ("", "-wal", "-shm")} <= found.keys()
    assert Path("agents/agent-1/agent.log") in found
    open_to_others = {
        str(path): stat.filemode(mode)
        for path, mode in found.items()
        if mode & 0o077 and not stat.S_ISLNK(mode)
    }
    assert open_to_others == {}
