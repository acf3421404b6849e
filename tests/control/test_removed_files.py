"""Files that an agent removed are told in the history of the work that left them, once."""

from collections.abc import Sequence

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld, cpus
from tests.control.world import ADA, World
from tests.databases import ON_BOTH

from muster.core.ids import KernelId
from muster.core.reasons.of_files import OutputTooOld, Removal, ScratchAboveShare
from muster.core.specs import JobSpec, SessionSpec
from muster.core.views.work import HistoryView
from muster.store.queries.history import read_history
from muster.wire.messages import FileRemoval, FilesRemoved, KernelKey

pytestmark = ON_BOTH

AT = "2026-01-01T00:00:00+00:00"
OLD = OutputTooOld(at=AT, kept_s=60.0)
SCRATCH = ScratchAboveShare(at=AT, used=2**31, limit=2**30, unit="bytes")


@pytest.fixture
def world(worlds: MakeWorld) -> World:
    return worlds({"a": cpus(4), "b": cpus(4)}, behaviour=lambda start: Run(1.0))


def ran(world: World, name: str = "a") -> list[KernelKey]:
    """The kernels that an agent started, in their order."""
    return world.agent(name).starts


def tell(world: World, name: str, keys: Sequence[KernelKey], why: Removal = OLD) -> None:
    removals = tuple(FileRemoval(*key, why) for key in keys)
    world.desk.agent_said(world.agent(name).id, FilesRemoved(removals))
    world.run(1.0)


def told(world: World, ref: str) -> list[HistoryView]:
    """The rows of a history that tell of removals."""
    with world.store.engine.connect() as connection:
        page = read_history(connection, world.store.entities, ADA, ref, 100)
    return [each for each in page.items if each.phase == "Retention"]


def sentences(rows: Sequence[HistoryView]) -> list[str]:
    return [each.sentence for row in rows for each in row.reasons]


def test_removed_output_is_a_row_of_its_task_and_of_its_job(worlds: MakeWorld) -> None:
    world = worlds({"a": cpus(8)}, behaviour=lambda start: Run(1.0))
    job = world.submit(JobSpec(command=["x"], tasks=2))
    world.run(10.0)
    first, second = ran(world)
    tell(world, "a", [first])
    (row,) = told(world, job.id)
    assert (row.task_index, row.attempt, row.to_status) == (0, 1, "TERMINATED")
    assert sentences([row]) == [
        f"its output was removed at {AT}, because an agent keeps output for 1m00s"
    ]
    assert told(world, f"{job.id}/0") == [row]
    assert told(world, f"{job.id}/1") == []
    tell(world, "a", [second])
    assert [each.task_index for each in told(world, job.id)] == [0, 1]


def test_output_and_scratch_of_a_session_have_a_row_each_however_often_they_are_told(
    worlds: MakeWorld,
) -> None:
    world = worlds({"a": cpus(8)}, behaviour=lambda start: Run(1.0))
    session = world.submit_session(SessionSpec(kernels=[{"command": ["x"]}], type="batch"))
    world.run(10.0)
    for _ in range(2):
        tell(world, "a", [*ran(world), *ran(world)])
        tell(world, "a", ran(world), SCRATCH)
        world.restart_controller()
    output, scratch = sentences(told(world, session.id))
    assert output.startswith("its output was removed at")
    assert scratch == (
        f"its scratch directory was removed at {AT}, because those of its owner's ended kernels "
        "took 2GiB on its machine, more than the share of 1GiB, and the oldest goes first"
    )


def test_kernels_of_a_gang_are_told_apart(worlds: MakeWorld) -> None:
    world = worlds({"a": cpus(8)}, behaviour=lambda start: Run(1.0))
    kernels = [{"command": ["x"]}, {"command": ["y"]}]
    session = world.submit_session(SessionSpec(kernels=kernels, type="batch"))
    world.run(10.0)
    tell(world, "a", ran(world))
    tell(world, "a", ran(world))
    whose = [each.partition(":")[0] for each in sentences(told(world, session.id))]
    assert sorted(whose) == ["kernel 0", "kernel 1"]


def test_agent_speaks_of_its_own_kernels_alone_and_words_of_its_own_make_no_other_row(
    world: World,
) -> None:
    job = world.submit(JobSpec(command=["x"], tasks=8))
    world.run(10.0)
    mine, others = ran(world), ran(world, "b")
    assert mine
    assert others
    tell(world, "b", mine)
    tell(world, "b", [(KernelId("krn-unknown"), 1), (others[0][0], 7)])
    assert told(world, job.id) == []
    for number in range(3):
        lie = OutputTooOld(at=AT, kept_s=60.0 + number, of=f"x{number}")
        tell(world, "b", others[:1], lie)
    assert len(told(world, job.id)) == 1
