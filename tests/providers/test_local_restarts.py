"""Agents of local machines that end soon after each start."""

import logging
from itertools import pairwise
from pathlib import Path

import pytest
from tests.patience import until
from tests.providers.local_site import LocalSite, state_of

from muster.providers.local import machine as local_machine
from muster.providers.local.processes import revive_machines
from muster.providers.local.restarts import LIVED_S, LONGEST_S, Restarts
from muster.providers.provider import MachineState

LOOK_S = 5.0
MEBIBYTE = 1 << 20


def test_agent_that_ends_at_once_is_started_ever_less_often(tmp_path: Path) -> None:
    restarts, starts = Restarts(), []
    for look in range(400):
        now = look * LOOK_S
        if restarts.is_due(tmp_path, now, is_ended=True):
            starts.append((now, *restarts.start(tmp_path, now)))
    waits = [wait_s for _, wait_s, _ in starts]
    assert waits == [0, 5, 10, 20, 40, 80, 160, *[LONGEST_S] * (len(waits) - 7)]
    assert len(waits) > 9
    assert [is_longer for *_, is_longer in starts[:9]] == [False, *[True] * 7, False]
    for (before, *_), (at, wait_s, _) in pairwise(starts):
        assert wait_s <= at - before <= wait_s + LOOK_S


@pytest.mark.parametrize(("lived_s", "wait_s"), [(LIVED_S, 0.0), (LIVED_S - 1, 10.0)])
def test_agent_that_lived_for_a_minute_is_started_again_at_once(
    tmp_path: Path, lived_s: float, wait_s: float
) -> None:
    restarts = Restarts()
    restarts.start(tmp_path, 0.0)
    assert not restarts.is_due(tmp_path, 0.0, is_ended=True)
    assert restarts.is_due(tmp_path, 5.0, is_ended=True)
    assert restarts.start(tmp_path, 5.0) == (5.0, True)
    assert not restarts.is_due(tmp_path, 10.0, is_ended=False)
    ended_at = 5.0 + lived_s
    assert restarts.is_due(tmp_path, ended_at, is_ended=True) is (wait_s == 0.0)
    assert restarts.is_due(tmp_path, ended_at + wait_s, is_ended=True)
    assert restarts.start(tmp_path, ended_at + wait_s)[0] == wait_s


def test_time_of_an_agent_that_another_call_has_started_counts_from_then(tmp_path: Path) -> None:
    restarts = Restarts()
    restarts.start(tmp_path, 0.0)
    assert not restarts.is_due(tmp_path, 1.0, is_ended=True)
    assert not restarts.is_due(tmp_path, 2.0, is_ended=False)
    assert restarts.is_due(tmp_path, 2.0 + LIVED_S, is_ended=True)


def test_machine_that_is_made_again_waits_for_nothing(tmp_path: Path) -> None:
    restarts, machine = Restarts(), tmp_path / "machine"
    machine.mkdir()
    restarts.start(machine, 0.0)
    assert not restarts.is_due(machine, 1.0, is_ended=True)
    machine.rmdir()
    restarts.forget_gone()
    assert restarts.is_due(machine, 1.0, is_ended=True)


def test_long_log_is_put_aside_and_a_wait_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local_machine, "_muster", lambda: ["/bin/echo"])
    caplog.set_level(logging.WARNING)
    site, restarts = LocalSite(tmp_path / "pools"), Restarts()
    provider = site.provider()
    (machine,) = provider.create(site.order(machines=1))
    log = site.directory / machine.id / "agent.log"

    def look(now: float) -> list[str]:
        until(lambda: state_of(provider, machine.name) is MachineState.STOPPED)
        return revive_machines(site.directory.parent, restarts, now)

    assert look(0.0) == [machine.name]
    assert not log.with_name("agent.log.1").exists()
    assert look(5.0) == [], "it ended at once, and waits"
    with log.open("ab") as file:
        file.truncate(MEBIBYTE)
    assert look(10.0) == [machine.name]
    until(lambda: state_of(provider, machine.name) is MachineState.STOPPED)
    assert log.with_name("agent.log.1").stat().st_size == MEBIBYTE
    assert 0 < log.stat().st_size < MEBIBYTE

    for now in range(15, 2000, 5):
        look(now)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 8
    assert told[0] == f"agents had ended and are started again: {machine.name}"
    assert told[-1].endswith(f"{machine.name} (after 300 s, as it ended soon)")
    site.close()
