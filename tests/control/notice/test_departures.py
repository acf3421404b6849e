"""Notices of work that has to leave a machine: who is told, what, and when."""

from pathlib import Path
from typing import Any

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import select
from tests.control.conftest import MakeWorld
from tests.control.pool.pooled import make, only
from tests.control.test_draining import drain
from tests.control.world import ADA, ROOT, World

from muster.control.agent.requests import AgentRequests
from muster.control.notice.entity import notices
from muster.control.pool.requests import PoolRequests
from muster.core.specs import JobSpec, SessionSpec
from muster.core.text import utc_moment

CHANNEL = "json://hooks.example.org/s3cr3t-t0ken"


def long_work(world_of: MakeWorld, **agents: int) -> World:
    return world_of(agents, lambda start: Run(1e6))


def job(name: str, **fields: Any) -> JobSpec:
    told = {"command": ["work"], "name": name, "notify": [CHANNEL]}
    return JobSpec.model_validate(told | fields)


def told(world: World) -> list[tuple[str, str]]:
    """Titles and tones of the notices, oldest first."""
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        found = connection.execute(select(notices).order_by(notices.c.id))
        return [(row.title, row.tone) for row in found]


def body(world: World) -> str:
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        text: str = connection.execute(select(notices.c.body)).scalar_one()
    return text


def test_owner_of_tasks_on_a_drained_agent_is_told_when_they_have_to_leave(
    group_world: MakeWorld,
) -> None:
    world = long_work(group_world, a=3)
    train = world.submit(job("train", tasks=2))
    world.submit(job("quiet", notify=[]))
    world.run(2.0)
    drain(world, "a", 3600.0)
    by = utc_moment(world.clock.now() + 3600.0)
    world.run(1.0)
    assert told(world) == [(f"job train: has to leave agent a by {by}", "info")]
    said = body(world)
    assert f"job train ({train.id}) of default/default/ada: 2 tasks (0, 1) on agent a" in said
    assert "reason: agent a is being drained (new disk): what still runs there in 1h00m" in said
    assert "it runs again then, on another machine where there is one" in said
    assert f"more: muster why {train.id}" in said


def test_session_that_would_end_is_told_so(group_world: MakeWorld) -> None:
    world = long_work(group_world, a=1)
    spec = {"type": "batch", "name": "shell", "kernels": [{"command": ["work"]}]}
    world.submit_session(SessionSpec.model_validate({**spec, "notify": [CHANNEL]}))
    world.run(2.0)
    drain(world, "a", 600.0)
    world.run(1.0)
    ((title, _),) = told(world)
    assert title.startswith("session shell: has to leave agent a by ")
    assert "it ends then, if it has started: hand it in again" in body(world)


@pytest.mark.parametrize(("on", "number"), [("end", 1), ("failure", 1), ("success", 0)])
def test_channel_for_success_alone_is_not_told_of_departures(
    group_world: MakeWorld, on: str, number: int
) -> None:
    world = long_work(group_world, a=1)
    world.submit(job("train", notify=[{"url": CHANNEL, "on": on}]))
    world.run(2.0)
    drain(world, "a", 600.0)
    world.run(1.0)
    assert len(told(world)) == number


def test_drain_without_a_deadline_stops_nothing_and_informs_nobody(group_world: MakeWorld) -> None:
    world = long_work(group_world, a=1)
    world.submit(job("train"))
    world.run(2.0)
    drain(world, "a", None)
    world.run(1.0)
    assert told(world) == []


def test_each_deadline_is_told_once_and_its_end_too(group_world: MakeWorld) -> None:
    world = long_work(group_world, a=1)
    world.submit(job("train"))
    world.run(2.0)
    drain(world, "a", 600.0)
    world.run(100.0)
    drain(world, "a", 60.0)  # sooner than before
    world.run(10.0)
    by = utc_moment(world.clock.now() + 50.0)
    id_ = world.agent("a").id
    world.ask(lambda work, parts: parts[AgentRequests].bar(work, ADA, id_, None))
    world.run(100.0)
    first, *later = [title for title, _ in told(world)]
    assert first.startswith("job train: has to leave agent a by ")
    assert later == [
        f"job train: has to leave agent a by {by}",
        "job train: need not leave agent a any more",
    ]


def test_work_that_leaves_at_once_is_told_so_where_it_was(group_world: MakeWorld) -> None:
    world = long_work(group_world, a=1, b=1)
    world.submit(job("train"))
    world.run(2.0)
    where = next(name for name in ("a", "b") if world.agent(name).running)
    drain(world, where, 0.0)
    world.run(20.0)
    assert told(world) == [(f"job train: leaves agent {where} now", "info")]


def test_owner_of_work_on_a_slice_that_is_to_be_deleted_is_told(tmp_path: Path) -> None:
    world = make(tmp_path, max_slices=1)
    world.behaviour = lambda start: Run(1e6)
    train = world.submit(job("train", resources={"cpu": 1}))
    world.run_until(lambda: train.started_at is not None)
    slice_ = only(world)
    world.ask(lambda work, parts: parts[PoolRequests].delete_slice(work, ROOT, slice_.id, 3_000.0))
    by = utc_moment(world.clock.now() + 3_000.0)
    world.run(1.0)
    (name,) = slice_.names
    assert told(world) == [(f"job train: has to leave agent {name} by {by}", "info")]
    assert "reason: " in body(world)
    world.close()
