"""A kernel is started as its order says, and its end is told with the reason."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.supervisor.driver import Driver


def test_kernel_that_exits_reports_its_code(supervisor: Driver) -> None:
    end = supervisor.run(["sh", "-c", "exit 7"])

    assert (end["reason"], end["exit_code"]) == ("exited", 7)
    assert supervisor.all_of("k") == ["started", "ended"]
    assert [event["seq"] for event in supervisor.events] == [1, 2]


def test_kernel_killed_by_somebody_else_reports_the_signal(supervisor: Driver) -> None:
    end = supervisor.run(["sh", "-c", "kill -USR1 $$"])

    assert (end["reason"], end["signal"]) == ("signaled", signal.SIGUSR1)
    assert "exit_code" not in end


def test_command_that_is_nowhere_in_path_ends_with_127(supervisor: Driver) -> None:
    end = supervisor.run(["no-such-program"], env={"PATH": "/bin:/usr/bin"})

    assert (end["reason"], end["exit_code"]) == ("command_not_found", 127)
    assert end["detail"] == "no no-such-program in PATH /bin:/usr/bin"
    assert supervisor.all_of("k") == ["ended"]


def test_command_by_path_that_does_not_exist_ends_with_127(supervisor: Driver) -> None:
    end = supervisor.run(["/no/such/program"])

    assert (end["reason"], end["exit_code"]) == ("command_not_found", 127)


def test_script_whose_interpreter_is_missing_says_so(supervisor: Driver) -> None:
    end = supervisor.run(["./script"], files={"script": "#! /no/such/interpreter\n"})

    assert end["reason"] == "command_not_found"
    assert end["detail"] == (
        "./script: its first line names '/no/such/interpreter', which is not there"
    )


def test_script_with_windows_line_ends_says_so(supervisor: Driver) -> None:
    end = supervisor.run(["./script"], files={"script": "#!/bin/sh\r\necho hello\r\n"})

    assert end["reason"] == "command_not_found"
    assert end["detail"] == (
        r"./script: its first line names '/bin/sh\r': its lines end as on Windows; "
        "save it with Unix line ends"
    )


def test_script_without_a_first_line_for_an_interpreter_says_so(supervisor: Driver) -> None:
    end = supervisor.run(["./script"], files={"script": "echo hello\n"})

    assert end["reason"] == "command_not_executable"
    assert end["detail"] == (
        "./script has no first line that names its interpreter, such as #!/bin/sh"
    )


def test_script_that_is_named_without_its_directory_is_told_with_it(supervisor: Driver) -> None:
    end = supervisor.run(
        ["mine.sh"], files={"mine.sh": "#!/bin/sh\n"}, env={"PATH": "/bin:/usr/bin"}
    )

    assert end["reason"] == "command_not_found"
    assert end["detail"] == (
        "no mine.sh in PATH /bin:/usr/bin; the one in its working directory is ./mine.sh"
    )


@pytest.mark.parametrize("command", ["/etc/passwd", "/etc"])
def test_command_that_is_no_program_ends_with_126(supervisor: Driver, command: str) -> None:
    end = supervisor.run([command])

    assert (end["reason"], end["exit_code"]) == ("command_not_executable", 126)


def test_file_in_path_without_execute_permission_ends_with_126(
    supervisor: Driver, tmp_path: Path
) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o644)

    end = supervisor.run(["tool"], env={"PATH": str(tmp_path)})

    assert (end["reason"], end["exit_code"]) == ("command_not_executable", 126)


def test_program_is_looked_up_in_the_path_of_the_kernel(supervisor: Driver, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\nexit 5\n")
    (tmp_path / "tool").chmod(0o755)

    assert supervisor.run(["tool"], env={"PATH": f"/bin:{tmp_path}"})["exit_code"] == 5


def test_environment_is_the_orders_and_a_few_defaults(supervisor: Driver) -> None:
    supervisor.start(
        {"id": "k", "generation": 3, "env": {"B": "of the kernel", "C": "3"}},
        command=["env"],
        env={"A": "of the template", "B": "of the template", "LANG": "C.UTF-8"},
    )
    supervisor.ended("k", generation=3)
    environment = dict(line.split("=", 1) for line in supervisor.log("k", 3).splitlines())

    assert environment.pop("PATH")
    for inherited in ("HOME", "USER", "TZ", "TMPDIR"):
        environment.pop(inherited, None)
    assert environment == {
        "A": "of the template",
        "B": "of the kernel",
        "C": "3",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "MUSTER_KERNEL_ID": "k",
        "MUSTER_GENERATION": "3",
        "MUSTER_SUPERVISOR": str(supervisor.directory),
        "MUSTER_SCRATCH": str(supervisor.scratch("k", 3)),
        "CUDA_VISIBLE_DEVICES": "",  # none were given, so none are seen
    }


def test_devices_reach_the_kernel_as_cuda_visible_devices(supervisor: Driver) -> None:
    show = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"]
    supervisor.start({"id": "k", "devices": [3, 1]}, command=show)
    supervisor.ended("k")

    assert supervisor.log("k") == "3,1 PCI_BUS_ID\n"
    assert supervisor.started("k")["devices"] == [3, 1]


def test_kernel_starts_as_if_from_a_fresh_login(supervisor: Driver) -> None:
    """Own session, empty stdin, no signal blocked, no foreign descriptor, usual priority."""
    script = """
import os, signal, sys
assert os.getsid(0) == os.getpid()
assert os.read(0, 1) == b""
assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
assert sorted(map(int, os.listdir("/proc/self/fd")))[:3] == [0, 1, 2]
assert len(os.listdir("/proc/self/fd")) == 4  # and the listing itself
assert os.getpriority(os.PRIO_PROCESS, 0) == int(sys.argv[1])
"""
    usual = str(os.getpriority(os.PRIO_PROCESS, 0))
    end = supervisor.run(["python3", "-I", "-S", "-c", script, usual])

    assert end["exit_code"] == 0, supervisor.log("k")


@pytest.fixture
def _ignored_by_the_starter() -> Iterator[None]:
    """As nohup, a shell's `&` and a terminal's job control have it."""
    ignored = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTOU)
    before = {each: signal.signal(each, signal.SIG_IGN) for each in ignored}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.usefixtures("_ignored_by_the_starter")
def test_ignored_signals_are_back_to_default_in_a_kernel(supervisor: Driver) -> None:
    end = supervisor.run(["sh", "-c", "grep SigIgn /proc/self/status"])

    assert end["exit_code"] == 0
    ignored = int(supervisor.log("k").split()[1], 16)
    assert ignored & ~(0b11 << 31) == 0  # glibc's spawn leaves its own two ignored


def test_workdir_is_where_the_kernel_runs(supervisor: Driver, tmp_path: Path) -> None:
    supervisor.run(["pwd"], workdir=str(tmp_path))

    assert supervisor.log("k") == f"{tmp_path}\n"
    assert not supervisor.scratch("k").exists()


def test_workdir_that_is_missing_fails_the_creation(supervisor: Driver, tmp_path: Path) -> None:
    supervisor.start("k", workdir=str(tmp_path / "missing"))

    failure = supervisor.event("k", "create_failed")
    assert failure["reason"] == "workdir_missing"
    assert str(tmp_path / "missing") in failure["detail"]


def test_scratch_directory_is_used_and_removed_when_left_empty(supervisor: Driver) -> None:
    supervisor.run(["sh", "-c", "pwd; touch file; rm file"])

    assert supervisor.log("k") == f"{supervisor.scratch('k')}\n"
    supervisor.settle()
    assert not supervisor.scratch("k").exists()


def test_scratch_directory_with_files_stays_until_it_is_forgotten(supervisor: Driver) -> None:
    supervisor.run(["sh", "-c", "mkdir -p a/b; echo result > a/b/c; echo output"])
    assert (supervisor.scratch("k") / "a/b/c").read_text() == "result\n"
    assert supervisor.log("k") == "output\n"

    supervisor.say(op="forget", kernels=[{"id": "k", "generation": 1}])
    supervisor.until(lambda: not supervisor.scratch("k").exists())
    supervisor.until(lambda: not supervisor.log_path("k").exists())


def test_forgetting_a_kernel_that_runs_is_refused(supervisor: Driver) -> None:
    supervisor.start("k", command=["sleep", "60"])
    supervisor.started("k")

    supervisor.say(op="forget", kernels=[{"id": "k", "generation": 1}])

    assert supervisor.error() == "kernel k, generation 1, has not ended"
    assert supervisor.scratch("k").exists()


def test_scratch_directories_used_again_begin_empty_and_private(supervisor: Driver) -> None:
    supervisor.start("keeper", command=["sleep", "60"], workdir="/")  # or none would be kept
    look = "ls -A; stat -c %a .; "
    for number in range(6):
        leave = ("", "touch mine", "chmod 755 .", "rmdir $PWD", "", "")[number]
        end = supervisor.run(["sh", "-c", look + leave], kernel=f"k{number}")
        assert end["exit_code"] == 0
        assert supervisor.log(f"k{number}") == "700\n"

    supervisor.stop("keeper", grace_s=0)
    supervisor.ended("keeper")
    supervisor.settle()
    assert [path.name for path in (supervisor.directory / "kernels").iterdir()] == ["k1.1"]


def test_files_are_written_into_the_scratch_directory(supervisor: Driver) -> None:
    supervisor.run(
        ["sh", "-c", "cat data/input; ./bin/tool"],
        files={"data/input": "größe\n", "bin/tool": "#!/bin/sh\necho ran\n"},
    )

    assert supervisor.log("k") == "größe\nran\n"


@pytest.mark.parametrize("path", ["/etc/motd", "../up", "a/../../up", "", ".", "a//b", "a/", "\0"])
def test_files_that_would_leave_the_scratch_directory_are_refused(
    supervisor: Driver, path: str
) -> None:
    supervisor.start("k", files={"fine": "", path: ""})

    assert supervisor.event("k", "create_failed")["reason"] == "bad_file_path"
    supervisor.settle()
    assert not supervisor.scratch("k").exists()


def test_files_beside_a_workdir_are_found_through_the_environment(
    supervisor: Driver, tmp_path: Path
) -> None:
    supervisor.run(
        ["sh", "-c", "pwd; cat $MUSTER_SCRATCH/input"],
        files={"input": "text\n"},
        workdir=str(tmp_path),
    )

    assert supervisor.log("k") == f"{tmp_path}\ntext\n"


def test_order_that_no_process_can_have_fails_alone(supervisor: Driver) -> None:
    supervisor.start("k", files={"file": "\ud800"})

    assert supervisor.event("k", "create_failed")["reason"] == "internal"
    assert supervisor.run(["true"], kernel="next")["exit_code"] == 0


def test_arguments_too_long_for_any_process_are_the_commands_fault(supervisor: Driver) -> None:
    end = supervisor.run(["true", "x" * (1 << 18)])

    assert end["reason"] == "command_not_executable"
    assert "Argument list too long" in end["detail"]
