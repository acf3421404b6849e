"""The mirror lists all records of each entity, also of those that leave it with another."""

from collections import Counter
from pathlib import Path

from tests.control.hollow_agent import Run
from tests.control.world import World

from muster.core.resources import Resources
from muster.core.specs import JobSpec


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
