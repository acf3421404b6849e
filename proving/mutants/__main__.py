"""``python -m proving.mutants``: how good the proving ground is at finding bugs.

Each deliberate bug of the catalogue is put into a copy of the package, and kept scenarios and then
seeds are run until one violates an invariant. A bug that none finds asks for a new invariant or a
new fault. The run that found a bug is noted in ``found.json``, and is the first one the next time:
so a list that was cut off is gone through quickly when it is begun again.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from multiprocessing.connection import wait
from pathlib import Path

from proving.mutants.catalogue import MUTANTS
from proving.mutants.mutant import Mutant
from proving.mutants.searcher import SEARCH, Finding, Searcher, SearchFailed

FOUND = Path(__file__).with_name("found.json")
SEEDS = 200
LIMIT_S = 6 * 3600.0
"""How long the seeds of a bug may take on the busiest machine."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    import_module(SEARCH)  # and all that it imports, once for all searchers
    began, findings = time.monotonic(), read_findings()
    chosen = sorted(_chosen(options), key=lambda mutant: mutant.name in findings)
    found, missed = 0, 0
    for mutant, finding in _hunts(chosen, options.seeds, findings, options.workers):
        _say(mutant, finding)
        if finding is not None:
            findings[mutant.name] = finding
            _keep(findings)
        is_shown = finding is not None and mutant.scenario in ("", finding.run)
        found += is_shown
        missed += not (is_shown or mutant.beyond)
    beyond = len(chosen) - found - missed
    sys.stdout.write(
        f"{len(chosen)} bugs: {found} found, {beyond} beyond what runs can show, {missed} not "
        f"found within {options.seeds} seeds; {time.monotonic() - began:.0f} s\n"
    )
    return 1 if missed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proving.mutants", description=__doc__)
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
    return _searcher(mutant, seeds, before).finding()


def _searcher(mutant: Mutant | None, seeds: int, before: Finding | None) -> Searcher:
    first = "" if mutant is None else mutant.scenario, "" if before is None else before.run
    return Searcher(mutant, seeds, first)


def _hunts(
    mutants: Sequence[Mutant], seeds: int, findings: Mapping[str, Finding], workers: int
) -> Iterator[tuple[Mutant, Finding | None]]:
    """The bugs with their findings, in the order in which these come."""
    waiting = [*reversed(mutants)]
    running: dict[object, tuple[Mutant, Searcher]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                mutant = waiting.pop()
                searcher = _searcher(mutant, seeds, findings.get(mutant.name))
                running[searcher.answers] = mutant, searcher
            ready = wait([searcher.answers for _, searcher in running.values()], LIMIT_S)
            if not ready:
                raise SearchFailed(f"no search was over after {LIMIT_S:g} s")
            for answers in ready:
                mutant, searcher = running.pop(answers)
                yield mutant, searcher.finding()
    finally:
        for _, searcher in running.values():
            searcher.end()


def _say(mutant: Mutant, finding: Finding | None) -> None:
    if finding is not None and mutant.scenario not in ("", finding.run):
        run, result = finding.run, f"BY LUCK ALONE, and not by {mutant.scenario}, as it should"
    elif finding is not None:
        run, result = finding.run, finding.invariant
    elif mutant.beyond:
        run, result = "beyond", mutant.beyond
    else:
        run, result = "NOT FOUND", f"though it breaks: {mutant.breaks}"
    sys.stdout.write(f"{mutant.name:58} {run:20} {result}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
