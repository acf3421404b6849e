"""Seeds by the dozen; ``make soak`` runs more."""

import json
import os
import subprocess
import sys

import pytest
from proving.swarm import databases
from proving.swarm.invariants.attempts import NoAttemptTwice, OneLiveAttempt
from proving.swarm.runner import run
from proving.swarm.scenario import SCENARIOS, load_scenario
from tests.databases import Server

from muster.control.agent.leases import LeaseBook

SEEDS = 60
"""Among them each deliberate bug is found that runs can show."""
ALWAYS, ALL = 30, 200
"""Seeds that ``make test`` and ``make test-all`` run."""
AT_ONCE = 5
_FIRSTS = [
    pytest.param(first, marks=pytest.mark.always if first < ALWAYS else pytest.mark.thorough)
    for first in range(0, ALL, AT_ONCE)
]


@pytest.mark.parametrize("first", _FIRSTS)
def test_no_seed_violates_an_invariant(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        result = run(seed)
        assert not result.violation, (
            f"seed {seed}: {result.violation}; shrink it: "
            f"`python -m proving.swarm --first {seed} --seeds 1`, "
            f"then run the file that it names for the story"
        )


@pytest.mark.parametrize("name", [path.stem for path in sorted(SCENARIOS.glob("*.yaml"))])
def test_what_was_found_once_stays_mended(name: str) -> None:
    path = SCENARIOS / f"{name}.yaml"
    scenario = load_scenario(path.read_text(), path.name)
    assert not run(scenario.seed, scenario.steps).violation


def test_same_seed_tells_the_same_story_in_another_process() -> None:
    stories = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", _STORY],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        stories.add(done.stdout)
    (story,) = stories
    assert len(json.loads(story)) > 100


_STORY = """
import json, logging
logging.disable(logging.CRITICAL)
from proving.swarm.runner import run
story = []
for seed in (1, 5):
    run(seed, tell=lambda moment, sentence: story.append((moment, sentence)))
print(json.dumps(story))
"""


@pytest.mark.parametrize("seed", range(3))
def test_no_seed_violates_an_invariant_on_postgresql(
    seed: int, postgresql: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "_used", [])
    databases.use_server(postgresql.url("postgres"))
    assert not run(seed).violation
    databases.leave()


def test_two_live_attempts_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of an agent that is only silent is begun elsewhere."""
    monkeypatch.setattr(LeaseBook, "revoke", lambda self, agent: True)
    judged = OneLiveAttempt, NoAttemptTwice
    assert any(run(seed, invariants=judged).violation for seed in range(SEEDS))
