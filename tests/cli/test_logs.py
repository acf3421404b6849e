import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.fake_cluster import FakeCluster, job, session

from muster.cli.follow import chosen_lines, lines, reading
from muster.cli.follow.feed import away_line, back_line
from muster.cli.follow.lines import last_lines
from muster.client import Unreachable
from muster.core.errors import MusterError
from muster.core.states import JobState, TaskState
from muster.core.views.work import MAX_SHORT_OUTPUTS


def test_logs_pass_on_the_bytes_of_a_single_task() -> None:
    cluster = FakeCluster(jobs_=[job()], output={0: [b"a\n", b"\xff\x00b"]})
    assert cluster.run("logs", "train").stdout_bytes == b"a\n\xff\x00b"
    assert cluster.run("logs", "train", "--follow").stdout_bytes == b"a\n\xff\x00b"


def test_logs_show_stderr_alone() -> None:
    cluster = FakeCluster(jobs_=[job()], output={0: [b"a\n", b"b\n"]}, errors={0: [b"b\n"]})
    assert cluster.run("logs", "train", "--stderr").stdout == "b\n"
    assert cluster.run("logs", "train", "-f", "--stderr").stdout == "b\n"


def test_logs_of_several_tasks_tell_them_apart_and_go_on_after_one_without() -> None:
    cluster = FakeCluster(
        jobs_=[job(counts={TaskState.RUNNING: 3})], output={0: [b"a\n"], 2: [b"c"]}
    )
    result = cluster.run("logs", "train")
    assert result.exit_code == 1
    assert result.stdout == "0 | a\n2 | c\n"
    assert "1: task 1 has not started" in result.stderr


@pytest.mark.parametrize("short", [range(0), range(0, 102, 2), range(102)])
def test_logs_of_many_tasks_are_all_shown_in_order_and_some_can_be_named(short: range) -> None:
    cluster = FakeCluster(
        jobs_=[job(counts={TaskState.SUCCEEDED: 100, TaskState.FAILED: 2})],
        output={index: [b"%d\n" % index] for index in range(102)},
        short=frozenset(short),
    )
    lines = cluster.run("logs", "train").stdout.splitlines()
    assert lines == [f"{index:3} | {index}" for index in range(102)]
    assert cluster.run("logs", "train/99").stdout == "99\n"
    assert cluster.run("logs", "train", "-t", "7", "--task", "5").stdout == "  7 | 7\n  5 | 5\n"
    assert cluster.run("logs", "train", "--failed").stdout == "100 | 100\n101 | 101\n"
    followed = cluster.run("logs", "-f", "train").stdout.splitlines()
    assert sorted(followed) == lines


def test_short_outputs_of_thousands_of_tasks_come_in_a_few_requests(tmp_path: Path) -> None:
    cluster = FakeCluster(
        jobs_=[job(counts={TaskState.SUCCEEDED: 3000})],
        output={index: [b"a\nb\n"] if index == 7 else [] for index in range(3000)},
        short=frozenset(range(3000)),
    )
    result = cluster.run("logs", "train", "--tail", "1")
    assert (result.exit_code, result.stdout) == (0, "   7 | b\n")
    asked = [what for what, _ in cluster.asked]
    assert asked == ["short_outputs"] * (3000 // MAX_SHORT_OUTPUTS)
    saved = cluster.run("logs", "train", "--save", str(tmp_path))
    assert saved.stdout == f"saved 3,000 files in {tmp_path} (4B)\n"
    assert (tmp_path / "task-0007.log").read_bytes() == b"a\nb\n"
    cluster.run("logs", "train", "--attempt", "1", "-t", "1", "-t", "2")
    alone = [("logs", (1, 1, None, False)), ("logs", (2, 1, None, False))]
    assert sorted(cluster.asked[-2:]) == alone, "another attempt is read by itself"


@pytest.mark.parametrize("words", [(), ("--failed",), ("-t", "0", "-t", "1")])
def test_empty_output_is_told(words: tuple[str, ...]) -> None:
    failed = job(state=JobState.FAILED, counts={TaskState.FAILED: 2})
    cluster = FakeCluster(jobs_=[failed], output={0: [b""], 1: []})
    result = cluster.run("logs", "train", *words)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "nothing was written\n"


def test_output_that_is_empty_so_far_is_told_unless_none_was_asked_for() -> None:
    cluster = FakeCluster(jobs_=[job(counts={TaskState.RUNNING: 2})], output={0: [], 1: []})
    assert cluster.run("logs", "train").stderr == "nothing has been written yet\n"
    assert cluster.run("logs", "train", "--tail", "0").stderr == ""
    written = FakeCluster(jobs_=[job(counts={TaskState.RUNNING: 2})], output={0: [], 1: [b"a\n"]})
    assert written.run("logs", "train").stderr == ""


def test_logs_are_saved_in_a_file_a_task_and_links_are_not_followed(tmp_path: Path) -> None:
    cluster = FakeCluster(
        jobs_=[job(counts={TaskState.SUCCEEDED: 12})],
        output={index: [b"%d\n" % index] for index in range(12)},
    )
    result = cluster.run("logs", "train", "--save", str(tmp_path / "a" / "b"))
    assert result.exit_code == 0
    assert "saved 12 files" in result.stdout
    names = sorted(path.name for path in (tmp_path / "a" / "b").iterdir())
    assert names == [f"task-{index:02}.log" for index in range(12)]
    assert (tmp_path / "a" / "b" / "task-07.log").read_bytes() == b"7\n"
    (tmp_path / "target").write_text("kept")
    (tmp_path / "task-03.log").symlink_to(tmp_path / "target")
    linked = ("logs", "train", "-t", "3", "--save", str(tmp_path))
    for words in (linked, (*linked, "--overwrite")):
        assert cluster.run(*words).exit_code == 1
    assert (tmp_path / "target").read_text() == "kept"


def test_output_that_was_saved_is_replaced_only_if_told_to(tmp_path: Path) -> None:
    save = ("--save", str(tmp_path / "out"))
    FakeCluster(jobs_=[job()], output={0: [b"one\n"]}).run("logs", "train", *save)
    other = FakeCluster(jobs_=[job()], output={0: [b"two\n"]})
    refused = other.run("logs", "train", *save)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "has output already, such as task-0.log" in refused.stderr
    assert (tmp_path / "out" / "task-0.log").read_bytes() == b"one\n"
    assert other.run("logs", "train", *save, "--overwrite").exit_code == 0
    assert (tmp_path / "out" / "task-0.log").read_bytes() == b"two\n"
    assert other.run("logs", "train", "--overwrite").exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("train/3", "--failed"),
        ("train", "--failed", "--task", "3"),
        ("train", "-f", "--save", "x"),
        ("ses-01", "--failed"),
    ],
)
def test_logs_of_what_contradicts_itself_are_refused(words: tuple[str, ...]) -> None:
    cluster = FakeCluster(jobs_=[job()], sessions_=[session(id="ses-01")])
    assert cluster.run("logs", *words).exit_code == 2


def test_logs_of_a_task_that_has_not_started_are_refused() -> None:
    result = FakeCluster(jobs_=[job()]).run("logs", "train")
    assert result.exit_code == 1
    assert "has not started" in result.stderr


def test_logs_ask_for_the_attempt() -> None:
    cluster = FakeCluster(jobs_=[job()], output={0: [b"x"]})
    cluster.run("logs", "train", "--attempt", "2")
    assert cluster.asked == [("logs", (0, 2, None, False))]


def test_logs_tail_shows_the_last_lines() -> None:
    lines = b"".join(b"line %d\n" % number for number in range(100_000))
    cluster = FakeCluster(jobs_=[job()], output={0: [lines]})
    result = cluster.run("logs", "train", "--tail", "2")
    assert result.stdout == "line 99998\nline 99999\n"


def lines_of(size: int, count: int) -> bytes:
    """So many lines of the same size, each of another letter."""
    return b"".join(bytes([97 + number % 26]) * (size - 1) + b"\n" for number in range(count))


@pytest.mark.parametrize(
    ("size", "count", "tail"), [(2_000, 200, 50), (100_000, 3, 1), (40_000, 5, 3), (300_000, 9, 9)]
)
@pytest.mark.parametrize("follow", [(), ("-f",)])
def test_logs_tail_has_whole_lines_however_long_they_are(
    size: int, count: int, tail: int, follow: tuple[str, ...]
) -> None:
    whole = lines_of(size, count)
    cluster = FakeCluster(
        jobs_=[job()], sessions_=[session(id="ses-01", name="cli")], output={0: [whole]}
    )
    for ref in ("train", "cli"):
        shown = cluster.run("logs", ref, "--tail", str(tail), *follow)
        assert shown.stdout_bytes == whole[-tail * size :]
        assert shown.stderr == ""


def test_logs_tail_says_where_the_first_line_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_TAIL_BYTES", 1024 * 1024)
    cluster = FakeCluster(jobs_=[job()], output={0: [b"x" * 2_000_000 + b"\nend\n"]})
    shown = cluster.run("logs", "train", "-n", "2")
    assert len(shown.stdout_bytes) == 1024 * 1024
    assert shown.stderr == "there are fewer lines in the last 1MiB, of which the first is cut\n"
    assert cluster.run("logs", "train", "-n", "1").stderr == ""


def test_logs_tail_says_what_was_rotated_away_before_it() -> None:
    class Rotated(FakeCluster):
        def logs(
            self, ref: str, *, on_cut: Callable[[int], None] | None = None, **more: Any
        ) -> Iterator[bytes]:
            yield from super().logs(ref, **more)
            if on_cut is not None and (more["tail_bytes"] or 0) > 20:
                on_cut(3 * 2**20)

    cluster = Rotated(jobs_=[job()], output={0: [b"of a line\nend\n"]})
    shown = cluster.run("logs", "train", "-n", "5")
    assert shown.stdout == "of a line\nend\n"
    assert shown.stderr == "3MiB before this were rotated away\n"
    assert cluster.run("logs", "train", "-n", "1").stderr == ""


def test_logs_that_follow_several_tasks_show_the_states_of_their_bars(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "BAR_EVERY_S", 0.0)
    cluster = FakeCluster(
        jobs_=[job(counts={TaskState.RUNNING: 2})],
        output={0: [b"\r10%", b"\r20%", b"\r30%\n"], 1: [b"a\r\nb\r\n"]},
    )
    shown = cluster.run("logs", "train", "-f").stdout_bytes.split(b"\n")
    assert [each for each in shown if each[:1] == b"0"] == [b"0 | 10%", b"0 | 20%", b"0 | 30%"]
    assert [each for each in shown if each[:1] == b"1"] == [b"1 | a", b"1 | b"]
    assert cluster.run("logs", "train").stdout_bytes == b"0 | 30%\n1 | a\n1 | b\n"


class Growing(FakeCluster):
    """More output comes between any two reads, and while one follows."""

    def __init__(self, before: bytes, meanwhile: bytes, later: bytes) -> None:
        super().__init__(jobs_=[job()])
        self.data, self.meanwhile, self.later = before, meanwhile, later

    def logs(
        self, ref: str, *, tail_bytes: int | None = None, follow: bool = False, **_: Any
    ) -> Iterator[bytes]:
        start = 0 if tail_bytes is None else max(len(self.data) - tail_bytes, 0)
        yield self.data[start:]
        self.data += self.meanwhile
        if follow:
            yield self.later


TEXT = st.text("ab\n", max_size=40).map(str.encode)


@given(before=TEXT, meanwhile=TEXT, later=TEXT, tail=st.integers(0, 5))
def test_logs_that_follow_a_tail_miss_nothing_and_repeat_nothing(
    before: bytes, meanwhile: bytes, later: bytes, tail: int
) -> None:
    shown = Growing(before, meanwhile, later).run("logs", "train", "-f", "--tail", str(tail))
    whole = before + meanwhile + later
    assert shown.exit_code == 0
    assert whole.endswith(shown.stdout_bytes)
    assert shown.stdout_bytes.endswith(later)
    if not meanwhile:
        assert shown.stdout_bytes == last_lines(before, tail) + later


def test_logs_that_follow_say_that_the_controller_is_away_and_back() -> None:
    class Restarting(FakeCluster):
        def logs(self, ref: str, **_: Any) -> Iterator[bytes]:
            yield b"before "
            heard = self.heard[threading.get_ident()]
            heard(False)
            heard(True)
            yield b"after"

    cluster = Restarting(jobs_=[job()])
    result = cluster.run("logs", "-f", "train")
    assert (result.exit_code, result.stdout) == (0, "before after")
    assert result.stderr.splitlines() == [away_line(cluster.url), back_line(cluster.url)]


@pytest.mark.parametrize("tasks", [1, 2])
def test_logs_whose_controller_stays_away_end_with_one_failure(tasks: int) -> None:
    class Gone(FakeCluster):
        def logs(self, ref: str, **_: Any) -> Iterator[bytes]:
            raise Unreachable("no controller answers; `muster up` starts one")

    result = Gone(jobs_=[job(counts={TaskState.RUNNING: tasks})]).run("logs", "-f", "train")
    assert result.exit_code == 1
    assert result.stderr.count("`muster up` starts one; nothing is lost") == 1


@pytest.mark.parametrize("tasks", [1, 2])
def test_logs_that_break_end_with_a_failure(tasks: int) -> None:
    class Broken(FakeCluster):
        def logs(self, ref: str, **_: Any) -> Iterator[bytes]:
            yield b"some\n"
            raise MusterError("agent a1 is not connected")

    result = Broken(jobs_=[job(counts={TaskState.RUNNING: tasks})]).run("logs", "-f", "train")
    assert result.exit_code == 1
    assert "some\n" in result.stdout
    assert "agent a1 is not connected" in result.stderr


def chosen(*options: str, follow: bool = False, tasks: int = 1) -> str:
    """The lines that are shown of tasks that all wrote the same."""
    written = [b"loss=1.0\nlo", b"ss=nan\nError: caf\xc3\xa9\n", b"loss=2.0\nerror at the end"]
    cluster = FakeCluster(
        jobs_=[job(counts={TaskState.SUCCEEDED: tasks})],
        output=dict.fromkeys(range(tasks), written),
    )
    result = cluster.run("logs", "train", *options, *(["-f"] if follow else []))
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--grep", "loss=nan|^err"], "loss=nan\nerror at the end"),
        (["--grep", "(?i)^error"], "Error: café\nerror at the end"),
        (["--grep", "café"], "Error: café\n"),
        (["--grep", "nothing"], ""),
        (["--head", "2"], "loss=1.0\nloss=nan\n"),
        (["--head", "99"], "loss=1.0\nloss=nan\nError: café\nloss=2.0\nerror at the end"),
        (["--head", "0"], ""),
        (["--head", "1", "--grep", "rror"], "Error: café\n"),
    ],
)
def test_lines_are_chosen_by_a_pattern_and_by_their_number(
    options: list[str], shown: str, follow: bool
) -> None:
    assert chosen(*options, follow=follow) == shown


def test_pattern_chooses_of_the_last_lines() -> None:
    assert chosen("--tail", "2", "--grep", "loss") == "loss=2.0\n"


@pytest.mark.parametrize("options", [["--head", "1"], ["--head", "1", "--grep", "loss"]])
def test_first_lines_of_an_output_that_goes_on_are_followed_no_further(options: list[str]) -> None:
    over = threading.Event()

    class GoesOn(FakeCluster):
        def logs(self, ref: str, **_: Any) -> Iterator[bytes]:
            yield b"loss=1\nloss=2\n"
            assert over.wait(60), "it is read until the command has ended"

    cluster = GoesOn(jobs_=[job()])
    result = cluster.run("logs", "train", "-f", *options)
    over.set()
    assert result.stdout == "loss=1\n"


def test_no_lines_are_no_reason_to_say_that_nothing_was_written() -> None:
    cluster = FakeCluster(jobs_=[job()], output={0: [b"a\n"]})
    result = cluster.run("logs", "train", "--head", "0")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_line_that_comes_in_many_pieces_is_chosen_whole() -> None:
    pieces = [b"a" * 10, b"b", b"", b"c\nd", b"e\n", b"f"]
    cluster = FakeCluster(jobs_=[job()], output={0: pieces})
    assert cluster.run("logs", "train", "--grep", "bc|e|f").stdout == "aaaaaaaaaabc\nde\nf"


def test_lines_of_several_tasks_are_chosen_of_each() -> None:
    assert chosen("--head", "1", tasks=2) == "0 | loss=1.0\n1 | loss=1.0\n"
    assert chosen("--grep", "the end", tasks=2) == "0 | error at the end\n1 | error at the end\n"


def test_pattern_that_would_take_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_lines, "LONGEST_S", 0.1)
    cluster = FakeCluster(jobs_=[job()], output={0: [b"a" * 200 + b"b\n"]})
    result = cluster.run("logs", "train", "--grep", "^(a+)+$")
    assert result.exit_code == 1
    assert "--grep took more than 0.1 s for one line of 201 bytes" in result.stderr


def test_line_choices_that_nobody_can_mean_are_refused() -> None:
    cluster = FakeCluster(jobs_=[job()], output={0: [b"a\n"]})
    for options in (
        ["--grep", "("],
        ["--grep", "x" * 1001],
        ["--grep", "a{99999999999}"],
        ["--head", "1", "--tail", "1"],
        ["--head", "-1"],
        ["--save", "out", "--grep", "a"],
    ):
        assert cluster.run("logs", "train", *options).exit_code == 2, options
