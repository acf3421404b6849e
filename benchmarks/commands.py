"""Commands as a person or a script types them, beside the start of Python itself.

Each command is a process of its own, from its start to its end, and runs in turns with
``python -c pass``: machines change their speed by the minute, which does not change the ratio of
two that run one after the other.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.cluster import one_agent_cluster
from benchmarks.results import Figure, MeaninglessFigures, Results, Samples

TITLE = "Commands, as ratios to the start of Python"
LIMIT_S = 60.0
_PYTHON = (sys.executable, "-c", "pass")
# As the script that pip installs, whichever Muster is installed.
_MUSTER = (sys.executable, "-c", "from muster.cli.main import main; main()")
_JOB = "x"


@dataclass(frozen=True, slots=True)
class Command:
    """The words after ``muster``, and the most that the command should take, in starts of
    Python."""

    words: Sequence[str]
    goal: float | None = None


COMMANDS: Mapping[str, Command] = {
    "version": Command(["--version"], 4),
    "help": Command(["--help"]),
    "ps": Command(["ps"], 7),
    "run": Command(["run", "--", "true"], 10),
    "ps_all": Command(["ps", "--all"]),
    "why": Command(["why", _JOB]),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How often each command runs."""

    rounds: int


FULL, SHORT = Plan(31), Plan(7)


def measure(plan: Plan) -> Results:
    """
    Raises:
        MusterError: the cluster does not start, or does not stop.
        MeaninglessFigures: a command failed.
    """
    samples = Samples()
    with one_agent_cluster() as cluster:
        # Modules are compiled once, and not with every command.
        environment = os.environ | {"MUSTER_HOME": str(cluster.home.path)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        job = cluster.client.submit(name=_JOB, command=["true"])
        cluster.client.wait(job.id, timeout_s=LIMIT_S)
        for command in COMMANDS.values():
            _run([*_MUSTER, *command.words], environment)
        for _ in range(plan.rounds):
            for name, command in COMMANDS.items():
                took_s = _run([*_MUSTER, *command.words], environment)
                floor_s = _run(_PYTHON, environment)
                samples.add(name, took_s / floor_s)
                samples.add(f"{name}_ms", took_s * 1e3)
                samples.add("python_ms", floor_s * 1e3)
    return Results(plan.rounds, [*_figures(samples)])


def _figures(samples: Samples) -> list[Figure]:
    found = [Figure("python_ms", samples.median("python_ms"), "python -c pass")]
    for name, command in COMMANDS.items():
        took_ms = samples.median(f"{name}_ms")
        meaning = (
            f"starts of Python that `muster {' '.join(command.words)}` takes: {took_ms:.0f} ms"
        )
        goal = "" if command.goal is None else f"≤ {command.goal:g}"
        found.append(Figure(name, samples.median(name), meaning, goal))
    return found


def _run(words: Sequence[str], environment: Mapping[str, str]) -> float:
    """The seconds that a process takes from its start to its end.

    Raises:
        MeaninglessFigures: it failed.
    """
    began_s = time.perf_counter()
    ran = subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    took_s = time.perf_counter() - began_s
    if ran.returncode:
        raise MeaninglessFigures(f"{words[-1]} failed: {ran.stderr[-300:]}")
    return took_s
