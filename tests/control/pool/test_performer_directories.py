"""The directories of pools: they go with their last machine, and not before."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update
from tests.control.pool.performing import Cloud, Performers, machine, performing, throw

from muster.autoscaling.standing import CreateOutcome
from muster.control.pool.effects import ListMachines
from muster.control.pool.listed import MachinesListed
from muster.control.pool.records import pools
from muster.providers.provider import MachineListing, ProviderError


@pytest.fixture
def performers(tmp_path: Path) -> Iterator[Performers]:
    with performing(tmp_path) as performers:
        yield performers


@pytest.fixture
def cloud(performers: Performers) -> Cloud:
    return performers.cloud


BARE = MachineListing(())


@pytest.mark.parametrize("error", [None, ProviderError(CreateOutcome.UNKNOWN, "one is left")])
def test_last_list_of_a_pool_that_is_deleted_removes_its_directory(
    performers: Performers, cloud: Cloud, error: ProviderError | None
) -> None:
    spec = performers.pool("a", status="DELETING")
    performers.slice("sl-1", spec, status="TERMINATED")
    own, others = (performers.home / "providers" / name for name in ("a", "b"))
    for directory in (own, others):
        directory.mkdir(parents=True)
    cloud.answers["here"] = lambda: BARE
    if error is not None:
        cloud.answers["forget"] = throw(error)
    performers.list([ListMachines("a", 1)])
    assert performers.reported.until(1) == [MachinesListed("a", 1, BARE)]
    assert [call for _, call, _ in cloud.asked] == ["list", "forget"]
    assert own.exists() == (error is not None)
    assert others.exists()


def test_list_that_outlasts_its_pool_leaves_the_directory_to_the_next_of_its_name(
    performers: Performers, cloud: Cloud
) -> None:
    performers.pool("a", status="DELETING")
    own = performers.home / "providers" / "a"
    own.mkdir(parents=True)

    def bare_when_the_pool_has_ended() -> MachineListing:
        with performers.engine.begin() as connection:
            ended = {"id": "po-former", "status": "DELETED", "finished_at": 5.0}
            connection.execute(update(pools).values(ended))
        performers.pool("a")
        return BARE

    cloud.answers["here"] = bare_when_the_pool_has_ended
    performers.list([ListMachines("a", 1)])
    assert performers.reported.until(1) == [MachinesListed("a", 1, BARE)]
    assert cloud.told("forget") == []
    assert own.exists()


def test_directory_with_files_of_somebody_else_is_not_removed(
    performers: Performers, cloud: Cloud
) -> None:
    performers.pool("a", status="DELETING")
    file = performers.home / "providers" / "a" / "of-another-cluster"
    file.parent.mkdir(parents=True)
    file.touch()
    cloud.answers["here"] = lambda: BARE
    performers.list([ListMachines("a", 1)])
    performers.reported.until(1)
    assert cloud.told("forget") == [""]
    assert file.exists()


def test_directory_stays_where_the_last_list_fails_unless_it_is_empty(
    performers: Performers, cloud: Cloud
) -> None:
    cloud.answers["here"] = throw(ProviderError(CreateOutcome.CREDENTIALS, "who are you?"))
    for number, name in enumerate(("empty", "full")):
        performers.pool(name, status="DELETING")
        own = performers.home / "providers" / name
        own.mkdir(parents=True)
        if name == "full":
            (own / "key").touch()
        performers.list([ListMachines(name, 1)])
        performers.reported.until(number + 1)
        assert own.exists() == (name == "full")
    assert cloud.told("forget") == []


@pytest.mark.parametrize(
    ("status", "slices", "listing"),
    [
        ("ACTIVE", [], BARE),
        ("PAUSED", [], BARE),
        ("DELETING", ["READY"], BARE),
        ("DELETING", [], MachineListing((), complete=False)),
        ("DELETING", [], MachineListing((machine("sl-1"),))),
    ],
)
def test_directory_stays_while_something_may_need_it(
    performers: Performers, cloud: Cloud, status: str, slices: list[str], listing: MachineListing
) -> None:
    spec = performers.pool("a", status=status)
    for number, each in enumerate(slices):
        performers.slice(f"sl-{number}", spec, status=each)
    own = performers.home / "providers" / "a"
    own.mkdir(parents=True)
    cloud.answers["here"] = lambda: listing
    performers.list([ListMachines("a", 1)])
    performers.reported.until(1)
    assert cloud.told("forget") == []
    assert own.exists()
