"""The performer of hard reboots: whom it asks, what it tells, and what it never does."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.control.health.rebooters import OWN_BOOT, OWN_MACHINE, Rebooters, rebooting
from tests.control.pool.performing import HANGS_S, SECRET, throw
from tests.patience import until

from muster.autoscaling.standing import CreateOutcome
from muster.control.health.rebooting.effects import MachineRebooted
from muster.core.health.verdict import MAX_TOLD
from muster.core.ids import AgentId
from muster.providers.provider import ProviderError


@pytest.fixture
def rebooters(tmp_path: Path) -> Iterator[Rebooters]:
    with rebooting(tmp_path) as rebooters:
        yield rebooters


def test_machine_of_a_pool_is_rebooted_hard_by_its_provider(rebooters: Rebooters) -> None:
    effect = rebooters.machine("m1", pool="a")
    outcome = rebooters.outcome(effect)
    assert outcome == MachineRebooted(effect.incident, 1, done=True)
    assert rebooters.cloud.asked == [("a", "hard reboot", "i-m1")]


@pytest.mark.parametrize(
    ("raised", "done"),
    [
        (ProviderError(CreateOutcome.BAD_REQUEST, "no such machine"), False),
        (ProviderError(CreateOutcome.UNKNOWN, "the answer was lost"), None),
        (RuntimeError("the plug-in is broken"), None),
        (SystemExit("the plug-in ends the process"), None),
    ],
)
def test_failure_of_a_provider_is_told_and_doubt_is_not_taken_for_no(
    rebooters: Rebooters, raised: BaseException, done: bool | None
) -> None:
    effect = rebooters.machine("m1", pool="a")
    rebooters.cloud.answers["hard reboot"] = throw(raised)
    outcome = rebooters.outcome(effect)
    assert outcome.done is done
    assert outcome.error


def test_words_of_a_provider_are_bounded_and_without_secrets(rebooters: Rebooters) -> None:
    effect = rebooters.machine("m1", pool="a")
    words = f"{SECRET} \x1b[31m\n{'x' * 10_000}"
    rebooters.cloud.answers["hard reboot"] = throw(ValueError(words))
    outcome = rebooters.outcome(effect)
    assert SECRET not in outcome.error
    assert outcome.error.isprintable()
    assert len(outcome.error) <= MAX_TOLD


def test_machine_that_its_provider_has_not_told_of_is_not_rebooted(rebooters: Rebooters) -> None:
    effect = rebooters.machine("m1", pool="a", machines='[{"name": "m1"}]')
    outcome = rebooters.outcome(effect)
    assert (outcome.done, outcome.error) == (False, "its provider has not told of this machine")
    assert not rebooters.cloud.asked


def test_machine_of_no_pool_needs_a_command(rebooters: Rebooters) -> None:
    outcome = rebooters.outcome(rebooters.machine("m1"))
    assert outcome.done is False
    assert outcome.error == "it is of no pool, and health.yaml has no reboot_command"


def test_hanging_provider_delays_no_other_and_is_told_as_unknown(rebooters: Rebooters) -> None:
    hanging, other = rebooters.machine("m1", pool="a"), rebooters.machine("m2", pool="b")
    rebooters.use(call_s=HANGS_S)
    rebooters.cloud.shut_for("i-m1")
    rebooters.perform(hanging, other)
    first, second = rebooters.outcomes(2)
    assert first == MachineRebooted(other.incident, 1, done=True)
    assert (second.incident, second.done) == (hanging.incident, None)
    assert second.error == f"no answer within {HANGS_S:g} s"


def test_effect_that_comes_twice_reboots_once_and_is_answered_twice(rebooters: Rebooters) -> None:
    effect = rebooters.machine("m1", pool="a")
    first = rebooters.outcome(effect)
    assert rebooters.outcome(effect) == first
    assert rebooters.cloud.told("hard reboot") == ["i-m1"]


def test_effect_of_a_former_generation_does_nothing(rebooters: Rebooters) -> None:
    former, other = rebooters.machine("m1", pool="a"), rebooters.machine("m2", pool="b")
    rebooters.change(former, generation=2)
    rebooters.perform(former, other)
    (outcome,) = rebooters.outcomes(1)
    assert outcome.incident == other.incident
    rebooters.reported.clear()
    assert rebooters.outcome(replace(former, generation=2)).done is True
    assert rebooters.cloud.told("hard reboot") == ["i-m2", "i-m1"]


@pytest.mark.parametrize("status", ["VERIFYING", "HEALTHY", "ISOLATED", "GONE"])
def test_effect_of_an_incident_that_went_on_does_nothing(rebooters: Rebooters, status: str) -> None:
    late, other = rebooters.machine("m1", pool="a"), rebooters.machine("m2", pool="b")
    rebooters.change(late, status=status)
    rebooters.perform(late)
    rebooters.perform(other)
    rebooters.outcomes(1)
    assert rebooters.cloud.told("hard reboot") == ["i-m2"]


def test_machine_that_has_returned_already_is_not_rebooted_again(rebooters: Rebooters) -> None:
    effect = rebooters.machine("m1", pool="a")
    rebooters.return_(effect, "another-boot")
    assert rebooters.outcome(effect).done is True
    assert not rebooters.cloud.asked


def test_effect_of_an_unknown_or_removed_agent_does_nothing(rebooters: Rebooters) -> None:
    gone = rebooters.machine("m1", pool="a", status="REMOVED")
    unknown = replace(gone, agent=AgentId("ag-none"))
    other = rebooters.machine("m2", pool="b")
    rebooters.perform(gone, unknown, other)
    (outcome,) = rebooters.outcomes(1)
    assert outcome.incident == other.incident
    assert rebooters.cloud.told("hard reboot") == ["i-m2"]


@pytest.mark.parametrize(
    "columns", [{"boot_id": OWN_BOOT}, {"boot_id": "its former boot", "machine": OWN_MACHINE}]
)
@pytest.mark.parametrize("pool", [None, "a"])
def test_the_controllers_own_machine_is_never_rebooted(
    rebooters: Rebooters, pool: str | None, columns: dict[str, str], tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    rebooters.use("/bin/touch", str(ran))
    effect = rebooters.machine("m1", pool=pool, **columns)
    rebooters.change(effect, boot_id=columns["boot_id"])
    outcome = rebooters.outcome(effect)
    assert outcome.done is False
    assert "the controller's own machine" in outcome.error
    assert not rebooters.cloud.asked
    assert not ran.exists()


def test_part_of_the_controllers_machine_is_rebooted_by_its_provider_alone(
    rebooters: Rebooters, tmp_path: Path
) -> None:
    """A local pool's machines, or pods on the controller's node, are only processes there."""
    ran, part = tmp_path / "ran", f"{OWN_BOOT}/part"
    rebooters.use("/bin/touch", str(ran))
    of_pool = rebooters.machine("m1", pool="a", boot_id=part, machine=OWN_MACHINE)
    rebooters.change(of_pool, boot_id=part)
    assert rebooters.outcome(of_pool).done is True
    of_none = rebooters.machine("m2", boot_id=part)
    rebooters.change(of_none, boot_id=part)
    assert rebooters.outcome(of_none).done is False
    assert not ran.exists()


def test_reboots_begin_one_after_the_other(rebooters: Rebooters) -> None:
    rebooters.use(pace_s=0.1)
    effects = [rebooters.machine(f"m{number}", pool=f"p{number}") for number in range(4)]
    began_s = time.monotonic()
    rebooters.perform(*effects)
    rebooters.outcomes(4)
    assert time.monotonic() - began_s >= 0.3


def test_nothing_is_done_once_the_performer_is_closed(rebooters: Rebooters) -> None:
    rebooters.use(pace_s=30.0)
    first, second = rebooters.machine("m1", pool="a"), rebooters.machine("m2", pool="b")
    rebooters.perform(first, second)
    rebooters.outcomes(1)
    rebooters.close()
    rebooters.perform(second)
    until(lambda: len(rebooters.cloud.told("hard reboot")) == 1)
    assert len(rebooters.reported) == 1
