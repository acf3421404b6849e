"""A supervisor that was killed: what it had started last, nobody was told."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.control.world import Run, World, attempt

from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.states import JobState
from muster.wire.messages import ReportKind, Start


@pytest.fixture
def ran() -> list[int]:
    """The attempts that ran."""
    return []


@pytest.fixture
def world(tmp_path: Path, ran: list[int]) -> Iterator[World]:
    def behaviour(start: Start) -> Run:
        ran.append(attempt(start))
        if len(ran) == 1:
            made.agent("a").online = False  # what it reports from here on is lost
        return Run()

    capacity = Resources(cpu_milli=1000, memory_bytes=2**30)
    made = World(tmp_path, {"a": capacity}, behaviour=behaviour)
    yield made
    made.close()


def test_attempt_that_was_lost_before_its_start_was_told_does_not_run_again(
    world: World, ran: list[int]
) -> None:
    job = world.submit(JobSpec(command=["x"]))
    agent = world.agent("a")
    (key,) = agent.running
    agent.running.clear()
    agent.reports.clear()  # the next supervisor finds no more than the intent to start it
    agent._report(key, ReportKind.ENDED, reason=ReasonCode.SUPERVISOR_LOST)
    world.connect(agent)
    world.run(3)

    assert ran == [1, 2]
    assert job.status is JobState.SUCCEEDED
    assert not world.plane.live.ledger
