"""Traces to replay: sessions with their times, and the machines they ran on (docs/simulate.md).

Two forms of CSV are read, told apart by their columns: the task list of the openb trace (Alibaba
cluster-trace-gpu-v2023), and a generic one that people write. The generic one may be Parquet too.
"""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from muster.core.errors import InvalidSpec, MusterError, Problem
from muster.core.owner import Owner
from muster.core.resources import (
    GPU_WHOLE,
    Device,
    Resources,
    parse_bytes,
    parse_gpu,
    parse_milli,
)
from muster.core.specs import MAX_GANG
from muster.core.specs.amounts import parse_duration

T = TypeVar("T")

OWNER = Owner("default", "trace", "everybody")
"""The owner of sessions whose trace names none."""

MAX_SESSIONS = 5_000_000
_MOST_PROBLEMS = 10
_MIB = 2**20
_NO_LIMIT_S = 100 * 366 * 86_400.0


@dataclass(frozen=True, slots=True)
class TraceSession:
    """One session of a trace.

    Args:
        submit_at_s: seconds since any moment, the same for the whole trace.
        duration_s: how long it runs once it has started.
        kernels: the request of each of its kernels.
        limit_s: how long it may run at the most, as the scheduler knows; None if it knows no limit.
        not_before_s: when it may start at the earliest; by the clock of ``submit_at_s``.
    """

    name: str
    submit_at_s: float
    duration_s: float
    kernels: tuple[Resources, ...]
    owner: Owner = OWNER
    priority: int = 50
    limit_s: float | None = None
    not_before_s: float | None = None


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One machine of a trace."""

    name: str
    capacity: Resources
    devices: tuple[Device, ...]


_Row: TypeAlias = Mapping[str | None, Any]
"""Values by column. A value that the row lacks is missing or None; values beyond the columns stand
under None."""


def read_trace(path: Path) -> tuple[TraceSession, ...]:
    """All sessions of a trace, in the order of the file.

    Raises:
        MusterError: the file cannot be read.
        InvalidSpec: columns are missing, or values cannot be read; with file, line and column.
    """
    columns, rows = _parquet(path) if path.suffix == ".parquet" else _csv(path)
    if "creation_time" in columns:
        return _read(path, columns, rows, _OPENB_SESSION, _openb_session)
    unknown = [name for name in columns if name not in _COLUMNS]
    if unknown and set(_NEEDED) <= set(columns):
        expected = f"unknown columns: {', '.join(unknown)}; known are {', '.join(_COLUMNS)}"
        raise InvalidSpec([Problem(f"{path}", "", expected)])
    return _read(path, columns, rows, _NEEDED, _session)


def read_nodes(path: Path) -> tuple[TraceNode, ...]:
    """The machines of an openb node list, in the order of the file.

    Raises:
        MusterError: the file cannot be read.
        InvalidSpec: columns are missing, or values cannot be read; with file, line and column.
    """
    columns, rows = _csv(path)
    return _read(path, columns, rows, _OPENB_NODE, _openb_node)


_NEEDED = ("submit_s", "duration_s")
_COLUMNS = (
    *(*_NEEDED, "name", "cpu", "memory", "gpu", "gpu_model", "kernels"),
    *("owner", "priority", "limit_s", "not_before_s"),
)
_OPENB_NODE = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_OPENB_SESSION = (
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"),
    *("creation_time", "deletion_time"),
)


class _Wrong(Exception):
    """A value that cannot be read."""

    def __init__(self, column: str, value: Any, expected: str) -> None:
        super().__init__(expected)
        self.problem = column, value, expected


class _Values:
    """The values of one row."""

    def __init__(self, row: _Row) -> None:
        self._row = row

    def get(self, column: str, parse: Callable[[Any], T], default: T) -> T:
        """The value of the column, or ``default`` where it is empty."""
        value = self._row.get(column)
        if value is None or value == "":
            return default
        return self._parsed(column, value, parse)

    def need(self, column: str, parse: Callable[[Any], T]) -> T:
        value = self._row.get(column)
        if value is None or value == "":
            raise _Wrong(column, "", "missing")
        return self._parsed(column, value, parse)

    def _parsed(self, column: str, value: Any, parse: Callable[[Any], T]) -> T:
        try:
            return parse(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise _Wrong(column, value, str(error)) from None


def _number(value: Any, low: float = 0.0, high: float = _NO_LIMIT_S) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not low <= number <= high:
        raise ValueError(f"expected a number of at least {low:g} and at most {high:g}")
    return number


def _whole(value: Any, low: int = 0, high: int = 2**50) -> int:
    number = _number(value, low, high)
    if number != int(number):
        raise ValueError("expected a whole number")
    return int(number)


_ANY: tuple[str, ...] = ()


def _models(value: Any) -> tuple[str, ...]:
    return tuple(sorted({each.strip() for each in str(value).split("|") if each.strip()}))


def _seconds(value: Any) -> float:
    """A number of seconds without end, or a duration such as 1h30m."""
    try:
        return _number(value)
    except ValueError:
        return float(parse_duration(value))


def _owner(value: Any) -> Owner:
    parts = str(value).split("/")
    if len(parts) > 3 or not all(parts):
        raise ValueError("expected user, project/user or domain/project/user")
    domain, project, user = [OWNER.domain, OWNER.project][: 3 - len(parts)] + parts
    return Owner(domain, project, user)


def _openb_node(number: int, values: _Values) -> TraceNode:
    gpus = values.need("gpu", partial(_whole, high=128))
    model = values.get("model", str, "gpu")
    capacity = Resources(
        values.need("cpu_milli", _whole),
        values.need("memory_mib", _whole) * _MIB,
        gpu_milli=gpus * GPU_WHOLE,
    )
    devices = tuple(Device(index, model) for index in range(gpus))
    return TraceNode(values.need("sn", str), capacity, devices)


def _openb_session(number: int, values: _Values) -> TraceSession:
    """A session for a task, which ran from when it was scheduled, or created if it never was
    scheduled, to its deletion."""
    gpus = values.need("num_gpu", partial(_whole, high=128))
    milli = values.get("gpu_milli", partial(_whole, high=GPU_WHOLE), 0)
    if gpus > 1 and milli not in (0, GPU_WHOLE):
        raise _Wrong("gpu_milli", milli, f"expected {GPU_WHOLE} of each of {gpus} GPUs")
    request = Resources(
        values.need("cpu_milli", _whole),
        values.need("memory_mib", _whole) * _MIB,
        gpu_milli=gpus * (milli or GPU_WHOLE),
        gpu_models=values.get("gpu_spec", _models, ()) if gpus else (),
    )
    created = values.need("creation_time", _number)
    started = values.get("scheduled_time", _number, created)
    ended = values.need("deletion_time", partial(_number, low=started))
    return TraceSession(values.need("name", str), created, ended - started, (request,))


def _session(number: int, values: _Values) -> TraceSession:
    gpu = values.get("gpu", parse_gpu, 0)
    models = values.get("gpu_model", _models, _ANY)
    if models and not gpu:
        raise _Wrong("gpu_model", "|".join(models), "expected only with gpu")
    request = Resources(
        values.get("cpu", parse_milli, 1000),
        values.get("memory", parse_bytes, 0),
        gpu_milli=gpu,
        gpu_models=models,
    )
    kernels = values.get("kernels", partial(_whole, low=1, high=MAX_GANG), 1)
    return TraceSession(
        values.get("name", str, f"row-{number}"),
        values.need("submit_s", _number),
        values.need("duration_s", _seconds),
        (request,) * kernels,
        values.get("owner", _owner, OWNER),
        values.get("priority", partial(_whole, high=100), 50),
        values.get("limit_s", _seconds, None),
        values.get("not_before_s", _number, None),
    )


def _read(
    path: Path,
    columns: Iterable[str],
    rows: Iterable[tuple[int, _Row]],
    needed: Iterable[str],
    read: Callable[[int, _Values], T],
) -> tuple[T, ...]:
    missing = [name for name in needed if name not in columns]
    if missing:
        found = ", ".join(columns) or "none"
        expected = f"columns missing: {', '.join(missing)}; found: {found}"
        raise InvalidSpec([Problem(f"{path}", "", expected)])
    doubled = [name for name, times in Counter(columns).items() if times > 1]
    if doubled:
        expected = f"columns given more than once: {', '.join(doubled)}"
        raise InvalidSpec([Problem(f"{path}", "", expected)])
    read_rows: list[T] = []
    problems = []
    for number, row in rows:
        try:
            if None in row:
                raise _Wrong("row", ",".join(row[None]), "more values than there are columns")
            read_rows.append(read(number, _Values(row)))
        except _Wrong as wrong:
            problems.append(_problem(path, number, wrong))
            if len(problems) == _MOST_PROBLEMS:
                break
        if len(read_rows) > MAX_SESSIONS:
            raise MusterError(f"{path} has more than {MAX_SESSIONS:,} rows")
    if problems:
        raise InvalidSpec(problems)
    if not read_rows:
        raise MusterError(f"{path} has no rows")
    return tuple(read_rows)


def _csv(path: Path) -> tuple[tuple[str, ...], Iterator[tuple[int, _Row]]]:
    """Columns, and rows with their lines."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise MusterError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise MusterError(f"cannot read {path}: it is not text in UTF-8") from None
    lines = io.StringIO(text, newline="").readlines()  # lines end where those of csv do
    reader, columns = csv.DictReader(lines, restval=None), tuple[str, ...]()

    def rows() -> Iterator[tuple[int, _Row]]:
        before = reader.line_num
        try:
            for row in reader:
                before = reader.line_num
                yield before, row
        except csv.Error:
            while not lines[before].strip("\r\n"):
                before += 1
            problem = _too_long(columns, lines[before : reader.reader.line_num])
            raise _refused(path, before + 1, problem) from None

    try:
        columns = tuple(reader.fieldnames or ())
    except csv.Error:
        raise _refused(path, 1, _too_long((), lines[: reader.reader.line_num])) from None
    return columns, rows()


def _too_long(columns: Sequence[str], lines: Sequence[str]) -> _Wrong:
    """The fault of a row that csv does not read."""
    longest = csv.field_size_limit(sum(map(len, lines)))
    try:
        values = [value for row in csv.reader(lines) for value in row]
    finally:
        csv.field_size_limit(longest)
    index = next(index for index, value in enumerate(values) if len(value) > longest)
    column = columns[index] if index < len(columns) else "row"
    expected = f"expected at most {longest:,} characters; is a quotation mark left open?"
    return _Wrong(column, values[index], expected)


def _refused(path: Path, line: int, wrong: _Wrong) -> InvalidSpec:
    return InvalidSpec([_problem(path, line, wrong)])


def _problem(path: Path, line: int, wrong: _Wrong) -> Problem:
    column, value, expected = wrong.problem
    shown = repr(value)[:80] if value != "" else ""
    return Problem(f"{path}: line {line}: {column}", shown, expected)


def _parquet(path: Path) -> tuple[tuple[str, ...], Iterator[tuple[int, _Row]]]:
    """Columns, and rows with their numbers from 1 on."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise MusterError(
            f"cannot read {path}: Parquet needs pyarrow (pip install 'muster-scheduler[parquet]'); "
            f"or write the trace as CSV"
        ) from None
    try:
        found = parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise MusterError(f"cannot read {path}: {error}") from None
    return tuple(found.column_names), enumerate(found.to_pylist(), 1)
