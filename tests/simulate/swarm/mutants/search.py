"""``python -m tests.simulate.swarm.mutants.search SEEDS``: the first seed that violates an
invariant, in whichever copy of the package is on the path."""

import json
import logging
import signal
import sys
from dataclasses import asdict, dataclass
from typing import Any

from muster.simulate.swarm.runner import run

SEED_LIMIT_S = 60
"""How long a run may take; it takes about a second."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What showed the bug: a seed, the invariant that it violated, and how."""

    seed: int
    invariant: str
    told: str


class _Endless(BaseException):
    """A run takes too long; nothing of Muster catches this."""


def _give_up(_signal: int, _frame: Any) -> None:
    raise _Endless


def search(seeds: int) -> Finding | None:
    """Run the seeds from 0 on, until one shows a bug."""
    for seed in range(seeds):
        signal.alarm(SEED_LIMIT_S)
        try:
            violation = run(seed).violation
        except _Endless:
            return Finding(seed, "a run ends", f"it took longer than {SEED_LIMIT_S} s")
        except Exception as error:
            return Finding(seed, "a run does not fail", repr(error))
        finally:
            signal.alarm(0)
        if violation is not None:
            return Finding(seed, violation.kind, str(violation))
    return None


def main() -> None:
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGALRM, _give_up)
    found = search(int(sys.argv[1]))
    sys.stdout.write(json.dumps(None if found is None else asdict(found)))


if __name__ == "__main__":
    main()
