"""The box of sightings: nothing is lost, and no more is said than is heard."""

from hypothesis import given
from hypothesis import strategies as st

from muster.agent.health.sightings import AGAIN_S, IN_ONE_MESSAGE, MAX_KEPT, PAUSE_S, SightingBox
from muster.core.health.remedy import Remedy
from muster.core.health.verdict import MAX_WHAT
from muster.wire.messages import HealthSeen


def seqs(message: HealthSeen) -> list[int]:
    return [each.seq for each in message.sightings]


def filled(number: int) -> SightingBox:
    box = SightingBox(last_seq=100)
    for nth in range(number):
        box.add(Remedy.CHECK, f"the {nth}th")
    return box


def test_sighting_is_said_at_once_and_again_only_after_a_while() -> None:
    box = filled(1)
    assert box.is_due(0.0)
    assert seqs(box.take(0.0)) == [101]
    assert not box.is_due(AGAIN_S - 1.0)
    assert box.is_due(AGAIN_S)


def test_new_stream_has_it_said_again_but_not_too_soon() -> None:
    box = filled(1)
    box.take(0.0)
    box.rewind()
    assert not box.is_due(PAUSE_S - 0.1)
    assert box.is_due(PAUSE_S)


def test_what_was_noted_is_forgotten_and_the_rest_is_next() -> None:
    box = filled(IN_ONE_MESSAGE + 2)
    first = box.take(0.0)
    assert len(first.sightings) == IN_ONE_MESSAGE
    assert box.noted(first.sightings[-1].seq)
    assert box.is_due(PAUSE_S)
    assert len(box.take(PAUSE_S).sightings) == 2
    assert not box.noted(first.sightings[-1].seq), "an answer that came twice"
    assert not box.is_due(PAUSE_S + 1.0)


def test_numbers_go_on_after_a_restart() -> None:
    box = filled(3)
    again = SightingBox(box.kept, box.last_seq)
    assert seqs(again.take(0.0)) == [101, 102, 103]
    assert again.add(Remedy.RESET, "later").seq == 104
    assert SightingBox(box.kept, last_seq=0).add(Remedy.RESET, "later").seq == 104


def test_box_is_bounded_and_so_are_its_texts() -> None:
    box = filled(10 * MAX_KEPT)
    assert len(box.kept) == MAX_KEPT
    assert box.kept[-1].seq == 100 + 10 * MAX_KEPT, "the newest are kept"
    assert len(box.add(Remedy.CHECK, "x" * 10_000).what) == MAX_WHAT


@given(
    st.lists(st.sampled_from(["add", "take", "lose", "note", "restart"]), max_size=80),
)
def test_every_sighting_is_said_in_order_until_noted(steps: list[str]) -> None:
    """Messages, answers and processes are lost at any time."""
    box, now_s, made, heard = SightingBox(), 0.0, 0, set[int]()
    said: HealthSeen | None = None
    for step in [*steps, "restart", "take", "note", "take", "note", "take", "note", "take", "note"]:
        now_s += AGAIN_S
        match step:
            case "add" if len(box.kept) < MAX_KEPT:
                box.add(Remedy.CHECK, "something")
                made += 1
            case "take" if box.is_due(now_s):
                said = box.take(now_s)
                assert seqs(said) == sorted(seqs(said))
                heard.update(seqs(said))
            case "lose":
                said = None
                box.rewind()
            case "note" if said is not None:
                box.noted(said.sightings[-1].seq)
            case "restart":
                box = SightingBox(box.kept, box.last_seq)
    assert heard == set(range(1, made + 1))
    assert not box.kept
