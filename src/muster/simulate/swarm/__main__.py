"""``python -m muster.simulate.swarm``: run seeds, or a scenario; shrink and tell what fails."""

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice
from pathlib import Path

from muster.simulate.swarm.runner import Outcome, run
from muster.simulate.swarm.scenario import InvalidScenario, Scenario, load_scenario
from muster.simulate.swarm.shrink import shrink
from muster.simulate.swarm.steps import Step


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    _be_quiet()
    if options.scenario is not None:
        return _replay(options.scenario)
    if options.resume and options.state is not None and options.state.exists():
        options.first = int(options.state.read_text())
    began, totals, violations = time.monotonic(), _Totals(), 0
    for outcome in _outcomes(options.first, options.seeds, options.workers):
        totals.add(outcome)
        if outcome.violation:
            violations += 1
            _report(outcome, options.keep)
        if options.state is not None:
            options.state.write_text(f"{outcome.seed + 1}\n")
        if options.minutes is not None and time.monotonic() - began > options.minutes * 60:
            break
    _say(totals.told(time.monotonic() - began, violations))
    return 1 if violations else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m muster.simulate.swarm", description=__doc__)
    parser.add_argument("scenario", nargs="?", type=Path, help="a scenario's file, to be told")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--seeds", type=int, help="how many; without end unless given")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--keep", type=Path, default=Path(), help="where scenarios are kept")
    parser.add_argument("--state", type=Path, help="a file that holds the next seed")
    parser.add_argument("--resume", action="store_true", help="begin with the seed in --state")
    return parser


def _be_quiet() -> None:
    """Log nothing of what faults make of the controller."""
    logging.disable(logging.CRITICAL)


def _outcomes(first: int, seeds: int | None, workers: int) -> Iterator[Outcome]:
    """The outcomes of the seeds, in order."""
    numbers = count(first) if seeds is None else iter(range(first, first + seeds))
    with ProcessPoolExecutor(workers, initializer=_be_quiet) as pool:
        waiting = [pool.submit(run, seed) for seed in islice(numbers, 2 * workers)]
        while waiting:
            yield waiting.pop(0).result()
            if (seed := next(numbers, None)) is not None:
                waiting.append(pool.submit(run, seed))


def _report(outcome: Outcome, keep: Path) -> None:
    """Shrink a failing run, keep it as a scenario, and tell its story."""
    kind = _kind_of(outcome)

    def fails(steps: Sequence[Step]) -> bool:
        return _kind_of(run(outcome.seed, steps)) == kind

    steps = shrink(outcome.steps, fails)
    path = keep / f"seed-{outcome.seed}.yaml"
    path.write_text(Scenario(outcome.seed, steps, str(outcome.violation)).dump())
    _say(f"seed {outcome.seed}: {outcome.violation}")
    _say(f"  {len(outcome.steps)} steps, of which {len(steps)} do: {path}")
    for step in steps:
        _say(f"    {step}")


def _kind_of(outcome: Outcome) -> str | None:
    return None if outcome.violation is None else outcome.violation.kind


def _replay(path: Path) -> int:
    try:
        scenario = load_scenario(path.read_text(), str(path))
    except (InvalidScenario, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    outcome = run(scenario.seed, scenario.steps, tell=_tell)
    _say(str(outcome.violation or "no invariant is violated"))
    return 1 if outcome.violation else 0


def _tell(moment: float, sentence: str) -> None:
    _say(f"{moment:10.3f} {sentence}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


class _Totals:
    def __init__(self) -> None:
        self.runs = self.wakes = self.steps = 0
        self.seconds = 0.0
        self.faults: Counter[str] = Counter()
        self.evaluated: Counter[str] = Counter()

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.wakes += outcome.wakes
        self.steps += len(outcome.steps)
        self.seconds += outcome.seconds
        self.faults += outcome.faults
        self.evaluated += outcome.evaluated

    def told(self, took_s: float, violations: int) -> str:
        return (
            f"{self.runs} seeds, {self.steps} steps, {self.seconds / 3600:.1f} h of virtual time "
            f"and {self.wakes} wakes in {took_s:.0f} s ({self.wakes / max(took_s, 1e-9):.0f}/s); "
            f"{violations} violations\n"
            f"faults: {', '.join(f'{name} {times}' for name, times in self.faults.most_common())}\n"
            f"invariants, and how often each was judged:\n"
            + "\n".join(f"{times:9} {says}" for says, times in self.evaluated.most_common())
        )


if __name__ == "__main__":
    sys.exit(main())
