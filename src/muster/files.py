"""Files and directories of Muster's own: each gets its mode whatever the umask is, and a file is
written whole or not at all."""

import os
import stat
from contextlib import suppress
from pathlib import Path

_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PARENT_MODE = 0o755


def make_directory(path: Path, mode: int = 0o700, *, is_set: bool = False) -> None:
    """Make a directory of this mode, unless it is there already. Parents that are missing are made
    so that others may pass through them and write nothing.

    Args:
        is_set: whether one that is there gets the mode too, because it is Muster's own: an earlier
            version may have let others write there.

    Raises:
        OSError: it cannot be made, is no directory, or is another user's and has another mode.
    """
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        if not path.is_dir():
            raise
        if is_set and stat.S_IMODE(path.stat().st_mode) != mode:
            path.chmod(mode)
    except FileNotFoundError:
        if path.parent == path:
            raise
        make_directory(path.parent, PARENT_MODE)
        path.mkdir(mode=mode, exist_ok=True)  # fails where none can be made, as in /proc
        path.chmod(mode)
    else:
        path.chmod(mode)


def write_whole(
    path: Path, content: str | bytes, mode: int = 0o600, *, is_synced: bool = True
) -> None:
    """Write a file of this mode, in place of a former one.

    Args:
        is_synced: whether its content is on the disk before it takes the former one's place.

    Raises:
        OSError: it cannot be written; the former one is as it was.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    data = content.encode() if isinstance(content, str) else content
    try:
        fresh.unlink(missing_ok=True)  # left by a crash
        with os.fdopen(os.open(fresh, _FRESH, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise
