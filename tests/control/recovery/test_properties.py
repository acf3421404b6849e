"""Properties of a recovery that hold whatever fails."""

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from proving.hollow.supervisor import Run
from tests.control.conftest import under
from tests.control.recovery.clinic import FAULTY, HEALTHY, NODE, UNKNOWN, Clinic
from tests.control.world import World

from muster.control.recovery.entity import Recovery
from muster.core.states import JOB_TABLE, JobState, TaskState
from muster.core.states.recovery import RECOVERY_TABLE, RecoveryStatus

NAMES = "abc"
MAX_RESTARTS, RETRIES = 2, 1

codes = st.sampled_from([0, 0, 1, 7])
verdicts = st.sampled_from([HEALTHY, HEALTHY, FAULTY, UNKNOWN])


@contextmanager
def opened(here: Clinic) -> Iterator[Clinic]:
    with tempfile.TemporaryDirectory() as path:
        names = dict.fromkeys(NAMES, NODE)
        policy = under(health={"max_unhealthy": 1.0, "passive": False, "rounds": 1})
        world = World(
            Path(path),
            names,
            gpus=dict.fromkeys(NAMES, 1),
            group=policy,
            behaviour=here.behaviour,
        )
        with closing(world):
            here.world = world
            yield here


@given(
    ends=st.lists(codes, max_size=12),
    found=st.fixed_dictionaries({name: st.lists(verdicts, max_size=6) for name in NAMES}),
    gone=st.sets(st.sampled_from(NAMES), max_size=2),
    gang=st.booleans(),
    replace=st.booleans(),
    kills=st.sets(st.integers(5, 200), max_size=3),
)
@example(ends=[1], found={}, gone=set(), gang=False, replace=False, kills={5, 19})
@settings(max_examples=40, deadline=None)
def test_recovery_ends_with_its_job_within_its_limits(
    ends: list[int],
    found: dict[str, list[str]],
    gone: set[str],
    gang: bool,
    replace: bool,
    kills: set[int],
) -> None:
    left = [*ends]

    def course(index: int, attempt: int) -> Run:
        return Run(5.0, exit_code=left.pop(0) if left else 0)

    with opened(Clinic(course, {name: [*some] for name, some in found.items()}, gone)) as here:
        job = here.job(
            tasks=2,
            coscheduled=gang,
            max_retries_failure=RETRIES,
            recovery={
                "max_restarts": MAX_RESTARTS,
                "replace": replace,
                "check_timeout": 200,
                "return_timeout": 200,
                "restart_timeout": 100,
            },
        )
        recovery = here.recovery(job)
        for step in range(8000):
            if job.id not in here.world.plane.live.jobs:
                break
            check(recovery)
            if step in kills:
                here.world.restart_controller()
                job = here.world.plane.live.jobs[job.id]
                recovery = here.recovery(job)
            here.run(1.0)
        else:
            raise AssertionError(f"{recovery.status}: {recovery.open}")
        assert job.status in JOB_TABLE.terminal
        assert recovery.status in RECOVERY_TABLE.terminal
        assert (recovery.status is RecoveryStatus.COMPLETE) is (job.status is JobState.SUCCEEDED)
        assert recovery.rounds <= MAX_RESTARTS + 1 + 2 * (RETRIES + 1)
        assert sum(job.counts.values()) == 2
        assert not here.world.plane.live.of(Recovery)
        charged = sum(task.failure_count for task in job.tasks.values())
        assert charged <= 2 * (RETRIES + 1)
        if job.status is JobState.SUCCEEDED:
            assert job.counts[TaskState.SUCCEEDED] == 2


def check(recovery: Recovery) -> None:
    """Check what holds of a live recovery at any moment."""
    assert recovery.restarts <= MAX_RESTARTS
    waits = recovery.status is not RecoveryStatus.IN_PROGRESS
    assert (recovery.open is not None) is waits
    if recovery.open is not None and recovery.next is not None:
        assert not set(recovery.open.tasks) & set(recovery.next.tasks)
    for task in recovery.job.tasks.values():
        assert task.failure_count <= RETRIES
