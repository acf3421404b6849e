"""``python -m tests.simulate.swarm.mutants.search SEEDS [RUN]``: the first run that violates an
invariant, in whichever copy of the package is on the path: RUN, seeds, then kept scenarios."""

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from muster.simulate.swarm.runner import RunResult, run
from muster.simulate.swarm.scenario import load_scenario

SCENARIOS = Path(__file__).parents[1] / "scenarios"
RUN_LIMIT_S = 60
"""The processor time that a run may take; it takes about a second."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The proof of a bug: a run, the invariant that it violated, and how."""

    run: str
    invariant: str
    told: str


class _Endless(BaseException):
    """A run takes too long; nothing of Muster catches this."""


def _give_up(_signal: int, _frame: Any) -> None:
    raise _Endless


def search(seeds: int, first: str = "") -> Finding | None:
    """Run the seeds from 0 on and the kept scenarios, until one shows a bug, or nobody waits for
    that any more.

    Args:
        first: the name of the run to begin with.
    """
    runs, parent = dict(_runs(seeds)), os.getppid()
    for name in sorted(runs, key=lambda name: name != first):
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


def main() -> None:
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGPROF, _give_up)
    found = search(int(sys.argv[1]), *sys.argv[2:])
    sys.stdout.write(json.dumps(None if found is None else asdict(found)))


if __name__ == "__main__":
    main()
