"""``python -m tests.simulate.swarm.mutants``: how good the simulator is at finding bugs.

Each deliberate bug of the catalogue is put into a copy of the package, and kept scenarios and then
seeds are run until one violates an invariant. A bug that none finds asks for a new invariant or a
new fault. The run that found a bug is noted in ``found.json``, and is the first one the next time:
so a list that was cut off is gone through quickly when it is begun again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

from tests.simulate.swarm.mutants.catalogue import MUTANTS
from tests.simulate.swarm.mutants.mutant import Mutant, copy_with
from tests.simulate.swarm.mutants.search import Finding

ROOT = Path(__file__).parents[4]
FOUND = Path(__file__).with_name("found.json")
SEEDS = 200
LIMIT_S = 6 * 3600.0
"""How long the seeds of one bug may take on the busiest machine."""


class SearchFailed(Exception):
    """No seed could be run with the bug: the copy cannot even be imported, say."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    began, findings = time.monotonic(), read_findings()
    chosen = sorted(_chosen(options), key=lambda mutant: mutant.name in findings)
    found, missed = 0, 0
    with ThreadPoolExecutor(options.workers) as pool:
        hunts = {
            pool.submit(hunt, mutant, options.seeds, findings.get(mutant.name)): mutant
            for mutant in chosen
        }
        for done in as_completed(hunts):
            mutant, finding = hunts[done], done.result()
            _say(mutant, finding)
            if finding is not None:
                findings[mutant.name] = finding
                _keep(findings)
            found += finding is not None
            missed += finding is None and not mutant.beyond
    beyond = len(chosen) - found - missed
    sys.stdout.write(
        f"{len(chosen)} bugs: {found} found, {beyond} beyond what runs can show, {missed} not "
        f"found within {options.seeds} seeds; {time.monotonic() - began:.0f} s\n"
    )
    return 1 if missed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulate.swarm.mutants", description=__doc__
    )
    parser.add_argument("names", nargs="*", help="only bugs whose names contain one of these")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"at most ({SEEDS})")
    parser.add_argument("--workers", type=int, default=2, help="bugs at a time (2)")
    parser.add_argument(
        "--beyond",
        action="store_true",
        help="also bugs that no run can show: is that still so? each takes all seeds",
    )
    return parser


def _chosen(options: argparse.Namespace) -> list[Mutant]:
    if options.names:
        return [each for each in MUTANTS if any(part in each.name for part in options.names)]
    return [each for each in MUTANTS if options.beyond or not each.beyond]


def read_findings() -> dict[str, Finding]:
    """By the names of the bugs: how each was found the last time."""
    return {name: Finding(**told) for name, told in json.loads(FOUND.read_text()).items()}


def _keep(findings: Mapping[str, Finding]) -> None:
    """Note the findings, in the order of the catalogue; those of bugs that it lost are dropped."""
    kept = {
        mutant.name: asdict(findings[mutant.name]) for mutant in MUTANTS if mutant.name in findings
    }
    aside = FOUND.with_suffix(".new")
    aside.write_text(f"{json.dumps(kept, indent=2)}\n")
    aside.replace(FOUND)


def hunt(mutant: Mutant | None, seeds: int, before: Finding | None = None) -> Finding | None:
    """The finding that shows the bug within so many seeds, if there is one.

    Args:
        before: how it was found the last time.

    Raises:
        SearchFailed: no seed could be run.
        ValueError: the bug's text is not in the package once.
    """
    with tempfile.TemporaryDirectory(prefix="muster-mutant-") as place:
        copy = copy_with(mutant, Path(place))
        first = () if before is None else (before.run,)
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulate.swarm.mutants.search", str(seeds), *first],
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
        run, result = finding.run, finding.invariant
    elif mutant.beyond:
        run, result = "beyond", mutant.beyond
    else:
        run, result = "NOT FOUND", f"though it breaks: {mutant.breaks}"
    sys.stdout.write(f"{mutant.name:58} {run:20} {result}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
