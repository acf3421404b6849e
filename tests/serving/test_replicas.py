"""The replicas that are made and taken away where nothing is rolled out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serving.replicas_of import LETTERS, World, replicas, written

from muster.serving.replicas import Change, Replica, Standing, exchange, level


@pytest.mark.parametrize(
    ("wanted", "there", "create", "remove"),
    [
        (3, "", 3, []),
        (3, "2:aas", 0, []),
        (3, "2:aaux", 0, []),  # the unhealthy one is evicted by its own handler
        (5, "2:aas", 2, []),
        (3, "2:aaxxx", 1, []),  # those on their way out count for nothing here
        (2, "2:aaa", 0, ["2c"]),  # the youngest
        (2, "2:ushaa", 0, ["2a", "2b", "2c"]),
        (2, "2:aAa", 0, ["2b"]),  # of available ones, that on a machine to be left
        (0, "2:aasx", 0, ["2c", "2b", "2a"]),
    ],
)
def test_steady_number_makes_what_is_missing_and_takes_the_worst_away(
    wanted: int, there: str, create: int, remove: list[str]
) -> None:
    assert level(wanted, replicas(there), 2, disruptable=1) == Change(create, tuple(remove))


@pytest.mark.parametrize(
    ("there", "disruptable", "create", "remove"),
    [
        ("2:aAa", 1, 1, []),  # one more first
        ("2:aAas", 1, 0, []),
        ("2:aAah", 1, 0, []),
        ("2:aAaa", 1, 0, ["2b"]),
        ("2:AAA", 1, 1, []),
        ("2:AAA", 2, 2, []),
        ("2:AAAaa", 2, 0, ["2c", "2b"]),
        ("2:aSa", 1, 1, ["2b"]),  # nothing is lost with one that does not serve
        ("2:aUa", 1, 1, ["2b"]),
        ("2:AAAx", 0, 0, []),
    ],
)
def test_replica_on_a_machine_to_be_left_goes_once_one_more_is_available(
    there: str, disruptable: int, create: int, remove: list[str]
) -> None:
    assert level(3, replicas(there), 2, disruptable) == Change(create, tuple(remove))


@pytest.mark.parametrize(
    ("there", "create", "remove"),
    [
        ("1:aaa 2:aaa", 0, ["1c", "1b", "1a"]),
        ("1:su 2:aas", 0, ["1b", "1a"]),
        ("1:aaa", 1, ["1c"]),  # one may be missing: there may be no room for a fourth
        ("1:aax 2:s", 1, []),
        ("1:aa 2:sa", 0, ["1b"]),
    ],
)
def test_replicas_of_other_revisions_go_as_far_as_enough_are_left(
    there: str, create: int, remove: list[str]
) -> None:
    assert level(3, replicas(there), 2, disruptable=1) == Change(create, tuple(remove))


@pytest.mark.parametrize(
    ("there", "remove"),
    [
        ("1:aaaw 2:a", ["1d"]),  # it serves nobody now, and one more is there
        ("1:aaaw", []),  # it may be good again
        ("1:aaww 2:a", ["1d"]),
        ("1:ahww 2:aa", ["1d", "1c"]),
        ("1:awww 2:aa", ["1d", "1c"]),
        ("1:wwww", []),
        ("1:aaww 2:w", []),
    ],
)
def test_replica_whose_last_probe_was_bad_goes_first_and_counts_for_none_that_serves(
    there: str, remove: list[str]
) -> None:
    change = exchange(4, replicas(there), 2, surge=1, unavailable=0)
    assert change.remove == tuple(remove)


_letters = st.text(alphabet=[*LETTERS, *map(str.upper, LETTERS)], max_size=6)
_there = st.builds(lambda one, two: replicas(f"1:{one} 2:{two}"), _letters, _letters)


@given(_there, st.integers(0, 5), st.integers(1, 3))
def test_steady_number_is_reached_and_nothing_changes_any_more(
    there: list[Replica], wanted: int, disruptable: int
) -> None:
    world = World([each for each in there if each.standing is not Standing.UNHEALTHY])
    least = min(wanted - disruptable, world.available)
    for _ in range(100):
        change = level(wanted, world.all, 2, disruptable)
        world.obey({2: change.create} if change.create else {}, change.remove)
        assert world.available >= least
        world.later()
    assert written(world.all) == (f"2:{'a' * wanted}" if wanted else "")
    assert level(wanted, world.all, 2, disruptable) == Change()


@given(_there, st.integers(0, 5), st.integers(0, 3), st.integers(0, 3))
def test_exchange_keeps_its_bounds_whatever_is_there(
    there: list[Replica], wanted: int, surge: int, unavailable: int
) -> None:
    change = exchange(wanted, there, 2, surge=surge, unavailable=unavailable)
    world = World(there)
    before, serving, room = world.available, world.serving, world.room
    world.obey({2: change.create} if change.create else {}, change.remove)
    assert world.available >= min(before, wanted - unavailable)
    assert world.serving >= min(serving, wanted - unavailable)
    assert world.room <= max(room, wanted + surge)
    gone = [each for each in there if each.route in change.remove]
    own = [each for each in gone if each.revision == 2 and not each.misplaced]
    of_revision = [e for e in there if e.live and e.revision == 2 and not e.misplaced]
    assert len(own) == max(0, len(of_revision) - wanted)
