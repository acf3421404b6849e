"""Files in directories that others remove meanwhile, for tests that look on."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def files_below(top: Path, pattern: str) -> Iterator[Path]:
    """The files whose last parts match the pattern; a directory that has just gone has none."""
    for folder, _, names in os.walk(top):
        for name in names:
            path = Path(folder, name)
            if path.match(pattern):
                yield path


def bytes_below(top: Path) -> int:
    """The size of all files together, without those that have just gone."""
    total = 0
    for path in files_below(top, "*"):
        with suppress(FileNotFoundError):
            total += path.lstat().st_size
    return total
