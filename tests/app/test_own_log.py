"""A process's own log is kept within bounds, and no line of it is somebody else's."""

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from muster.app.own_log import MAX_KINDS, MAX_OF_KIND, WINDOW_S, KindLimit, said_in
from muster.control.pool.entries import BOUND, MOST_LOGGED, DecisionLog

SCRIPT = """
import logging, os, sys
from muster.agent.supervisor import own_log
own_log.rotate_stderr.__defaults__ = (10_000,)
from muster.app.own_log import log_to_stderr
log_to_stderr()
for number in range(900):
    logging.info(f"line {number} of {'x' * 50}")
print("to the same file", flush=True)
"""


def run(path: Path, script: str) -> None:
    with path.open("ab") as log:
        subprocess.run([sys.executable, "-c", script], stdout=log, stderr=log, check=True)


def test_log_is_put_aside_at_its_bound_and_two_files_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "controller.log"
    run(log, SCRIPT)
    assert sorted(path.name for path in tmp_path.iterdir()) == [log.name, f"{log.name}.1"]
    assert all(path.stat().st_size < 10_500 for path in tmp_path.iterdir())
    assert all(path.stat().st_mode & 0o077 == 0 for path in [log])
    assert "line 899" in log.read_text()
    assert log.read_text().endswith("to the same file\n")


def test_log_that_another_process_has_put_aside_is_begun_anew(tmp_path: Path) -> None:
    log = tmp_path / "controller.log"
    (tmp_path / "controller.log.1").write_text("")
    with log.open("ab") as output:
        output.write(b"x" * 20_000)
        log.rename(tmp_path / "controller.log.1")
        log.write_text("the other's\n")
        subprocess.run([sys.executable, "-c", SCRIPT], stdout=output, stderr=output, check=True)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["controller.log", "controller.log.1"]
    assert "line 899" in log.read_text()


def test_line_of_the_log_has_no_end_of_a_line_and_no_escape_in_it(tmp_path: Path) -> None:
    log = tmp_path / "controller.log"
    script = """
import json
import logging
import re
from muster.app.own_log import log_to_stderr
log_to_stderr()
logging.warning("agent %s", "a\\n2026-01-01 ERROR root: forged \\x1b[2J\\u202e")
try:
    raise ValueError("\\x1b[31m")
except ValueError:
    logging.exception("it failed")
"""
    run(log, script)
    lines = log.read_text().splitlines()
    assert lines[0].count("forged") == 1
    assert lines[0].startswith("2")
    assert " WARNING root: agent a 2026-01-01" in lines[0]
    assert not any(each in log.read_text() for each in "\x1b\u202e")
    assert "Traceback (most recent call last):" in lines


def line(text: str, now_s: float, logger: str = "muster") -> logging.LogRecord:
    record = logging.LogRecord(logger, logging.WARNING, "", 0, text, ("agt-1",), None)
    record.created = now_s
    return record


def test_lines_of_one_kind_are_limited_in_a_minute_and_counted() -> None:
    limit = KindLimit()
    shown = [limit.filter(line("agent %s lies", 0.1 * n)) for n in range(100)]
    assert shown == [True] * MAX_OF_KIND + [False] * 40
    assert limit.filter(line("agent %s left", 10.0)), "another kind"
    assert limit.filter(line("agent %s lies", 10.0, "other")), "of another logger"
    later = line("agent %s lies", WINDOW_S)
    assert limit.filter(later)
    assert later.getMessage() == "agent agt-1 lies (40 more like this were left out before)"


def test_lines_of_decisions_are_bounded_by_kind_and_group_as_the_page_says() -> None:
    shown: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            shown.append(record.getMessage())

    handler = Kept()
    handler.addFilter(KindLimit())
    logger = logging.getLogger("muster.control.pool.entries")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        decisions = DecisionLog()
        for number in range(11):  # each with a hundred new entries
            lines = (f"session=ses-{number}-{each} pool=p" for each in range(MOST_LOGGED))
            decisions._log("entry", "g1", lines)
        for kind, group in (("unmet", "g1"), ("entry", "g2"), ("withheld", "g3")):
            decisions._log(kind, group, iter(["session=ses-9"]))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    entries = [each for each in shown if each.startswith("autoscaler entry group=g1 ")]
    assert len(entries) == BOUND["most_of_kind"]
    assert shown[len(entries) :] == [
        "autoscaler unmet group=g1 session=ses-9",
        "autoscaler entry group=g2 session=ses-9",
        "autoscaler withheld group=g3 session=ses-9",
    ]


def test_kinds_without_end_fill_no_memory() -> None:
    limit = KindLimit()
    for number in range(3 * MAX_KINDS):
        assert limit.filter(line(f"%s is line {number}", 0.0))
    assert len(limit._windows) <= MAX_KINDS


def test_what_libraries_say_of_their_own_beginnings_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "controller.log"
    run(
        log,
        "import logging; from muster.app.own_log import log_to_stderr; log_to_stderr(); "
        "logging.getLogger('alembic.runtime.plugins').info('setup plugin'); "
        "logging.getLogger('alembic.runtime.migration').info('Running upgrade')",
    )
    assert [line.rpartition(": ")[2] for line in log.read_text().splitlines()] == [
        "Running upgrade"
    ]


BEGIN = "import logging; from muster.app.own_log import log_to_stderr; log_to_stderr(); "


def test_log_has_messages_from_the_level_up_that_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = BEGIN + "log = logging.getLogger('muster.x'); log.debug('d'); log.info('i'); "
    script += "log.warning('w'); log.error('e'); logging.getLogger('httpx').debug('secret')"
    shown = {}
    for level in ("debug", "info", "WARNING", "error", "loud"):
        monkeypatch.setenv("MUSTER_LOG_LEVEL", level)
        log = tmp_path / level
        run(log, script)
        shown[level] = "".join(line[-1] for line in log.read_text().splitlines())
    assert shown == {"debug": "diwe", "info": "iwe", "WARNING": "we", "error": "e", "loud": "iwe"}


def test_log_of_json_has_one_object_on_each_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_LOG_FORMAT", "json")
    script = (
        "from muster.app.own_log import say_last\n"
        + BEGIN
        + 'logging.getLogger("muster.x").warning("agent %s\\n{forged", "a\\u202e")\n'
        + "try:\n    raise ValueError('no')\nexcept ValueError:\n    logging.exception('failed')\n"
        + "say_last('muster controller: it ended')\n"
    )
    log = tmp_path / "controller.log"
    run(log, script)
    first, second, third = map(json.loads, log.read_text().splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
    assert (first["level"], first["logger"]) == ("warning", "muster.x")
    assert first["message"] == "agent a�\n{forged"
    assert second["message"] == "failed"
    assert "ValueError: no" in second["exception"]
    assert third["message"] == "muster controller: it ended"
    assert said_in(log.read_text().splitlines()[-1]) == "muster controller: it ended"
    assert said_in("{no JSON") == "{no JSON"
