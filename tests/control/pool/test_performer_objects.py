"""The provider objects of the performers: kept from call to call, and closed."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.control.pool.performing import Cloud, Performers, a_pool, performing, throw
from tests.patience import until

from muster.control.pool.effects import DeleteSlice, ListMachines
from muster.control.pool.performing import lines
from muster.control.pool.records import SliceId


@pytest.fixture
def performers(tmp_path: Path) -> Iterator[Performers]:
    with performing(tmp_path) as performers:
        yield performers


@pytest.fixture
def cloud(performers: Performers) -> Cloud:
    return performers.cloud


def test_objects_are_kept_for_three_settings_and_closed_once(
    performers: Performers, cloud: Cloud
) -> None:
    performers.pool("a")

    def delete(*regions: str) -> None:
        before = len(performers.reported)
        for number, region in enumerate(regions):
            id_ = f"sl-{before}-{number}"
            performers.slice(id_, a_pool("a", settings={"region": region}))
            performers.delete([DeleteSlice(SliceId(id_), "a", 1)])
            performers.reported.until(before + number + 1)

    delete("1", "2", "1", "3", "2", "1")
    assert [each.spec.settings["region"] for each in cloud.made] == ["1", "2", "3"]
    delete("4")  # 3 was used longest ago
    until(lambda: len(cloud.closed) == 1)
    assert cloud.closed == [cloud.made[2]]
    delete("1", "2")
    assert len(cloud.made) == 4
    performers.close()
    assert sorted(map(id, cloud.closed)) == sorted(map(id, cloud.made))


def test_object_in_use_is_closed_by_its_last_user(performers: Performers, cloud: Cloud) -> None:
    performers.pool("a")
    for number in range(5):
        performers.slice(f"sl-{number}", a_pool("a", settings={"region": str(number)}))
    gate = cloud.shut_for("sl-0")
    for number in range(5):
        performers.delete([DeleteSlice(SliceId(f"sl-{number}"), "a", 1)])
        until(lambda number=number: len(cloud.asked) > number)  # type: ignore[misc]
        performers.reported.until(number)
    until(lambda: len(cloud.closed) == 1)
    assert cloud.made[0] not in cloud.closed
    gate.set()
    until(lambda: cloud.made[0] in cloud.closed)


def test_object_that_cannot_be_closed_delays_nobody(performers: Performers, cloud: Cloud) -> None:
    performers.pool("a")
    gate = threading.Event()
    cloud.answers["close"] = lambda: gate.wait(60.0)
    for number in range(6):
        performers.slice(f"sl-{number}", a_pool("a", settings={"region": str(number)}))
        performers.delete([DeleteSlice(SliceId(f"sl-{number}"), "a", 1)])
        performers.reported.until(number + 1)
    cloud.answers["close"] = throw(SystemExit(1))
    gate.set()
    until(lambda: len(cloud.closed) == 3)


def test_objects_of_a_pool_that_is_not_used_any_more_are_closed(
    performers: Performers, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "FORGET_S", 0.1)
    monkeypatch.setattr(lines, "IDLE_S", 0.05)
    performers.pool("a")
    performers.list([ListMachines("a", 1)])
    performers.reported.until(1)
    until(lambda: cloud.closed == cloud.made)
    performers.list([ListMachines("a", 2)])
    performers.reported.until(2)
    assert len(cloud.made) == 2
