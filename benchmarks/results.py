"""Results of a benchmark: a table for people, a flat JSON file for programs."""

import json
import os
import platform
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil
from rich.console import Console
from rich.table import Table

DIRECTORY = Path(__file__).parent / "results"

Value = float | int | str | bool


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. ``goal`` is what it should be, ``meaning`` how it came about."""

    key: str
    value: Value
    meaning: str
    goal: str = ""

    @property
    def shown(self) -> str:
        if isinstance(self.value, bool) or not isinstance(self.value, float):
            return str(self.value)
        return f"{self.value:,.0f}" if abs(self.value) >= 1000 else f"{self.value:.3g}"


@dataclass(frozen=True, slots=True)
class Results:
    """Figures of one benchmark, each the median of ``runs`` unless its meaning says otherwise."""

    runs: int
    figures: Sequence[Figure]


@dataclass(frozen=True, slots=True)
class Samples:
    """The measured samples, by figure."""

    of: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, key: str, value: float) -> None:
        self.of[key].append(value)

    def median(self, key: str) -> float:
        return median(self.of[key])


class MeaninglessFigures(Exception):
    """A run in which something did not go as it should, so its figures would mean nothing."""


def machine() -> str:
    """The machine's properties on which figures depend, without its name."""
    memory_gib = psutil.virtual_memory().total / 2**30
    return (
        f"{len(os.sched_getaffinity(0))} × {_processor()}, {memory_gib:.0f} GiB, "
        f"{platform.system()} {platform.release().partition('-')[0]}, "
        f"Python {platform.python_version()}"
    )


def commit() -> str:
    """The commit that was measured, with "-dirty" if files differ from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def write(name: str, results: Results, *, short: bool, directory: Path = DIRECTORY) -> Path:
    """Keep the figures as ``<name>.json``; the file's path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    kept: dict[str, Value] = {
        "machine": machine(),
        "commit": commit(),
        "runs": results.runs,
        "short": short,
    }
    kept |= {figure.key: _rounded(figure.value) for figure in results.figures}
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
    return path


def show(console: Console, title: str, results: Results) -> None:
    table = Table(title=f"{title} ({results.runs} runs)", title_justify="left", title_style="bold")
    table.add_column("figure", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("goal", no_wrap=True)
    table.add_column("what it is")
    for figure in results.figures:
        table.add_row(figure.key, figure.shown, figure.goal, figure.meaning)
    console.print(table)


def _rounded(value: Value) -> Value:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return " ".join(value.split())
    return platform.machine()
