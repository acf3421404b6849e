"""Kernels that stand by: a process of their user spawns them where others of theirs end.

That they take their turns as others do is shown in test_backlog.py.
"""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.agent.supervisor.accounts import ADA, Users, spawner_of
from tests.agent.supervisor.driver import Driver, alive, read_when_there, wait_gone

from muster.agent.supervisor.launch import launch

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become other users")


def standby(driver: Driver, users: Users, ada: dict[str, Any]) -> Path:
    """Start kernel `a` and let `b` stand by; a file in the returned place ends `a`."""
    go = users.place / "go"
    wait = ["sh", "-c", f"echo up; while [ ! -e {go} ]; do sleep 0.01; done"]
    driver.start("a", command=wait, account=ada)
    driver.started("a")
    driver.start({"id": "b", "queued": True}, command=["sh", "-c", "echo ran"], account=ada)
    assert driver.status("b") == "queued"
    return go


def test_no_kernel_that_stands_by_is_spawned_once_the_supervisor_is_dead(
    supervisor: Driver, users: Users, ada: dict[str, Any]
) -> None:
    go = standby(supervisor, users, ada)
    spawner = spawner_of(supervisor, ADA)
    os.kill(spawner, signal.SIGSTOP)  # so that it learns of both ends at once
    supervisor.kill()
    go.touch()
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
