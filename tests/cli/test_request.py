import os
import pty
from contextlib import ExitStack
from pathlib import Path

import click
import pytest
from tests.cli.fake_cluster import FakeCluster

from muster.cli.arguments import Subject, parse_ref
from muster.cli.commands import run
from muster.cli.request import ATTRIBUTE, command_of, environment, pairs, unread_input
from muster.client.workdir import current_directory

CALLER = {"PATH": "/bin", "LANG": "C", "SECRET": "s", "EDITOR": "vi", "HOME": "/home/me"}


def test_environment_is_what_was_given_with_the_callers_values_of_bare_names() -> None:
    assert environment(["A=1=2", "EDITOR", "B="], CALLER) == {"A": "1=2", "EDITOR": "vi", "B": ""}


@pytest.mark.parametrize("text", ["MISSING", "=x"])
def test_environment_without_a_value_to_give_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        environment([text], CALLER)


@pytest.mark.parametrize("texts", [["licence"], ["=1"], ["licence="], ["a=1", "a=2"]])
def test_pairs_of_another_form_are_refused(texts: list[str]) -> None:
    with pytest.raises(click.BadParameter):
        pairs(texts, "--resource")


def test_attribute_of_another_form_is_told_the_form_of_attributes() -> None:
    assert pairs(["zone=a", "rack=r=1"], "--attribute", ATTRIBUTE) == {"zone": "a", "rack": "r=1"}
    with pytest.raises(click.BadParameter, match="'zone': expected NAME=VALUE, such as zone=a"):
        pairs(["zone"], "--attribute", ATTRIBUTE)


def test_one_word_with_blanks_is_a_line_for_the_shell() -> None:
    assert command_of(["sleep 1 && date"]) == "sleep 1 && date"
    assert command_of(["true"]) == ["true"]
    assert command_of(["echo", "a b"]) == ["echo", "a b"]


def test_current_directory_is_named_as_the_shell_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path / "link")
    monkeypatch.setenv("PWD", str(tmp_path / "link"))
    assert current_directory() == str(tmp_path / "link")
    for lie in (str(tmp_path), str(tmp_path / "gone"), "real", f"{tmp_path}/link/../link"):
        monkeypatch.setenv("PWD", lie)
        assert current_directory() == os.path.realpath(tmp_path / "real")


def test_ref_may_name_a_task() -> None:
    assert parse_ref("train-1/30") == Subject("train-1", 30)
    assert parse_ref("SES-01kaec") == Subject("SES-01kaec", None)


@pytest.mark.parametrize("text", ["", "/3", "a/", "a/b", "a/-1", "a/1/2", "a/²"])
def test_ref_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_ref(text)


def test_terminal_and_empty_input_hold_nothing_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "lines").write_text("one\ntwo\n")
    (ended, writer), (open_, other), (terminal, user) = os.pipe(), os.pipe(), pty.openpty()
    os.close(writer)
    os.write(terminal, b"typed ahead\n")
    with ExitStack() as stack:

        def unread(source: int | Path) -> int:
            monkeypatch.setattr("sys.stdin", stack.enter_context(open(source)))  # noqa: PTH123
            return unread_input()

        assert [unread(each) for each in (Path("/dev/null"), tmp_path / "empty")] == [0, 0]
        assert [unread(each) for each in (ended, open_, user)] == [0, 0, 0]
        os.write(other, b"late\n")
        assert unread_input() == 0, "the terminal's"
        assert unread(tmp_path / "lines") == 8
    os.close(other)
    os.close(terminal)


def test_input_that_comes_while_the_command_runs_is_said_to_be_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = iter([0, 5])
    monkeypatch.setattr(run, "unread_input", lambda: next(waiting))
    monkeypatch.setattr(run, "submitted", lambda *_: 7)
    result = FakeCluster().run("run", "-q", "true")
    assert result.exit_code == 7, result.output
    assert "warning: what came on standard input meanwhile was left there" in result.stderr
