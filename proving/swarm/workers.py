"""Runs in several processes, which end with the one that began them."""

import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context

from proving.swarm.databases import databases, leave, use_server
from proving.swarm.judge import Invariant
from proving.swarm.runner import INVARIANTS, RunResult, run

LOOK_S = 1.0
LAST_RUN_S = 60.0
GARBAGE_EVERY = 50_000
"""New objects before the youngest are searched for garbage."""
_running = threading.Lock()


def results(
    seeds: Iterator[int],
    workers: int,
    server: str | None = None,
    invariants: Sequence[type[Invariant]] = INVARIANTS,
) -> Iterator[RunResult]:
    """The results of the seeds, in order.

    Processes are forked from this one, which has imported all that they need, and made the empty
    database with which their runs begin. Beside threads, as those of a test's process are, each
    starts anew: a forked one may wait for ever for a lock that one of them held.

    Args:
        server: see ``use_server``.
        invariants: those that are judged.
    """
    start = "spawn" if threading.active_count() > 1 else "fork"
    if start == "fork" and server is None:
        databases()
    pool = ProcessPoolExecutor(
        workers, get_context(start), initializer=_begin, initargs=(os.getpid(), server)
    )
    with pool:
        try:
            waiting = [pool.submit(_run, seed, invariants) for seed in islice(seeds, 2 * workers)]
            while waiting:
                yield waiting.pop(0).result()
                if (seed := next(seeds, None)) is not None:
                    waiting.append(pool.submit(_run, seed, invariants))
        finally:
            pool.shutdown(cancel_futures=True)


def be_quiet() -> None:
    """Log nothing of what faults make of the controller."""
    logging.disable(logging.CRITICAL)


def _run(seed: int, invariants: Sequence[type[Invariant]]) -> RunResult:
    with _running:
        return run(seed, invariants=invariants)


def _begin(parent: int, server: str | None) -> None:
    be_quiet()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; the parent decides
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if server is not None:
        use_server(server)
    gc.freeze()  # modules, and what they hold, last
    gc.set_threshold(GARBAGE_EVERY)


def _end_with(parent: int) -> None:
    """End this process soon after its parent, which may have been killed; a run that is under way
    is finished, unless it hangs, and leaves nothing behind."""
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    _running.acquire(timeout=LAST_RUN_S)
    leave()
    os._exit(1)
