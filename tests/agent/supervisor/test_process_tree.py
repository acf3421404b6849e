"""When a kernel ends, everything that ever belonged to it is gone before the end is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.supervisor.driver import (
    Driver,
    alive,
    launch_without_cgroups,
    read_when_there,
    wait_gone,
)
from tests.patience import until

from muster.agent.supervisor.cgroups import LimitsKind
from muster.agent.supervisor.process_tree import read_stat


@pytest.fixture(params=["in cgroups", "without cgroups"])
def supervisor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    directory = tmp_path / "supervisor"
    if request.param == "without cgroups" and not launch_without_cgroups(directory):
        pytest.skip("this user cannot hide the cgroups of this machine")
    driver = Driver(directory)
    try:
        yield driver
    finally:
        driver.close()


def leave(command: str, pid_file: Path) -> str:
    """Shell text that leaves a process behind, and goes on once that has written its pid."""
    return f"{command} & while [ ! -s {pid_file} ]; do sleep 0.01; done"


def sleeper(pid_file: Path) -> str:
    return f"'echo $$ > {pid_file}; exec sleep 60'"


def test_background_child_dies_with_its_kernel(supervisor: Driver, tmp_path: Path) -> None:
    child = tmp_path / "pid"
    supervisor.run(["sh", "-c", leave(f"sh -c {sleeper(child)}", child)])

    assert not alive(int(child.read_text()))


def test_child_in_a_session_of_its_own_dies_with_its_kernel(
    supervisor: Driver, tmp_path: Path
) -> None:
    child = tmp_path / "pid"
    supervisor.run(["sh", "-c", leave(f"setsid sh -c {sleeper(child)}", child)])

    assert not alive(int(child.read_text()))


def test_daemon_that_was_adopted_long_before_dies_with_its_kernel(
    supervisor: Driver, tmp_path: Path
) -> None:
    """Its parent is gone while the kernel runs on, and other kernels come and go meanwhile."""
    child = tmp_path / "pid"
    daemonise = f"(setsid sh -c {sleeper(child)} &) ; "
    supervisor.start(
        "k", command=["sh", "-c", daemonise + f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done"]
    )
    pid = int(read_when_there(child))
    until(lambda: (stat := read_stat(pid)) is not None and stat.parent == supervisor.pid)
    supervisor.run(["true"], kernel="other")
    assert alive(pid), "what a running kernel has in the background is its own business"

    (tmp_path / "go").touch()
    supervisor.ended("k")

    assert not alive(pid)


def test_daemon_without_a_trace_of_its_kernel_dies_with_it(
    supervisor: Driver, tmp_path: Path
) -> None:
    """Own session and empty environment: only that nobody else can have left it tells."""
    child = tmp_path / "pid"
    supervisor.run(["sh", "-c", leave(f"setsid env -i sh -c {sleeper(child)}", child)])

    wait_gone(int(child.read_text()))


def test_stranger_is_spared_while_a_kernel_runs_that_it_may_belong_to(
    supervisor: Driver, tmp_path: Path
) -> None:
    if supervisor.state["limits"] != LimitsKind.NONE:
        pytest.skip("with cgroups there are no strangers")
    child = tmp_path / "pid"
    supervisor.start("k", command=["sleep", "60"])
    supervisor.started("k")
    supervisor.run(
        ["sh", "-c", leave(f"setsid env -i sh -c {sleeper(child)}", child)], kernel="left"
    )
    pid = int(child.read_text())
    supervisor.run(["true"], kernel="other")
    assert alive(pid)

    supervisor.stop("k", grace_s=0)

    wait_gone(pid)


def test_tree_of_sessions_within_sessions_dies_to_the_last_leaf(
    supervisor: Driver, tmp_path: Path
) -> None:
    script = tmp_path / "grow"
    script.write_text(
        "#!/bin/sh\n[ $1 = 0 ] && { echo $$ >> leaves; exec sleep 60; }\n"
        "setsid $0 $(($1 - 1)) & setsid $0 $(($1 - 1)) & wait\n"
    )
    script.chmod(0o755)
    wait_for_leaves = "while [ $(wc -l < leaves) != 16 ]; do sleep 0.02; done 2>/dev/null"
    supervisor.run(
        ["sh", "-c", f"touch leaves; {script} 4 & {wait_for_leaves}"], workdir=str(tmp_path)
    )

    leaves = (tmp_path / "leaves").read_text().split()
    assert len(leaves) == 16
    assert not [pid for pid in leaves if alive(int(pid))]


@pytest.mark.parametrize("hide", ["", "env -i "])
def test_processes_that_keep_forking_are_caught(
    supervisor: Driver, tmp_path: Path, hide: str
) -> None:
    """Each lives for a moment and leaves the next in a session of its own."""
    script = tmp_path / "hop"
    script.write_text(f"#!/bin/sh\necho hop >> {tmp_path}/hops\nsetsid {hide}$0 &\n")
    script.chmod(0o755)
    supervisor.run(["sh", "-c", f"{script}; while [ ! -s {tmp_path}/hops ]; do :; done"])

    if hide:  # strangers may go on for a moment after the end is told
        until(lambda: not children_of(supervisor.pid))
    hops = (tmp_path / "hops").read_text()
    supervisor.run(["sleep", "0.1"], kernel="pause")
    assert (tmp_path / "hops").read_text() == hops


def test_processes_of_one_kernel_do_not_die_with_another(
    supervisor: Driver, tmp_path: Path
) -> None:
    child = tmp_path / "pid"
    daemonise = f"(setsid sh -c {sleeper(child)} &) ; sleep 60"
    supervisor.start("k", command=["sh", "-c", daemonise])
    pid = int(read_when_there(child))
    for number in range(5):
        supervisor.run(["sh", "-c", "sleep 60 & exit 0"], kernel=f"other{number}")

    assert alive(pid)
    supervisor.stop("k", grace_s=0)
    supervisor.ended("k")
    assert not alive(pid)


def test_supervisor_keeps_no_zombies(supervisor: Driver) -> None:
    supervisor.start("k", command=["sh", "-c", "sleep 0 & sleep 0 & (sleep 0 &) ; exit 0"])
    supervisor.ended("k")

    until(lambda: children_of(supervisor.pid) == "")


def children_of(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()
