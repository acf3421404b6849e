"""The first run that violates an invariant, in whichever copy of the package is on the path."""

import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from proving.mutants.searcher import Finding
from proving.swarm.runner import RunResult, run
from proving.swarm.scenario import SCENARIOS, load_scenario

RUN_LIMIT_S = 60
"""The processor time that a run may take; it takes about a second."""


class _Endless(BaseException):
    """A run takes too long; nothing of Muster catches this."""


def _give_up(_signal: int, _frame: Any) -> None:
    raise _Endless


def search(seeds: int, first: Sequence[str] = ()) -> Finding | None:
    """Run the seeds from 0 on and the kept scenarios, until one shows a bug, or nobody waits for
    that any more.

    Args:
        first: the names of runs to begin with.
    """
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGPROF, _give_up)
    runs, parent = dict(_runs(seeds)), os.getppid()
    for name in (*(each for each in first if each in runs), *runs):
        if os.getppid() != parent:
            return None
        signal.setitimer(signal.ITIMER_PROF, RUN_LIMIT_S)
        try:
            violation = runs[name]().violation
        except _Endless:
            return Finding(
                name, "a run ends", f"it took more than {RUN_LIMIT_S} s of processor time"
            )
        except Exception as error:
            return Finding(name, "a run does not fail", repr(error))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if violation is not None:
            return Finding(name, violation.kind, str(violation))
    return None


def _runs(seeds: int) -> Iterator[tuple[str, Callable[[], RunResult]]]:
    for seed in range(seeds):
        yield f"seed {seed}", partial(run, seed)
    for path in sorted(SCENARIOS.glob("*.yaml")):
        scenario = load_scenario(path.read_text(), path.name)
        yield path.stem, partial(run, scenario.seed, scenario.steps)
