"""Any roll-out in any world: enough replicas serve, not too many are made, and it ends."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.serving.replicas_of import LETTERS, World, replicas, written

from muster.core.specs.serving import Strategy, UpdateSpec
from muster.serving.replicas import Standing, level
from muster.serving.rollout import Rollout, RolloutCode, RolloutStep, RolloutVerdict, advance

LONGEST = 400
"""Steps within which a roll-out of MOST replicas ends in a world that obeys it."""
MOST = 6

_shares = st.one_of(st.integers(0, MOST), st.sampled_from(["0%", "10%", "25%", "50%", "100%"]))
_steps = st.lists(st.integers(1, 100), min_size=1, max_size=3, unique=True).map(sorted)


@st.composite
def updates(draw: st.DrawFn) -> UpdateSpec:
    return UpdateSpec.model_validate(
        {
            "strategy": draw(st.sampled_from(["rolling", "blue-green", "canary"])),
            "surge": draw(_shares),
            "unavailable": draw(_shares),
            "steps": [
                {"weight": weight, "watch": draw(st.integers(1, 5))} for weight in draw(_steps)
            ],
            "keep_old": draw(st.integers(0, 5)),
            "min_healthy_time": 1.0,
            "progress_deadline": 60.0,
        }
    )


def limits(update: UpdateSpec, wanted: int) -> tuple[int, int]:
    """Surge and unavailable."""
    surge = update.surge.of(wanted, up=True)
    unavailable = update.unavailable.of(wanted, up=False)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def room_of(world: World, update: UpdateSpec) -> list[int]:
    """The room that each part of the replicas has that is bounded by itself: all of them together
    or, where they are to stand side by side, old and new ones."""
    new = sum(each.revision == 2 for each in world.all)
    return [world.room] if update.strategy is Strategy.ROLLING else [world.room - new, new]


def take(world: World, update: UpdateSpec, wanted: int, rollout: Rollout) -> RolloutStep:
    """A step that is obeyed, within the bounds of the update."""
    before, rooms = world.available, room_of(world, update)
    rollout = replace(rollout, failed_starts=world.failed)
    step = advance(rollout, update, wanted, world.all, {}, world.now)
    assert set(step.create) <= {1, 2}
    world.obey(step.create, step.remove)
    surge, unavailable = limits(update, wanted)
    assert world.available >= min(before, wanted - unavailable)
    for now, former in zip(room_of(world, update), rooms, strict=True):
        assert now <= max(former, wanted + surge)
    assert step.verdict is not RolloutVerdict.GOES_ON or (step.wake_at or 0.0) > world.now
    return step


def finish(world: World, update: UpdateSpec, wanted: int, rollout: Rollout) -> RolloutStep:
    """The last step of a roll-out, which comes in time."""
    for _ in range(LONGEST):
        step = take(world, update, wanted, rollout)
        rollout = step.rollout
        if step.verdict is not RolloutVerdict.GOES_ON:
            return step
        world.later()
    raise AssertionError(f"{written(world.all)} at {rollout} goes on for ever")


NEW = Rollout(to_revision=2, from_revision=1, progress_at=0.0)
_live = st.text(alphabet="ahs", max_size=MOST)
_any = st.text(alphabet=[*LETTERS, *map(str.upper, LETTERS)], max_size=4)


@given(updates(), _live, st.integers(0, MOST))
def test_new_revision_that_starts_takes_the_place_of_the_old(
    update: UpdateSpec, old: str, wanted: int
) -> None:
    world = World(replicas(f"1:{old}"))
    step = finish(world, update, wanted, NEW)
    assert step.verdict is RolloutVerdict.DONE
    assert written(each for each in world.all if each.live) == (
        f"2:{'a' * wanted}" if wanted else ""
    )


@given(updates(), st.integers(1, MOST))
def test_new_revision_that_never_starts_fails_within_its_budget_and_the_old_serves_on(
    update: UpdateSpec, wanted: int
) -> None:
    world = World(replicas(f"1:{'a' * wanted}"), broken=2)
    step = finish(world, update, wanted, NEW)
    assert (step.verdict, step.why.code) == (RolloutVerdict.FAILED, RolloutCode.FAILED_STARTS)
    assert world.failed < min(3 * wanted, 20) + 2 * wanted
    _, unavailable = limits(update, wanted)
    for _ in range(20):
        assert world.available >= wanted - max(1, unavailable)
        world.later()
        change = level(wanted, world.all, 1, disruptable=1)
        world.obey({1: change.create} if change.create else {}, change.remove)
    assert written(world.all) == f"1:{'a' * wanted}"


@given(updates(), st.integers(1, MOST), st.data())
def test_new_revision_of_which_nothing_is_heard_fails_by_its_deadline(
    update: UpdateSpec, wanted: int, data: st.DataObject
) -> None:
    world = World(replicas(f"1:{'a' * wanted}"))
    rollout, started = NEW, data.draw(st.integers(0, wanted - 1))
    for _ in range(LONGEST):
        step = take(world, update, wanted, rollout)
        rollout = step.rollout
        if step.verdict is not RolloutVerdict.GOES_ON:
            break
        there = sum(e.serves for e in world.all if e.revision == 2)
        new = [
            each.route
            for each in world.all
            if each.revision == 2 and each.standing is Standing.STARTING
        ]
        world.later(slow=new[max(0, started - there) :])
    assert (step.verdict, step.why.code) == (RolloutVerdict.FAILED, RolloutCode.NO_PROGRESS)


@given(updates(), _any, _any, _any, st.data())
def test_rollout_keeps_its_bounds_whatever_happens_and_ends_once_nothing_does(
    update: UpdateSpec, old: str, new: str, other: str, data: st.DataObject
) -> None:
    world = World(replicas(f"1:{old} 2:{new} 3:{other}"))
    rollout, wanted = NEW, data.draw(st.integers(0, MOST))
    for _ in range(data.draw(st.integers(0, 15))):
        if data.draw(st.booleans()):
            wanted = data.draw(st.integers(0, MOST))
        routes = [each.route for each in world.all]
        happens = data.draw(st.booleans())
        if routes and happens:
            world.turn(data.draw(st.sampled_from(routes)), data.draw(st.sampled_from(Standing)))
        others = [rollout, rollout.paused(world.now), rollout.resumed(world.now)]
        step = take_paused(world, update, wanted, data.draw(st.sampled_from(others)))
        rollout = step.rollout
        if step.verdict is not RolloutVerdict.GOES_ON:
            return
        world.later(data.draw(st.sets(st.sampled_from(routes))) if routes else ())
    rollout = rollout.resumed(world.now)
    for each in world.all:  # whoever is unhealthy is evicted in the end
        if each.standing is Standing.UNHEALTHY:
            world.turn(each.route, Standing.HELD)
    world.all = [replace(each, misplaced=False) for each in world.all]
    step = finish(world, update, wanted, rollout)
    assert step.verdict is RolloutVerdict.DONE
    assert {each.revision for each in world.all if each.live} <= {2}


def take_paused(world: World, update: UpdateSpec, wanted: int, rollout: Rollout) -> RolloutStep:
    """A step; in a pause it replaces what is lost, by old ones within the bounds, and that is
    all."""
    if rollout.paused_at is None:
        return take(world, update, wanted, rollout)
    rooms = room_of(world, update)
    step = advance(rollout, update, wanted, world.all, {}, world.now)
    assert step.rollout == rollout
    kept = sum(each.live and each.route not in step.remove for each in world.all)
    assert not step.remove or kept >= wanted
    assert set(step.create) <= {1}
    world.obey(step.create, ())
    for now, former in zip(room_of(world, update), rooms, strict=True):
        assert now <= max(former, wanted + limits(update, wanted)[0])
    again = advance(rollout, update, wanted, world.all, {}, world.now)
    assert not again.create
    return step
