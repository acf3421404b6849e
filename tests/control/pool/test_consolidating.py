"""Busy slices that are emptied because their work has room elsewhere, under virtual time."""

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import select
from tests.control.pool_scenarios import job, pool
from tests.control.world import ROOT, World

from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.pool.records import Slice
from muster.control.pool.requests import PoolRequests
from muster.control.session.cluster.machine_holds import MachineHold, MachineHolds
from muster.core.ids import AgentId, JobId
from muster.core.reasons import ReasonCode
from muster.core.specs import ScalingGroup, SessionSpec
from muster.core.states import JobState, SessionStatus
from muster.core.states.slice import SliceStatus
from muster.store import schema
from muster.store.records import Job, Session, Task
from muster.wire.messages import Start

SOON_S = 2_000.0
"""By then a slice has been emptied, where one may be."""
STEP_S = 5.0
"""From one look of a world to the next: hours pass here."""


def make(path: Path, group: dict[str, Any] | None = None, **keys: Any) -> World:
    """A world with a pool of machines of four processors, where work runs as long as it says."""

    def behaviour(start: Start) -> Run:
        return Run(float(start.template.command[-1]))

    keys_of_group = {"consolidate_after": 900, "consolidate_loss": 36_000} | (group or {})
    spec = ScalingGroup.model_validate({"name": "default", **keys_of_group})
    world = World(path, {}, group=spec, behaviour=behaviour)
    world.apply(pool(**keys))
    world.run(1)
    return world


def lasting(world: World, name: str, seconds: float, **keys: Any) -> Job:
    return world.submit(job(name, command=["sleep", str(seconds)], **{"cpu": 1} | keys))


def half_empty(world: World, runs_s: float = 8_000.0, names: str = "ab", **keys: Any) -> list[Job]:
    """Slices that were full, on each of which one job is left: two, unless more are named."""
    left = []
    for name in names:
        left.append(lasting(world, name, runs_s, **keys))
        lasting(world, f"{name}-short", 300, tasks=3)
        world.run_until(lambda: not any(each.is_coming for each in world.slices()), step_s=STEP_S)
        world.run(5)
    assert len(world.slices()) == len(names)
    assert {len(world.plane.live.allocations_on[each]) for each in world.agents} == {4}
    world.run_until(lambda: len(world.plane.live.kernels) == len(names), step_s=STEP_S)
    return left


def hold(world: World, held: bool) -> None:
    """Hold all slices, or let them go."""

    def change(work: Work, parts: Parts) -> None:
        for each in world.slices():
            parts[PoolRequests].hold(work, ROOT, each.id, held=held)

    world.ask(change)


def doomed(world: World) -> list[str]:
    """The reasons for which slices are to go."""
    return [each.doomed.code for each in world.slices() if each.doomed is not None]


def task_of(each: Job) -> Task:
    (task,) = each.tasks.values()
    return task


def phases(world: World, slice_: Slice) -> list[tuple[str, str]]:
    """The history of a slice: phases and reasons."""
    history = schema.history.c
    with world.store.engine.connect() as connection:
        rows: Any = connection.execute(
            select(history.phase, history.reasons)
            .where(history.entity == slice_.id)
            .order_by(history.seq)
        )
        told = [(each.phase, json.loads(each.reasons or "[]")) for each in rows]
    return [(phase, reasons[0][0]) for phase, reasons in told if reasons]


def test_work_of_a_half_empty_slice_moves_and_no_slice_is_made_for_it(tmp_path: Path) -> None:
    world = make(tmp_path, price=2)
    first, second = half_empty(world)
    before = world.slices()
    world.run_until(lambda: bool(doomed(world)), SOON_S, STEP_S)
    (going,) = [each for each in before if each.doomed is not None]
    assert going.doomed is not None
    assert going.doomed.sentence() == (
        "its 1 session can run elsewhere, which saves 50 % of what these machines cost: "
        "2.00 an hour"
    )
    assert going.ready_at is not None
    assert world.clock.now() >= going.ready_at + 900
    world.run_until(lambda: going.status is SliceStatus.TERMINATED, 300, STEP_S)
    assert ("ConsolidateSlices", ReasonCode.SLICE_CONSOLIDATED) in phases(world, going)
    (stays,) = world.slices()
    assert {each.status for each in world.plane.live.sessions.values()} == {SessionStatus.RUNNING}
    assert sorted(task_of(each).preemption_count for each in (first, second)) == [0, 1]
    world.run(3_600, STEP_S)
    assert world.slices() == [stays]
    assert world.farm.made.total() == 2
    world.run_until(lambda: {first.status, second.status} == {JobState.SUCCEEDED}, 12_000, STEP_S)
    world.close()


@pytest.mark.parametrize(
    ("group", "jobs"),
    [
        ({"consolidate_after": None}, {}),
        ({"consolidate_after": 4_000}, {}),
        ({"consolidate_saving": 0.51}, {}),
        ({"consolidate_loss": 60}, {}),
        ({}, {"max_retries_preemption": 0}),
    ],
)
def test_nothing_is_moved_that_may_not_be(
    tmp_path: Path, group: dict[str, Any], jobs: dict[str, Any]
) -> None:
    world = make(tmp_path, group)
    half_empty(world, **jobs)
    world.run(SOON_S, STEP_S)
    assert not doomed(world)
    assert len(world.slices()) == 2
    world.close()


@pytest.mark.parametrize("type_", ["interactive", "batch", "inference"])
def test_a_session_without_a_job_is_never_moved(tmp_path: Path, type_: str) -> None:
    world = make(tmp_path, max_slices=2)
    sessions: list[Session] = []
    for name in "ab":
        kernel = {"command": ["sleep", "30000"], "resources": {"cpu": 1}}
        whole = {"name": name, "type": type_, "kernels": [kernel]}
        sessions.append(world.submit_session(SessionSpec.model_validate(whole)))
        lasting(world, f"{name}-short", 300, tasks=3)
        world.run_until(lambda: not any(each.is_coming for each in world.slices()), step_s=STEP_S)
        world.run(5)
    world.run(SOON_S, STEP_S)
    assert not doomed(world)
    assert {each.status for each in sessions} == {SessionStatus.RUNNING}
    world.close()


def test_neither_held_slices_nor_those_of_a_paused_pool_are_emptied(tmp_path: Path) -> None:
    world = make(tmp_path)
    half_empty(world)
    hold(world, held=True)
    world.run(SOON_S, STEP_S)
    assert not doomed(world)
    world.ask(lambda work, parts: parts[PoolRequests].pause(work, ROOT, "cpu"))
    hold(world, held=False)
    world.run(SOON_S, STEP_S)
    assert not doomed(world)
    world.ask(lambda work, parts: parts[PoolRequests].resume(work, ROOT, "cpu"))
    world.run_until(lambda: bool(doomed(world)), 100, STEP_S)
    world.close()


def test_nobody_is_moved_while_others_wait(tmp_path: Path) -> None:
    world = make(tmp_path, max_slices=2)
    half_empty(world)
    large = lasting(world, "large", 60, cpu=4)
    world.run(SOON_S, STEP_S)
    assert large.status is JobState.PENDING
    assert not doomed(world)
    world.close()


def test_nothing_is_emptied_while_work_is_leaving_another_slice(tmp_path: Path) -> None:
    world = make(tmp_path)
    half_empty(world, names="abc")
    drained, *others = world.slices()
    id_ = drained.id
    world.ask(lambda work, parts: parts[PoolRequests].delete_slice(work, ROOT, id_, 3_000.0))
    world.run(SOON_S, STEP_S)
    assert drained.status is SliceStatus.READY
    assert world.slices() == [drained, *others]
    assert doomed(world) == [ReasonCode.SLICE_DELETED_BY]
    world.run_until(lambda: any(each.doomed is not None for each in others), 3_000, STEP_S)
    world.close()


def test_one_slice_at_a_time_and_work_that_moved_stays_for_an_hour(tmp_path: Path) -> None:
    world = make(tmp_path, {"consolidate_saving": 0.01}, max_slices=6)
    jobs = half_empty(world, 30_000, "abcd")
    moments: list[float] = []
    for _ in range(3):
        world.run_until(lambda: bool(doomed(world)), 8_000, STEP_S)
        moments.append(world.clock.now())
        world.run_until(lambda: not doomed(world), 500, STEP_S)
    assert all(later - earlier >= 600 for earlier, later in pairwise(moments))
    assert len(world.slices()) == 1
    world.run(2_000, STEP_S)
    assert len(world.slices()) == 1
    assert world.farm.made.total() == 4
    counts = [task_of(each).preemption_count for each in jobs]
    assert sum(counts) == 3
    assert max(counts) == 1
    world.close()


def test_a_new_controller_waits_before_it_empties_another_slice(tmp_path: Path) -> None:
    world = make(tmp_path, {"consolidate_after": 2_000})
    half_empty(world)
    world.run(SOON_S - 900, STEP_S)
    world.restart_controller()
    began = world.clock.now()
    world.run_until(lambda: bool(doomed(world)), SOON_S, STEP_S)
    assert world.clock.now() >= began + 600
    world.close()


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_no_work_is_lost_and_what_was_placed_needs_no_further_slice(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    world = make(tmp_path, {"consolidate_after": 600, "consolidate_saving": 0.1}, max_slices=9)
    jobs = []
    for number in range(24):
        keys: dict[str, Any] = {"cpu": rng.randint(1, 3)}
        if rng.random() < 0.2:
            keys |= {"tasks": 2, "coscheduled": True}
        runs_s = rng.choice([60, 600, 5_000])
        jobs.append(lasting(world, f"j{number}", runs_s, **keys))
        world.run(rng.choice([0.5, 30]))
    world.run_until(lambda: not world.cluster.groups["default"].waiting, 2_000, STEP_S)
    made, emptied = world.farm.made.total(), set[str]()

    def is_done() -> bool:
        emptied.update(
            each.id
            for each in world.slices()
            if each.doomed is not None and each.doomed.code is ReasonCode.SLICE_CONSOLIDATED
        )
        return not world.plane.live.jobs

    world.run_until(is_done, 60_000, STEP_S)
    assert {each.status for each in jobs} == {JobState.SUCCEEDED}
    assert emptied, "there was something to be saved"
    assert world.farm.made.total() == made
    world.close()


def test_slice_for_which_a_job_waits_is_not_emptied(tmp_path: Path) -> None:
    class AllAreAwaited(MachineHolds):
        def on(self, agent: AgentId, now: float) -> MachineHold | None:
            return MachineHold(JobId("job-x"), now + 600.0)

    world = make(tmp_path, price=2)
    world.cluster.machine_holds = AllAreAwaited()
    half_empty(world)
    world.run(SOON_S, STEP_S)
    assert doomed(world) == []
