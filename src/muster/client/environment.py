"""Variables of the caller's environment that work takes along when it is handed in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from muster.client.workdir import absolute

INHERITED = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LANG")
"""Variables of the caller that a command mostly needs to run as it does where it was typed. HOME is
not among them, because the account of the kernel has its own."""

_DIRECTORIES = frozenset({"PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH"})
"""Variables that hold directories, with a colon between two."""
_KEY = "environment"
_KINDS = ("job", "session", "deployment")


def with_environment(
    keys: Mapping[str, Any], caller: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The keys of work with the caller's ``INHERITED`` variables in ``env`` of each process, unless
    its ``environment`` is ``clean``; variables that ``env`` has already stay as they are.

    Directories in them that begin at the current one are made absolute, since the work may run in
    another. Those that are not text in UTF-8, which no spec holds, are left out.

    Keys of other kinds are returned as they are, and wrong ones are left to the spec to refuse.

    Args:
        caller: the caller's environment; this process's own when left out.
    """
    found = dict(keys)
    if found.get("kind", "job") not in _KINDS:
        return found
    taken = os.environ if caller is None else caller
    kernels = found.get("kernels")
    if isinstance(kernels, list | tuple):
        found["kernels"] = [
            _of_process(each, taken) if isinstance(each, Mapping) else each for each in kernels
        ]
    return _of_process(found, taken) if "command" in found else found


def _of_process(keys: Mapping[str, Any], caller: Mapping[str, str]) -> dict[str, Any]:
    found = dict(keys)
    env = found.get("env") or {}
    if found.get(_KEY, "caller") in ("caller", None) and isinstance(env, Mapping):
        taken = {
            name: value
            for name in INHERITED
            if name in caller and (value := _taken(name, caller[name])) is not None
        }
        found |= {_KEY: "caller", "env": {**taken, **env}}
    return found


def _taken(name: str, value: str) -> str | None:
    """The value of a variable as work takes it along; None if it cannot."""
    if name not in _DIRECTORIES:
        return value if _is_text(value) else None
    kept = [_directory(each) for each in value.split(":") if _is_text(each)]
    return ":".join(kept) if kept else None


def _is_text(value: str) -> bool:
    """Whether it is text in UTF-8: Python keeps other bytes of the environment as surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _directory(path: str) -> str:
    """A directory of a variable, from the root on. An empty one stands for the directory in which
    the program runs, and stays."""
    if not path or path.startswith(("/", "~")):
        return path
    try:
        return absolute(path)
    except OSError:  # the current directory is gone
        return path
