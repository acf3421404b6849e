from hypothesis import given
from hypothesis import strategies as st

from muster.cli.follow.lines import MAX_LINE_BYTES, PrefixedLines, last_lines, prefix_width

PIECES = st.lists(
    st.tuples(st.integers(0, 3), st.text("ab\n", max_size=8).map(str.encode)), max_size=30
)


@given(PIECES)
def test_prefixed_lines_are_each_tasks_own_lines_in_order(
    pieces: list[tuple[int, bytes]],
) -> None:
    lines = PrefixedLines(1)
    shown = b"".join(lines.add(task, data) for task, data in pieces)
    shown += b"".join(lines.finish(task) for task in range(4))
    for task in range(4):
        whole = b"".join(data for owner, data in pieces if owner == task)
        prefix = b"%d | " % task
        own = [each.removeprefix(prefix) for each in shown.split(b"\n") if each[:4] == prefix]
        assert own == whole.removesuffix(b"\n").split(b"\n") if whole else own == []


def test_prefix_is_as_wide_as_the_largest_index() -> None:
    lines = PrefixedLines(prefix_width(200))
    assert lines.add(7, b"x\n") + lines.add(199, b"y\n") == b"  7 | x\n199 | y\n"


def test_output_of_a_single_task_passes_as_it_is() -> None:
    lines = PrefixedLines(prefix_width(1))
    assert lines.add(0, b"50%\r") == b"50%\r"
    assert lines.finish(0) == b""


def test_long_line_is_not_broken() -> None:
    lines = PrefixedLines(1)
    assert b"".join(lines.add(0, b"x" * 1000) for _ in range(200)) == b""
    assert lines.add(0, b"\n") == b"0 | " + b"x" * 200_000 + b"\n"


def test_line_that_never_ends_is_broken_and_not_kept() -> None:
    lines, piece = PrefixedLines(1), b"x" * (MAX_LINE_BYTES // 4 + 1)
    shown = [lines.add(0, piece) for _ in range(9)]
    assert [len(each) > 0 for each in shown] == [False, False, False, True] * 2 + [False]


def test_line_written_anew_is_shown_as_it_is_in_the_end() -> None:
    lines = PrefixedLines(1)
    assert lines.add(0, b"load\r 10%\r 20%") == b""
    assert lines.add(0, b"\r 30%\r") == b""
    assert lines.add(0, b"\nnext\r") == b"0 |  30%\n"
    assert lines.add(0, b"\n\r\n") == b"0 | next\n0 | \n"
    assert lines.add(1, b"\r 1%\r 2%") + lines.finish(1) == b"1 |  2%\n"


def test_state_of_a_bar_is_shown_each_second_and_once() -> None:
    lines = PrefixedLines(1)
    shown = []
    for tenth in range(31):
        lines.add(0, b"\r%d%%" % tenth)
        lines.add(1, b"a line")
        shown.append(lines.bars(100 + tenth / 10))
    assert [each for each in shown if each] == [b"0 | 10%\n", b"0 | 20%\n", b"0 | 30%\n"]
    assert lines.bars(200) == b""
    assert lines.add(0, b"\ndone\n") == b"0 | done\n"


def test_bar_takes_no_more_room_than_its_last_state() -> None:
    lines = PrefixedLines(1)
    for _ in range(100):
        assert lines.add(0, b"x" * (MAX_LINE_BYTES // 10) + b"\r") == b""
    assert lines.add(0, b"\rend\n") == b"0 | end\n"


@given(st.text("ab\n").map(str.encode), st.integers(0, 6))
def test_last_lines_are_those_at_the_end(data: bytes, lines: int) -> None:
    kept = data.splitlines(keepends=True)
    assert last_lines(data, lines) == b"".join(kept[-lines:] if lines else [])
