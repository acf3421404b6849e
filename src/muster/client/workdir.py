"""Working directories as people write them: relative to the current directory."""

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


def with_absolute_workdirs(keys: Mapping[str, Any], directory: str | None = None) -> dict[str, Any]:
    """The keys of a spec with every relative ``workdir`` made absolute, from ``directory`` or from
    the current directory.

    A path that begins with a tilde is left for the spec to refuse: the home that is meant is not
    known here.
    """
    found = dict(keys)
    workdir = found.get("workdir")
    if isinstance(workdir, str) and workdir and not workdir.startswith(("/", "~")):
        found["workdir"] = os.path.normpath(f"{directory or current_directory()}/{workdir}")
    kernels = found.get("kernels")
    if isinstance(kernels, list):
        found["kernels"] = [
            with_absolute_workdirs(each, directory) if isinstance(each, Mapping) else each
            for each in kernels
        ]
    return found
