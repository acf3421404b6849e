"""Machines that are deleted or lost while they are merely checked: nothing was found on them, so
each counts as a lost machine."""

from typing import Any

import pytest
from tests.control.conftest import MakeWorld
from tests.control.recovery.clinic import FAULTY, Clinic, clinic, fails
from tests.databases import ON_BOTH

from muster.control.agent.lifecycle import AgentLifecycle
from muster.control.recovery.rounds import AgentResult
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_agents import AgentRemoved
from muster.core.states import JobState, TaskState
from muster.core.states.recovery import RecoveryStatus

pytestmark = ON_BOTH

R = RecoveryStatus
STRICT = {"replace": False}


def removed(here: Clinic, name: str) -> None:
    agent = here.world.plane.live.agents[here.world.agent(name).id]
    here.world.disconnect(here.world.agent(name))
    why = AgentRemoved(by="root")
    here.world.ask(lambda work, parts: parts[AgentLifecycle].remove(work, agent, "Test", why))


@pytest.mark.parametrize("recovery_keys", [{}, STRICT], ids=["replace", "no replace"])
@pytest.mark.parametrize("keys", [{}, {"tasks": 2, "coscheduled": True}], ids=["task", "gang"])
def test_machine_that_is_deleted_while_it_is_checked_is_a_lost_machine(
    worlds: MakeWorld, keys: dict[str, Any], recovery_keys: dict[str, Any]
) -> None:
    here = clinic(worlds, "abc", fails((0, 1)))
    job = here.job(**keys, recovery=recovery_keys or True)
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_HEALTHCHECK)
    here.run(2.0)
    removed(here, "a")
    tasks = [*job.tasks.values()]
    assert here.ended(job) is JobState.SUCCEEDED
    charged = [(each.failure_count, each.preemption_count) for each in tasks]
    assert charged == [(0, 1), (0, 0)][: len(tasks)]
    assert recovery.restarts == 0
    round_ = recovery.kept[0]
    assert round_.agents[0].result is AgentResult.LOST
    assert round_.outcome is not None
    assert round_.outcome.code is ReasonCode.RECOVERY_MACHINE_GONE


def test_machine_that_falls_silent_while_it_is_checked_is_a_lost_machine(
    worlds: MakeWorld,
) -> None:
    here = clinic(worlds, "abc", fails((0, 1)), kernel_lease=60.0)
    job = here.job(recovery=STRICT)
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_HEALTHCHECK)
    here.run(2.0)
    here.world.disconnect(here.world.agent("a"))
    silent_since = here.world.clock.now()
    here.until(recovery, R.IN_PROGRESS)
    assert here.world.clock.now() - silent_since <= 100.0
    assert here.ended(job) is JobState.SUCCEEDED
    assert recovery.restarts == 0


def test_lost_machine_without_a_try_left_ends_the_job(worlds: MakeWorld) -> None:
    here = clinic(worlds, "abc", fails((0, 1)))
    job = here.job(max_retries_preemption=0)
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_HEALTHCHECK)
    here.run(2.0)
    removed(here, "a")
    assert here.ended(job) is JobState.FAILED
    assert job.counts[TaskState.WORKER_FAILED] == 1
    assert job.reason is not None
    assert job.reason.code is ReasonCode.TASK_LOST
    assert recovery.status is R.FAILED


def test_machine_that_is_deleted_once_it_was_found_faulty_was_at_fault(
    worlds: MakeWorld,
) -> None:
    here = clinic(worlds, "abc", fails((0, 1)), checks={"a": [FAULTY]})
    job = here.job()
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_RESTART)
    removed(here, "a")
    tasks = [*job.tasks.values()]
    assert here.ended(job) is JobState.SUCCEEDED
    assert [(each.failure_count, each.preemption_count) for each in tasks] == [(0, 0)]
    assert recovery.restarts == 1
    assert recovery.kept[0].agents[0].result is AgentResult.GONE


def test_gang_whose_one_machine_is_faulty_waits_for_no_lost_one(worlds: MakeWorld) -> None:
    here = clinic(worlds, "abcd", fails((0, 1)), checks={"b": [FAULTY]})
    job = here.gang(recovery=STRICT)
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_HEALTHCHECK)
    here.run(2.0)
    removed(here, "a")
    assert here.ended(job) is JobState.SUCCEEDED
    assert recovery.restarts == 1
