import random
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proving.hollow.virtual_clock import VirtualClock
from tests.cli.fake_cluster import IDS, FakeCluster, because, job

from muster.cli import screen
from muster.cli.words import (
    SHORT_ID,
    clock_time,
    count,
    duration,
    moment,
    sentence_of,
    shorten,
    signal_name,
    waits,
    with_local_moments,
)
from muster.core.ids import IdFactory
from muster.core.reasons import ReasonCode
from muster.core.states import JobState
from muster.core.text import healthy_of
from muster.core.views.placement import WhyView


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-3, "0ms"),
        (0, "0ms"),
        (0.0344, "34ms"),
        (0.9996, "1s"),
        (1.34, "1.3s"),
        (9.949, "9.9s"),
        (9.96, "10s"),
        (59.6, "1m00s"),
        (185, "3m05s"),
        (3599.7, "1h00m"),
        (7800, "2h10m"),
        (86400 * 3 + 4 * 3600, "3d04h"),
    ],
)
def test_duration_shows_at_most_two_units(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_count_knows_one_and_many() -> None:
    assert [count(number, "task") for number in (0, 1, 10_000)] == [
        "0 tasks",
        "1 task",
        "10,000 tasks",
    ]


def test_clock_time_of_another_day_has_its_date() -> None:
    noon = 1_763_640_000.0
    assert clock_time(noon, noon + 60) == moment(noon).split()[1]
    assert clock_time(noon, noon + 86400) == " ".join(moment(noon).split()[:2])
    assert moment(None) == "-"


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_new_york")
def test_moments_are_local_and_tell_their_zone_in_sentences_too() -> None:
    start = 1_805_009_400.0  # half an hour after summer time begins
    assert moment(start) == "2027-03-14 03:30:00 EDT"
    waits = because(ReasonCode.BEFORE_START_TIME, moment="2027-03-14T07:30:00+00:00")
    assert sentence_of(waits) == "starts not before 2027-03-14 03:30:00 EDT"
    assert with_local_moments("it ends at 2027-99-14T07:30:00+00:00") == (
        "it ends at 2027-99-14T07:30:00+00:00"
    )


@pytest.mark.usefixtures("in_new_york")
def test_why_and_ps_show_moments_by_the_reader_s_clock() -> None:
    waits = because(ReasonCode.BEFORE_START_TIME, moment="2027-03-14T07:30:00+00:00")
    verdict = f"train waits: {waits.sentence}"
    why = WhyView(subject=IDS[0], status="PENDING", verdict=verdict, reasons=(waits,))
    cluster = FakeCluster(jobs_=[job("train", JobState.PENDING)], why_={IDS[0]: why, "train": why})
    assert "not before 2027-03-14 03:30:00 EDT" in cluster.run("why", "train").stdout
    assert "not before 2027-03-14 03:30:00 EDT" in cluster.run("ps").stdout


def test_signal_name_of_an_unknown_number_is_the_number() -> None:
    assert (signal_name(9), signal_name(200)) == ("SIGKILL", "signal 200")


@given(
    jobs=st.integers(1, 30),
    gaps_ms=st.lists(st.integers(0, 5000), max_size=30),
    seed=st.integers(0, 2**32),
)
def test_short_ids_are_unique_prefixes_of_what_they_stand_for(
    jobs: int, gaps_ms: list[int], seed: int
) -> None:
    clock = VirtualClock()
    ids = IdFactory(clock, random.Random(seed))
    made = []
    for number in range(jobs):
        made.append(ids.job())
        clock.advance(gaps_ms[number] / 1000 if number < len(gaps_ms) else 0)
    short = shorten(made)
    for id_ in made:
        assert len(short[id_]) >= SHORT_ID
        assert [other for other in made if other.startswith(f"job-{short[id_]}")] == [id_]


def test_short_ids_are_no_longer_than_they_must_be() -> None:
    twins = ["job-01kaecabcdefghij", "job-01kaecabcdefghik"]
    short = shorten([*twins, "job-02kaecabcdefghij", "ses-01kaecabcdefghij"])
    assert list(short.values()) == ["01kaecabcdefghij", "01kaecabcdefghik", "02kaecab", "01kaecab"]


@pytest.mark.parametrize(
    ("why", "line"),
    [
        (
            "waits until b has succeeded",
            "a waits until b has succeeded",
        ),
        ("group gpu has no agents", "a waits: group gpu has no agents"),
    ],
)
def test_line_that_work_waits_says_so_once(why: str, line: str) -> None:
    assert waits("a", why) == line


@pytest.mark.parametrize(
    ("healthy", "wanted", "said"),
    [
        (1, 2, "1 of 2 replicas healthy"),
        (1, 1, "1 of 1 replica healthy"),
        (12, 1, "12 replicas healthy, 1 wanted"),
        (1, 0, "1 replica healthy, 0 wanted"),
        (0, 0, "0 of 0 replicas healthy"),
    ],
)
def test_no_more_replicas_are_healthy_of_those_that_are_wanted(
    healthy: int, wanted: int, said: str
) -> None:
    assert healthy_of(healthy, wanted) == said


@pytest.mark.parametrize(
    ("terminal", "colour"), [("xterm", "green"), ("xterm-256color", "#1a7f37")]
)
def test_success_is_green_on_terminals_of_few_colours_too(
    monkeypatch: pytest.MonkeyPatch, terminal: str, colour: str
) -> None:
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.delenv("COLORTERM", raising=False)
    screen._has_sixteen_colours.cache_clear()
    try:
        assert str(screen.status("SUCCEEDED").style) == colour
        assert str(screen.status("ALIVE").style) == colour
    finally:
        screen._has_sixteen_colours.cache_clear()


def test_moments_in_an_operators_note_stay_as_they_were_written() -> None:
    note = "new disk at 2026-12-01T08:00:00+00:00"
    barred = because(ReasonCode.AGENT_BARRED, bar="cordoned", note=note, agent="a1")
    assert note in sentence_of(barred)
