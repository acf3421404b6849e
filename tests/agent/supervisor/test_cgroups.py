"""Limits through cgroups, where this machine lets us make any."""

import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.agent.supervisor.driver import Driver, alive, cgroups_of, read_when_there
from tests.patience import until

from muster.agent.supervisor.cgroups import LimitsKind, remove_tree
from muster.agent.supervisor.launch import launch

MEMORY_BYTES = 64 << 20
EAT = "b = bytearray(256 << 20)"


@pytest.fixture
def limited(supervisor: Driver) -> Driver:
    if supervisor.state["limits"] == LimitsKind.NONE:
        pytest.skip("this machine has no cgroups that this user may make")
    return supervisor


def test_kernel_over_its_memory_ends_as_out_of_memory(limited: Driver) -> None:
    end = limited.run(["python3", "-I", "-S", "-c", EAT], memory_bytes=MEMORY_BYTES)

    assert (end["reason"], end["signal"]) == ("out_of_memory", signal.SIGKILL)


def test_shell_that_tells_of_a_killed_child_ends_as_out_of_memory(limited: Driver) -> None:
    end = limited.run(["sh", "-c", f"python3 -I -S -c '{EAT}'; exit $?"], memory_bytes=MEMORY_BYTES)

    assert (end["reason"], end["exit_code"]) == ("out_of_memory", 137)


def test_kernel_that_outlives_a_killed_child_says_so(limited: Driver) -> None:
    if limited.state["limits"] == LimitsKind.V2:
        pytest.skip("with cgroup v2 the kernel may be killed as one")
    end = limited.run(["sh", "-c", f"python3 -I -S -c '{EAT}'; exit 3"], memory_bytes=MEMORY_BYTES)

    assert (end["reason"], end["exit_code"]) == ("exited", 3)
    assert end["detail"] == "1 of its processes were killed for lack of memory"
    assert end["oom_kills"] == 1


def test_next_kernel_with_these_limits_is_not_blamed(limited: Driver) -> None:
    """It gets the directory of the one that ran out of memory, and is killed by hand."""
    limited.run(["python3", "-I", "-S", "-c", EAT], kernel="eater", memory_bytes=MEMORY_BYTES)

    end = limited.run(["sh", "-c", "kill -9 $$"], kernel="next", memory_bytes=MEMORY_BYTES)

    assert (end["reason"], end["signal"]) == ("signaled", signal.SIGKILL)


def test_kernel_that_was_asked_to_stop_is_stopped_even_if_out_of_memory(limited: Driver) -> None:
    eat_late = f"import signal; signal.signal(15, lambda *_: exec('{EAT}')); "
    eat_late += "print('up', flush=True); [signal.pause() for _ in range(9)]"
    limited.start("k", command=["python3", "-I", "-S", "-c", eat_late], memory_bytes=MEMORY_BYTES)
    read_when_there(limited.log_path("k"))

    limited.stop("k")

    assert limited.ended("k")["reason"] == "stopped"


def test_processes_are_in_the_cgroups_with_their_limits(limited: Driver) -> None:
    limited.start(
        "k",
        command=["sh", "-c", "sleep 60 & sleep 60 & echo up; wait"],
        cpu_milli=500,
        memory_bytes=MEMORY_BYTES,
    )
    read_when_there(limited.log_path("k"))  # its two children are there; the limit of cpu comes yet

    if limited.state["limits"] == LimitsKind.V1:
        until(lambda: limits_of(limited)["cpu.cfs_quota_us"] == ["50000"])
        assert limits_of(limited)["memory.limit_in_bytes"] == [str(MEMORY_BYTES)]
    else:
        until(lambda: limits_of(limited)["cpu.max"] == ["50000", "100000"])
        assert limits_of(limited)["memory.max"] == [str(MEMORY_BYTES)]
    for cgroup in cgroups_of(limited.directory):
        (procs,) = cgroup.glob("[0-9]*/cgroup.procs")
        until(partial(_has_lines, procs, 3))
        assert str(limited.started("k")["pid"]) in procs.read_text().split()


def _has_lines(path: Path, count: int) -> bool:
    return len(path.read_text().splitlines()) == count


def limits_of(driver: Driver) -> dict[str, list[str]]:
    """The contents of the files of limits of a supervisor's only kernel."""
    return {
        path.name: path.read_text().split()
        for cgroup in cgroups_of(driver.directory)
        for path in cgroup.glob("[0-9]*/*")
        if path.name in ("cpu.cfs_quota_us", "cpu.max", "memory.limit_in_bytes", "memory.max")
    }


def test_limit_of_cpu_alone_is_set_soon_after_the_start(limited: Driver) -> None:
    limited.start("k", command=["sleep", "60"], cpu_milli=500)
    limited.started("k")

    until(lambda: ["50000"] in [words[:1] for words in limits_of(limited).values()])


def test_kernels_that_asked_for_no_cpu_share_the_least_weight(limited: Driver) -> None:
    for kernel in ("a", "b"):
        limited.start(kernel, command=["sleep", "60"], memory_bytes=MEMORY_BYTES, least_cpu=True)
    limited.start("c", command=["sleep", "60"])
    pids = {str(limited.started(kernel)["pid"]) for kernel in ("a", "b")}
    (least,) = [
        path / "least" for path in cgroups_of(limited.directory) if (path / "least").is_dir()
    ]

    if limited.state["limits"] == LimitsKind.V1:
        assert (least / "cpu.shares").read_text() == "2\n"
    else:
        assert (least / "cpu.weight").read_text() == "1\n"
    inside = [path.read_text().split() for path in least.rglob("cgroup.procs")]
    assert {pid for pids_there in inside for pid in pids_there} == pids


def test_directories_are_used_again_and_gone_at_the_end(limited: Driver) -> None:
    for number in range(5):
        limited.run(["true"], kernel=f"k{number}", cpu_milli=1000, memory_bytes=MEMORY_BYTES)
    cgroups = cgroups_of(limited.directory)
    assert cgroups
    assert [len([*path.glob("[0-9]*")]) for path in cgroups] == [1] * len(cgroups)

    limited.close()

    assert cgroups_of(limited.directory) == []


def test_cgroups_of_a_killed_supervisor_are_emptied_and_removed(limited: Driver) -> None:
    limited.start("k", command=["sleep", "60"], cpu_milli=1000)
    pid = limited.started("k")["pid"]
    before = [
        path
        for cgroup in cgroups_of(limited.directory)
        for path in cgroup.glob("[0-9]*/cgroup.procs")
    ]
    held = {path.read_text() for path in before}
    assert held - {""} == {f"{pid}\n"}
    limited.kill()

    launch(limited.directory)
    limited.attach()

    assert limited.ended("k")["reason"] == "supervisor_lost"
    assert not [path for path in before if path.exists()]


def test_removing_a_cgroup_that_is_not_there_does_nothing(tmp_path: Path) -> None:
    remove_tree(str(tmp_path / "none"))


DAEMONS = 400


@pytest.mark.parametrize("limits", [{}, {"cpu_milli": 500, "memory_bytes": 512 << 20}])
def test_hundreds_of_daemons_die_with_their_kernel(
    limited: Driver, tmp_path: Path, limits: dict[str, Any]
) -> None:
    """Each forks twice, has a session of its own and no environment, from the first moment on."""
    born = tmp_path / "born"
    born.mkdir()
    program = f"""
import os, time
for number in range({DAEMONS}):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        open(f"{born}/{{os.getpid()}}", "w").close()
        os.execve("/bin/sleep", ["sleep", "60"], {{}})
while len(os.listdir("{born}")) < {DAEMONS}:
    time.sleep(0.02)
"""
    limited.run(["python3", "-I", "-S", "-c", program], **limits)

    pids = [int(path.name) for path in born.iterdir()]
    assert len(pids) == DAEMONS
    assert [pid for pid in pids if alive(pid)] == []


def test_kernel_has_no_more_processes_than_it_may(limited: Driver) -> None:
    program = "for i in $(seq 40); do sleep 5 & done; wait"
    limited.start("k", command=["sh", "-c", program], pids_max=20)
    end = limited.ended("k")

    assert end["exit_code"] != 0
    assert "fork" in limited.log("k")


def test_slot_of_a_killed_kernel_lets_the_next_one_fork(limited: Driver) -> None:
    limited.run(["sh", "-c", "setsid sleep 60 & exit 0"], kernel="first")

    assert limited.run(["sh", "-c", "sleep 0 & wait; echo up"], kernel="next")["exit_code"] == 0
    assert limited.log("next") == "up\n"


def test_memory_of_one_process_above_the_limit_from_the_start_is_out_of_memory(
    limited: Driver,
) -> None:
    """The supervisor, which spawns it from within its cgroup, is not what is killed."""
    end = limited.run(["sleep", "60"], memory_bytes=4096)

    assert end["reason"] == "out_of_memory"
    assert limited.run(["true"], kernel="next")["exit_code"] == 0


def test_kernel_that_forges_another_identity_keeps_its_own_limits(limited: Driver) -> None:
    """It was once moved into the cgroup of the kernel that it claimed to be, which then died."""
    limited.start("victim", command=["sleep", "60"], memory_bytes=MEMORY_BYTES)
    limited.started("victim")
    forged = f"MUSTER_KERNEL_ID=victim MUSTER_GENERATION=1 MUSTER_SUPERVISOR={limited.directory}"
    eat = f"import time; {EAT}; time.sleep(0.2)"
    limited.run(
        ["sh", "-c", f"(setsid env {forged} python3 -I -S -c '{eat}' &) ; sleep 1"], kernel="forger"
    )

    assert limited.status("victim") == "running"
