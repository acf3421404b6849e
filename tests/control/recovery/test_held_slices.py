"""Slices that a recovery waits for, or begins its tasks on again, are neither idle nor replaced."""

from typing import Any

from tests.control.conftest import MakeWorld
from tests.control.pool_scenarios import pool
from tests.control.recovery.clinic import FAULTY, Clinic, clinic, fails
from tests.control.world import ROOT

from muster.control.pool.explanation import explain_pool
from muster.control.pool.fleet import Fleet
from muster.control.pool.records import Slice
from muster.control.pool.requests import PoolRequests
from muster.control.session.cluster.state import ClusterState
from muster.core.reasons import ReasonCode
from muster.core.states import JobState
from muster.core.states.health import ILL, HealthStatus
from muster.core.states.recovery import RecoveryStatus

GPU_NODE = {"cpu": 8, "memory": "64GiB", "gpus": 1, "gpu_model": "H100"}


def with_pool(worlds: MakeWorld, **health: Any) -> Clinic:
    """A clinic whose machines are a pool's; idle ones go after five seconds."""
    here = clinic(worlds, names=(), course=fails((0, 1)), health=health)
    here.world.apply(pool("gpu", machine=GPU_NODE, max_slices=4, idle_timeout=5))
    here.run(1)
    return here


def has_fault(here: Clinic, times: int) -> str:
    """Have checks find the machine of the first task at fault so often; its name."""
    here.run_until(lambda: (0, 1) in here.ran_on)
    name = here.ran_on[0, 1]
    here.checks[name] = [FAULTY] * times
    return name


def stays(slice_: Slice) -> ReasonCode | None:
    return None if slice_.stays is None else slice_.stays.code


def slice_of(here: Clinic, name: str) -> Slice:
    return next(each for each in here.world.slices() if name in each.names)


def test_slices_of_a_recovering_gang_are_kept_while_its_other_machine_reboots(
    worlds: MakeWorld,
) -> None:
    here = with_pool(worlds)
    job = here.gang()
    faulty = has_fault(here, 1)
    here.until(here.recovery(job), RecoveryStatus.PENDING_RESTART)
    here.run(12)
    (other,) = [each for each in here.world.slices() if faulty not in each.names]
    assert other.doomed is None
    assert stays(other) is ReasonCode.SLICE_AWAITED
    assert other.stays is not None
    assert job.id in other.stays.sentence()
    assert here.ended(job) is JobState.SUCCEEDED
    assert here.world.farm.made.total() == 2
    here.run_until(lambda: not here.world.slices(), 100)


def test_slice_of_an_isolated_machine_is_kept_for_a_job_that_takes_no_other(
    worlds: MakeWorld,
) -> None:
    here = with_pool(worlds)
    job = here.job(recovery={"replace": False, "return_timeout": 600})
    faulty = has_fault(here, 20)
    recovery = here.recovery(job)
    here.until(recovery, RecoveryStatus.PENDING_RESTART)
    since = recovery.status_changed_at
    agent = next(each for each in here.world.plane.live.agents.values() if each.name == faulty)
    here.run_until(lambda: agent.ill == ILL[HealthStatus.ISOLATED])
    isolated = slice_of(here, faulty)
    here.run(100)
    assert not here.world.farm.deleted
    assert stays(isolated) is ReasonCode.SLICE_AWAITED
    assert here.ended(job) is JobState.FAILED
    assert here.world.clock.now() - since >= 600
    here.run(60)
    assert isolated.doomed is not None, "nobody waits for it any more"
    assert isolated.doomed.code is ReasonCode.HEALTH_REPLACED


def test_slice_of_an_isolated_machine_is_replaced_at_once_for_a_job_that_takes_another(
    worlds: MakeWorld,
) -> None:
    here = with_pool(worlds)
    job = here.job()
    faulty = has_fault(here, 20)
    assert here.ended(job) is JobState.SUCCEEDED
    assert here.ran_on[0, 2] != faulty
    assert here.world.farm.made.total() == 2


def test_pools_replace_leaves_what_a_recovery_waits_for_until_it_waits_no_longer(
    worlds: MakeWorld,
) -> None:
    here = with_pool(worlds)
    job = here.gang(recovery={"replace": False, "return_timeout": 600})
    faulty = has_fault(here, 1)
    here.never_return.add(faulty)
    recovery = here.recovery(job)
    here.until(recovery, RecoveryStatus.PENDING_RESTART)
    since = recovery.status_changed_at
    here.world.apply(pool("gpu", machine={**GPU_NODE, "cpu": 9}, max_slices=4, idle_timeout=5))
    here.world.ask(lambda work, parts: parts[PoolRequests].replace(work, ROOT, "gpu", 2))
    here.run(60)
    old = [each for each in here.world.slices() if each.revision == 1]
    assert [each.doomed for each in old] == [None, None]
    assert recovery.status is RecoveryStatus.PENDING_RESTART
    assert job.id in said_of_pool(here)
    assert here.ended(job) is JobState.FAILED
    assert here.world.clock.now() - since >= 600
    here.run_until(lambda: all(each.doomed for each in old), 100)


def said_of_pool(here: Clinic) -> str:
    """The answer of `muster why` about the pool."""
    parts, now = here.world.plane.parts, here.world.clock.now()
    fleet, holds = parts[Fleet], parts[ClusterState].machine_holds
    gpu = fleet.pool("gpu")
    assert gpu is not None
    why = explain_pool(gpu, fleet.slices("gpu"), fleet, lambda *_: (), holds, now)
    return "; ".join(each.sentence for each in why.reasons)
