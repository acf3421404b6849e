"""The paths of files below a scratch directory: one rule for who hands them in and who writes them.

It needs the standard library alone, because the supervisor has nothing else.
"""

from collections.abc import Iterable

MAX_PART_BYTES = 255
"""The longest name that Linux's file systems take."""
MAX_PATH_BYTES = 1024


def wrong_path(path: str) -> str | None:
    """The rule that a relative path breaks; None if a file can be written there."""
    parts = path.split("/")
    if not path or path.startswith("/") or ".." in parts:
        return "expected a path inside the working directory, without '..' and not absolute"
    if "" in parts or "." in parts:
        return "expected a path without '.', '//' or '/' at its end"
    if "\0" in path:
        return "expected a path without NUL"
    if len(path.encode(errors="surrogateescape")) > MAX_PATH_BYTES:
        return f"expected at most {MAX_PATH_BYTES} bytes"
    if any(len(part.encode(errors="surrogateescape")) > MAX_PART_BYTES for part in parts):
        return f"expected at most {MAX_PART_BYTES} bytes between two slashes"
    return None


def file_and_directory(paths: Iterable[str]) -> str | None:
    """A path that is a file, and a directory for another of the paths; None if there is none."""
    files = set(paths)
    for path in files:
        above = path
        while "/" in above:
            above = above.rpartition("/")[0]
            if above in files:
                return above
    return None
