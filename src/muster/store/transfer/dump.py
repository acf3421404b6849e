"""A dump: all rows of a cluster in one file that any database can be filled from.

The file is gzip of lines of JSON: an object that says what it is; for each table an object with its
name and columns, an array for each row, and an object with their count and checksum; and an object
that says that this was all.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from muster.core.errors import MusterError
from muster.store.transfer.source import Origin, Rows, Source, Tally

FORMAT = 1
_MAGIC = "muster_dump"
_LEVEL = 1  # of compression: higher ones take longer than reading the database
_MAX_LINE_BYTES = 256 * 2**20
"""Nothing that is stored is as long; a file of zeros unpacks to a line without an end."""


class BadDump(MusterError):
    """The file is no whole dump, or of a version that this one does not know."""


def write_dump(source: Source, file: BinaryIO) -> int:
    """Write all rows to a file; the answer is how many there were."""
    tables = total = 0
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_LEVEL, mtime=0) as packed:

        def say(**said: Any) -> None:
            packed.write(json.dumps(said).encode() + b"\n")

        say(**{_MAGIC: FORMAT}, **asdict(source.origin))
        for rows in source.tables():
            say(table=rows.table, columns=list(rows.columns))
            tally = Tally()
            for line in tally.counted(rows.lines):
                packed.write(line)
            say(rows=tally.rows, checksum=tally.checksum)
            tables, total = tables + 1, total + tally.rows
        say(tables=tables, all_rows=total)
    return total


class DumpSource:
    """The rows of a dump. It can be read several times.

    Raises:
        BadDump: the file is not a dump, is not whole, or is of a newer version.
        OSError: it cannot be read.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        said = self._said(next(self._lines(), b""))
        if said.get(_MAGIC) != FORMAT:
            if isinstance(said.get(_MAGIC), int):
                raise BadDump(
                    f"{file} is a backup of a newer version of Muster ({said.get('version')}): "
                    f"install that one to restore it"
                )
            raise BadDump(f"{file} is no backup of Muster's")
        try:
            self.origin = Origin(**{name: said[name] for name in Origin.__slots__})
        except KeyError as missing:
            raise BadDump(f"{file} is damaged: its first line lacks {missing}") from None

    def tables(self) -> Iterator[Rows]:
        lines, tables, total = self._lines(), 0, 0
        next(lines)
        while "table" in (said := self._said(next(lines, b""))):
            tally, after = Tally(), _After()
            columns = said.get("columns")
            if not isinstance(columns, list) or not columns:
                raise BadDump(f"{self._file} is damaged: it has a table without columns")
            yield Rows(str(said["table"]), columns, tally.counted(after.rows_of(lines)))
            end = self._said(after.line)
            if (end.get("rows"), end.get("checksum")) != (tally.rows, tally.checksum):
                raise BadDump(f"{self._file} is damaged: the rows of {said['table']} differ")
            tables, total = tables + 1, total + tally.rows
        if (said.get("tables"), said.get("all_rows")) != (tables, total):
            raise BadDump(f"{self._file} is damaged: its last line is another's")
        if next(lines, None) is not None:  # its checksum is behind the last line
            raise BadDump(f"{self._file} is damaged: it goes on after its last line")

    def verify(self) -> int:
        """Read the whole file; the answer is how many rows there are.

        Raises:
            BadDump: it is not whole, or damaged.
        """
        return sum(1 for rows in self.tables() for _ in rows.lines)

    def _said(self, line: bytes) -> dict[str, Any]:
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise BadDump(f"{self._file} is no backup of Muster's, or is damaged")
        return said

    def _lines(self) -> Iterator[bytes]:
        try:
            with gzip.open(self._file) as packed:
                while line := packed.readline(_MAX_LINE_BYTES):
                    yield line
        except EOFError:
            raise BadDump(f"{self._file} is not whole: it was cut off") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise BadDump(
                f"{self._file} is no backup of Muster's, or is damaged: {error}"
            ) from None


class _After:
    """The rows of a table among the lines of a dump, and the line after them."""

    line = b""

    def rows_of(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        for line in lines:
            if not line.startswith(b"["):
                self.line = line
                return
            yield line
