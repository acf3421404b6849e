"""The deliberate bugs are ones that the code could have, and runs find bugs in a copy of it."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from proving.mutants import __main__
from proving.mutants.__main__ import hunt, main
from proving.mutants.catalogue import MUTANTS
from proving.mutants.mutant import PACKAGE, Mutant, copy_with
from proving.swarm.scenario import SCENARIOS

CHEAP = "the number of an attempt is used again"
"""Found by one of the first seeds."""
FIRST_SEEDS = 5


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_text_of_a_bug_is_in_the_code_once_and_its_replacement_is_code(mutant: Mutant) -> None:
    mutated = mutant.mutated()
    assert mutated != (PACKAGE / mutant.file).read_text()
    ast.parse(mutated)


def test_bugs_are_told_apart_by_their_names() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 25


def test_scenarios_of_bugs_are_kept() -> None:
    named = {mutant.scenario for mutant in MUTANTS if mutant.scenario}
    assert named <= {path.stem for path in SCENARIOS.glob("*.yaml")}


def test_copy_has_the_bug_and_the_package_has_not(tmp_path: Path) -> None:
    mutant = next(each for each in MUTANTS if each.name == CHEAP)
    before = (PACKAGE / mutant.file).read_bytes()
    copy = copy_with(mutant, tmp_path)
    assert mutant.text not in (copy / "muster" / mutant.file).read_text()
    assert (PACKAGE / mutant.file).read_bytes() == before


def test_text_that_is_no_longer_there_is_told_with_the_bug_and_the_file() -> None:
    mutant = Mutant("a bug of old", "control/plane.py", "what was there once", "", "a promise")
    with pytest.raises(ValueError, match=r"a bug of old: .* 0 times in control/plane\.py"):
        mutant.mutated()


def test_seeds_find_a_bug_in_a_copy_and_nothing_in_the_code_itself() -> None:
    mutant = next(each for each in MUTANTS if each.name == CHEAP)
    found = hunt(mutant, FIRST_SEEDS)
    assert found is not None
    assert hunt(None, 1) is None


def test_program_fails_for_a_bug_that_it_does_not_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "found.json").write_text("{}")
    monkeypatch.setattr(__main__, "FOUND", tmp_path / "found.json")
    known = next(each for each in MUTANTS if each.name == CHEAP)
    harmless = replace(known, name="no bug", replacement=f"{known.text}            # as before\n")
    monkeypatch.setattr(__main__, "MUTANTS", (harmless,))
    assert main(["--seeds", "0"]) == 1
    assert "1 not found within 0 seeds" in capsys.readouterr().out


def test_bug_that_its_scenario_does_not_show_is_found_by_luck_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "found.json").write_text("{}")
    monkeypatch.setattr(__main__, "FOUND", tmp_path / "found.json")
    known = next(each for each in MUTANTS if each.name == CHEAP)
    monkeypatch.setattr(__main__, "MUTANTS", (replace(known, scenario="end_told_twice"),))
    assert main(["--seeds", str(FIRST_SEEDS)]) == 1
    assert "and not by end_told_twice" in capsys.readouterr().out


def test_scenario_of_a_bug_shows_it_before_all_seeds() -> None:
    mutant = next(each for each in MUTANTS if each.name == "the generation of reports is ignored")
    found = hunt(mutant, 0)
    assert found is not None
    assert found.run == mutant.scenario
