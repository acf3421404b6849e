"""Scenarios: runs that are kept as files, so that a defect that was found once is found again if it
returns.

A file is YAML: ``seed`` (of chance), ``about`` (a sentence), and ``steps``, each of them a mapping
of one name to its parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from muster.core.errors import MusterError
from muster.simulate.cluster_file import read_text
from proving.swarm.runner import KINDS
from proving.swarm.steps import Step

SCENARIOS = Path(__file__).with_name("scenarios")
"""The kept ones: runs by which defects were found, shrunk."""


class InvalidScenario(MusterError):
    """A scenario cannot be run; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run: its steps, and the seed of what is left to chance."""

    seed: int
    steps: Sequence[Step]
    about: str = ""

    def dump(self) -> str:
        """The text of its file."""
        steps = [{step.name: dict(step.params)} for step in self.steps]
        content = {"seed": self.seed, "about": self.about, "steps": steps}
        return yaml.safe_dump(content, sort_keys=False, width=100)


def read_scenario(path: Path) -> Scenario:
    """
    Raises:
        MusterError: the file cannot be read, or is no scenario.
    """
    return load_scenario(read_text(path), str(path))


def load_scenario(text: str, name: str) -> Scenario:
    """
    Args:
        name: of the file, for errors.

    Raises:
        InvalidScenario: it is no scenario, or a step is of no known kind.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InvalidScenario(_unreadable(name, error)) from error
    if not isinstance(content, dict) or not isinstance(content.get("steps"), list):
        raise InvalidScenario(f"{name}: expected a mapping with seed and steps")
    seed = content.get("seed", 0)
    if not isinstance(seed, int):
        raise InvalidScenario(f"{name}: seed: expected a number, found {seed!r}")
    lines = _lines_of_steps(root)
    steps = [
        _step(each, f"{name}:{line}") for each, line in zip(content["steps"], lines, strict=True)
    ]
    return Scenario(seed, steps, str(content.get("about", "")))


def _unreadable(name: str, error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"{name}:{mark.line + 1}" if mark is not None else name
    why = getattr(error, "problem", None) or str(error) or "too deep"
    return f"{where}: not readable as YAML: {' '.join(why.split())}"


def _lines_of_steps(root: Any) -> list[int]:
    for key, value in root.value:
        if key.value == "steps":
            return [each.start_mark.line + 1 for each in value.value]
    raise AssertionError("it has steps")


def _step(found: object, where: str) -> Step:
    if not isinstance(found, dict) or len(found) != 1:
        raise InvalidScenario(f"{where}: expected the name of one step with its parameters")
    ((name, params),) = found.items()
    if not isinstance(params, dict | None):
        raise InvalidScenario(f"{where}: expected parameters of {name} by name, found {params!r}")
    step = Step(str(name), params or {})
    if (wrong := KINDS.wrong(step)) is not None:
        raise InvalidScenario(f"{where}: {wrong}")
    return step
