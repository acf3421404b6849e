"""The command line as a person types it, against a cluster that it started itself."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster import assert_no_survivors, lines_told

TIMEOUT_S = 60.0


class Shell:
    """A directory in which ``muster`` is typed, with a home of its own."""

    def __init__(self, home: Path, directory: Path) -> None:
        self.home, self.directory = home, directory
        self.program = str(Path(sys.executable).with_name("muster"))
        self.environment = {
            **{name: value for name, value in os.environ.items() if name[:7] != "MUSTER_"},
            "MUSTER_HOME": str(home),
            "TERM": "xterm",
            "COLUMNS": "200",
        }

    def muster(
        self, *words: str, stdin: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *words],
            input=stdin,
            cwd=self.directory,
            env=self.environment | {"PWD": str(self.directory)} | variables,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )

    def said(self, *words: str, stdin: str = "") -> str:
        """The output of a command, which must end well."""
        result = self.muster(*words, stdin=stdin)
        assert result.returncode == 0, result.stderr
        return result.stdout


class Typing:
    """A command on a terminal, with somebody before it."""

    def __init__(self, shell: Shell, *words: str) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [shell.program, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=shell.directory,
            env=shell.environment,
            start_new_session=True,
        )
        os.close(theirs)
        self._seen = ""

    def until(self, text: str) -> str:
        """All that was shown, once ``text`` is; without what moves and colours."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while text not in self._seen:
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, f"{text!r} is not in {self._seen!r}"
            if select.select([self._ours], [], [], left_s)[0]:
                shown = os.read(self._ours, 65536).decode(errors="replace")
                self._seen += re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", shown)
        return self._seen

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def exit_code(self) -> int:
        return self.process.wait(TIMEOUT_S)

    def __enter__(self) -> "Typing":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    home = tmp_path_factory.mktemp("home")
    shell = Shell(home, tmp_path_factory.mktemp("work"))
    try:
        started = shell.muster(
            "up", "--port", "0", "--agents", "3", "--cpus", "4", "--gpus", "4xH100"
        )
        assert started.returncode == 0, started.stderr
        yield shell
    finally:
        stopped = shell.muster("down")
        assert_no_survivors(home)
    assert stopped.returncode == 0, stopped.stderr


def test_command_runs_where_it_was_typed_and_its_output_comes_back(shell: Shell) -> None:
    result = shell.muster("run", "--", "sh", "-c", "pwd; echo $MUSTER_TASK_COUNT >&2")
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{shell.directory}\n1\n"
    assert "succeeded" in result.stderr
    assert "\x1b" not in result.stdout + result.stderr


def test_stderr_is_shown_alone_where_it_was_kept_apart(shell: Shell) -> None:
    line = 'echo 42; sleep 0.1; echo "took long" >&2'
    assert shell.said("run", "--stderr", "apart", "--name", "noisy", "-q", line) == (
        "42\ntook long\n"
    )
    assert shell.said("logs", "noisy") == "42\ntook long\n"
    assert shell.said("logs", "noisy", "--stderr") == "took long\n"
    shell.said("run", "--name", "mixed", "-q", "echo a; echo b >&2; echo c; echo d >&2")
    assert shell.said("logs", "mixed") == "a\nb\nc\nd\n"
    refused = shell.muster("logs", "mixed", "--stderr")
    assert refused.returncode == 1
    assert "its stdout and stderr were kept together" in refused.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], 137),
        (["no-such-program"], 127),
        (["--timeout", "300ms", "sleep", "30"], 124),
        (["exit 3 # one word with blanks is for the shell"], 3),
    ],
)
def test_run_ends_with_the_code_of_its_command(shell: Shell, words: list[str], code: int) -> None:
    assert shell.muster("run", "--quiet", *words).returncode == code


def test_run_of_several_tasks_shows_all_that_each_wrote(shell: Shell) -> None:
    script = "for line in 1 2 3; do echo $MUSTER_TASK_INDEX.$line; done"
    written = shell.said("run", "-q", "-n", "5", "--", "sh", "-c", script)
    assert sorted(written.splitlines()) == [
        f"{task} | {task}.{line}" for task in range(5) for line in (1, 2, 3)
    ]


def test_file_finds_the_programs_of_its_shell_as_run_does(shell: Shell) -> None:
    venv = shell.directory / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "python").symlink_to("/bin/true")
    path = {"PATH": f"{venv}:{shell.environment['PATH']}"}
    ran = shell.muster("run", "-q", "--", "command -v python", **path)
    assert ran.stdout == f"{venv}/python\n", ran.stderr
    for said, found in (("", str(venv)), ("environment: clean\n", "")):
        spec = f"name: finds\ncommand: command -v python; true\n{said}"
        assert shell.muster("submit", "-", "--wait", "-q", stdin=spec, **path).returncode == 0
        assert (str(venv) in shell.said("logs", "finds")) is bool(found)


def test_spec_file_asks_for_what_it_says(shell: Shell) -> None:
    spec = "name: asks\ncommand: [sleep, '60']\nresources: {cpu: 500m, gpu: 1, memory: 64MiB}"
    name, id_ = shell.said("submit", "-", stdin=spec).split()
    assert name == "asks"
    id_ = id_.strip("()")
    assert "each asks  0.5 cpu, 64MiB memory, 1 gpu\n" in shell.said("show", id_)
    shown = json.loads(shell.said("show", id_, "--json"))
    assert [(task["index"], task["exit_code"]) for task in shown["tasks"]] == [(0, None)]
    assert "asks" in shell.said("cancel", id_)


@pytest.mark.parametrize("gang", [(), ("-n", "2", "--gang")])
def test_every_attempt_is_shown_however_fast_it_fails(shell: Shell, gang: tuple[str, ...]) -> None:
    words = ("run", "-q", "--name", "fails", "--retries", "2", *gang, "--", "sh", "-c")
    result = shell.muster(*words, "echo a$MUSTER_ATTEMPT; exit 1")
    assert result.returncode == 1
    attempts = json.loads(shell.said("show", "fails/0", "--json"))["attempts"]
    assert len(attempts) >= 3
    expected = [f"a{attempt}" for attempt in range(1, len(attempts) + 1)]
    if gang:  # a task may be stopped, for its sibling's failure, before it has written
        for task in range(2):
            lines = [line[4:] for line in result.stdout.splitlines() if line[0] == str(task)]
            assert lines == [line for line in expected if line in lines]
        assert {line[4:] for line in result.stdout.splitlines()} == set(expected)
    else:
        assert result.stdout.splitlines() == expected
        assert shell.said("logs", "-f", "fails").splitlines() == expected
    missing = shell.muster("logs", "fails/0", "--attempt", "50")
    assert missing.returncode == 1
    assert "has no attempt 50" in missing.stderr


def test_cancel_says_that_processes_may_take_their_time(shell: Shell) -> None:
    with Typing(shell, "run", "--name", "lasts", "--", "sleep", "60") as typing:
        typing.until("lasts running")
        said = shell.said("cancel", "lasts")
        assert said.endswith("is cancelled; its processes have up to 10 s to end\n")
        typing.until("lasts cancelled")
        assert typing.exit_code() == 130, "whoever cancelled it"


def test_amounts_that_are_none_are_wrong_use_and_bare_digits_are_seconds(shell: Shell) -> None:
    refused = shell.muster("run", "-n", "0", "--memory", "-1", "--", "true")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "tasks is 0" in refused.stderr
    assert "--memory is '-1'" in refused.stderr
    assert shell.muster("run", "-q", "--timeout", "90", "--", "true").returncode == 0


def test_cluster_is_found_under_the_name_of_this_machine(shell: Shell) -> None:
    url = json.loads((shell.home / "client.json").read_text())["url"]
    shell.said("ps", "--url", url.replace("127.0.0.1", "localhost"))


def test_why_of_nine_gpus_tells_what_each_agent_lacks_and_what_to_do(shell: Shell) -> None:
    result = shell.muster("run", "--no-wait", "--name", "nine", "--gpu", "9", "--", "true")
    assert result.returncode == 2
    assert "not placed yet: none of 3 agents" in result.stderr
    lines = shell.said("why", "nine").splitlines()
    assert "  request: change what was asked for" in lines
    assert "  Ask for less per kernel, or add a larger agent to the group." in lines
    assert "3 agents looked at for 1 kernel asking for 1 cpu, 9 gpu" in lines
    assert lines[-1].split()[:7] == ["3", "gpu:", "9", "asked,", "the", "agent", "has"]
    waiting = json.loads(shell.said("ps", "--json"))
    assert ("nine", "PENDING") in [(job["name"], job["state"]) for job in waiting]
    assert "none of 3 agents" in shell.said("ps")
    shell.said("cancel", "nine")


def test_interrupt_can_cancel_and_can_detach(shell: Shell) -> None:
    with Typing(shell, "run", "--name", "stops", "--", "sleep", "60") as typing:
        typing.until("stops running")
        typing.interrupt()
        typing.until("continue? ")
        typing.press("c\n")
        typing.until("cancelled by")
        assert typing.exit_code() == 130
    with Typing(shell, "run", "--name", "goes-on", "--", "sleep", "60") as typing:
        typing.until("goes-on running")
        typing.interrupt()
        typing.until("continue? ")
        typing.interrupt()
        typing.until("muster cancel goes-on")
        assert typing.exit_code() == 2
    assert "goes-on" in shell.said("ps")
    shell.said("cancel", "goes-on")


def test_run_whose_reader_has_enough_leaves_the_job_alone(shell: Shell) -> None:
    script = "muster run --name reads -- sh -c 'while echo y; do sleep 0.01; done' | head -n 1"
    path = f"{Path(shell.program).parent}:{shell.environment['PATH']}"
    result = subprocess.run(
        ["sh", "-c", script],
        cwd=shell.directory,
        env=shell.environment | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert result.stdout == "y\n"
    assert result.stderr.splitlines()[-1].startswith("reads goes on")
    assert "reads" in shell.said("ps")
    shell.said("cancel", "reads")


def test_ref_is_completed_from_the_live_cluster(shell: Shell) -> None:
    shell.said("run", "-d", "--name", "completes", "--", "sleep", "60")
    line = {"COMP_WORDS": "muster show compl", "COMP_CWORD": "2"}
    offered = shell.muster(_MUSTER_COMPLETE="bash_complete", **line)
    assert offered.stdout.split() == ["plain,completes"]
    shell.said("cancel", "completes")


def test_second_up_is_one_sentence_and_harms_nothing(shell: Shell) -> None:
    result = shell.muster("up")
    assert result.returncode == 1
    assert len(lines_told(result.stderr)) == 1
    assert "already runs" in result.stderr
    assert len(shell.said("agents").splitlines()) == 4


def test_everything_without_a_cluster_ends_with_3(shell: Shell, tmp_path: Path) -> None:
    unknown = shell.muster("ps", "--home", str(tmp_path))
    silent = shell.muster("ps", "--url", "http://127.0.0.1:9", "--token", "t")
    assert (unknown.returncode, silent.returncode) == (3, 3)
    assert "muster up" in unknown.stderr
    assert "muster up" in silent.stderr
    assert shell.said("down", "--home", str(tmp_path)) == "no cluster was running\n"


def test_directory_that_exists_nowhere_is_refused_at_once(shell: Shell) -> None:
    refused = shell.muster("run", "--workdir", "/nowhere/at/all", "--", "true")
    assert refused.returncode == 2
    assert "there is no such directory on this machine, where all agents run" in refused.stderr


def test_input_that_the_command_would_not_get_is_refused(shell: Shell) -> None:
    refused = shell.muster("run", "--", "cat", stdin="data\n")
    assert refused.returncode == 2
    assert "its own is empty" in refused.stderr


def test_sweep_goes_on_and_what_failed_is_retried_with_its_output_saved(shell: Shell) -> None:
    line = "echo output of $MUSTER_TASK_INDEX; test -e again || test $MUSTER_TASK_INDEX != 3"
    swept = shell.muster("run", "-n", "12", "--keep-going", "--name", "sweep", line)
    assert swept.returncode == 1
    assert "12 of 12 tasks ended: 11 succeeded, 1 failed" in swept.stderr
    assert "muster retry sweep --failed" in swept.stderr
    shell.said("logs", "sweep", "--save", "saved")
    saved = shell.directory / "saved"
    assert len(list(saved.iterdir())) == 12
    assert (saved / "task-03.log").read_text() == "output of 3\n"
    (shell.directory / "again").touch()
    assert shell.said("retry", "sweep", "--failed", "--wait").startswith("sweep-retry-1 (")
    assert shell.said("logs", "sweep-retry-1") == "output of 3\n"
    assert "retried by" in shell.said("show", "sweep")


def test_logs_whose_reader_has_enough_end_well(shell: Shell) -> None:
    shell.said("run", "-q", "-n", "4", "--name", "wordy", "seq 200000")
    line = f"{shell.program} logs wordy | head -n 1; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(
        ["bash", "-c", line], env=shell.environment, capture_output=True, text=True, timeout=60
    )
    assert result.stdout == "0 | 1\n0\n"
    assert result.stderr == ""
