"""Files of points: each row, object or line of one is a task of a job (``matrix``)."""

from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from muster.client.workdir import current_directory
from muster.core.errors import InvalidSpec, MusterError, Problem

_KEY = "matrix"
LINE = "line"
"""The parameter of a file that is neither a table nor JSON: each of its lines is a value."""
MAX_FILE_BYTES = 16 * 1024 * 1024


def with_points(keys: Mapping[str, Any], directory: str | None = None) -> dict[str, Any]:
    """The keys of a spec with the points of the file that its ``matrix`` names, if it names one:
    CSV with a head (.csv), a JSON object a line (.jsonl), or else a value a line, which is the
    parameter ``line``.

    Args:
        directory: from which a relative path starts; the current one unless given.

    Raises:
        MusterError: the file cannot be read.
        InvalidSpec: a line of it is no point.
    """
    found = dict(keys)
    value = found.get(_KEY)
    if isinstance(value, str | Path):
        start = current_directory() if directory is None else directory
        found[_KEY] = {"include": [*_read(Path(start, value).expanduser())]}
    return found


def _read(path: Path) -> Iterator[dict[str, str]]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise MusterError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise MusterError(f"cannot read the points of {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise MusterError(f"cannot read the points of {path}: it is not text in UTF-8") from None
    match path.suffix.lower():
        case ".csv":
            points = _of_table(text)
        case ".jsonl" | ".ndjson":
            points = _of_objects(text)
        case _:
            points = ({LINE: line} for line in text.split("\n") if line.strip())
    try:
        yield from points
    except ValueError as error:
        raise InvalidSpec([Problem(_KEY, str(path), str(error))]) from None


def _of_table(text: str) -> Iterator[dict[str, str]]:
    """
    Raises:
        ValueError: a row has more or fewer columns than the head, or it is no CSV.
    """
    import csv  # no other command needs it

    rows = csv.reader(StringIO(text), strict=True)
    try:
        head = [name.strip() for name in next(rows, [])]
        if not all(head) or len(set(head)) < len(head):
            raise ValueError("expected a name for each column in the first line, each once")
        for row in filter(None, rows):
            if len(row) != len(head):
                at = rows.line_num
                raise ValueError(f"line {at}: expected {len(head)} columns, and not {len(row)}")
            yield dict(zip(head, row, strict=True))
    except csv.Error as error:
        raise ValueError(f"line {rows.line_num}: {error}") from None


def _of_objects(text: str) -> Iterator[dict[str, str]]:
    """
    Raises:
        ValueError: a line is no object of texts, numbers and truth values.
    """
    import json

    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:  # numbers stay as they are written
            point = json.loads(line, parse_float=str, parse_int=str)
        except ValueError:
            raise ValueError(f"line {number}: expected a JSON object") from None
        if not isinstance(point, dict):
            raise ValueError(f"line {number}: expected a JSON object")
        yield point
