"""Figures of many runs, and the file from which they go on after a stop."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.core.errors import MusterError
from proving.swarm.runner import RunResult


class UnusableState(MusterError):
    """The file does not tell where earlier runs stopped."""


@dataclass
class Figures:
    """The sums over all runs: ``wrote`` are the wakes that wrote something; ``seconds`` are of
    virtual time, ``processor_s`` of processor time, of which ``control_s`` passed within wakes, and
    ``took_s`` of the clock on the wall; ``violated`` are the seeds that violated an invariant."""

    runs: int = 0
    steps: int = 0
    wakes: int = 0
    wrote: int = 0
    seconds: float = 0.0
    processor_s: float = 0.0
    control_s: float = 0.0
    took_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    evaluated: Counter[str] = field(default_factory=Counter)
    violated: list[int] = field(default_factory=list)

    def add(self, result: RunResult) -> None:
        self.runs += 1
        self.steps += len(result.steps)
        self.wakes += result.wakes.count
        self.wrote += result.wakes.wrote
        self.control_s += result.wakes.processor_s
        self.processor_s += result.processor_s
        self.seconds += result.seconds
        self.faults += result.faults
        self.evaluated += result.evaluated
        if result.violation is not None:
            self.violated.append(result.seed)

    def __str__(self) -> str:
        faults = ", ".join(f"{name} {times}" for name, times in self.faults.most_common())
        judged = [f"{times:9} {says}" for says, times in self.evaluated.most_common()]
        return "\n".join(
            [
                self.summary,
                self.speed,
                f"{self.faults.total()} faults: {faults}",
                f"{len(self.evaluated)} invariants, and how often each was judged:",
                *judged,
            ]
        )

    @property
    def summary(self) -> str:
        seeds = ", ".join(map(str, self.violated))
        return (
            f"{self.runs} seeds, {self.steps} steps, {self.seconds / 3600:.1f} h of virtual time "
            f"in {self.took_s:.0f} s; violations: {len(self.violated)}"
            + (f" (seeds {seeds})" if seeds else "")
        )

    @property
    def speed(self) -> str:
        whole_ms = 1000 * self.processor_s / max(self.wakes, 1)
        control_ms = 1000 * self.control_s / max(self.wakes, 1)
        return (
            f"{self.wakes} wakes, of which {self.wrote} wrote: "
            f"{self.wakes / max(self.took_s, 1e-9):.0f}/s, {whole_ms:.2f} ms of processor time "
            f"each, {control_ms:.2f} ms of it in control"
        )


def save(path: Path, next_seed: int, figures: Figures) -> None:
    """Store where to go on: whole or not at all, whenever the process is killed."""
    aside = path.with_name(f"{path.name}.new")
    aside.write_text(json.dumps({"next": next_seed, "figures": vars(figures)}))
    aside.replace(path)


def load(path: Path) -> tuple[int, Figures]:
    """The seed to go on with, and the figures of those before it.

    Raises:
        UnusableState: the file is not from ``save``.
    """
    try:
        stored: dict[str, Any] = json.loads(path.read_text())
        figures = Figures(**stored["figures"])
        figures.faults, figures.evaluated = Counter(figures.faults), Counter(figures.evaluated)
        return int(stored["next"]), figures
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UnusableState(
            f"{path} does not tell where to go on ({error!r}): remove it to begin anew"
        ) from error
