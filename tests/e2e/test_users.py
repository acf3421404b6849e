"""Two users on one real cluster, and machines that come, go and take names over."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.cluster import Cluster, agent, started
from tests.patience import until

from muster.agent.accounts import MachineAccounts
from muster.agent.config import AgentConfig, default_users_directory
from muster.app.doctor import checks
from muster.app.local import down
from muster.cli.commands.invites import join_command
from muster.client import Unauthenticated
from muster.core.errors import Conflict, NotFound
from muster.core.states import JobState, TaskState

MUSTER = Path(sys.executable).with_name("muster")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two agents; four processors each, and little patience."""
    path = tmp_path_factory.mktemp("users") / "home"
    cluster = Cluster(path, [agent(name, cpu_milli=4000, gpus="none") for name in ("one", "two")])
    group = {"name": "default", "sequencer": "fair_share", "agent_silence": 2, "kernel_lease": 4}
    with started(cluster, group):
        yield cluster


def muster(cluster: Cluster, *words: str, token: str | None = None) -> str:
    """The output of the program."""
    environment = cluster.environment | ({"MUSTER_TOKEN": token} if token else {})
    done = subprocess.run(
        [str(MUSTER), *words], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_two_users_neither_see_nor_stop_nor_starve_each_other(cluster: Cluster) -> None:
    muster(cluster, "projects", "add", "vision")
    muster(cluster, "users", "add", "ann", "--project", "vision")
    muster(cluster, "users", "add", "bob")
    ann_token = muster(cluster, "tokens", "create", "--user", "ann", "--expires", "30d")
    bob_token = muster(cluster, "tokens", "create", "--user", "bob")
    assert muster(cluster, "whoami", token=ann_token).startswith("default/vision/ann, user, at ")
    with cluster.client(ann_token) as ann, cluster.client(bob_token) as bob:
        flood = bob.submit(name="flood", command=["sleep", "0.3"], tasks=2000)
        secret = ann.submit(
            name="secret", command=["/bin/sh", "-c", "echo of ann; echo $$; sleep 600"]
        )
        until(lambda: ann.task(secret.id, 0).state is TaskState.RUNNING, timeout_s=60.0)
        assert not bob.job(flood.id).ended, "it did not wait for all of the other's"
        asks = (bob.job, bob.tasks, bob.why, bob.history, bob.cancel)
        for ask in (*asks, lambda ref: list(bob.logs(ref))):
            for ref in (secret.id, "secret"):
                with pytest.raises(NotFound):
                    ask(ref)
        assert {job.name for job in bob.jobs()} == {"flood"}
        assert {job.name for job in ann.jobs()} == {"secret"}
        bob.cancel(flood.id)

        def words() -> list[bytes]:
            written = b"".join(ann.logs(secret.id))
            return written.split() if written.count(b"\n") == 2 else []

        process = until(words)[-1].decode()
        if os.geteuid() == 0:
            attempt = bob.submit(command=["/bin/sh", "-c", f"kill -9 {process}"])
            done = bob.wait(attempt.id, 60.0)
            assert done.state is JobState.FAILED
        assert ann.job(secret.id).state is JobState.RUNNING
        with cluster.client() as admin, pytest.raises(Conflict, match="alive"):
            admin.remove_user("ann")
        muster(cluster, "users", "remove", "ann", "--cancel")
        with pytest.raises(Unauthenticated):
            ann.jobs()
        assert bob.whoami().user == "bob"
    with cluster.client() as admin:
        assert admin.wait(secret.id, 30.0).state is JobState.KILLED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run kernels as their owners")
def test_user_has_one_uid_on_all_machines_so_that_what_they_share_is_its_own(
    tmp_path: Path,
) -> None:
    """Two agents with directories of users of their own, as two machines have them, of which one
    had given a uid to another user before."""
    machines = {name: default_users_directory() / f"{tmp_path.name}-{name}" for name in "ab"}
    configs = [
        agent(name, cpu_milli=4000, gpus="none", users_directory=directory)
        for name, directory in machines.items()
    ]
    shared = default_users_directory() / f"{tmp_path.name}-shared"
    shared.mkdir()
    shared.chmod(0o1777)
    before = AgentConfig(tmp_path, "", "", users_directory=machines["b"])
    former = MachineAccounts(before).of("lab/p/bob")
    assert former is not None
    cluster = Cluster(tmp_path / "home", configs)
    with started(cluster), cluster.client() as admin:
        admin.add_domain("lab")
        admin.add_project("p", "lab")
        admin.add_user("bob", ["p"], "lab")
        tokens = {
            "ann": cluster.add_user("ann"),
            "bob": admin.create_token(user="bob", domain="lab").secret,
        }

        def run(user: str, machine: str, line: str) -> str:
            with cluster.client(tokens[user]) as client:
                job = client.submit(
                    command=["/bin/sh", "-c", f"cd {shared}; umask 077; {line}"],
                    placement={"agents": [machine]},
                )
                client.wait(job.id, 60.0)
                return b"".join(client.logs(job.id)).decode().strip()

        def uid(user: str, machine: str) -> int:
            return int(run(user, machine, "id -u"))

        ann, bob = uid("ann", "a"), uid("bob", "b")
        assert (uid("bob", "a"), uid("ann", "b")) == (bob, ann)
        assert len({ann, bob, former.uid, 0}) == 4
        told = {user.name: user.uid for user in admin.users()}
        assert (told["ann"], told["bob"]) == (ann, bob)
        assert not Path(former.home).exists(), "it was handed over"
        (said,) = (each for each in checks(cluster.home.path) if each.name == "uids")
        assert said.ok
        assert said.detail == f"65,534 uids of {admin.cluster().uids} left for users"
        run("ann", "a", "echo of ann > secret; echo more > ~/home")
        assert run("ann", "b", "cat secret") == "of ann"
        assert "denied" in run("bob", "b", "cat secret")
        assert run("ann", "b", "cat ~/home").startswith("cat:"), "homes are of one machine"


def test_last_admin_token_is_not_revoked(cluster: Cluster) -> None:
    with cluster.client() as admin:
        mine = admin.whoami().token
        assert mine is not None
        with pytest.raises(Conflict, match="last admin token"):
            admin.revoke_token(mine.id)


def test_name_is_taken_over_by_invitation_and_the_former_machine_is_told_so(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path / "home", [agent("old", cpu_milli=1000, gpus="none")])
    group = {"name": "default", "agent_silence": 1, "kernel_lease": 3}
    with started(cluster, group), cluster.client() as admin:
        job = admin.submit(command=["sleep", "600"], max_retries_preemption=5)
        until(lambda: cluster.kernels())
        former = admin.agents()[0].id
        cluster.kill_agent("old")
        until(lambda: admin.agents()[0].status == "UNREACHABLE")
        with joining(cluster, tmp_path / "early") as early:
            assert early.wait(60) == 1
        refused = (tmp_path / "early.log").read_text()
        assert "may still run kernels" in refused
        assert "agt-" not in refused
        admin.cancel(job.id)
        cluster.start_agent("old")
        until(lambda: [(a.status, a.kernels) for a in admin.agents()] == [("ALIVE", 0)])
        cluster.kill_agent("old")
        until(lambda: admin.agents()[0].status == "UNREACHABLE")
        job = admin.submit(command=["sleep", "600"])
        with joining(cluster, tmp_path / "new"):
            until(lambda: [a.status for a in admin.agents()] == ["ALIVE"], timeout_s=60.0)
            assert admin.agents()[0].id != former
            cluster.start_agent("old")
            log = cluster.home.agent_directory("old").with_suffix(".log")
            until(lambda: "agent 'old' is connected" in log.read_text(), timeout_s=60.0)
            assert "another machine has its name now" in log.read_text()
            until(lambda: admin.task(job.id, 0).state is TaskState.RUNNING)
            (kernel,) = [each for each in admin.task(job.id, 0).attempts if not each.ended]
            assert kernel.agent_id == admin.agents()[0].id
        down(tmp_path / "new")


@contextmanager
def joining(cluster: Cluster, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command that an invitation of agent ``old`` prints, on a machine that keeps everything in
    ``directory``."""
    with cluster.client() as admin:
        made = admin.create_join_token("old")
        token, *command = shlex.split(join_command(made, admin.url))
    name, _, secret = token.partition("=")
    where = directory / "agents" / "old"
    with directory.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            [str(MUSTER), *command[1:], "--cpus", "1", "--gpus", "none", "--dir", str(where)],
            env=cluster.environment | {name: secret},
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)
