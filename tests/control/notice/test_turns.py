"""Whose notice is next."""

from collections import Counter
from pathlib import Path

from tests.control.world import ADA, World

from muster.control.notice.entity import Notice
from muster.control.notice.hollow import Faults
from muster.control.notice.turns import MAX_SENDING, MAX_SENDING_OF_ONE
from muster.core.owner import Owner, Principal, Role
from muster.core.resources import Resources
from muster.core.specs import JobSpec

SPEC = JobSpec.model_validate({"command": ["x"], "notify": ["json://hooks.example.org/x"] * 8})


def test_so_many_are_sent_at_a_time_in_all_and_of_one_user_and_all_in_the_end(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, {"a": Resources(cpu_milli=64_000, memory_bytes=2**36)})
    world.channels.faults = Faults(late_s=5.0)
    users = [Principal(Owner("default", "default", f"u{n}"), Role.USER) for n in range(6)]
    for user in (ADA, *users):
        for _ in range(3):
            world.submit(SPEC, user)
    most, most_of_one = 0, 0
    for _ in range(200):
        world.run(0.5)
        sending = [n.owner for n in world.plane.live.of(Notice).values() if n.handed_at is not None]
        most = max(most, len(sending))
        most_of_one = max([most_of_one, *Counter(sending).values()])
        if not world.plane.live.of(Notice) and not world.plane.live.jobs:
            break
    assert (most, most_of_one) == (MAX_SENDING, MAX_SENDING_OF_ONE)
    assert sum(world.channels.sent.values()) == 7 * 3 * 8
    world.close()
