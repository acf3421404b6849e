"""Moments by the clock of the caller."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from muster.client.moments import with_absolute_moments
from muster.core.errors import InvalidSpec
from muster.core.specs import spec_of

LEFT_OUT = datetime.fromisoformat("2027-03-14 02:30")


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The caller is in Berlin."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    del os.environ["TZ"]
    monkeypatch.undo()
    time.tzset()


def moment(value: Any, now: datetime | None = None) -> Any:
    now = now or datetime(2027, 1, 30, 12, 0, tzinfo=UTC).astimezone()  # 13:00 there
    return with_absolute_moments({"not_before": value}, now)["not_before"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("18:30", "2027-01-30T18:30:00+01:00"),
        ("8:00", "2027-01-31T08:00:00+01:00"),
        ("13:00", "2027-01-31T13:00:00+01:00"),
        ("today 08:00", "2027-01-30T08:00:00+01:00"),
        ("Tomorrow  08:00", "2027-01-31T08:00:00+01:00"),
        ("2027-07-31 08:00", "2027-07-31T08:00:00+02:00"),
        ("2027-01-31", "2027-01-31T00:00:00+01:00"),
        ("2027-01-31T08:00:00Z", "2027-01-31T09:00:00+01:00"),
        ("+5m", "2027-01-30T13:05:00+01:00"),
        (date(2027, 1, 31), "2027-01-31T00:00:00+01:00"),
        (datetime(2027, 1, 31, 7, tzinfo=UTC), "2027-01-31T08:00:00+01:00"),
    ],
)
def test_moment_is_by_the_clock_of_the_caller(written: Any, meant: str) -> None:
    assert moment(written) == meant


@pytest.mark.parametrize(
    ("place", "written", "meant"),
    [
        ("America/New_York", "2027-03-14 02:30", "2027-03-14T03:30:00-04:00"),
        (
            "America/New_York",
            datetime.fromisoformat("2027-03-14 02:30"),
            "2027-03-14T03:30:00-04:00",
        ),
        ("Africa/Cairo", "2027-04-30 00:00", "2027-04-30T01:00:00+03:00"),
        ("Africa/Cairo", date(2027, 4, 30), "2027-04-30T01:00:00+03:00"),
        ("Australia/Lord_Howe", "2027-10-03 02:15", "2027-10-03T02:45:00+11:00"),
        ("Pacific/Apia", "2011-12-30 10:00", "2011-12-31T10:00:00+14:00"),  # a day left out
        ("Europe/Berlin", "2027-10-31 02:30", "2027-10-31T02:30:00+02:00"),  # there are two
    ],
)
def test_time_that_the_clock_leaves_out_has_come_once_the_clock_has_passed_it(
    place: str, written: Any, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", place)
    time.tzset()
    assert moment(written) == meant


@pytest.mark.parametrize(
    ("now", "meant"),
    [
        (
            datetime(2027, 3, 28, 0, 45, tzinfo=UTC),
            "2027-03-28T03:30:00+02:00",
        ),
        (datetime(2027, 10, 31, 0, 15, tzinfo=UTC), "2027-10-31T02:30:00+02:00"),
        (
            datetime(2027, 10, 31, 0, 45, tzinfo=UTC),
            "2027-10-31T02:30:00+01:00",
        ),
        (datetime(2027, 10, 31, 1, 45, tzinfo=UTC), "2027-11-01T02:30:00+01:00"),
    ],
)
def test_time_of_day_is_the_next_that_the_clock_shows(now: datetime, meant: str) -> None:
    assert moment("2:30", now.astimezone()) == meant


@pytest.mark.parametrize("written", ["soon", "25:00", "+", "+x", "tomorrow", "8", "1" * 1000, 2e9])
def test_what_is_no_moment_is_left_for_the_spec_to_refuse(written: Any) -> None:
    assert moment(written) == written


def test_number_that_yaml_makes_of_a_time_of_day_is_refused_with_all_else() -> None:
    keys = with_absolute_moments({"command": "true", "tasks": 0, "not_before": 18 * 60 + 30})
    with pytest.raises(InvalidSpec) as refused:
        spec_of(keys)
    assert [each.field for each in refused.value.problems] == ["tasks", "not_before"]
    assert "in quotes" in refused.value.problems[1].expected


def test_moment_with_its_zone_stays_the_same_moment() -> None:
    once = moment("+5m")
    assert datetime.fromisoformat(moment(once)) - datetime.fromisoformat(once) == timedelta()
