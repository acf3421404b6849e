"""Scenarios are files that a person can read, and a mistake in one is told with its line."""

import pytest
from proving.swarm.runner import draw_steps, run
from proving.swarm.scenario import InvalidScenario, Scenario, load_scenario
from proving.swarm.steps import Step


@pytest.mark.parametrize("seed", range(5))
def test_drawn_steps_come_back_from_a_file_as_they_were(seed: int) -> None:
    scenario = Scenario(seed, draw_steps(seed), "any run")
    assert load_scenario(scenario.dump(), "a.yaml") == scenario


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ("- wait: {seconds: 1}\n- explode: {}", "a.yaml:4: there is no step 'explode'; there are"),
        ("- wait: {minutes: 1}", "a.yaml:3: wait: minutes: Extra inputs are not permitted"),
        ("- wait: {seconds: soon}", "a.yaml:3: wait: seconds: Input should be a valid number"),
        ("- wait: {seconds: -1}", "a.yaml:3: wait: seconds: Input should be greater than or equal"),
        (
            "- submit: {number: 0, spec: {}, user: 0, runs: {second: 3}}",
            "a.yaml:3: submit: runs.second: Unexpected keyword argument",
        ),
        ("- poison: {kind: arsenic}", "a.yaml:3: poison: kind: Input should be 'a defect' or"),
        ("- kill_supervisor: {}", "a.yaml:3: kill_supervisor: agent: Field required"),
        ("- wait: 1", "a.yaml:3: expected parameters of wait by name, found 1"),
        (
            "- wait: {seconds: 1}\n  cancel: {submission: 1}",
            "a.yaml:3: expected the name of one step",
        ),
        ("- 17", "a.yaml:3: expected the name of one step"),
    ],
)
def test_step_that_cannot_be_carried_out_is_told_with_its_line(steps: str, said: str) -> None:
    with pytest.raises(InvalidScenario) as refused:
        load_scenario(f"seed: 1\nsteps:\n{steps}\n", "a.yaml")
    assert said in str(refused.value)


@pytest.mark.parametrize("text", ["", "steps: 1", "seed: x\nsteps: []", "[" * 5000, "a\x00"])
def test_file_that_is_no_scenario_is_refused(text: str) -> None:
    with pytest.raises(InvalidScenario, match=r"a\.yaml: "):
        load_scenario(text, "a.yaml")


@pytest.mark.parametrize(("text", "line"), [("steps: [", 1), ("seed: 1\nsteps:\n- a: b: c", 3)])
def test_file_that_is_not_yaml_is_refused_with_its_line_in_one_sentence(
    text: str, line: int
) -> None:
    with pytest.raises(InvalidScenario) as refused:
        load_scenario(text, "a.yaml")
    assert str(refused.value).startswith(f"a.yaml:{line}: not readable as YAML: ")
    assert "\n" not in str(refused.value)


def test_kernels_of_a_scenario_run_as_it_says() -> None:
    spec = {"command": ["x"], "resources": {"cpu": 1}}
    runs = {"seconds": 7.5, "exit_code": 3}
    told: list[str] = []
    run(
        1,
        [
            Step("submit", {"number": 0, "spec": spec, "user": 0, "runs": runs}),
            Step("wait", {"seconds": 9}),
        ],
        tell=lambda moment, sentence: told.append(f"{moment:.1f} {sentence}"),
    )
    assert any(line.startswith("8.5 ") and "EXITED, exit code 3" in line for line in told)
