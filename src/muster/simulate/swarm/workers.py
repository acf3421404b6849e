"""Runs in several processes, which end with the one that began them."""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context

from muster.simulate.swarm.databases import leave, use_server
from muster.simulate.swarm.runner import RunResult, run

LOOK_S = 1.0
_running = threading.Lock()


def results(seeds: Iterator[int], workers: int, server: str | None = None) -> Iterator[RunResult]:
    """The results of the seeds, in order.

    Each process starts anew: one that is forked beside threads, as those of a test's process are,
    may wait for ever for a lock that one of them held.

    Args:
        server: see ``use_server``.
    """
    pool = ProcessPoolExecutor(
        workers, get_context("spawn"), initializer=_begin, initargs=(os.getpid(), server)
    )
    with pool:
        try:
            waiting = [pool.submit(_run, seed) for seed in islice(seeds, 2 * workers)]
            while waiting:
                yield waiting.pop(0).result()
                if (seed := next(seeds, None)) is not None:
                    waiting.append(pool.submit(_run, seed))
        finally:
            pool.shutdown(cancel_futures=True)


def be_quiet() -> None:
    """Log nothing of what faults make of the controller."""
    logging.disable(logging.CRITICAL)


def _run(seed: int) -> RunResult:
    with _running:
        return run(seed)


def _begin(parent: int, server: str | None) -> None:
    be_quiet()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; the parent decides
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if server is not None:
        use_server(server)


def _end_with(parent: int) -> None:
    """End this process soon after its parent, which may have been killed; a run that is under way
    is finished, and leaves nothing behind."""
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    with _running:
        leave()
        os._exit(1)
