"""Variables of the caller's environment that work takes along when it is handed in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

INHERITED = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LANG")
"""Variables of the caller that a command mostly needs to run as it does where it was typed. HOME is
not among them, because the account of the kernel has its own."""

_KEY = "environment"
_KINDS = ("job", "session", "deployment")


def with_environment(
    keys: Mapping[str, Any], caller: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The keys of work with the caller's ``INHERITED`` variables in ``env`` of each process, unless
    its ``environment`` is ``clean``; variables that ``env`` has already stay as they are.

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
        taken = {name: caller[name] for name in INHERITED if name in caller}
        found |= {_KEY: "caller", "env": {**taken, **env}}
    return found
