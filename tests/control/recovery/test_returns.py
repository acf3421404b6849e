"""A restart returns to machines that were healed and verified, and to no others."""

from typing import Any

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.recovery.clinic import CHECK_S, FAULTY, UNKNOWN, Clinic, clinic, fails
from tests.control.recovery_scenarios import isolated
from tests.databases import ON_BOTH

from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.health.lifecycle import IncidentLifecycle
from muster.control.recovery.rounds import AgentResult
from muster.core.health.service import ServiceName
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_health import HealthAsked
from muster.core.states import JobState
from muster.core.states.recovery import RecoveryStatus

pytestmark = ON_BOTH

R = RecoveryStatus
ONE_TURN = {"max_unhealthy": 0.2}
KINDS = pytest.mark.parametrize(
    "keys",
    [
        pytest.param({}, id="a task"),
        pytest.param({"tasks": 2, "coscheduled": True}, id="a gang"),
        pytest.param({"tasks": 2}, id="a sweep"),
    ],
)


def has_the_only_turn(here: Clinic, name: str) -> None:
    """The check of a machine takes for ever, for which it keeps the group's turn."""
    here.check_s = 1e6
    agent = here.world.plane.live.agents[here.world.agent(name).id]
    why = HealthAsked(by="root")

    def check(work: Work, parts: Parts) -> None:
        parts[IncidentLifecycle].check(work, agent, "Request", why)

    here.world.ask(check)
    here.run(1.0)
    here.check_s = CHECK_S


@KINDS
def test_restart_returns_to_a_machine_that_is_healed_beside_an_isolated_one(
    worlds: MakeWorld, keys: dict[str, Any]
) -> None:
    here = clinic(worlds, "abcd", fails((0, 1)), checks={"a": [FAULTY]}, health=ONE_TURN)
    isolated(here.world, "d")
    job = here.job(**keys)
    recovery = here.recovery(job)
    assert here.ended(job) is JobState.SUCCEEDED
    assert here.served.count(("a", ServiceName.REBOOT)) == 1
    assert here.ran_on[0, 2] == "a"
    assert recovery.restarts == 1
    assert here.world.clock.now() - recovery.created_at < 200.0


@KINDS
def test_restart_takes_another_machine_at_once_for_one_that_waits_for_its_turn(
    worlds: MakeWorld, keys: dict[str, Any]
) -> None:
    here = clinic(worlds, "abcd", fails((0, 1)), checks={"a": [FAULTY]}, health=ONE_TURN)
    has_the_only_turn(here, "d")
    job = here.job(**keys)
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_HEALTHCHECK)
    failed_at = recovery.status_changed_at
    here.run_until(lambda: (0, 2) in here.ran_on)
    machines = {name for (_, attempt), name in here.ran_on.items() if attempt == 1}
    assert here.world.clock.now() - failed_at <= len(machines) * CHECK_S + 3.0  # one after another
    assert "a" not in {name for (_, attempt), name in here.ran_on.items() if attempt == 2}
    assert here.ended(job) is JobState.SUCCEEDED
    assert recovery.restarts == 1
    round_ = recovery.kept[0]
    assert AgentResult.WAITING in {each.result for each in round_.agents}


def test_restart_without_another_machine_waits_for_the_turn_of_its_own(
    worlds: MakeWorld,
) -> None:
    here = clinic(worlds, "ab", fails((0, 1)), checks={"a": [FAULTY]}, health=ONE_TURN)
    has_the_only_turn(here, "b")
    job = here.job(recovery={"replace": False, "return_timeout": 300})
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_RESTART)
    waits_since = here.world.clock.now()
    assert here.ended(job) is JobState.FAILED
    assert 299.0 <= here.world.clock.now() - waits_since <= 302.0
    assert set(here.ran_on) == {(0, 1)}
    assert recovery.reason is not None
    assert recovery.reason.code is ReasonCode.RECOVERY_NOT_RETURNED


def test_restart_prefers_no_machine_of_which_nothing_was_found_out(worlds: MakeWorld) -> None:
    """Its reboot is refused, so it takes work again as it is, and the task's own budget decides."""
    here = clinic(worlds, "abc", fails((0, 1)), checks={"a": [UNKNOWN] * 3})
    serve = here._serve

    def refusing(name: str, service: Any) -> Run:
        run = serve(name, service)
        return Run(1.0, exit_code=1) if service.name is ServiceName.REBOOT else run

    here._serve = refusing  # type: ignore[method-assign]
    job = here.job(placement={"agents": ["a"], "agents_only": False}, max_retries_failure=1)
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_RESTART)
    here.until(recovery, R.IN_PROGRESS)
    (round_,) = recovery.kept
    assert [each.result for each in round_.agents] == [AgentResult.UNCHECKED]
    assert round_.returned_to == ()
    assert here.ended(job) is JobState.SUCCEEDED
