"""The performers of effects on machines: what they ask of providers, and what they tell."""

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import delete
from tests.control.pool.performing import (
    SECRET,
    SHAPE,
    Cloud,
    Performers,
    a_pool,
    machine,
    made,
    making,
    performing,
    throw,
)
from tests.patience import until

from muster.autoscaling.standing import MAX_TOLD, CreateOutcome
from muster.control.pool.effects import (
    DeleteSlice,
    ListMachines,
    LogRead,
    ReadLog,
    SliceDeleted,
    SliceMade,
)
from muster.control.pool.listed import MachinesListed
from muster.control.pool.performing import performers as of_providers
from muster.control.pool.performing.answers import shown
from muster.control.pool.records import SliceId
from muster.core.errors import InvalidSpec, Problem
from muster.providers.provider import AgentSetup, MachineListing, ProviderError, SliceOrder
from muster.store import schema


@pytest.fixture
def performers(tmp_path: Path) -> Iterator[Performers]:
    with performing(tmp_path) as performers:
        yield performers


@pytest.fixture
def cloud(performers: Performers) -> Cloud:
    return performers.cloud


def test_slice_is_made_as_the_database_says(performers: Performers, cloud: Cloud) -> None:
    spec = performers.pool("h100", preemptible=True, attributes={"zone": "a"})
    performers.slice("sl-1", spec, group="gpu", machines='[{"name":"sl-1-0"},{"name":"sl-1-1"}]')
    performers.make(making(1))
    assert performers.reported.until(1) == [made(1)]
    attributes = {"zone": "a", "pool": "h100", "slice": "sl-1", "preemptible": "true"}
    setup = AgentSetup("head.example:7", "gpu", SECRET, "PEM")
    names = ("sl-1-0", "sl-1-1")
    assert cloud.orders == [SliceOrder("sl-1", names, SHAPE, True, attributes, setup)]
    scope = cloud.made[0].scope
    assert (scope.cluster, scope.pool) == ("c1", "h100")
    assert scope.directory == performers.home / "providers" / "h100"


def test_machines_beside_the_controller_reach_it_over_loopback(
    performers: Performers, cloud: Cloud
) -> None:
    performers.door.elsewhere = ""
    performers.slice("sl-1", performers.pool("here", provider="beside"))
    performers.make(making(1))
    performers.reported.until(1)
    assert cloud.orders[0].setup.controller == "127.0.0.1:7"


def test_machines_elsewhere_are_not_made_where_they_cannot_join(
    performers: Performers, cloud: Cloud
) -> None:
    performers.door.elsewhere = ""
    performers.slice("sl-1", performers.pool("a"))
    performers.make(making(1))
    [outcome] = performers.reported.until(1)
    assert isinstance(outcome, SliceMade)
    assert outcome.outcome is CreateOutcome.BAD_REQUEST
    assert "that listens on loopback only: start it by `muster controller --host" in outcome.told
    assert not cloud.asked


def test_slice_waits_until_the_controller_listens(performers: Performers, cloud: Cloud) -> None:
    address, performers.door.beside = performers.door.beside, ""
    performers.slice("sl-1", performers.pool("here", provider="beside"))
    performers.make(making(1))
    time.sleep(0.1)
    assert not performers.reported
    performers.door.beside = address
    assert performers.reported.until(1) == [made(1)]


def test_slice_is_not_made_by_a_controller_that_never_listens(
    performers: Performers, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_providers, "LISTEN_S", 0.1)
    performers.door.beside = ""
    performers.slice("sl-1", performers.pool("a"))
    performers.make(making(1))
    told = "the controller does not listen to agents yet"
    bad = CreateOutcome.BAD_REQUEST
    assert performers.reported.until(1) == [SliceMade(SliceId("sl-1"), 1, bad, told=told)]


def test_nothing_is_asked_where_providers_have_no_directory(
    performers: Performers, cloud: Cloud
) -> None:
    performers.without_directory()
    performers.slice("sl-1", performers.pool("a"))
    told = "this controller has no directory"
    performers.make(making(1))
    performers.reported.until(1)
    performers.delete([DeleteSlice(SliceId("sl-1"), "a", 1)])
    performers.reported.until(2)
    performers.list([ListMachines("a", 1)])
    assert performers.reported.until(3) == [
        SliceMade(SliceId("sl-1"), 1, CreateOutcome.BAD_REQUEST, told=told),
        SliceDeleted(SliceId("sl-1"), 1, gone=False, told=told),
        MachinesListed("a", 1, None, told),
    ]
    assert not cloud.made


def test_machines_are_neither_made_nor_sought_without_the_tag_of_their_cluster(
    performers: Performers, cloud: Cloud
) -> None:
    with performers.engine.begin() as connection:
        connection.execute(delete(schema.cluster))
    performers.slice("sl-1", performers.pool("a"))
    performers.make(making(1))
    told = "this cluster has no id yet"
    bad = CreateOutcome.BAD_REQUEST
    assert performers.reported.until(1) == [SliceMade(SliceId("sl-1"), 1, bad, told=told)]
    assert not cloud.made


@pytest.mark.parametrize("columns", [{"secret": ""}, {"generation": 2}])
def test_slice_that_is_not_wanted_any_more_is_not_made(
    performers: Performers, cloud: Cloud, columns: dict[str, Any]
) -> None:
    spec = performers.pool("a")
    performers.slice("sl-1", spec, **columns)
    performers.slice("sl-3", spec)
    performers.make(making(1, 2, 3))  # there is no sl-2
    assert performers.reported.until(1) == [made(3)]
    performers.delete([DeleteSlice(SliceId("sl-3"), "a", 1)])
    performers.reported.until(2)
    assert [call for _, *call in cloud.asked] == [["create", "sl-3"], ["delete", "sl-3"]]


def test_slice_is_deleted_with_the_settings_with_which_it_was_made(
    performers: Performers, cloud: Cloud
) -> None:
    performers.pool("a", ended=2, settings={"region": "new"})
    performers.pool("b", ended=3)
    old = a_pool("a", settings={"region": "old"})
    forgotten = a_pool("a", settings={"region": "forgotten"})
    performers.slice("sl-0", old)  # keeps the spec of its revision
    performers.slice("sl-1", old, status="TERMINATED", finished_at=5.0, secret="")
    performers.slice("sl-2", forgotten, status="TERMINATED", finished_at=5.0, secret="")
    for number, id_ in enumerate(("sl-1", "sl-2", "sl-unknown"), 1):
        performers.delete([DeleteSlice(SliceId(id_), "a", 0)])
        assert performers.reported.until(number)[-1] == SliceDeleted(SliceId(id_), 0, gone=True)
    assert [each.spec.settings["region"] for each in cloud.made] == ["old", "new"]


def test_slice_whose_machines_are_not_gone_yet_is_told_so(
    performers: Performers, cloud: Cloud
) -> None:
    performers.slice("sl-1", performers.pool("a"))
    cloud.answers["delete"] = lambda: False
    performers.delete([DeleteSlice(SliceId("sl-1"), "a", 1)])
    assert performers.reported.until(1) == [SliceDeleted(SliceId("sl-1"), 1, gone=False)]


def test_list_of_a_pool_has_the_machines_of_older_slices_once(
    performers: Performers, cloud: Cloud
) -> None:
    spec = performers.pool("a", ended=2, settings={"region": "new"})
    old = a_pool("a", settings={"region": "old"}, max_slices=3)
    ended = a_pool("a", settings={"region": "ended"})
    performers.slice("sl-1", spec)
    performers.slice("sl-2", old)
    performers.slice("sl-3", old.model_copy(update={"max_slices": 4}))
    performers.slice("sl-4", ended, status="TERMINATED")
    performers.slice("sl-5", a_pool("b", settings={"region": "other"}))
    twice = MachineListing((machine("sl-1", "new"), machine("sl-2", "old")))
    cloud.answers["old"] = lambda: twice
    performers.list([ListMachines("a", 1), ListMachines("nowhere", 1)])
    expected = MachineListing((machine("sl-1", "new"), machine("sl-2", "old")))
    assert performers.reported.until(1) == [MachinesListed("a", 1, expected)]
    assert cloud.told("list") == ["new", "old"]


def refuse(
    outcome: CreateOutcome = CreateOutcome.CREDENTIALS, told: str = "who are you?"
) -> Callable[[], Any]:
    return throw(ProviderError(outcome, told))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (
            {"old": lambda: MachineListing((machine("sl-2", "old"),), complete=False)},
            (MachineListing((machine("sl-1", "new"), machine("sl-2", "old")), complete=False), ""),
        ),
        (
            {"old": refuse()},
            (MachineListing((machine("sl-1", "new"),), complete=False), "who are you?"),
        ),
        ({"list": refuse()}, (None, "who are you?")),
    ],
)
def test_list_is_complete_only_if_everybody_told_everything(
    performers: Performers, cloud: Cloud, answers: dict[str, Any], expected: tuple[Any, str]
) -> None:
    performers.pool("a", settings={"region": "new"})
    performers.slice("sl-2", a_pool("a", settings={"region": "old"}))
    cloud.answers |= answers
    performers.list([ListMachines("a", 1)])
    assert performers.reported.until(1) == [MachinesListed("a", 1, *expected)]


# -- outcomes ----------------------------------------------------------------------------------


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "outcome", "told"),
    [
        (ProviderError(CreateOutcome.STOCK_OUT, "none left"), "stock-out", "none left"),
        (ProviderError(CreateOutcome.CREATED, "all is well"), "unknown", "all is well"),
        (ProviderError(CreateOutcome.NOT_BOOTED, "x"), "unknown", "x"),
        (InvalidSpec([Problem("settings.x", "7", "expected 8")]), "bad request", "settings.x is 7"),
        (OSError(5, "no way there"), "unknown", "OSError: [Errno 5] no way there"),
        (ValueError("a\0b\n\x1b[1m " + "x" * 99_999), "unknown", "ValueError: a�b �[1m xxx"),
        (Unspeakable(), "unknown", "Unspeakable: (its text cannot be told)"),
        (SystemExit(3), "unknown", "SystemExit: 3"),
        (StopIteration(), "unknown", "StopIteration"),
    ],
)
def test_whatever_a_provider_raises_has_an_outcome(
    performers: Performers, cloud: Cloud, error: BaseException, outcome: str, told: str
) -> None:
    performers.slice("sl-1", performers.pool("a"))
    cloud.answers["create"] = cloud.answers["delete"] = throw(error)
    performers.make(making(1))
    [result] = performers.reported.until(1)
    assert isinstance(result, SliceMade)
    assert (result.outcome.value, result.machines) == (outcome, ())
    assert result.told.startswith(told)
    assert len(result.told) <= MAX_TOLD
    performers.delete([DeleteSlice(SliceId("sl-1"), "a", 1)])
    performers.reported.until(2)
    assert performers.reported[1] == SliceDeleted(SliceId("sl-1"), 1, False, result.told)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [None],
        "machines",
        (machine("sl-1"), "machine"),
        (machine("sl-1", "i" * 300),),
        (machine("sl-1", "i\0"),),
        (machine("sl-1", address=7),),
        (machine("sl-1", leaves_at=float("nan")),),
        (machine("sl-1", leaves_at="soon"),),
    ],
)
def test_answers_that_cannot_be_are_unknown(
    performers: Performers, cloud: Cloud, answer: Any
) -> None:
    performers.slice("sl-1", performers.pool("a"))
    cloud.answers["create"] = cloud.answers["delete"] = cloud.answers["list"] = lambda: answer
    performers.make(making(1))
    [result] = performers.reported.until(1)
    assert isinstance(result, SliceMade)
    assert (result.outcome, result.machines) == (CreateOutcome.UNKNOWN, ())
    performers.delete([DeleteSlice(SliceId("sl-1"), "a", 1)])
    deleted = performers.reported.until(2)[1]
    assert isinstance(deleted, SliceDeleted)
    assert not deleted.gone
    assert deleted.told
    performers.list([ListMachines("a", 1)])
    listed = performers.reported.until(3)[2]
    assert isinstance(listed, MachinesListed)
    assert listed.listing is None
    assert listed.told


def test_provider_that_is_not_installed_is_told(performers: Performers, cloud: Cloud) -> None:
    performers.slice("sl-1", performers.pool("a", provider="gone"))
    performers.make(making(1))
    [result] = performers.reported.until(1)
    assert isinstance(result, SliceMade)
    assert result.outcome is CreateOutcome.BAD_REQUEST
    assert "provider is 'gone': expected one of" in result.told


def test_join_token_is_told_nowhere(
    performers: Performers, cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    spec = performers.pool("a")
    for number in (1, 2, 3, 4):
        performers.slice(f"sl-{number}", spec)
    seen = f"curl -H {SECRET} failed"
    cloud.answers["sl-1"] = throw(RuntimeError(seen))
    cloud.answers["sl-2"] = refuse(CreateOutcome.QUOTA, "x" * (MAX_TOLD - 20) + " " + seen)
    cloud.answers["sl-3"] = lambda: (machine("sl-3", detail=seen, address=seen),)
    cloud.answers["sl-4"] = throw(InvalidSpec([Problem("settings.x", seen, "no")]))
    with caplog.at_level(logging.DEBUG):
        performers.make(making(1, 2, 3, 4))
        performers.reported.until(4)
        performers.delete([DeleteSlice(SliceId("sl-1"), "a", 1)])
        performers.reported.until(5)
    assert len(cloud.orders) == 4
    assert all(SECRET in order.setup.token for order in cloud.orders)
    assert SECRET[:8] not in repr(performers.reported)
    assert SECRET[:8] not in caplog.text
    assert "RuntimeError: curl -H … failed" in caplog.text


@given(before=st.text(), after=st.text(), cut=st.integers(0, 50), longer=st.integers(0, 11_000))
def test_no_part_of_a_secret_ends_a_text_that_was_cut(
    before: str, after: str, cut: int, longer: int
) -> None:
    text = " " * longer + before + SECRET + after
    told = shown(text[: len(text) - cut], SECRET)
    assert SECRET[:8] not in told
    assert len(told) <= MAX_TOLD


def words_of(performers: Performers) -> str:
    performers.read([ReadLog(SliceId("sl-1"), "a", "sl-1-0")])
    until(lambda: len(performers.reported) > 0)
    outcome = performers.reported.pop()
    assert isinstance(outcome, LogRead)
    assert (outcome.slice, outcome.machine) == ("sl-1", "sl-1-0")
    return outcome.words


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("booted\n no  disk ", "booted no disk"),
        (f"--token {SECRET} fails", "--token … fails"),
        (f"{SECRET[9:]} fails", "… fails"),
        ("x" * 5_000 + "end", "x" * (MAX_TOLD - 3) + "end"),
        (b"bytes", ""),
    ],
)
def test_last_words_are_told_from_their_end_without_the_token(
    performers: Performers, cloud: Cloud, said: object, told: str
) -> None:
    spec = performers.pool("a")
    performers.slice("sl-1", spec, machines='[{"name": "sl-1-0", "id": "i-7"}]')
    cloud.answers["log"] = lambda: said
    assert words_of(performers) == told
    assert cloud.told("log") == ["i-7"]


def test_nobody_is_asked_for_the_last_words_of_a_machine_without_an_id(
    performers: Performers, cloud: Cloud
) -> None:
    performers.slice("sl-1", performers.pool("a"))
    assert words_of(performers) == ""
    assert not cloud.asked
