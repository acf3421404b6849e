"""What every process of Muster does around its work: logging, and one sentence when it cannot."""

import gc
import resource
from collections.abc import Coroutine
from typing import Any

import uvloop

from muster.app.own_log import log_to_stderr
from muster.core.errors import MusterError

GARBAGE_EVERY = (50_000, 2, 50)
"""New objects after which garbage is looked for among them; how often that is done before those
that were left are looked at again, and how often that before all are. What was left of 500,000
objects, as a large gang has, took 55 ms to look at."""

OPEN_FILES = 65_536
"""Connections of people and agents, and as much again for all else."""


def run_process(title: str, work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` to its end, on uvloop: a tenth less of the processor than on asyncio's own loop.

    Raises:
        SystemExit: it raised a MusterError: its sentence goes to standard error, the code is 1.
    """
    log_to_stderr()
    try:
        uvloop.run(work)
    except MusterError as error:
        raise SystemExit(f"{title}: {error}") from None


def allow_files() -> None:
    """Raise the limit of open files as far as the system lets, up to ``OPEN_FILES``: connections
    are bounded below it, and the database must never lack one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def settle_memory() -> None:
    """For a process that has started: what is there now lasts, and the garbage collector need not
    look at it again. What comes it looks at less often, as a batch of work makes many objects that
    stay for a while."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_EVERY)
