"""Files of points: what they become, and what is told of one that is wrong."""

from pathlib import Path

import pytest

from muster.client.points import with_points
from muster.core.errors import InvalidSpec, MusterError


def points(directory: Path, name: str, text: str | bytes) -> object:
    data = text.encode() if isinstance(text, str) else text
    (directory / name).write_bytes(data)
    return with_points({"matrix": name}, str(directory))["matrix"]


def test_row_object_and_line_is_a_point(tmp_path: Path) -> None:
    table = points(tmp_path, "p.csv", '\ufefflr,note\n0.10,"a, b"\n\n1e-3,=SUM(A1)\n')
    assert table == {
        "include": [{"lr": "0.10", "note": "a, b"}, {"lr": "1e-3", "note": "=SUM(A1)"}]
    }
    objects = points(tmp_path, "p.jsonl", '{"lr": 1.0, "fast": true}\n\n{"lr": 2, "fast": "no"}\n')
    assert objects == {"include": [{"lr": "1.0", "fast": True}, {"lr": "2", "fast": "no"}]}
    lines = points(tmp_path, "inputs.txt", "a b.wav\n\n$(touch oops)\n")
    assert lines == {"include": [{"line": "a b.wav"}, {"line": "$(touch oops)"}]}


def test_nothing_but_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    text = "a\u2028b\x0cc"
    assert points(tmp_path, "p.txt", f"{text}\r\nd\n") == {
        "include": [{"line": text}, {"line": "d"}]
    }
    assert points(tmp_path, "p.jsonl", f'{{"a": "{text[:3]}"}}\n') == {"include": [{"a": text[:3]}]}


def test_directory_that_is_gone_is_no_matter_where_no_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert with_points({"workdir": "/tmp"}) == {"workdir": "/tmp"}


def test_matrix_that_is_no_file_stays(tmp_path: Path) -> None:
    keys = {"matrix": {"lr": [1, 2]}, "command": ["x"]}
    assert with_points(keys, str(tmp_path)) == keys


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("p.csv", "a,b\n1,2\n3\n", "line 3: expected 2 columns, and not 1"),
        ("p.csv", "a,\n1,2\n", "a name for each column"),
        ("p.csv", "a,a\n1,2\n", "a name for each column"),
        ("p.csv", 'a\n"1\n', "line 2: "),
        ("p.csv", '"a"b,c\n1,2\n', "line 1: "),
        ("p.jsonl", '{"a": 1}\n[1]\n', "line 2: expected a JSON object"),
        ("p.jsonl", "{\n", "line 1: expected a JSON object"),
    ],
)
def test_line_that_is_no_point_is_told(tmp_path: Path, name: str, text: str, told: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        points(tmp_path, name, text)
    assert told in str(refused.value)


def test_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(MusterError, match="No such file"):
        with_points({"matrix": "none.csv"}, str(tmp_path))
    with pytest.raises(MusterError, match="UTF-8"):
        points(tmp_path, "p.csv", b"a\n\xff\n")
