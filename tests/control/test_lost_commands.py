"""Commands that never arrived: the agent's next Hello makes up for them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.control.world import Run, World, task_index

from muster.core.resources import Resources
from muster.core.specs import JobSpec, ScalingGroup
from muster.core.states import JOB_TABLE, JobState
from muster.wire.messages import Heartbeat

ONE_CPU = Resources(cpu_milli=1000, memory_bytes=2**30)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two agents that hold work ahead; the tasks soon become shorter, so that they hold more."""
    world = World(
        tmp_path,
        {"near": ONE_CPU, "far": ONE_CPU},
        group=ScalingGroup(name="default", backlog_window=2.0, agent_silence=60.0),
        behaviour=lambda start: Run(1.0 if task_index(start) < 6 else 0.1),
    )
    yield world
    world.close()


def test_recall_and_queued_start_that_were_lost_leave_no_task_behind(world: World) -> None:
    job = world.submit(JobSpec(command=["short"], tasks=40))
    world.run(1.05, 0.05)
    near, far = world.agent("near"), world.agent("far")
    far.online = False
    while near.running or far.running:
        world.clock.advance(0.1)
        near.tick()
        far.tick()
        world.plane.agent_said(near.id, Heartbeat())
        world.settle()
    held = {world.plane.live.kernels[id_] for id_, _ in world.plane.live.held_by[far.id]}
    assert any(kernel.stop_sent_at is not None for kernel in held), "recalled, but it never heard"

    world.connect(far)
    world.run_until(lambda: job.status in JOB_TABLE.terminal, 60.0)
    assert job.status is JobState.SUCCEEDED
    assert not world.plane.live.ledger
