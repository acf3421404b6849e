"""Kernels that run as users of their own: what they may, and what they cannot reach."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.agent.supervisor.accounts import ADA, BOB, Users, spawner_of
from tests.agent.supervisor.driver import WAIT_S, Driver, alive, read_when_there, wait_gone

from muster.agent.supervisor.cgroups import LimitsKind
from muster.agent.supervisor.launch import launch

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become other users")

PR_CAPBSET_DROP = 24
CAP_NET_ADMIN = 12


def output(driver: Driver, account: dict[str, Any], script: str, kernel: str = "k") -> str:
    """The output of a shell that runs as the account; it must end with 0."""
    end = driver.run(["sh", "-c", script], kernel=kernel, account=account)
    assert end.get("exit_code") == 0, (end, driver.log(kernel))
    return driver.log(kernel)


def test_kernel_runs_as_its_user_in_every_way(
    supervisor: Driver, users: Users, ada: dict[str, Any]
) -> None:
    script = "id -u; id -g; id -G; grep -E '^(Uid|Gid|NoNewPrivs|CapEff|CapBnd)' /proc/self/status"
    script += "; echo $HOME $USER $LOGNAME; pwd; umask; ls -l /proc/self/fd | grep -c /"
    lines = output(supervisor, users.account(ADA, groups=[4321]), script).splitlines()

    assert lines[:3] == [str(ADA), str(ADA), f"{ADA} 4321"]
    assert lines[3].split() == ["Uid:", *[str(ADA)] * 4]
    assert lines[4].split() == ["Gid:", *[str(ADA)] * 4]
    assert lines[5].split() == ["CapEff:", "0000000000000000"]
    assert lines[7].split() == ["NoNewPrivs:", "1"]
    assert lines[8] == f"{ada['home']} u{ADA} u{ADA}"
    assert lines[9] == f"{ada['scratch']}/k.1"
    assert lines[10] == "0022"


def test_stderr_of_a_user_is_kept_apart_too(supervisor: Driver, ada: dict[str, Any]) -> None:
    script = "echo out; echo wrong >&2; echo worse >/dev/stderr"
    supervisor.run(["sh", "-c", script], account=ada, stderr_apart=True)

    assert supervisor.log_path("k").with_suffix(".err").read_text() == "wrong\nworse\n"
    assert supervisor.log("k") == "out\nwrong\nworse\n"


def test_user_without_a_restriction_may_gain_privileges(supervisor: Driver, users: Users) -> None:
    account = users.account(ADA, gains_privileges=True)

    assert output(supervisor, account, "grep NoNewPrivs /proc/self/status").split()[1] == "0"


def test_kernel_inherits_nothing_but_its_input_and_output(
    supervisor: Driver, ada: dict[str, Any]
) -> None:
    code = "import os; print(sorted(os.listdir('/proc/self/fd')))"
    supervisor.run(["python3", "-I", "-S", "-c", code], account=ada)

    assert supervisor.log("k") == "['0', '1', '2', '3']\n", "3 is the listed directory itself"


def test_scratch_directory_is_the_users_alone_and_goes_if_empty(
    supervisor: Driver, ada: dict[str, Any]
) -> None:
    script = "stat -c '%a %u' $MUSTER_SCRATCH; cat note"
    end = supervisor.run(["sh", "-c", f"{script}; rm note"], account=ada, files={"note": "hello\n"})

    assert (end["exit_code"], supervisor.log("k")) == (0, f"700 {ADA}\nhello\n")
    place = Path(ada["scratch"])
    supervisor.run(["sh", "-c", "echo kept > file"], kernel="keeper", account=ada)
    assert (place / "keeper.1" / "file").read_text() == "kept\n"
    assert (place / "keeper.1").stat().st_uid == ADA


def test_workdir_is_entered_as_the_user(
    supervisor: Driver, ada: dict[str, Any], bob: dict[str, Any]
) -> None:
    supervisor.start("k", account=ada, workdir=bob["home"])

    failure = supervisor.event("k", "create_failed")
    assert failure["reason"] == "workdir_missing"
    assert "Permission denied" in failure["detail"]


def test_program_that_only_others_may_execute_is_not_executable(
    supervisor: Driver, ada: dict[str, Any], users: Users
) -> None:
    program = users.place / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)

    end = supervisor.run([str(program)], account=ada)

    assert (end["reason"], end["exit_code"]) == ("command_not_executable", 126)


def test_exit_codes_and_signals_come_through(supervisor: Driver, ada: dict[str, Any]) -> None:
    assert supervisor.run(["sh", "-c", "exit 7"], account=ada)["exit_code"] == 7
    end = supervisor.run(["sh", "-c", "kill -9 $$"], kernel="killed", account=ada)
    assert (end["reason"], end["signal"]) == ("signaled", 9)


def test_daemons_die_with_a_kernel_of_another_user(supervisor: Driver, ada: dict[str, Any]) -> None:
    script = "for i in 1 2 3; do (setsid env -i sleep 60 &) ; done; "
    script += "until pids=$(pgrep -u $(id -u) sleep) && [ $(echo $pids | wc -w) = 3 ]; do :; done; "
    pids = output(supervisor, ada, script + "echo $pids").split()

    assert len(pids) == 3
    if supervisor.state["limits"] == LimitsKind.NONE:  # strangers may go on for a moment
        for pid in pids:
            wait_gone(int(pid))
    assert [pid for pid in pids if alive(int(pid))] == []


def test_kernel_is_stopped_gracefully_and_then_killed(
    supervisor: Driver, ada: dict[str, Any]
) -> None:
    trap = "trap 'echo asked; exit 5' TERM; echo up; while :; do sleep 0.05; done"
    supervisor.start("polite", command=["sh", "-c", trap], account=ada)
    read_when_there(supervisor.log_path("polite"))
    supervisor.stop("polite")
    end = supervisor.ended("polite")
    assert (end["reason"], end["exit_code"]) == ("stopped", 5)

    deaf = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    supervisor.start("deaf", command=["sh", "-c", deaf], account=ada)
    read_when_there(supervisor.log_path("deaf"))
    supervisor.stop("deaf", grace_s=0.1)
    assert supervisor.ended("deaf")["signal"] == signal.SIGKILL


def test_kernel_stopped_before_it_is_spawned_ends(supervisor: Driver, ada: dict[str, Any]) -> None:
    for number in range(20):
        supervisor.start(f"k{number}", command=["sleep", "60"], account=ada)
        supervisor.stop(f"k{number}", grace_s=0 if number % 2 else 5)

    for number in range(20):
        assert supervisor.ended(f"k{number}")["reason"] in ("stopped", "never_started")


def test_heirs_of_several_users_take_turns(
    supervisor: Driver, ada: dict[str, Any], bob: dict[str, Any]
) -> None:
    wait = ["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; rm go"]
    supervisor.start({"id": "first", "devices": [3]}, command=wait, account=ada)
    for number, account in enumerate((bob, ada, None, bob)):
        supervisor.start({"id": f"heir{number}", "queued": True}, account=account)
    assert supervisor.status("heir3") == "queued"
    (Path(ada["scratch"]) / "first.1" / "go").touch()

    for number in range(4):
        assert supervisor.ended(f"heir{number}")["exit_code"] == 0
        assert supervisor.started(f"heir{number}")["devices"] == [3]


def test_user_that_kills_its_spawner_harms_only_itself(
    supervisor: Driver, ada: dict[str, Any], bob: dict[str, Any]
) -> None:
    """Kernels that ran go on as the supervisor's own children, and their exit codes are known."""
    for kernel, account in (("ada", ada), ("bob", bob)):
        supervisor.start(kernel, command=["sleep", "60"], account=account)
        supervisor.started(kernel)
    victim = spawner_of(supervisor, ADA)
    script = f"kill -9 {victim}; kill -9 {spawner_of(supervisor, BOB)} {supervisor.pid}; true"
    supervisor.run(["sh", "-c", script], kernel="killer", account=ada)
    wait_gone(victim)

    assert supervisor.run(["true"], kernel="next", account=ada)["exit_code"] == 0
    assert supervisor.run(["true"], kernel="other", account=bob)["exit_code"] == 0
    assert alive(spawner_of(supervisor, BOB))


def test_kernel_runs_on_when_its_spawner_is_killed(supervisor: Driver, ada: dict[str, Any]) -> None:
    wait = "echo up; while [ ! -e go ]; do sleep 0.02; done; exit 4"
    supervisor.start("k", command=["sh", "-c", wait], account=ada)
    supervisor.started("k")

    victim = spawner_of(supervisor, ADA)
    os.kill(victim, signal.SIGKILL)
    wait_gone(victim)
    (Path(ada["scratch"]) / "k.1" / "go").touch()

    end = supervisor.ended("k")
    assert (end["reason"], end["exit_code"]) == ("exited", 4)


def test_spawner_that_is_stopped_by_its_user_keeps_no_kernel_from_being_killed(
    supervisor: Driver, ada: dict[str, Any], bob: dict[str, Any]
) -> None:
    supervisor.start("k", command=["sleep", "60"], account=ada)
    supervisor.started("k")
    os.kill(spawner_of(supervisor, ADA), signal.SIGSTOP)
    supervisor.start("late", command=["sleep", "60"], account=ada)

    assert supervisor.run(["true"], kernel="other", account=bob)["exit_code"] == 0
    supervisor.stop("k", grace_s=0)

    assert supervisor.ended("k")["reason"] == "stopped"
    assert supervisor.ended("late")["reason"] == "supervisor_lost"
    assert supervisor.run(["true"], kernel="next", account=ada)["exit_code"] == 0


@pytest.mark.parametrize("orderly", [True, False])
def test_spawner_that_is_stopped_by_its_user_ends_with_the_supervisor(
    supervisor: Driver, ada: dict[str, Any], *, orderly: bool
) -> None:
    supervisor.run(["true"], account=ada)
    spawner = spawner_of(supervisor, ADA)
    os.kill(spawner, signal.SIGSTOP)

    if orderly:
        supervisor.close()
    else:
        supervisor.kill()

    wait_gone(spawner)


def test_stops_that_are_repeated_do_not_put_off_the_end_of_a_spawner_that_is_stopped(
    supervisor: Driver, ada: dict[str, Any]
) -> None:
    supervisor.run(["true"], kernel="first", account=ada)
    os.kill(spawner_of(supervisor, ADA), signal.SIGSTOP)
    supervisor.start("k", account=ada)
    supervisor.settle()

    def stopped_again() -> bool:
        supervisor.stop("k", grace_s=0)
        return "ended" in supervisor.all_of("k")

    supervisor.until(stopped_again)

    assert supervisor.ended("k")["reason"] in ("stopped", "never_started")


def test_spawner_keeps_no_files_of_kernels_that_run(
    supervisor: Driver, ada: dict[str, Any]
) -> None:
    def start(number: int) -> int:
        """Start a kernel; the answer is how much memory its spawner has then."""
        file = {f"file{number}": "x" * (2 << 20)}
        supervisor.start(f"k{number}", command=["sleep", "60"], account=ada, files=file)
        supervisor.started(f"k{number}")
        statm = Path(f"/proc/{spawner_of(supervisor, ADA)}/statm").read_text()
        return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before_bytes = max(start(number) for number in range(3))
    after_bytes = max(start(number) for number in range(3, 9))

    assert after_bytes < before_bytes + (4 << 20)


def test_kernel_cannot_take_its_scratch_directory_away_from_where_it_is_measured(
    supervisor: Driver, ada: dict[str, Any]
) -> None:
    escape = "mv $MUSTER_SCRATCH $HOME/away; rmdir $MUSTER_SCRATCH; ls $MUSTER_SCRATCH/.."
    fill = "head -c 4000000 /dev/zero > file; sleep 60"
    supervisor.start(
        "k", command=["sh", "-c", f"{escape}; {fill}"], account=ada, disk_bytes=1 << 20
    )

    assert supervisor.ended("k")["reason"] == "disk_limit"
    assert list(Path(ada["home"]).iterdir()) == []
    assert supervisor.log("k").count("Permission denied") == 3


def test_nothing_is_left_of_a_users_scratch_directories_when_the_supervisor_has_gone(
    supervisor: Driver, users: Users, ada: dict[str, Any]
) -> None:
    """Also of kernels that ran while the user had other groups, and so another spawner."""
    for number, groups in enumerate(([], [], [4321])):
        account = users.account(ADA, groups=groups)
        assert supervisor.run(["true"], kernel=f"k{number}", account=account)["exit_code"] == 0
    supervisor.close()

    assert list(Path(ada["scratch"]).iterdir()) == []


REACHES = """
import ctypes, os, signal, sys
directory, supervisor, spawner, kernel, scratch = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
reached = []
def attempt(what, act):
    try:
        act()
    except OSError:
        return
    reached.append(what)
for name in ("", "supervisor.sock", "supervisor.log", "journal", "logs", "kernels"):
    path = f"{directory}/{name}"
    attempt(f"list {path}", lambda: os.listdir(path))
    attempt(f"read {path}", lambda: os.open(path, os.O_RDONLY))
    attempt(f"write {path}", lambda: os.open(path, os.O_WRONLY | os.O_CREAT))
attempt("enter", lambda: os.chdir(directory))
attempt("scratch", lambda: os.listdir(scratch))
libc = ctypes.CDLL(None, use_errno=True)
def trace(pid):
    if libc.ptrace(16, pid, 0, 0):
        raise OSError
for pid in (supervisor, spawner, kernel):
    if pid != spawner:
        attempt(f"kill {pid}", lambda: os.kill(pid, 0))
    attempt(f"trace {pid}", lambda: trace(pid))
    for name in ("environ", "mem", "fd", "cwd"):
        path = f"/proc/{pid}/{name}"
        read = os.listdir if name in ("fd", "cwd") else lambda path: open(path, "rb").read(1)
        attempt(path, lambda: read(path))
for line in open("/proc/self/cgroup"):
    _, controllers, path = line.strip().split(":", 2)
    for controller in controllers.split(",") if controllers else [""]:
        base = f"/sys/fs/cgroup/{controller}{path}"
        for name in ("tasks", "cgroup.procs", "pids.max", "memory.limit_in_bytes", "cpu.max"):
            attempt(f"{base}/{name}", lambda: os.open(f"{base}/{name}", os.O_WRONLY))
        attempt(f"mkdir {base}", lambda: os.mkdir(f"{base}/inner"))
print(reached)
"""


def test_kernel_of_another_user_reaches_nothing(
    supervisor: Driver, ada: dict[str, Any], bob: dict[str, Any]
) -> None:
    """From inside one, with directory, processes and kernels of others known by name and number."""
    supervisor.start("k", command=["sleep", "60"], account=ada)
    victim = supervisor.started("k")["pid"]
    supervisor.run(["true"], kernel="warm", account=bob)
    arguments = [
        str(supervisor.directory),
        *map(str, (supervisor.pid, spawner_of(supervisor, BOB), victim)),
        ada["scratch"],
    ]
    supervisor.run(["python3", "-I", "-S", "-c", REACHES, *arguments], kernel="prober", account=bob)

    assert supervisor.log("prober") == "[]\n"


def test_limits_hold_for_users_too(supervisor: Driver, ada: dict[str, Any]) -> None:
    if supervisor.state["limits"] == LimitsKind.NONE:
        pytest.skip("this machine has no cgroups that this user may make")
    eat = ["python3", "-I", "-S", "-c", "b = bytearray(256 << 20)"]
    end = supervisor.run(eat, account=ada, memory_bytes=64 << 20)
    assert end["reason"] == "out_of_memory"
    fork = ["sh", "-c", "for i in $(seq 40); do sleep 5 & done; wait"]
    assert supervisor.run(fork, kernel="forks", account=ada, pids_max=20)["exit_code"] != 0


def test_file_of_a_spec_cannot_be_turned_elsewhere_by_its_user(
    supervisor: Driver, ada: dict[str, Any], users: Users
) -> None:
    """The user made the scratch directory a link; whatever is written is written as the user."""
    target = users.place / "roots"
    target.mkdir(mode=0o755)
    (Path(ada["scratch"]) / "k.1").symlink_to(target)

    supervisor.start("k", account=ada, files={"planted": "x"})

    assert supervisor.event("k", "create_failed")["reason"] == "internal"
    assert list(target.iterdir()) == []


def test_restarted_supervisor_kills_what_ran_as_users(
    supervisor: Driver, ada: dict[str, Any]
) -> None:
    supervisor.start("k", command=["sleep", "60"], account=ada)
    pid = supervisor.started("k")["pid"]
    spawner = spawner_of(supervisor, ADA)
    supervisor.kill()

    launch(supervisor.directory)
    supervisor.attach()

    assert supervisor.ended("k")["reason"] == "supervisor_lost"
    assert not alive(pid)
    wait_gone(spawner)


@pytest.mark.parametrize("field", ["uid", "gid"])
def test_account_of_root_is_refused(supervisor: Driver, users: Users, field: str) -> None:
    supervisor.start("k", account={**users.account(ADA), field: 0})

    assert "must not be root's" in supervisor.error()


def test_user_that_no_process_can_become_has_its_kernels_fail(
    supervisor: Driver, users: Users
) -> None:
    """Too many groups: nothing ran, so this is no attempt that was lost."""
    supervisor.start("k", account=users.account(ADA, groups=[1 << 40]))

    failure = supervisor.event("k", "create_failed")
    assert failure["reason"] == "internal"
    assert f"no process could become u{ADA} ({ADA})" in failure["detail"]
    assert supervisor.run(["true"], account=users.account(BOB), kernel="next")["exit_code"] == 0


def test_user_opens_its_own_output_by_name(supervisor: Driver, ada: dict[str, Any]) -> None:
    script = "echo out > /dev/stdout; echo err > /dev/stderr; echo tee | tee /dev/stderr"
    assert output(supervisor, ada, script).splitlines() == ["out", "err", "tee", "tee"]


def launch_without_net_admin(directory: Path) -> None:
    """Launch a supervisor as root of a container has it: without CAP_NET_ADMIN."""
    script = (
        "import ctypes, pathlib, sys; from muster.agent.supervisor.launch import launch\n"
        f"assert ctypes.CDLL(None).prctl({PR_CAPBSET_DROP}, {CAP_NET_ADMIN}, 0, 0, 0) == 0\n"
        "launch(pathlib.Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", script, directory], check=True, timeout=WAIT_S)


def test_agent_in_a_container_runs_kernels_of_users(tmp_path: Path, ada: dict[str, Any]) -> None:
    launch_without_net_admin(tmp_path / "supervisor")
    driver = Driver(tmp_path / "supervisor")
    try:
        assert output(driver, ada, "id -u").strip() == str(ADA)
    finally:
        driver.close()


def test_user_that_has_its_spawner_take_too_few_descriptors_leaves_no_limits(
    supervisor: Driver, ada: dict[str, Any]
) -> None:
    """The user of a process may lower its limits, whether or not it may trace it."""
    if supervisor.state["limits"] == LimitsKind.NONE:
        pytest.skip("no cgroups can be made here")
    supervisor.run(["true"], kernel="first", account=ada)
    spawner = spawner_of(supervisor, ADA)
    used = {int(fd) for fd in os.listdir(f"/proc/{spawner}/fd")}  # noqa: PTH208
    room_for_one = min(set(range(max(used) + 2)) - used) + 1
    lower = ["prlimit", f"--pid={spawner}", f"--nofile={room_for_one}:{room_for_one}"]
    assert supervisor.run(lower, kernel="attack", account=ada).get("exit_code") == 0

    supervisor.start("k", command=["cat", "/proc/self/cgroup"], account=ada)
    supervisor.until(lambda: bool({"ended", "create_failed"} & set(supervisor.all_of("k"))))

    assert supervisor.all_of("k") == ["create_failed"]
    assert not supervisor.log_path("k").exists(), "it ran, and where it should not"
