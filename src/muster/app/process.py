"""The frame of every process of Muster: logging, and one sentence when its work fails."""

import asyncio
import gc
import resource
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import uvloop

from muster.agent.supervisor.process_priority import raise_threads
from muster.app.own_log import log_to_stderr, say_last
from muster.core.errors import MustEnd, MusterError

GARBAGE_EVERY = (50_000, 2, 50)
"""Thresholds of ``gc.set_threshold``: new objects before the youngest are searched for garbage,
such searches before the middle generation is searched, and such before all objects are. To search
the survivors of 500,000 objects, as a large gang has, took 55 ms."""

SWITCH_S = 0.0005
"""Seconds that a thread may keep the interpreter from another one that wants it."""

OPEN_FILES = 65_536
"""Open files: connections of people and agents, and as many again for everything else."""

PRIORITY_EVERY_S = 1.0
"""The longest for which a new thread of a process that is to run above kernels is like them."""


def run_process(title: str, work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` to its end, on uvloop, which takes a tenth less processor time than asyncio's
    loop.

    Raises:
        SystemExit: ``work`` raised a MusterError, whose sentence goes to standard error; the code
            is 1, or that of ``MustEnd``.
    """
    log_to_stderr()
    try:
        uvloop.run(work)
    except MustEnd as error:
        say_last(f"{title}: {error}")
        raise SystemExit(error.exit_code) from None
    except MusterError as error:
        say_last(f"{title}: {error}")
        raise SystemExit(1) from None


def allow_files() -> None:
    """Raise the limit of open files as far as the system allows, up to ``OPEN_FILES``: connections
    are bounded below it, so that the database never lacks a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """A context without garbage collection, for the start of a process, most of whose objects last:
    searching them for garbage again and again took a quarter of the time to read the state."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def take_turns_quickly() -> None:
    """Have threads give the interpreter to each other sooner, so that the event loop waits less for
    a thread that reads for somebody."""
    sys.setswitchinterval(SWITCH_S)


async def stay_above_kernels() -> None:
    """Raise the priority of threads that begin, whoever begins them (gRPC and the event loop do,
    too): one that kernels keep from the processor keeps the interpreter from all others."""
    while True:
        raise_threads()
        await asyncio.sleep(PRIORITY_EVERY_S)


def settle_memory() -> None:
    """Exempt the present objects of a started process from garbage collection, because they last,
    and look at new objects less often, because a batch of work makes many that stay for a while."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_EVERY)
