"""The mirror lists all records of each entity, also of those that leave it with another."""

from collections import Counter
from pathlib import Path

from proving.hollow.supervisor import Run
from sqlalchemy import update
from tests.control.world import World
from tests.databases import ON_BOTH

from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.store import schema


def test_records_that_go_with_others_are_listed_too(tmp_path: Path) -> None:
    world = World(tmp_path, {"a": Resources(cpu_milli=2000)}, behaviour=lambda start: Run(100))
    world.submit(JobSpec(command=["x"], tasks=2))
    world.settle()
    live = world.plane.live
    found = Counter({entity.name: len([*live.all_of(entity)]) for entity in live.entities.values()})
    assert +found == {"agent": 1, "job": 1, "session": 2, "kernel": 2, "task": 2}
    lasting = [record for record in live.swept() if live.entities[type(record)].lasts]
    assert lasting == [*live.agents.values()]
    world.close()


@ON_BOTH
def test_mirror_that_is_read_again_lists_agents_in_the_same_order(tmp_path: Path) -> None:
    world = World(tmp_path, dict.fromkeys(("a", "b", "c"), Resources(cpu_milli=2000)))
    before = [*world.store.live.agents]
    with world.store.engine.begin() as connection:  # PostgreSQL puts a changed row elsewhere
        first = update(schema.agents).where(schema.agents.c.id == before[0])
        connection.execute(first.values(host="elsewhere"))
    world.store.reload()
    assert [*world.store.live.agents] == before
    world.close()
