"""Streams are in order, and break with messages on their way."""

import random

import pytest
from proving.hollow.network import KEEPALIVE_S, Stream, Way, Weather
from proving.hollow.timeline import Timeline
from proving.hollow.virtual_clock import VirtualClock

STORM = Weather(lagging=0.5, lag_s=2.0)


class Ends:
    """A stream, and what both ends heard."""

    def __init__(self) -> None:
        self.timeline = Timeline(VirtualClock())
        self.stream = Stream(self.timeline, random.Random(1), lambda: STORM)
        self.heard: dict[Way, list[object]] = {way: [] for way in Way}
        for way in Way:
            heard = self.heard[way]
            self.stream.listen(way, heard.append, heard.append)


@pytest.fixture
def ends() -> Ends:
    return Ends()


def test_messages_arrive_in_order_and_the_end_after_them(ends: Ends) -> None:
    for number in range(20):
        ends.stream.send(Way.UP, number)
    ends.stream.close(Way.UP, "bye")
    ends.stream.send(Way.UP, "after the end")
    ends.timeline.run(30)
    assert ends.heard[Way.UP] == [*range(20), "bye"]


def test_messages_on_their_way_are_lost_with_the_stream_and_both_ends_notice(ends: Ends) -> None:
    ends.stream.send(Way.UP, "lost")
    ends.stream.cut()
    ends.timeline.run(KEEPALIVE_S - 1)
    assert ends.heard == {Way.UP: [], Way.DOWN: []}
    ends.timeline.run(1)
    assert ends.heard == {Way.UP: ["no answer"], Way.DOWN: ["no answer"]}


def test_stalled_direction_goes_on_where_it_was_and_the_other_one_is_not_held_up(
    ends: Ends,
) -> None:
    ends.stream.pipes[Way.UP].stall()
    ends.stream.send(Way.UP, 1)
    ends.stream.send(Way.DOWN, 2)
    ends.timeline.run(10)
    assert ends.heard == {Way.UP: [], Way.DOWN: [2]}
    ends.stream.send(Way.UP, 3)
    ends.stream.pipes[Way.UP].go_on()
    ends.timeline.run(10)
    assert ends.heard[Way.UP] == [1, 3]


def test_end_that_has_closed_hears_nothing_more(ends: Ends) -> None:
    ends.stream.send(Way.DOWN, "on its way")
    ends.stream.close(Way.UP)
    ends.timeline.run(10)
    assert ends.heard == {Way.UP: [""], Way.DOWN: []}
