"""``python -m tests.simulate.swarm.mutants``: how good the simulator is at finding bugs.

Each deliberate bug of the catalogue is put into a copy of the package, and kept scenarios and then
seeds are run until one violates an invariant. A bug that none finds asks for a new invariant or a
new fault.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.simulate.swarm.mutants.catalogue import MUTANTS
from tests.simulate.swarm.mutants.mutant import Mutant, copy_with
from tests.simulate.swarm.mutants.search import Finding

ROOT = Path(__file__).parents[4]
SEEDS = 200
LIMIT_S = 6 * 3600.0
"""How long the seeds of one bug may take on the busiest machine."""


class SearchFailed(Exception):
    """No seed could be run with the bug: the copy cannot even be imported, say."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    chosen = [each for each in MUTANTS if not options.names or _is_named(each, options.names)]
    began, found, missed = time.monotonic(), 0, 0
    with ThreadPoolExecutor(options.workers) as pool:
        for mutant, finding in zip(
            chosen, pool.map(partial(hunt, seeds=options.seeds), chosen), strict=True
        ):
            _say(mutant, finding)
            found += finding is not None
            missed += finding is None and not mutant.beyond
    took_s = time.monotonic() - began
    beyond = len(chosen) - found - missed
    sys.stdout.write(
        f"{len(chosen)} bugs: {found} found, {beyond} beyond what runs can show, {missed} not "
        f"found within {options.seeds} seeds; {took_s:.0f} s\n"
    )
    return 1 if missed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulate.swarm.mutants", description=__doc__
    )
    parser.add_argument("names", nargs="*", help="only bugs whose names contain one of these")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"at most ({SEEDS})")
    parser.add_argument("--workers", type=int, default=2, help="bugs at a time (2)")
    return parser


def _is_named(mutant: Mutant, parts: Sequence[str]) -> bool:
    return any(part in mutant.name for part in parts)


def hunt(mutant: Mutant | None, seeds: int) -> Finding | None:
    """The finding that shows the bug within so many seeds, if there is one.

    Raises:
        SearchFailed: no seed could be run.
        ValueError: the bug's text is not in the package once.
    """
    with tempfile.TemporaryDirectory(prefix="muster-mutant-") as place:
        copy = copy_with(mutant, Path(place))
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulate.swarm.mutants.search", str(seeds)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    if done.returncode:
        raise SearchFailed(done.stderr[-2000:])
    told = json.loads(done.stdout)
    return None if told is None else Finding(**told)


def _say(mutant: Mutant, finding: Finding | None) -> None:
    if finding is not None:
        outcome = f"{finding.run}: {finding.invariant}"
    elif mutant.beyond:
        outcome = f"beyond: {mutant.beyond}"
    else:
        outcome = f"NOT FOUND, though it breaks: {mutant.breaks}"
    sys.stdout.write(f"{mutant.name}\n    {outcome}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
