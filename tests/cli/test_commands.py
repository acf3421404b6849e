import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cli.fake_cluster import FakeCluster, job, refused, session

from muster.cli import failures
from muster.cli.program import app
from muster.client import Unauthenticated, Unreachable
from muster.core.errors import Ambiguous, InvalidSpec, MusterError, NotFound, Problem
from muster.core.specs import ScalingGroup
from muster.core.states import JobState
from muster.core.views.placement import WhyView
from muster.core.views.work import TaskDetail
from muster.version import __version__

# -- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unreachable("no controller answers at http://x: is it running?"), 3),
        (Unauthenticated("the token is wrong"), 1),
        (Ambiguous("'01ka' means 3 jobs: type more of it"), 1),
        (MusterError("the disk is full"), 1),
        (refused(("tasks", "0", "expected at least 1")), 1),
    ],
)
def test_failure_is_one_sentence_on_stderr_and_a_code(error: MusterError, code: int) -> None:
    result = FakeCluster(fails=error).run("ps")
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr == f"muster: {error}\n"


def test_refused_spec_shows_every_problem() -> None:
    error = refused(("tasks", "0", "expected at least 1"), ("comand", "", "unknown key"))
    result = FakeCluster(fails=error).run("run", "true")
    assert result.exit_code == 2, "all of it stood on the command line"
    assert result.stderr.splitlines()[1:] == [
        "  tasks is 0: expected at least 1",
        "  comand: unknown key",
    ]


def test_defect_is_a_sentence_and_a_traceback_only_when_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(FakeCluster):
        def _answer(self) -> None:
            raise RuntimeError("boom")

    quiet = Broken().run("ps")
    monkeypatch.setenv("MUSTER_DEBUG", "1")
    loud = Broken().run("ps")
    assert quiet.exit_code == loud.exit_code == 1
    assert "RuntimeError: boom" in quiet.stderr
    assert "Traceback" not in quiet.stderr
    assert "Traceback" in loud.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("pss",),
        ("ps", "--nope"),
        ("ps", "--limit", "0"),
        ("run",),
        ("run", "--tasks", "many", "true"),
        ("show", "a/b"),
        ("cancel", "a/b"),
        ("reprioritise", "a/3", "80"),
        ("reprioritise", "a"),
        ("reprioritise", "a", "high"),
        ("run", "--scratch", "--workdir", "/tmp", "true"),
        ("run", "--env", "=1", "true"),
        ("submit", "x", "--wait", "--no-wait"),
        ("logs", "ses-01ka", "--attempt", "2"),
        ("agent",),
        ("agent", "--controller", "h:1", "--token", "x", "--token-file", "y"),
    ],
)
def test_wrong_use_ends_with_2_and_points_at_the_help(words: tuple[str, ...]) -> None:
    result = FakeCluster().run(*words)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("muster: ")
    assert len(result.stderr.splitlines()) == 1


def test_command_that_is_mistyped_is_answered_with_the_nearest() -> None:
    result = FakeCluster().run("shwo", "train")
    assert (result.exit_code, result.stderr) == (
        2,
        "muster: No such command 'shwo'; did you mean show? (see `muster --help`)\n",
    )


@pytest.mark.parametrize("words", [("agents", "drain"), ("users", "deploy"), ("pools", "logs")])
def test_command_that_is_no_part_of_a_group_is_answered_with_where_it_is(
    words: tuple[str, str],
) -> None:
    result = FakeCluster().run(*words, "agent-1")
    assert result.exit_code == 2
    group, command = words
    assert result.stderr == (
        f"muster: No such command '{command}'; did you mean `muster {command}`? "
        f"(see `muster {group} --help`)\n"
    )


def test_group_of_commands_without_one_shows_its_help_alone() -> None:
    result = FakeCluster().run("quota")
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: muster quota ")
    assert "(see `muster" not in result.stderr


def test_retry_of_a_session_says_what_it_is() -> None:
    result = FakeCluster(sessions_=[session()]).run("retry", "notebook")
    assert result.exit_code == 2
    assert "'notebook' is a session: only jobs are retried" in result.stderr


def test_no_command_shows_the_help() -> None:
    result = FakeCluster().run()
    assert result.exit_code == 0
    assert "Work:" in result.stdout
    assert result.stdout == FakeCluster().run("--help").stdout


def test_every_command_has_help_that_fits_a_line() -> None:
    _, found, commands = FakeCluster().run("--help").stdout.partition("Work:")
    assert found
    assert "..." not in commands
    names = re.findall(r"^  (\w+) +\S", commands.partition("REF is")[0], re.MULTILINE)
    assert {"run", "why", "simulate", "drain"} < set(names)
    for name in names:
        told = FakeCluster().run(name, "--help")
        assert told.exit_code == 0
        assert "..." not in told.stdout.partition("\nCommands:")[2], name


def test_cluster_is_named_before_or_after_the_command_and_the_later_counts() -> None:
    cluster = FakeCluster()
    cluster.run("--url", "http://a", "--token", "t", "ps")
    cluster.run("--url", "http://a", "ps", "--url", "http://b", "--home", "/x")
    cluster.run("groups", "--url", "http://c")
    assert [(each.url, each.token, str(each.home)) for each in cluster.asked_at] == [
        ("http://a", "t", "None"),
        ("http://b", None, "/x"),
        ("http://c", None, "None"),
    ]


def test_no_known_cluster_ends_with_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MUSTER_URL", "MUSTER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MUSTER_HOME", "")
    result = CliRunner().invoke(app, ["ps", "--home", str(tmp_path)])
    assert result.exit_code == 3
    assert "muster up" in result.stderr
    url = ["--url", "http://localhost:7600"]
    result = CliRunner().invoke(app, ["ps", "--home", str(tmp_path), *url])
    assert result.exit_code == 1, "the cluster is known, the token is not"
    assert "no token for http://localhost:7600" in result.stderr


# -- the rest ------------------------------------------------------------------------------------


def test_cancel_goes_on_after_one_that_cannot_be() -> None:
    cluster = FakeCluster(jobs_=[job("a"), job("b", number=1)])
    result = cluster.run("cancel", "a", "nope", "b")
    assert result.exit_code == 1
    assert result.stdout == "a is cancelled\nb is cancelled\n"
    assert "there is no job 'nope'" in result.stderr


def test_cancel_of_one_task_stops_that_alone() -> None:
    cluster = FakeCluster(jobs_=[job("a"), job("b", number=1)])
    result = cluster.run("cancel", "a/3", "b")
    assert result.stdout == "task 3 of a is stopped\nb is cancelled\n"
    assert cluster.asked == [("cancel_task", ("a", 3)), ("cancel", "b")]


def test_reprioritise_passes_the_priority_and_tells_what_was_changed() -> None:
    cluster = FakeCluster(jobs_=[job("a")])
    result = cluster.run("reprioritise", "a", "80")
    assert (result.exit_code, result.stdout) == (0, "a has priority 80 now\n")
    assert cluster.asked == [("reprioritise", ("a", 80))]
    told = cluster.json("reprioritise", "a", "7", "--json")
    assert (told["priority"], told["changed"]) == (7, True)


def test_groups_apply_puts_the_policy_and_nothing_but_a_group() -> None:
    cluster = FakeCluster()
    assert cluster.run("groups", "apply", "-", stdin="kind: group\nname: fast").exit_code == 0
    ((action, spec),) = cluster.asked
    assert (action, isinstance(spec, ScalingGroup), spec.name) == ("put_group", True, "fast")
    wrong = cluster.run("groups", "apply", "-", stdin="command: [date]")
    assert wrong.exit_code == 1
    assert "kind: group" in wrong.stderr


def test_version_shows_that_of_the_controller_too_if_one_answers() -> None:
    cluster = FakeCluster()
    assert cluster.json("version", "--json") == {
        "client": __version__,
        "controller": {"version": "9.9.9", "url": cluster.url},
    }
    assert cluster.run("version").stdout.splitlines() == [
        f"client {__version__}",
        f"controller 9.9.9 at {cluster.url}",
    ]
    assert cluster.run("--version").stdout == f"muster {__version__}\n"


def test_version_without_a_controller_is_no_error() -> None:
    alone = FakeCluster(fails=Unreachable("no controller answers"))
    assert alone.json("version", "--json") == {"client": __version__, "controller": None}
    result = alone.run("version")
    assert (result.stdout, result.stderr) == (f"client {__version__}\n", "")


@pytest.mark.parametrize("command", ["show", "logs", "why", "cancel", "reprioritise"])
def test_unknown_name_is_answered_with_those_like_it(command: str) -> None:
    cluster = FakeCluster(
        jobs_=[job("train"), job("eval", JobState.FAILED, number=1)],
        sessions_=[session(name="trial")],
    )
    more = ["80"] if command == "reprioritise" else []
    result = cluster.run(command, "trian", *more)
    assert result.exit_code == 1
    named = "trial or train" if command in ("show", "logs", "why") else "train"  # others live
    assert result.stderr == f"muster: there is no job 'trian'; did you mean {named}?\n"
    for unlike in ("nothing", "rain-2"):
        assert cluster.run(command, unlike, *more).stderr == f"muster: there is no job {unlike!r}\n"


@pytest.mark.parametrize("command", ["show", "logs"])
def test_name_of_a_session_is_known_where_no_job_has_it(command: str) -> None:
    cluster = FakeCluster(sessions_=[session(name="notebook")], output={0: [b"seen\n"]})
    result = cluster.run(command, "notebook")
    assert result.exit_code == 0, result.stderr
    assert "notebook" in result.stdout or result.stdout == "seen\n"


def test_why_of_a_task_that_the_job_has_not_is_refused_as_show_refuses_it() -> None:
    class Short(FakeCluster):
        def task(self, ref: str, index: int) -> TaskDetail:
            raise NotFound(f"job train has no task {index}")

        def why_task(self, ref: str, index: int) -> WhyView:
            raise NotFound(f"job train has no task {index}")

    cluster = Short(jobs_=[job(state=JobState.PENDING)])
    for command in ("why", "show"):
        result = cluster.run(command, "train/99")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == "muster: job train has no task 99\n"


def test_work_that_is_to_be_waited_for_is_suggested_when_its_name_is_mistyped() -> None:
    expected = "expected the name or id of a job or session of yours"

    class Refusing(FakeCluster):
        def submit(self, spec: Any) -> Any:
            raise InvalidSpec([Problem("after.0.on", "'preq'", expected)])

    cluster = Refusing(jobs_=[job("prep", JobState.SUCCEEDED)])
    result = cluster.run("run", "--after", "preq", "true")
    assert result.stderr == f"muster: --after is 'preq': {expected}; did you mean prep?\n"


def test_known_name_with_another_mistake_is_not_answered_with_itself() -> None:
    class Short(FakeCluster):
        def task(self, ref: str, index: int) -> TaskDetail:
            raise NotFound("job train has no task 9")

    result = Short(jobs_=[job("train"), job("train2", number=1)]).run("show", "train/9")
    assert result.stderr == "muster: job train has no task 9\n"


def test_url_that_is_none_is_wrong_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_URL", "foo")
    result = CliRunner().invoke(app, ["ps"])
    assert result.exit_code == 2
    assert result.stderr == (
        "muster: MUSTER_URL is 'foo', which is not an http or https URL: expected one such as "
        "http://127.0.0.1:7600\n"
    )


@pytest.mark.parametrize(
    "address", ["foo", "foo:", ":7601", "foo:port", "foo:0", "foo:65536", "http://foo:7601"]
)
def test_address_of_a_controller_without_host_or_port_shows_the_right_form(address: str) -> None:
    result = FakeCluster().run("agent", "--controller", address)
    assert result.exit_code == 2
    assert f"{address!r}: expected HOST:PORT" in result.stderr


@pytest.mark.parametrize("address", ["box:7601", "10.0.0.5:65535", "[::1]:7601"])
def test_address_of_a_controller_is_passed_on(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr("muster.app.foreground.run_agent", lambda **options: asked.update(options))
    assert FakeCluster().run("agent", "--controller", address).exit_code == 0
    assert asked["controller"] == address


def test_json_is_the_only_thing_on_stdout() -> None:
    cluster = FakeCluster(jobs_=[job(f"j{number}", number=number) for number in range(5)])
    for words in (("ps", "-a", "--json"), ("show", "j0", "--json"), ("history", "j0", "--json")):
        result = cluster.run(*words)
        assert result.exit_code == 0, result.output
        json.loads(result.stdout)
        assert result.stderr == ""


def test_full_disk_under_the_output_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert failures.report(OSError(28, "No space left on device")) == 1
    assert "No space left on device" in capsys.readouterr().err


def test_command_from_a_directory_that_is_gone_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileNotFoundError) as raised:
        Path.cwd()
    assert failures.report(raised.value) == 1
    assert "the current directory does not exist any more" in capsys.readouterr().err
