"""Every invariant finds what it is there for: with a bug put into the product, or the world."""

import pytest
from proving.swarm.judge import Invariant
from proving.swarm.runner import INVARIANTS, run
from tests.proving.swarm.bugs import (
    of_deployments,
    of_health,
    of_invariants,
    of_oracle,
    of_pairs,
    of_pools,
)
from tests.proving.swarm.bugs.registry import BUGS, Break

SEEDS = 60


@pytest.mark.parametrize(
    ("invariant", "bug", "first"),
    BUGS,
    ids=[f"{each.__name__}-{bug.__name__}" for each, bug, _ in BUGS],
)
def test_bug_is_found_by_the_invariant_that_is_there_for_it(
    invariant: type[Invariant], bug: Break, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    seeds = range(first, first + SEEDS)
    assert any(run(seed, invariants=[invariant]).violation for seed in seeds)


def test_no_invariant_is_without_a_bug_that_it_finds() -> None:
    modules = {each.__module__ for _, each, _ in BUGS}
    declaring = (of_deployments, of_health, of_invariants, of_oracle, of_pairs, of_pools)
    assert modules == {each.__name__ for each in declaring}
    assert {*INVARIANTS} == {invariant for invariant, *_ in BUGS}
