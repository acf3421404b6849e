"""Output goes to one log in the order it was written, bounded, and at nobody's expense."""

import os
import resource
import time
from pathlib import Path

import pytest
from tests.agent.supervisor.driver import Driver
from tests.patience import until


def test_stdout_and_stderr_keep_their_order(supervisor: Driver) -> None:
    supervisor.run(["sh", "-c", "for i in 1 2 3; do echo out $i; echo err $i >&2; done"])

    assert supervisor.log("k") == "".join(f"out {i}\nerr {i}\n" for i in (1, 2, 3))


def errors(supervisor: Driver, kernel: str = "k") -> str:
    return supervisor.log_path(kernel).with_suffix(".err").read_text()


def test_stderr_that_is_kept_apart_is_in_a_log_of_its_own_and_in_that_of_both(
    supervisor: Driver,
) -> None:
    script = "echo one; sleep 0.2; echo wrong >&2; sleep 0.2; echo two; echo worse >/dev/stderr"
    supervisor.run(["sh", "-c", script], stderr_apart=True)

    assert errors(supervisor) == "wrong\nworse\n"
    assert supervisor.log("k") == "one\nwrong\ntwo\nworse\n"


def test_kernel_that_is_silent_apart_has_an_empty_log_of_stderr(supervisor: Driver) -> None:
    supervisor.run(["true"], stderr_apart=True)

    assert errors(supervisor) == ""
    assert not supervisor.log_path("k").exists()


def test_both_logs_of_a_flood_on_stderr_are_bounded_and_removed_together(
    supervisor: Driver,
) -> None:
    limit_bytes = 64 << 10
    script = f"seq -f %09.0f {4 * limit_bytes // 10} >&2"
    supervisor.run(["sh", "-c", script], stderr_apart=True, log_max_bytes=limit_bytes)

    logs = supervisor.directory / "logs"
    assert sorted(path.name for path in logs.iterdir()) == [
        *("k.1.err", "k.1.err.1", "k.1.err.start"),
        *("k.1.log", "k.1.log.1", "k.1.log.start"),
    ]
    assert max(path.stat().st_size for path in logs.iterdir()) <= limit_bytes
    assert errors(supervisor) == supervisor.log("k")
    supervisor.say(op="forget", kernels=[{"id": "k", "generation": 1}])
    until(lambda: list(logs.iterdir()) == [])


def test_silent_kernel_has_no_log(supervisor: Driver) -> None:
    supervisor.run(["true"])

    assert list((supervisor.directory / "logs").iterdir()) == []


def test_owner_stands_beside_the_log_and_goes_with_it(supervisor: Driver) -> None:
    supervisor.run(["echo", "x"], owner="default/lab/ada")

    noted = Path(f"{supervisor.log_path('k')}.owner")
    assert str(noted.readlink()) == "default/lab/ada"
    supervisor.say(op="forget", kernels=[{"id": "k", "generation": 1}])
    until(lambda: list((supervisor.directory / "logs").iterdir()) == [])


def test_output_is_in_the_log_while_the_kernel_runs(supervisor: Driver) -> None:
    supervisor.start("k", command=["sh", "-c", "echo early; exec sleep 60"])

    until(lambda: supervisor.log_path("k").exists() and supervisor.log("k") == "early\n")


def test_everything_written_just_before_the_end_is_there(supervisor: Driver) -> None:
    supervisor.run(["sh", "-c", "head -c 65536 /dev/zero; kill -9 $$"])

    assert supervisor.log_path("k").stat().st_size == 65536


def test_log_is_rotated_and_keeps_the_newest(supervisor: Driver) -> None:
    """Numbered lines, four limits' worth: what is kept ends with the last and has no gap."""
    limit_bytes = 64 << 10
    supervisor.run(
        ["sh", "-c", f"seq -f %09.0f {4 * limit_bytes // 10}"], log_max_bytes=limit_bytes
    )

    newer, older = supervisor.log_path("k"), Path(f"{supervisor.log_path('k')}.1")
    assert 0 < newer.stat().st_size <= limit_bytes
    assert 0 < older.stat().st_size <= limit_bytes
    kept = [int(line) for line in (older.read_text() + newer.read_text()).split("\n")[1:-1]]
    assert kept == list(range(kept[0], 4 * limit_bytes // 10 + 1))
    assert newer.stat().st_size + older.stat().st_size > limit_bytes


def test_flood_hurts_neither_other_kernels_nor_the_loop(supervisor: Driver) -> None:
    supervisor.start("flood", command=["cat", "/dev/zero"], log_max_bytes=1 << 20)
    supervisor.started("flood")
    until(lambda: Path(f"{supervisor.log_path('flood')}.1").exists())

    began_s = time.monotonic()
    for number in range(20):
        supervisor.run(["echo", "hello"], kernel=f"k{number}")
        assert supervisor.log(f"k{number}") == "hello\n"

    assert time.monotonic() - began_s < 5
    supervisor.stop("flood", grace_s=0)  # until then its log is away at times, to be rotated
    supervisor.ended("flood")
    assert supervisor.log_path("flood").stat().st_size <= 1 << 20


def test_flood_is_held_back_by_its_pipe(supervisor: Driver) -> None:
    """At most 1 MiB in 10 ms is taken; the writer waits, it loses nothing."""
    began_s = time.monotonic()
    end = supervisor.run(["head", "-c", str(32 << 20), "/dev/zero"])

    assert time.monotonic() - began_s > 0.25
    assert "output_dropped_bytes" not in end
    assert supervisor.log_path("k").stat().st_size == 32 << 20


def test_full_disk_drops_output_counts_it_and_lets_the_kernel_go_on(supervisor: Driver) -> None:
    supervisor.log_path("k").symlink_to("/dev/full")

    end = supervisor.run(["sh", "-c", "echo lost; head -c 300000 /dev/zero; exit 4"])

    assert (end["exit_code"], end["output_dropped_bytes"]) == (4, 300005)
    supervisor.log_path("k").unlink()
    assert supervisor.run(["echo", "fine"], kernel="next")["exit_code"] == 0
    assert supervisor.log("next") == "fine\n"


def test_disk_that_fills_up_in_the_middle_keeps_what_fitted(supervisor: Driver) -> None:
    limit_bytes = 100_000
    _, hard = resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE, (limit_bytes, hard))

    end = supervisor.run(["head", "-c", "150000", "/dev/zero"])

    assert supervisor.log_path("k").stat().st_size == limit_bytes
    assert end["output_dropped_bytes"] == 50_000


def test_logs_are_private(supervisor: Driver) -> None:
    supervisor.run(["echo", "secret"])

    assert supervisor.log_path("k").stat().st_mode & 0o777 == 0o600


def test_descriptor_that_a_stranger_keeps_open_does_not_delay_the_end(
    supervisor: Driver, tmp_path: Path
) -> None:
    """Somebody outside of the kernel's tree has its stdout: this test, through /proc."""
    go = tmp_path / "go"
    supervisor.start("k", command=["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.01; done"])
    pid = supervisor.started("k")["pid"]
    stdout = os.open(f"/proc/{pid}/fd/1", os.O_WRONLY)
    try:
        os.write(stdout, b"from outside\n")
        go.touch()
        supervisor.ended("k")
    finally:
        os.close(stdout)

    assert supervisor.log("k") == "from outside\n"


@pytest.mark.parametrize("plant", ["fifo", "link", "directory"])
def test_what_is_planted_for_a_log_is_neither_followed_nor_waited_for(
    supervisor: Driver, tmp_path: Path, plant: str
) -> None:
    """A FIFO without a reader held the supervisor up for good."""
    path, target = supervisor.log_path("k"), tmp_path / "target"
    target.write_text("untouched")
    match plant:
        case "fifo":
            os.mkfifo(path)
        case "link":
            path.symlink_to(target)
        case "directory":
            path.mkdir()

    end = supervisor.run(["echo", "hello"])

    assert (end["exit_code"], end["output_dropped_bytes"]) == (0, 6)
    assert target.read_text() == "untouched"
