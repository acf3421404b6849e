"""A machine that is lost while peers of its task fail: the machine is to blame, by one budget."""

from functools import partial

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.recovery.clinic import Clinic, clinic
from tests.databases import ON_BOTH

from muster.core.reasons import ReasonCode
from muster.core.states import JobState, TaskState
from muster.core.states.recovery import RecoveryStatus
from muster.store.records import Job

pytestmark = ON_BOTH

R = RecoveryStatus
LOST_WITHIN_S = 400.0
"""Longer than the lease of an agent that fell silent, much shorter than the wait for a check."""


def breaks_under(here: Clinic, job: Job, attempt: int, *, reboots: bool = False) -> str:
    """Have the machine of task 1 fall silent, and task 0 fail two seconds later on the connection
    that broke; the machine's name."""
    here.run_until(lambda: job.counts.get(TaskState.RUNNING) == 2)
    machine = here.world.agent(here.ran_on[1, attempt])
    here.world.disconnect(machine)
    here.run(2.0)
    peer = here.world.agent(here.ran_on[0, attempt])
    for key, kernel in peer.running.items():
        if kernel.start.template.service is None:
            peer.supervisor.end_process(key, 1)
    here.run(1.0)
    if reboots:
        machine.reboot()
        here.world.connect(machine)
    return machine.name


def charges(job: Job) -> list[tuple[int, int]]:
    """Failures and preemptions that each task was charged."""
    tasks = sorted(job.tasks.values(), key=lambda task: task.index)
    return [(task.failure_count, task.preemption_count) for task in tasks]


@pytest.mark.parametrize("reboots", [False, True])
def test_lost_machine_whose_peers_fail_costs_one_preemption_and_no_restart(
    worlds: MakeWorld, reboots: bool
) -> None:
    here = clinic(worlds, "abc", course=lambda index, attempt: Run(500.0))
    job = here.gang()
    recovery = here.recovery(job)
    breaks_under(here, job, 1, reboots=reboots)
    began = here.world.clock.now()
    assert recovery.status is (R.IN_PROGRESS if reboots else R.PENDING_HEALTHCHECK)
    here.run_until(lambda: (0, 2) in here.ran_on)
    assert here.world.clock.now() - began <= LOST_WITHIN_S
    assert (recovery.status, recovery.restarts) == (R.IN_PROGRESS, 0)
    assert charges(job) == [(0, 0), (0, 1)]
    (round_,) = recovery.kept
    assert round_.outcome is not None
    assert round_.outcome.code is ReasonCode.RECOVERY_MACHINE_LOST
    assert "a machine was lost" in round_.outcome.reason().sentence()
    assert here.ended(job) is JobState.SUCCEEDED


def test_four_lost_machines_do_not_fail_a_job_of_three_restarts(worlds: MakeWorld) -> None:
    here = clinic(worlds, "abcdef", course=lambda index, attempt: Run(500.0))
    job = here.gang(recovery={"max_restarts": 3})
    recovery = here.recovery(job)
    for attempt in range(1, 5):
        breaks_under(here, job, attempt)
        here.run_until(partial(here.ran_on.__contains__, (0, attempt + 1)), LOST_WITHIN_S)
    assert (recovery.rounds, recovery.restarts) == (4, 0)
    assert charges(job) == [(0, 0), (0, 4)]
    assert here.ended(job) is JobState.SUCCEEDED
