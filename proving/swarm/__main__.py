"""``python -m proving.swarm``: run seeds, or a scenario; shrink and tell what fails."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from muster.core.errors import MusterError
from proving.swarm.databases import use_server
from proving.swarm.figures import Figures, load, save
from proving.swarm.runner import INVARIANTS, KINDS, RunResult, run
from proving.swarm.scenario import Scenario, read_scenario
from proving.swarm.shrink import shrink
from proving.swarm.steps import Step
from proving.swarm.workers import be_quiet, results

TOLD_EVERY_S = 60.0
"""How often the sums so far are told."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 if nothing is violated, 1 if something is, 2 if that was not found out."""
    options = _parser().parse_args(arguments)
    be_quiet()
    try:
        return _obey(options)
    except MusterError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        _say("stopped")
        return 130


def _obey(options: argparse.Namespace) -> int:
    """
    Raises:
        MusterError: the scenario, the server or the file of the state cannot be used.
    """
    if options.state is not None and not options.state.parent.is_dir():
        raise MusterError(f"cannot write {options.state}: there is no directory of it")
    if options.steps:
        _say("\n".join(KINDS.described()))
        return 0
    scenario = None if options.scenario is None else read_scenario(options.scenario)
    if options.server is not None:
        use_server(options.server)
    if scenario is not None:
        return _replay(scenario)
    figures = Figures()
    if options.resume and options.state is not None and options.state.exists():
        options.first, figures = load(options.state)
    try:
        _run(options, figures)
    except KeyboardInterrupt:
        _say("stopped")
    _say(str(figures))
    return 1 if figures.violated else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proving.swarm", description=__doc__)
    parser.add_argument("scenario", nargs="?", type=Path, help="a scenario's file, to be told")
    parser.add_argument("--steps", action="store_true", help="list the steps of scenarios")
    parser.add_argument("--first", type=_at_least(0), default=0, help="the first seed (0)")
    parser.add_argument("--seeds", type=_at_least(1), help="how many; without end unless given")
    parser.add_argument("--minutes", type=_at_least(0, float), help="stop after so long")
    parser.add_argument("--workers", type=_at_least(1), default=2, help="processes (2)")
    parser.add_argument("--keep", type=Path, default=Path(), help="where scenarios are kept")
    parser.add_argument("--state", type=Path, help="a file that holds the next seed and the sums")
    parser.add_argument("--resume", action="store_true", help="go on where --state stopped")
    parser.add_argument(
        "--bare", action="store_true", help="judge nothing, to see what the wakes alone cost"
    )
    parser.add_argument(
        "--server",
        metavar="URL",
        help="run on databases of its own on this PostgreSQL server, which are removed afterwards",
    )
    return parser


def _at_least(least: int, of: type[int | float] = int) -> Callable[[str], int | float]:
    """A reader of the number of an option, which is no less than ``least``."""

    def read(text: str) -> int | float:
        number = of(text)
        if not number >= least:  # NaN is not
            raise argparse.ArgumentTypeError(f"expected {least} or more, found {text}")
        return number

    read.__name__ = "number"  # in the words of argparse: invalid number value
    return read


def _run(options: argparse.Namespace, figures: Figures) -> None:
    """Run seeds until told to stop, and add to the figures."""
    first = options.first
    seeds = count(first) if options.seeds is None else iter(range(first, first + options.seeds))
    began, took_s = time.monotonic(), figures.took_s
    told_at = began
    judged = () if options.bare else INVARIANTS
    for result in results(seeds, options.workers, options.server, judged):
        figures.add(result)
        if result.violation:
            _report(result, options.keep)
        now = time.monotonic()
        figures.took_s = took_s + now - began
        if options.state is not None:
            save(options.state, result.seed + 1, figures)
        if now >= told_at + TOLD_EVERY_S:
            told_at = now
            _say(f"up to seed {result.seed}: {figures.summary}")
        if options.minutes is not None and now - began > options.minutes * 60:
            break


def _report(result: RunResult, keep: Path) -> None:
    """Shrink a failing run, keep it as a scenario, and tell its story."""
    kind = _kind_of(result)
    _say(f"seed {result.seed}: {kind}: {result.violation}")

    def fails(steps: Sequence[Step]) -> bool:
        return _kind_of(run(result.seed, steps)) == kind

    path = keep / f"seed-{result.seed}.yaml"
    keep.mkdir(parents=True, exist_ok=True)
    path.write_text(Scenario(result.seed, result.steps, str(result.violation)).dump())
    steps = shrink(result.steps, fails)
    path.write_text(Scenario(result.seed, steps, str(result.violation)).dump())
    _say(f"  {len(result.steps)} steps, of which {len(steps)} do: {path}")
    for step in steps:
        _say(f"    {step}")


def _kind_of(result: RunResult) -> str | None:
    return None if result.violation is None else result.violation.kind


def _replay(scenario: Scenario) -> int:
    result = run(scenario.seed, scenario.steps, tell=_tell)
    if result.violation is None:
        _say("no invariant is violated")
    return 1 if result.violation else 0


def _tell(moment: float, sentence: str) -> None:
    _say(f"{moment:10.3f} {sentence}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # who reads the story has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
