"""Kernels that stand by: a process of their user spawns them where others of theirs end.

That they take their turns as others do is shown in test_backlog.py.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.agent.supervisor.accounts import ADA, Users, spawner_of
from tests.agent.supervisor.driver import Driver, alive, read_when_there, wait_gone
from tests.patience import until

from muster.agent.supervisor.cgroups import LimitsKind
from muster.agent.supervisor.launch import launch

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become other users")


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """A process that does nothing meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def exists(pid: int) -> bool:
    """Whether a process exists, perhaps as a zombie."""
    return Path(f"/proc/{pid}").exists()


def children_of(pid: int) -> list[list[str]]:
    """The command lines of a process's children."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(FileNotFoundError):
            found.append(Path(f"/proc/{child}/cmdline").read_text().split("\0")[:-1])
    return found


def standby(
    driver: Driver, users: Users, ada: dict[str, Any], command: tuple[str, ...] = ("echo", "ran")
) -> Path:
    """Start kernel `a` and let `b` stand by; a file in the returned place ends `a`."""
    go = users.place / "go"
    wait = ["sh", "-c", f"echo up; while [ ! -e {go} ]; do sleep 0.01; done"]
    driver.start("a", command=wait, account=ada)
    driver.started("a")
    driver.start({"id": "b", "queued": True}, command=[*command], account=ada)
    assert driver.status("b") == "queued"
    return go


def settle_spawner(driver: Driver, ada: dict[str, Any]) -> None:
    """Return once the user's process has obeyed all that it was told so far."""
    driver.start({"id": "last", "shape": "of its own"}, account=ada)
    driver.started("last")


def test_no_kernel_that_stands_by_is_spawned_once_the_supervisor_is_dead(
    supervisor: Driver, users: Users, ada: dict[str, Any]
) -> None:
    go = standby(supervisor, users, ada)
    spawner = spawner_of(supervisor, ADA)
    os.kill(spawner, signal.SIGSTOP)  # so that it learns of both ends at once
    supervisor.kill()
    go.touch()
    with suppress(ProcessLookupError):
        os.kill(spawner, signal.SIGCONT)
    wait_gone(spawner)

    launch(supervisor.directory)
    supervisor.attach()

    assert supervisor.ended("b")["reason"] == "supervisor_lost"
    assert not supervisor.log_path("b").exists()


def test_no_kernel_that_stands_by_is_spawned_after_the_lease(
    supervisor: Driver, users: Users, ada: dict[str, Any]
) -> None:
    """Its controller may have given its work to another agent, and the supervisor may stand still
    so that it cannot take it back."""
    go = standby(supervisor, users, ada)
    supervisor.lease(0.3)
    pid = supervisor.started("a")["pid"]
    supervisor.settle()
    os.kill(supervisor.pid, signal.SIGSTOP)
    try:
        time.sleep(0.35)  # the lease runs by a clock that no test can turn
        go.touch()
        wait_gone(pid)
        time.sleep(0.05)
    finally:
        os.kill(supervisor.pid, signal.SIGCONT)

    end = supervisor.ended("b")
    assert (end["reason"], end["detail"]) == ("never_started", "lease_expired")
    assert supervisor.all_of("b") == ["ended"]


def test_kernel_that_stands_by_takes_the_place_of_one_that_leaves_processes(
    supervisor: Driver, users: Users, ada: dict[str, Any]
) -> None:
    """Its user's process does not know when those are gone; the supervisor ends them and tells."""
    go = users.place / "go"
    leave = f"setsid sleep 60 & echo $!; while [ ! -e {go} ]; do sleep 0.01; done"
    supervisor.start("a", command=["sh", "-c", leave], account=ada)
    left = int(read_when_there(supervisor.log_path("a")))
    supervisor.start({"id": "b", "queued": True}, account=ada)
    supervisor.settle()

    go.touch()

    assert supervisor.ended("b")["exit_code"] == 0
    assert supervisor.ended("a")["heir"] == ["b", 1]
    assert not alive(left)


def test_process_that_spawns_for_a_user_comes_before_kernels(
    supervisor: Driver, ada: dict[str, Any]
) -> None:
    supervisor.run(["sh", "-c", "cut -d' ' -f19 /proc/self/stat"], account=ada)
    own = os.getpriority(os.PRIO_PROCESS, 0)

    assert supervisor.log("k") == f"{own}\n"
    if own == 0:  # that of a supervisor started with another is left alone
        assert os.getpriority(os.PRIO_PROCESS, spawner_of(supervisor, ADA)) < 0


def test_heir_whose_start_is_heard_after_the_lease_is_told_as_heir_and_never_runs_again(
    supervisor: Driver, users: Users, ada: dict[str, Any]
) -> None:
    """It was spawned within the lease; the supervisor stood still until the lease was over."""
    go = standby(supervisor, users, ada, ("sleep", "60"))
    spawner = spawner_of(supervisor, ADA)
    supervisor.lease(60.0)
    settle_spawner(supervisor, ada)
    with standing_still(supervisor.pid):
        go.touch()
        until(lambda: ["sleep", "60"] in children_of(spawner))
        supervisor.lease(0.0)  # read once it goes on

    assert supervisor.ended("b")["reason"] == "lease_expired"
    assert supervisor.ended("a")["heir"] == ["b", 1]
    assert supervisor.started("b")["predecessor"] == ["a", 1]

    supervisor.lease(None)
    supervisor.run(["true"], kernel="c", account=ada)
    assert supervisor.all_of("b") == ["started", "ended"]
    assert "heir" not in supervisor.ended("c")


def test_room_of_each_of_two_that_end_together_has_one_heir(
    supervisor: Driver, users: Users, ada: dict[str, Any]
) -> None:
    """The first leaves a process behind, which is gone when the supervisor hears of both ends."""
    go = users.place / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.01; done"
    leave = f"setsid sleep 60 & echo $!; {wait}"
    supervisor.start("a", command=["sh", "-c", leave], account=ada)
    left = int(read_when_there(supervisor.log_path("a")))
    supervisor.start("b", command=["sh", "-c", wait], account=ada)
    pids = [supervisor.started(kernel)["pid"] for kernel in ("a", "b")]
    heirs = [{"id": f"heir{number}", "queued": True} for number in range(2)]
    supervisor.start(*heirs, account=ada)
    supervisor.settle()
    spawner = spawner_of(supervisor, ADA)
    with standing_still(supervisor.pid):
        with standing_still(spawner):
            go.touch()
            for pid in pids:
                wait_gone(pid)
        until(lambda: not any(map(exists, pids)))
        os.kill(left, signal.SIGKILL)
        wait_gone(left)

    supervisor.ended("heir0")
    supervisor.ended("heir1")
    appointed = [event["heir"][0] for event in supervisor.events if "heir" in event]
    assert sorted(appointed) == ["heir0", "heir1"]


def test_kernel_that_was_recalled_ends_though_its_users_process_could_not_let_it_stand_by(
    supervisor: Driver, users: Users, ada: dict[str, Any]
) -> None:
    if supervisor.state["limits"] == LimitsKind.NONE:
        pytest.skip("no cgroups can be made here")
    supervisor.start("a", command=["sleep", "60"], account=ada)
    supervisor.started("a")
    spawner = spawner_of(supervisor, ADA)
    with standing_still(spawner):
        lower = ["prlimit", f"--pid={spawner}", "--nofile=0:0"]
        subprocess.run(lower, user=ADA, group=ADA, extra_groups=[], check=True)
        supervisor.start({"id": "b", "queued": True}, account=ada)
        supervisor.say(op="recall", kernels=[{"id": "b", "generation": 1}])
        supervisor.settle()

    end = supervisor.ended("b")
    assert (end["reason"], end["detail"]) == ("never_started", "recalled")


def test_kernel_that_stood_by_with_a_process_that_was_killed_takes_its_turn_all_the_same(
    supervisor: Driver, users: Users, ada: dict[str, Any]
) -> None:
    go = standby(supervisor, users, ada)
    supervisor.settle()
    spawner = spawner_of(supervisor, ADA)
    os.kill(spawner, signal.SIGKILL)
    wait_gone(spawner)
    supervisor.settle()

    go.touch()

    assert supervisor.ended("b")["exit_code"] == 0
    assert supervisor.all_of("b") == ["started", "ended"]
    assert supervisor.ended("a")["heir"] == ["b", 1]


def test_recall_is_answered_though_the_users_process_stands_still(
    supervisor: Driver, users: Users, ada: dict[str, Any]
) -> None:
    standby(supervisor, users, ada)
    supervisor.settle()
    spawner = spawner_of(supervisor, ADA)
    os.kill(spawner, signal.SIGSTOP)

    supervisor.say(op="recall", kernels=[{"id": "b", "generation": 1}])

    end = supervisor.ended("b")
    assert (end["reason"], end["detail"]) == ("never_started", "recalled")
    assert alive(supervisor.started("a")["pid"])


def test_kernel_that_dies_slowly_costs_none_that_stands_by(
    supervisor: Driver, users: Users, ada: dict[str, Any]
) -> None:
    """One that has much memory to give back, or waits for a disk: its user's process is not to
    blame that the end is not told."""
    freezers = Path("/sys/fs/cgroup/freezer")
    if not freezers.exists():
        pytest.skip("this machine has no freezer")
    freezer = Path(tempfile.mkdtemp(prefix="muster-test-", dir=freezers))
    try:
        supervisor.start("a", command=["sleep", "60"], account=ada)
        pid = supervisor.started("a")["pid"]
        supervisor.start({"id": "b", "queued": True}, account=ada)
        supervisor.settle()
        (freezer / "tasks").write_text(str(pid))
        (freezer / "freezer.state").write_text("FROZEN")
        spawner = spawner_of(supervisor, ADA)
        supervisor.stop("a", grace_s=0)
        supervisor.settle()
        time.sleep(2.2)
        assert alive(spawner)
        (freezer / "freezer.state").write_text("THAWED")

        assert supervisor.ended("a")["heir"] == ["b", 1]
        assert supervisor.ended("b")["exit_code"] == 0
    finally:
        (freezer / "freezer.state").write_text("THAWED")
        wait_gone(pid)
        freezer.rmdir()


def test_limits_hold_for_a_kernel_that_stood_by(
    supervisor: Driver, users: Users, ada: dict[str, Any]
) -> None:
    if supervisor.state["limits"] == LimitsKind.NONE:
        pytest.skip("no cgroups can be made here")
    eat = ("python3", "-I", "-S", "-c", "b = bytearray(256 << 20); import time; time.sleep(60)")
    supervisor.template["memory_bytes"] = 64 << 20

    standby(supervisor, users, ada, eat).touch()

    assert supervisor.ended("b")["reason"] == "out_of_memory"
    assert supervisor.started("b")["predecessor"] == ["a", 1]
