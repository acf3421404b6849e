"""The statuses of followers by which handlers declare their targets and promotions."""

import pytest
from tests.control.engine.conftest import MakeWorld
from tests.control.engine.toy import Door, DoorStatus, Hinge, HingeStatus, OpenDoors, always
from tests.databases import ON_BOTH

from muster.control.engine.handler import KernelMatchType, PromotionHandler, TransitionStatus

pytestmark = ON_BOTH


def promoter(match: KernelMatchType, to: DoorStatus = DoorStatus.OPEN) -> PromotionHandler[Door]:
    """Moves a SHUT door if so many of its hinges are STRAIGHT."""

    class Promote(PromotionHandler[Door]):
        name = "Promote"
        entity = Door
        statuses = frozenset({DoorStatus.SHUT})
        success = TransitionStatus(to)
        check_kernel_statuses = frozenset({HingeStatus.STRAIGHT})
        match_type = match

    return Promote()


@pytest.mark.parametrize(
    ("match", "promoted_with"),
    [
        (KernelMatchType.ALL, [2]),
        (KernelMatchType.ANY, [1, 2]),
        (KernelMatchType.NOT_ANY, [0]),
    ],
)
def test_promotion_is_by_the_declared_number_of_followers_with_the_declared_statuses(
    make_world: MakeWorld, match: KernelMatchType, promoted_with: list[int]
) -> None:
    world = make_world(promoter(match))
    found = []
    for straight in range(3):
        work = world.work()
        door = Door(id=f"d{straight}", status=DoorStatus.SHUT, status_changed_at=work.now)
        for number in range(2):
            status = HingeStatus.STRAIGHT if number < straight else HingeStatus.BENT
            id_ = f"{door.id}-{number}"
            hinge = Hinge(id=id_, door=door.id, status=status, status_changed_at=work.now)
            door.hinges.append(hinge)
        work.unit.add(door)
        work.unit.add(*door.hinges)
        work.mark(door)
        world.wake(work)
        if door.status is DoorStatus.OPEN:
            found.append(straight)
    assert found == promoted_with


@pytest.mark.parametrize("match", KernelMatchType)
def test_record_without_followers_is_promoted_to_its_end_alone(
    make_world: MakeWorld, match: KernelMatchType
) -> None:
    assert make_world(promoter(match)).door("d").status is DoorStatus.SHUT
    assert make_world(promoter(match, DoorStatus.GONE)).door("e").status is DoorStatus.GONE


def test_targets_are_those_with_followers_in_the_declared_statuses(make_world: MakeWorld) -> None:
    class OpenBent(OpenDoors):
        target_kernel_statuses = frozenset({HingeStatus.BENT})

    handler = OpenBent(always("waits"))
    world = make_world(handler)
    world.door("none")
    door = world.door("bent", hinges=2)
    work = world.work()
    first, second = door.hinges
    work.unit.move(first, [HingeStatus.BENT], HingeStatus.STRAIGHT, "Test")
    work.mark(door)
    world.wake(work)
    work = world.work()
    work.unit.move(second, [HingeStatus.BENT], HingeStatus.STRAIGHT, "Test")
    work.mark(door)
    world.wake(work)
    assert handler.asked == [["bent"], ["bent"]]
    world.run(1000.0)
    assert door.status is DoorStatus.SHUT, "who is no target does not expire"
