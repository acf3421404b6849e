"""The histories of pools and slices: what everybody may read there, and how much of it."""

from pathlib import Path

from proving.hollow.performers.providers import FarmFaults
from tests.control.pool.pooled import make, only, pool_of
from tests.control.pool_scenarios import job, pool
from tests.control.world import ROOT, World

from muster.autoscaling.standing import CreateOutcome
from muster.core.reasons import ReasonCode
from muster.core.states import JobState
from muster.core.views.work import HistoryView
from muster.store.queries.history import read_history


def history(world: World, ref: str) -> tuple[HistoryView, ...]:
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        entities = world.plane.live.entities
        return read_history(connection, entities, ROOT, ref, 100).items


def told(world: World, ref: str) -> list[tuple[str, int]]:
    """The sentences of a history, with how often each was true."""
    return [(why.sentence, row.times) for row in history(world, ref) for why in row.reasons]


def test_slice_tells_what_it_was_made_for_and_never_whose_work_that_is(tmp_path: Path) -> None:
    world = make(tmp_path)
    submitted = world.submit(job("one", tasks=2, coscheduled=True))
    world.run_until(lambda: bool(world.slices()))
    first, *_ = world.slices()
    (made,) = [row for row in history(world, first.id) if row.reasons]
    (why,) = made.reasons
    assert why.sentence == "work waits that asks for 4 cpu in each of 2 kernels"
    row = str(made)
    for session in world.plane.live.sessions.values():
        assert session.id not in row
    assert submitted.id not in row
    world.close()


def test_refusals_of_a_pool_are_one_line_of_a_kind_however_many_they_are(tmp_path: Path) -> None:
    world = make(tmp_path, priority=1)
    world.farm.refuses["cpu"] = CreateOutcome.STOCK_OUT
    submitted = world.submit(job("one"))
    world.run_until(lambda: pool_of(world).standing.in_a_row > 3, 9e3)
    sentences = [each for each in told(world, "cpu") if "no such machines" in each[0]]
    assert sentences == [(sentences[0][0], pool_of(world).standing.in_a_row)]
    assert "says the farm" in sentences[0][0]
    world.farm.refuses.clear()
    world.run_until(lambda: submitted.status is JobState.SUCCEEDED, 9e3)
    world.close()


def test_pool_that_failed_tells_when_a_slice_is_ready_again(tmp_path: Path) -> None:
    world = make(tmp_path, boot_timeout=60)
    world.farm.faults = FarmFaults(never_boots=1.0)
    world.submit(job("one"))
    world.run_until(lambda: pool_of(world).standing.failures == 2, 9e3)
    world.run_until(lambda: not world.slices())
    world.farm.faults = FarmFaults()
    world.run_until(lambda: any(each.ready_at for each in world.slices()), 9e3)
    codes = [ReasonCode(why.code) for row in history(world, "cpu") for why in row.reasons]
    assert codes[-2:] == [ReasonCode.POOL_BACKING_OFF, ReasonCode.POOL_MAKES_AGAIN]
    said = f"slice {only(world).id} is ready, after 2 failed requests"
    assert told(world, "cpu")[-1] == (said, 1)
    world.close()


def test_want_of_quota_is_in_the_history_of_each_pool_that_it_closes(tmp_path: Path) -> None:
    world = make(tmp_path, quota_key="eu", priority=1)
    world.apply(pool("two", quota_key="eu", priority=2))
    world.farm.refuses["cpu"] = CreateOutcome.QUOTA
    world.submit(job("one"))
    world.run_until(lambda: pool_of(world, "two").standing.outcome is not None)
    world.run(1)
    for name in ("cpu", "two"):
        assert "pools of quota eu ask again" in told(world, name)[-1][0]
    world.close()
