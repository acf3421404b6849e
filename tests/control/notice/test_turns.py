"""The order in which users' notices are sent."""

from collections import Counter
from pathlib import Path

from proving.hollow.performers.notices import Faults
from tests.control.world import ADA, World
from tests.databases import ON_BOTH

from muster.control.notice.effects import NoticeOutcome
from muster.control.notice.entity import Notice
from muster.control.notice.turns import MAX_SENDING, MAX_SENDING_OF_ONE
from muster.core.owner import Owner, Principal, Role
from muster.core.resources import Resources
from muster.core.specs import JobSpec

pytestmark = ON_BOTH

SPEC = JobSpec.model_validate({"command": ["x"], "notify": ["json://hooks.example.org/x"] * 8})


def test_so_many_are_sent_at_a_time_in_all_and_of_one_user_and_all_in_the_end(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, {"a": Resources(cpu_milli=64_000, memory_bytes=2**36)})
    world.channels.faults = Faults(late_s=5.0)
    users = [Principal(Owner("default", "default", f"u{n}"), Role.USER) for n in range(6)]
    for user in (ADA, ADA, ADA, *users):
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
    assert sum(world.channels.sent.values()) == 9 * 3 * 8
    world.close()


CPUS = {"a": Resources(cpu_milli=64_000, memory_bytes=2**36)}
OTHERS = [Principal(Owner("default", "default", f"u{n}"), Role.USER) for n in range(4)]


def handed_over(world: World) -> list[Notice]:
    return [n for n in world.plane.live.of(Notice).values() if n.handed_at is not None]


def test_one_notice_gets_its_turn_among_users_with_many_though_one_slot_is_freed_at_a_time(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, CPUS)
    world.channels.faults = Faults(lost=1.0)
    for user in OTHERS:
        for _ in range(5):
            world.submit(SPEC, user)
    world.run(5.0)
    world.submit(JobSpec.model_validate({"command": ["x"], "notify": "json://h.example/x"}))
    world.run(5.0)
    assert len(handed_over(world)) == MAX_SENDING
    for _ in range(len(OTHERS) + 1):
        first = handed_over(world)[0]
        world.inbox.put(NoticeOutcome(first.name, first.generation))
        world.settle()
    assert [n.owner.user for n in handed_over(world)].count(ADA.owner.user) == 1
    assert len(handed_over(world)) == MAX_SENDING
    world.close()


def test_channels_that_take_nothing_do_not_delay_another_users_between_their_tries(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, CPUS)
    world.channels.faults = Faults(refused=1.0)
    for user in OTHERS:
        world.submit(SPEC, user)
    world.run_until(
        lambda: sum(n.tries == 1 for n in world.plane.live.of(Notice).values()) == MAX_SENDING, 5.0
    )
    world.channels.faults = Faults()
    world.submit(JobSpec.model_validate({"command": ["x"], "notify": "json://h.example/x"}))
    world.run_until(lambda: bool(world.channels.sent), 5.0)
    assert all(n.tries == 1 for n in world.plane.live.of(Notice).values())
    world.run(60.0)
    assert sum(world.channels.sent.values()) == MAX_SENDING + 1
    world.close()
