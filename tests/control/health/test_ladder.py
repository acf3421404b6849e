"""The health ladder: the next step of a machine, and who has a turn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.control.health.ladder import (
    Bounds,
    Heal,
    Progress,
    Step,
    Wish,
    after_check,
    after_failed_heal,
    heal,
    many_unknown,
    turns,
)
from muster.core.health.remedy import Remedy
from muster.core.health.verdict import CheckResult
from muster.core.states.health import HEALTH_TABLE, HealthStatus

ALL = frozenset(Heal)
BOUNDS = Bounds(rounds=3, unknowns=2)
ISOLATED = Step(HealthStatus.ISOLATED)
REBOOT = Step(HealthStatus.REBOOTING, Heal.REBOOT)
HARD = Step(HealthStatus.REBOOTING, Heal.HARD_REBOOT)
RESET = Step(HealthStatus.RESETTING, Heal.RESET)


@pytest.mark.parametrize(
    ("progress", "means", "step"),
    [
        pytest.param(Progress(), ALL, REBOOT, id="a fault without a known remedy: reboot"),
        pytest.param(Progress(remedy=Remedy.RESET), ALL, RESET, id="a reset where that helps"),
        pytest.param(Progress(remedy=Remedy.RESET), {Heal.REBOOT}, REBOOT, id="it cannot reset"),
        pytest.param(Progress(remedy=Remedy.OPERATOR), ALL, ISOLATED, id="it takes a person"),
        pytest.param(Progress(), frozenset(), ISOLATED, id="nothing can be done"),
        pytest.param(Progress(1, 0, Heal.RESET, Remedy.RESET), ALL, REBOOT, id="reset in vain"),
        pytest.param(Progress(1, 0, Heal.REBOOT), ALL, HARD, id="rebooted in vain"),
        pytest.param(Progress(2, 0, Heal.HARD_REBOOT), ALL, HARD, id="the strongest again"),
        pytest.param(Progress(1, 0, Heal.REBOOT), {Heal.REBOOT}, REBOOT, id="the only one again"),
        pytest.param(Progress(3, 0, Heal.HARD_REBOOT), ALL, ISOLATED, id="rounds are used up"),
    ],
)
def test_heals_escalate_and_end(progress: Progress, means: frozenset[Heal], step: Step) -> None:
    assert heal(progress, means, BOUNDS) == step


@pytest.mark.parametrize(
    ("result", "progress", "step"),
    [
        (CheckResult.HEALTHY, Progress(2, 0, Heal.REBOOT), Step(HealthStatus.HEALTHY)),
        (CheckResult.FAULTY, Progress(), REBOOT),
        (CheckResult.UNKNOWN, Progress(unknowns=1), Step(HealthStatus.SUSPECT)),
        (CheckResult.UNKNOWN, Progress(unknowns=2), REBOOT),
    ],
)
def test_a_verdict_has_one_next_step(result: CheckResult, progress: Progress, step: Step) -> None:
    assert after_check(result, progress, ALL, BOUNDS) == step


@pytest.mark.parametrize(
    ("progress", "means", "step"),
    [
        (Progress(1, 0, Heal.RESET), ALL, REBOOT),
        (Progress(1, 0, Heal.REBOOT), ALL, HARD),
        (Progress(1, 0, Heal.REBOOT), {Heal.RESET, Heal.REBOOT}, ISOLATED),
        (Progress(1, 0, Heal.HARD_REBOOT), ALL, ISOLATED),
        (Progress(3, 0, Heal.RESET), ALL, ISOLATED),
    ],
)
def test_a_failed_heal_is_followed_by_a_stronger_one(
    progress: Progress, means: frozenset[Heal], step: Step
) -> None:
    assert after_failed_heal(progress, means, BOUNDS) == step


@given(
    st.lists(st.tuples(st.sampled_from(CheckResult), st.sampled_from(Remedy)), max_size=60),
    st.frozensets(st.sampled_from(Heal)),
    st.integers(0, 5),
    st.integers(1, 4),
)
def test_no_machine_is_healed_without_end(
    said: list[tuple[CheckResult, Remedy]], means: frozenset[Heal], rounds: int, unknowns: int
) -> None:
    bounds, progress, heals = Bounds(rounds, unknowns), Progress(), 0
    for result, remedy in said:
        in_a_row = progress.unknowns + 1 if result is CheckResult.UNKNOWN else 0
        progress = Progress(progress.rounds, in_a_row, progress.last, remedy)
        step = after_check(result, progress, means, bounds)
        if step.heal is None:
            assert step.status in HEALTH_TABLE.live | {HealthStatus.HEALTHY}
            if step.status is not HealthStatus.SUSPECT:
                break
            assert result is CheckResult.UNKNOWN
            continue
        assert step.heal in means
        assert result is not CheckResult.HEALTHY
        heals += 1
        progress = Progress(progress.rounds + 1, 0, step.heal, remedy)
    assert heals <= rounds


def test_confirmed_faults_have_the_first_turns() -> None:
    wishes = [Wish("old", False, 1.0), Wish("new", True, 3.0), Wish("older", False, 0.0)]
    assert turns(wishes, out=0, machines=10, share=0.2) == ["new", "older"]


@given(
    st.lists(st.tuples(st.booleans(), st.floats(0, 9)), max_size=50),
    st.integers(0, 50),
    st.integers(1, 50),
    st.floats(0.01, 1),
)
def test_a_wrong_check_does_not_take_the_cluster_away(
    wishes: list[tuple[bool, float]], out: int, machines: int, share: float
) -> None:
    made = [Wish(str(index), *each) for index, each in enumerate(wishes)]
    have = turns(made, out, machines, share)
    assert len(have) + out <= max(1, out, int(share * machines))
    if made and not out:
        assert have, "one machine at least"


@pytest.mark.parametrize(
    ("unknown", "machines", "many"), [(1, 1, False), (2, 10, False), (3, 10, True), (2, 3, True)]
)
def test_many_unknowns_at_once_speak_against_the_check(
    unknown: int, machines: int, many: bool
) -> None:
    assert many_unknown(unknown, machines) is many
