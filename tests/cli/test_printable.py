"""Texts of users, agents and plug-ins are shown without a terminal's control sequences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text
from tests.cli.fake_cluster import FakeCluster, because, job

from muster.cli.screen import fields, stderr, stdout, unbroken, write
from muster.cli.streams import print_json
from muster.core.reasons import ReasonCode
from muster.core.states import JobState
from muster.core.text import printable
from muster.core.views.placement import WhyView

EVIL = "a\x1b[2J\x1b]0;owned\x07b\x9b31mc\u202ed\x85e\x00f\rg"
TAKEN_AS_COMMANDS = "\x1b\x07\x9b\u202e\x85\x00\r"


def is_clean(text: str) -> bool:
    return not any(each in text for each in TAKEN_AS_COMMANDS)


@given(st.text())
def test_printable_text_has_lines_and_nothing_else_that_is_not_shown(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert all(each.isprintable() for each in shown.replace("\n", ""))
    assert printable(shown) == shown


def test_whatever_goes_through_a_console_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    for console in (stdout(), stderr()):
        console.print(Text(EVIL), EVIL, Text.assemble((EVIL, "bold")), unbroken(EVIL))
        write(console, fields([("name", EVIL), ("other", Text(EVIL))]), Text(f"  {EVIL}"))
    said = capsys.readouterr()
    assert "owned" in said.out
    assert "owned" in said.err
    assert is_clean(said.out + said.err)


def test_json_escapes_what_it_does_not_leave_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": EVIL})
    assert is_clean(capsys.readouterr().out)


@pytest.mark.parametrize("command", ["why", "show", "ps", "history"])
def test_no_command_passes_on_what_a_terminal_would_obey(command: str) -> None:
    reason = because(ReasonCode.CREATE_FAILED, agent=EVIL, detail=EVIL)
    failed = job(state=JobState.FAILED, reason=reason, spec={"command": [EVIL.replace("\0", "")]})
    cluster = FakeCluster(jobs_=[failed])
    cluster.why_[failed.id] = WhyView(
        subject=failed.id, status="FAILED", verdict=EVIL, reasons=(reason,)
    )
    arguments = ["--state", "all"] if command == "ps" else [failed.id]
    result = cluster.run(command, *arguments)
    assert result.exit_code == 0, result.stderr
    assert is_clean(result.stdout + result.stderr), result.stdout
