import sys
from pathlib import Path

import pytest

from muster.core.errors import InvalidSpec, MusterError
from muster.core.owner import Owner
from muster.core.resources import Resources
from muster.simulate.trace import OWNER, TraceSession, read_nodes, read_trace

GIB = 2**30
OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time"


def written(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_generic_trace_is_read_with_units_and_defaults(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "name,submit_s,duration_s,cpu,memory,gpu,gpu_model,kernels,owner,priority,limit_s,not_before_s",
        "train,0,1h30m,4,16GiB,0.5,H100|A100,2,ann,70,2h,60",
        ",7.5,20,500m,,,,,sales/bob,,,",
    )
    asked = Resources(4000, 16 * GIB, 0, 500, (), ("A100", "H100"))
    ann, bob = Owner("default", "trace", "ann"), Owner("default", "sales", "bob")
    assert read_trace(path) == (
        TraceSession("train", 0, 5400, (asked, asked), ann, 70, 7200, 60),
        TraceSession("row-3", 7.5, 20, (Resources(500),), bob),
    )


def test_trace_needs_two_columns_only(tmp_path: Path) -> None:
    path = written(tmp_path, "duration_s,submit_s", "10,5")
    assert read_trace(path) == (TraceSession("row-2", 5, 10, (Resources(1000),), OWNER),)


def test_openb_task_runs_from_when_it_was_scheduled_or_else_created(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        f"{OPENB},scheduled_time",
        "whole,6000,1024,2,1000,,100,300,150",
        "part,1000,1024,1,460,T4|P100,100,300,",
        "none,1000,1024,0,0,,100,300,100",
    )
    whole, part, none = read_trace(path)
    assert (whole.submit_at_s, whole.duration_s) == (100, 150)
    assert whole.kernels == (Resources(6000, GIB, 0, 2000),)
    assert (part.duration_s, part.kernels) == (
        200,
        (Resources(1000, GIB, 0, 460, (), ("P100", "T4")),),
    )
    assert none.kernels == (Resources(1000, GIB),)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,x,10,,", r"line 3: submit_s is 'x': expected a number"),
        ("a,-1,10,,", r"line 3: submit_s is '-1': expected a number of at least 0"),
        ("a,nan,10,,", r"line 3: submit_s is 'nan'"),
        ("a,1,,,", r"line 3: duration_s: missing"),
        ("a,1,soon,,", r"line 3: duration_s is 'soon': expected a duration"),
        ("a,1,10,many,", r"line 3: cpu is 'many': expected a number such as 4"),
        ("a,1,10,1,1.5", r"line 3: gpu is '1\.5': expected .*fractions of several devices"),
        ("a,1,10,1,1,7", r"line 3: row is '7': more values than there are columns"),
    ],
)
def test_row_that_cannot_be_read_is_refused_with_line_column_and_value(
    tmp_path: Path, row: str, message: str
) -> None:
    path = written(tmp_path, "name,submit_s,duration_s,cpu,gpu", "good,0,10,1,1", row)
    with pytest.raises(InvalidSpec, match=message) as refused:
        read_trace(path)
    assert str(refused.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["good,0,10", "x" * 200_000 + ",0,10"], "line 3: name is 'xxx"),
        (['"good,', 'too",0,10', "", "a,0," + "9" * 200_000], "line 5: duration_s is '999"),
        (["good,0,10", '"open,0,10', *["a,0,10"] * 20_000], "line 3: name is 'open,0,10"),
        (["good,0,10," + "x" * 200_000], "line 2: row is 'xxx"),
    ],
    ids=["value", "after two lines of one row", "open quotation mark", "value of no column"],
)
def test_value_too_long_for_csv_is_refused_with_line_and_column(
    tmp_path: Path, rows: list[str], message: str
) -> None:
    path = written(tmp_path, "name,submit_s,duration_s", *rows)
    with pytest.raises(InvalidSpec, match=message) as refused:
        read_trace(path)
    assert "at most 131,072 characters; is a quotation mark left open?" in str(refused.value)
    assert len(str(refused.value)) < 500


def test_model_of_no_gpu_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "submit_s,duration_s,gpu,gpu_model", "0,10,1,T4", "0,10,,T4")
    with pytest.raises(InvalidSpec, match="line 3: gpu_model is 'T4': expected only with gpu"):
        read_trace(path)


def test_heading_too_long_for_csv_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "name,submit_s,duration_s," + "x" * 200_000, "a,0,10,")
    with pytest.raises(InvalidSpec, match="line 1: row is 'xxx"):
        read_trace(path)


def test_rows_end_where_those_of_csv_do(tmp_path: Path) -> None:
    """Not at all that Unicode calls the end of a line."""
    path = tmp_path / "trace.csv"
    path.write_bytes(
        'submit_s,duration_s,name\r\n0,1,a\u2028b\x0c\x85\r\n0,1,"c\r\nd"\r0,1,e\n'.encode()
    )
    assert [each.name for each in read_trace(path)] == ["a\u2028b\x0c\x85", "c\r\nd", "e"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,1000,1,2,500,,1,2", "gpu_milli is 500: expected 1000 of each of 2 GPUs"),
        ("a,1000,1,1,2000,,1,2", "gpu_milli is '2000': expected"),
        ("a,1000,1,1,500,,5,2", "deletion_time is '2': expected a number of at least 5"),
    ],
)
def test_openb_row_that_cannot_be_read_is_refused(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        read_trace(written(tmp_path, OPENB, row))


def test_many_bad_rows_are_told_together_but_not_all(tmp_path: Path) -> None:
    path = written(tmp_path, "submit_s,duration_s", *(["x,1"] * 50))
    with pytest.raises(InvalidSpec) as refused:
        read_trace(path)
    assert len(refused.value.problems) == 10


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("submit,duration_s", r"trace.csv: columns missing: submit_s; found: submit, dur"),
        ("submit_s,duration_s,gpus", r"trace.csv: unknown columns: gpus; known are .*gpu_model"),
        ("submit_s,duration_s,cpu,cpu", "columns given more than once: cpu"),
    ],
)
def test_columns_that_are_wrong_are_refused(tmp_path: Path, header: str, message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        read_trace(written(tmp_path, header, "1,2,3"))


def test_file_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MusterError, match="No such file"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(MusterError, match="has no rows"):
        read_trace(written(tmp_path, "submit_s,duration_s"))
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MusterError, match="not text in UTF-8"):
        read_nodes(tmp_path / "binary.csv")


def test_trace_in_parquet_is_read_like_one_in_csv(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs the extra: parquet")
    from pyarrow import parquet

    columns = {"submit_s": [0, 5], "duration_s": [10.5, 20], "gpu": [0.5, None], "cpu": ["2", "4"]}
    path = tmp_path / "trace.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    assert read_trace(path) == (
        TraceSession("row-1", 0, 10.5, (Resources(2000, gpu_milli=500),)),
        TraceSession("row-2", 5, 20, (Resources(4000),)),
    )


def test_trace_in_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MusterError, match=r"pip install 'muster-scheduler\[parquet\]'"):
        read_trace(tmp_path / "trace.parquet")
