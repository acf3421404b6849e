"""Working directories as people write them: relative to the current directory, or to a home."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


def current_directory() -> str:
    """The caller's directory, as the shell shows it: symbolic links are not resolved.

    An agent may reach the same directory through the same link and not through its target.
    """
    shown = Path(os.environ.get("PWD", ""))
    with suppress(OSError):
        if shown.is_absolute() and ".." not in shown.parts and shown.samefile("."):
            return str(shown)
    return str(Path.cwd())


def absolute(path: str, directory: str | None = None) -> str:
    """A path as a shell would take it: a tilde is the home of the caller, or of the user whom it
    names; a relative path begins at ``directory``, or at the current directory; and ``..`` goes up
    without a look at symbolic links.

    The tilde of a user whom this machine does not know is left for the spec to refuse.
    """
    found = os.path.expanduser(path)  # noqa: PTH111  # pathlib raises for unknown users
    if found.startswith("~"):
        return found
    return os.path.normpath(os.path.join(directory or current_directory(), found))  # noqa: PTH118


def with_absolute_workdirs(keys: Mapping[str, Any], directory: str | None = None) -> dict[str, Any]:
    """The keys of a spec with every ``workdir`` made absolute, and with a directory of checkpoints
    in which a tilde or ``..`` is spelt out. A relative one of these is left for the spec to refuse:
    it may be meant from the ``workdir``."""
    found = dict(keys)
    workdir = found.get("workdir")
    if isinstance(workdir, str) and workdir:
        found["workdir"] = absolute(workdir, directory)
    recovery = found.get("recovery")
    if isinstance(recovery, Mapping):
        kept = recovery.get("checkpoint_dir")
        if isinstance(kept, str) and kept.startswith(("/", "~")):
            found["recovery"] = {**recovery, "checkpoint_dir": absolute(kept)}
    kernels = found.get("kernels")
    if isinstance(kernels, list):
        found["kernels"] = [
            with_absolute_workdirs(each, directory) if isinstance(each, Mapping) else each
            for each in kernels
        ]
    return found
