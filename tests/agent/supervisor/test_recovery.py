"""The next supervisor takes over the journal and the processes of one that was killed."""

import json
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from tests.agent.supervisor.driver import (
    WAIT_S,
    Driver,
    alive,
    cgroups_of,
    read_when_there,
    take_over,
)

from muster.agent.supervisor.launch import launch
from muster.agent.supervisor.process_tree import read_stat
from muster.agent.supervisor.shutdown import shut_down


def test_running_kernels_are_killed_and_reported_lost(supervisor: Driver, tmp_path: Path) -> None:
    child = tmp_path / "pid"
    leave = f"setsid sh -c 'echo $$ > {child}; exec sleep 60' & echo up; exec sleep 60"
    supervisor.start("k", command=["sh", "-c", leave])
    pids = [int(read_when_there(child)), supervisor.started("k")["pid"]]

    take_over(supervisor)

    assert supervisor.ended("k")["reason"] == "supervisor_lost"
    assert not [pid for pid in pids if alive(pid)], "killed before the end is told"
    assert supervisor.status("k") == "ended"


def test_kernels_of_a_killed_supervisor_do_not_outlive_a_shutdown(
    supervisor: Driver, tmp_path: Path
) -> None:
    child = tmp_path / "pid"
    leave = f"setsid sh -c 'echo $$ > {child}; exec sleep 60' & echo up; exec sleep 60"
    supervisor.start("k", command=["sh", "-c", leave])
    pids = [int(read_when_there(child)), supervisor.started("k")["pid"]]
    supervisor.kill()

    shut_down(supervisor.directory, grace_s=1.0, timeout_s=WAIT_S)

    assert not [pid for pid in pids if alive(pid)]
    assert not cgroups_of(supervisor.directory)
    launch(supervisor.directory)
    supervisor.attach()
    assert supervisor.ended("k")["reason"] == "supervisor_lost"


def test_process_without_a_trace_is_found_through_its_parent(
    supervisor: Driver, tmp_path: Path
) -> None:
    child = tmp_path / "pid"
    hide = f"env -i setsid sh -c 'echo $$ > {child}; exec sleep 60' & wait"
    supervisor.start("k", command=["env", "-i", "/bin/sh", "-c", hide])
    pid = int(read_when_there(child))

    take_over(supervisor)

    supervisor.ended("k")
    assert not alive(pid)


def test_queued_kernels_are_lost_too_and_may_come_again_once_acknowledged(
    supervisor: Driver,
) -> None:
    supervisor.start({"id": "k", "queued": True})
    assert supervisor.status("k") == "queued"

    take_over(supervisor)

    assert supervisor.ended("k")["reason"] == "supervisor_lost"
    supervisor.start("k")
    assert supervisor.status("k") == "ended"
    supervisor.acknowledge()
    supervisor.start("k")
    supervisor.until(lambda: supervisor.all_of("k") == ["ended", "started", "ended"])


def test_unacknowledged_events_are_told_again_under_their_numbers(supervisor: Driver) -> None:
    supervisor.run(["true"], kernel="acknowledged")
    supervisor.acknowledge()
    supervisor.run(["sh", "-c", "exit 3"], kernel="heard")
    supervisor.start("running", command=["sleep", "60"])
    supervisor.started("running")
    before = {event["seq"]: event for event in supervisor.events}
    supervisor.batches.clear()

    take_over(supervisor)
    supervisor.ended("running")

    again = [event for batch in supervisor.batches for event in batch]
    assert [event["seq"] for event in again] == [3, 4, 5, 6]
    assert again[:3] == [before[3], before[4], before[5]]
    assert supervisor.state["next_seq"] == 7
    told = {entry["id"]: entry.get("lost", False) for entry in supervisor.state["kernels"]}
    assert told == {"heard": False, "running": True}


def test_numbers_go_on_after_everything_was_acknowledged(supervisor: Driver) -> None:
    supervisor.run(["true"])
    supervisor.acknowledge()
    supervisor.settle()

    take_over(supervisor)

    assert supervisor.state == {**supervisor.state, "kernels": [], "next_seq": 3}
    assert supervisor.run(["true"], kernel="next")["seq"] == 4


def test_supervisor_killed_again_before_anybody_heard_still_tells_once(
    supervisor: Driver,
) -> None:
    supervisor.start("k", command=["sleep", "60"])
    supervisor.started("k")
    for _ in range(3):
        supervisor.kill()
        launch(supervisor.directory)
        supervisor.attach()

    supervisor.ended("k")
    assert supervisor.all_of("k") == ["started", "ended"]


def test_kernel_that_was_stopped_before_it_was_heard_of_stays_barred(supervisor: Driver) -> None:
    supervisor.stop("k")
    supervisor.ended("k")

    take_over(supervisor)
    supervisor.start("k")

    assert supervisor.status("k") is None
    assert supervisor.all_of("k") == ["ended"]


def test_torn_last_line_is_dropped(supervisor: Driver) -> None:
    supervisor.run(["true"])
    supervisor.kill()
    with (supervisor.directory / "journal").open("a") as journal:
        journal.write('{"events":[{"seq":3,"kernel":"k","generat')

    launch(supervisor.directory)
    supervisor.attach()

    assert supervisor.state["next_seq"] == 3
    assert supervisor.run(["true"], kernel="next")["exit_code"] == 0


def test_scratch_directories_left_empty_are_removed(supervisor: Driver) -> None:
    supervisor.start("empty", command=["sleep", "60"])
    supervisor.start("full", command=["sh", "-c", "touch file; echo up; exec sleep 60"])
    supervisor.started("empty")
    read_when_there(supervisor.log_path("full"))

    take_over(supervisor)

    assert [path.name for path in (supervisor.directory / "kernels").iterdir()] == ["full.1"]


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that no kernel has to do with, in a session of its own."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("boot", "ticks_off", "dies"),
    [("this one", 0, True), ("this one", -1, False), ("another", 0, False)],
    ids=["same boot and start time", "pid used again", "rebooted"],
)
def test_pid_in_the_journal_counts_only_with_its_start_time_and_boot(
    tmp_path: Path,
    bystander: subprocess.Popen[bytes],
    boot: str,
    ticks_off: int,
    dies: bool,
) -> None:
    """A journal as a dead supervisor would leave it, about a process that it did not start."""
    stat = read_stat(bystander.pid)
    assert stat is not None
    ticks = stat.start_ticks + ticks_off
    if boot == "this one":
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    lines: list[dict[str, object]] = [
        {"boot": boot, "next_seq": 1, "acked": 0},
        {"accepted": [["k", 1, "s"]]},
        {"running": ["k", 1, bystander.pid, ticks, ticks]},
    ]
    folder = tmp_path / "supervisor"
    folder.mkdir()
    (folder / "journal").write_text("".join(json.dumps(line) + "\n" for line in lines))

    driver = Driver(folder)
    try:
        assert driver.ended("k")["reason"] == "supervisor_lost"
        if dies:
            assert bystander.wait(timeout=10) == -signal.SIGKILL
        else:
            assert bystander.poll() is None
    finally:
        driver.close()


def test_full_disk_starts_nothing_and_what_ended_is_told_all_the_same(supervisor: Driver) -> None:
    """The intent must be on file before a spawn; an end that is not told would be run again."""
    supervisor.start("running", command=["sleep", "60"])
    pid = supervisor.started("running")["pid"]
    journal = supervisor.directory / "journal"
    supervisor.settle()
    _, hard = resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE, (journal.stat().st_size, hard))

    supervisor.start("late", command=["sleep", "60"])
    os.kill(pid, signal.SIGKILL)
    assert supervisor.event("late", "create_failed")["reason"] == "disk_full"
    assert supervisor.ended("running")["signal"] == signal.SIGKILL

    supervisor.detach()
    supervisor.batches.clear()
    supervisor.attach()  # the next agent is told as well, though it is in no file
    again = {("running", "ended"), ("late", "create_failed")}
    supervisor.until(
        lambda: again <= {(each["kernel"], each["kind"]) for each in chain(*supervisor.batches)}
    )

    resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE, (hard, hard))
    supervisor.start("late", command=["true"])
    assert supervisor.ended("late")["exit_code"] == 0
