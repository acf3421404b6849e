"""Working directories, looked at before the work is handed in: those that cannot exist are refused,
because it would fail there."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.core.errors import InvalidSpec, Problem

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.specs import JobSpec
    from muster.core.specs.amounts import Spec


def refuse_missing_workdirs(client: "Client", spec: "Spec | Mapping[str, Any]") -> None:
    """Refuse working directories that do not exist. Nothing is refused where an agent may be on
    another machine, which may have the directory.

    Raises:
        InvalidSpec: a working directory that does not exist, where all agents are on this machine.
        MusterError: the agents cannot be listed.
    """
    missing = [problem for problem in _missing(spec) if problem is not None]
    if missing and _all_here(client):
        raise InvalidSpec(missing)


def _missing(spec: "Spec | Mapping[str, Any]") -> Iterator[Problem | None]:
    keys = spec if isinstance(spec, Mapping) else spec.model_dump(include={"workdir", "kernels"})
    yield _problem("workdir", keys.get("workdir"))
    kernels = keys.get("kernels")
    for index, kernel in enumerate(kernels if isinstance(kernels, list) else ()):
        if isinstance(kernel, Mapping):
            yield _problem(f"kernels.{index}.workdir", kernel.get("workdir"))


def _problem(field: str, workdir: object) -> Problem | None:
    if not isinstance(workdir, str) or not workdir.startswith("/") or Path(workdir).is_dir():
        return None
    expected = "there is no such directory on this machine, where all agents run"
    return Problem(field, repr(workdir), expected)


def _all_here(client: "Client") -> bool:
    """Whether the cluster is this machine's own, and has no agent elsewhere. An address of this
    machine proves nothing, because it may be the end of a tunnel."""
    from muster.app.home import Home
    from muster.client.connection import default_home, is_loopback

    running = Home(default_home()).running()
    if running is None or running.url.rstrip("/") != client.url:
        return False
    return all(is_loopback(f"http://{agent.host}") for agent in client.agents())


def left_behind(spec: "JobSpec") -> str | None:
    """A file of the current directory that the job's command names and will not find in its scratch
    directory; None if there is none."""
    import shlex

    if spec.workdir is not None:
        return None
    from muster.core.specs.first_line import interpreter_in

    words = spec.command
    if interpreter_in(words) is not None:
        with suppress(ValueError):  # quotes that only the shell understands
            words = shlex.split(words[-1], comments=True)
    for word in words:
        with suppress(OSError, ValueError):  # too long for a path, or no path
            if not word.startswith("/") and word not in spec.files and Path(word).is_file():
                return word
    return None
