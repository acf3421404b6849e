"""Sessions that are handed in alike are one class, found by the spec that they share."""

from muster.control.session.cluster.workloads import (
    MOST_SPECS,
    SpecClasses,
    session_class,
)
from muster.core.owner import Owner
from muster.core.specs import SessionSpec

ADA, BOB = Owner("default", "default", "ada"), Owner("default", "default", "bob")


def spec(priority: int) -> SessionSpec:
    return SessionSpec.model_validate({"priority": priority, "kernels": [{"command": ["x"]}]})


def test_sessions_of_one_owner_that_share_their_spec_share_their_class() -> None:
    classes, shared = SpecClasses(), spec(7)
    one = classes.of(ADA, shared)
    assert one == session_class(ADA, shared)
    assert classes.of(ADA, shared) is one
    assert classes.of(BOB, shared) == session_class(BOB, shared)


def test_spec_in_the_place_of_a_forgotten_one_has_a_class_of_its_own() -> None:
    classes, places = SpecClasses(), set()
    for priority in range(100):
        fresh = spec(priority)
        places.add(id(fresh))
        assert classes.of(ADA, fresh).priority == priority
        del fresh
    assert len(places) < 100, "some spec came to the place of an earlier one"


def test_class_is_forgotten_with_its_spec() -> None:
    classes, shared = SpecClasses(), spec(7)
    for owner in (ADA, BOB):
        classes.of(owner, shared)
    assert len(classes) == 2
    del shared
    assert not len(classes)


def test_only_so_many_classes_are_remembered_while_their_specs_live() -> None:
    classes = SpecClasses()
    specs = [spec(priority=number % 100) for number in range(MOST_SPECS + 5)]
    for each in specs:
        classes.of(ADA, each)
    assert len(classes) <= MOST_SPECS
    assert classes.of(ADA, specs[0]) == session_class(ADA, specs[0])
