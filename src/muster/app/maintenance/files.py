"""Files that appear under their name whole, or not at all."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from muster.core.errors import Conflict, MusterError
from muster.files import open_own


def stamp() -> str:
    """The present moment, for the names of what is kept aside: no two are alike."""
    return datetime.now().astimezone().strftime("%Y%m%d-%H%M%S-%f")


@contextmanager
def unfinished(file: Path) -> Iterator[Path]:
    """An empty file beside ``file``, for its owner only, that is to get its name at the end of the
    block and is removed otherwise. One that a killed process left is used again.

    Raises:
        Conflict: another process writes it.
        MusterError: it cannot be written.
    """
    path = file.with_name(f".{file.name}.unfinished")
    try:
        descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            try:
                yield path
            finally:
                path.unlink(missing_ok=True)
            synchronize(file.parent)
        finally:
            os.close(descriptor)
    except BlockingIOError:
        raise Conflict(f"another process is writing {file}: wait until it is done") from None
    except OSError as error:
        raise MusterError(f"cannot write {file}: {error.strerror or error}") from None


def name_it(path: Path, file: Path) -> None:
    """Give a finished file, which is safe on the disk, its name, which nothing may have.

    Raises:
        MusterError: something has it.
    """
    try:
        os.link(path, file)  # unlike a rename, it replaces nothing
    except FileExistsError:
        raise there_already(file) from None


def there_already(file: Path) -> MusterError:
    return MusterError(f"{file} is there already: choose another name, or remove it")


def synchronize(path: Path) -> None:
    """Wait until a file's content, or a directory's names, are safe on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
