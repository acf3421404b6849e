"""The supervisor's inventory, translated into the words of the controller."""

import pytest
from tests.wire.controller import template

from muster.agent import inventory
from muster.agent.inventory import KernelInventory
from muster.agent.supervisor.kernel import CreateFailure, EndReason, Event, Status
from muster.core.ids import KernelId
from muster.core.reasons import ReasonCode
from muster.core.resources import DeviceShare
from muster.wire.messages import HeldStatus, ReportKind, Start

K1 = KernelId("krn-1")


def event(kind: str, **fields: object) -> Event:
    return {"kernel": K1, "generation": 1, "kind": kind, "at": 5.0, **fields}  # type: ignore[typeddict-item]


def test_everything_the_supervisor_may_say_has_a_word() -> None:
    assert set(inventory._REASONS) == {*EndReason, *CreateFailure}
    assert set(inventory._STATUSES) == set(Status) - {Status.STANDBY}, "which is told as queued"


def test_event_becomes_a_report_with_all_that_it_says() -> None:
    report = KernelInventory({}).apply(
        event("ended", exit_code=3, reason="exited", detail="d", heir=["krn-2", 4], seq=9)
    )
    assert (report.kernel, report.generation, report.at) == (K1, 1, 5.0)
    assert (report.kind, report.exit_code, report.signal) == (ReportKind.ENDED, 3, None)
    assert (report.reason, report.detail) == (ReasonCode.EXITED, "d")
    assert (report.heir, report.predecessor) == (("krn-2", 4), None)


def test_devices_become_shares_of_what_the_kernel_was_given() -> None:
    report = KernelInventory({}).apply(event("started", devices=[0, 3], device_milli=1000))
    assert report.shares == (DeviceShare(0, 1000), DeviceShare(3, 1000))
    report = KernelInventory({}).apply(event("started", devices=[1], device_milli=250))
    assert report.shares == (DeviceShare(1, 250),)


def test_names_of_partitions_become_the_indexes_of_devices() -> None:
    held = KernelInventory({0: "MIG-a", 1: "MIG-b", 2: "GPU-c"})
    report = held.apply(event("started", devices=["MIG-b", "GPU-c"], device_milli=1000))
    assert report.shares == (DeviceShare(1, 1000), DeviceShare(2, 1000))
    gone = held.apply(event("started", devices=["MIG-removed", "0"]))
    assert gone.shares == (DeviceShare(0, 1000),)


def test_lost_output_is_part_of_the_detail() -> None:
    report = KernelInventory({}).apply(event("ended", reason="exited", output_dropped_bytes=77))
    assert "77 bytes of output were lost" in report.detail


@pytest.mark.parametrize("detail", ["caf\udce9", "x" * 100_000])
def test_detail_can_always_be_sent(detail: str) -> None:
    report = KernelInventory({}).apply(event("create_failed", reason="internal", detail=detail))
    assert len(report.detail.encode()) <= 4 * inventory.MAX_DETAIL_CHARS


def test_kernel_is_held_from_its_order_until_its_end_is_acknowledged() -> None:
    held = KernelInventory({})
    key = (K1, 1)
    assert key not in held
    held.ordered(Start(K1, 1, template("true"), {}))
    assert list(held) == [(key, HeldStatus.QUEUED)]
    held.apply(event("started"))
    held.ordered(Start(K1, 1, template("true"), {}))  # told again
    assert list(held) == [(key, HeldStatus.RUNNING)]
    assert held.is_live(key)
    end = held.apply(event("ended", reason="exited"))
    assert list(held) == [(key, HeldStatus.ENDED)]
    assert not held.is_live(key)
    held.acknowledged(end)
    assert key not in held


def test_kernel_whose_end_nobody_saw_is_held_as_lost() -> None:
    held = KernelInventory({})
    held.reset([{"id": K1, "generation": 1, "status": "ended", "lost": True}])
    assert list(held) == [((K1, 1), HeldStatus.LOST)]
    held = KernelInventory({})
    end = held.apply(event("ended", reason="supervisor_lost"))
    assert list(held) == [((K1, 1), HeldStatus.LOST)]
    held.acknowledged(end)
    assert (K1, 1) not in held


def test_failed_kernel_that_was_ordered_again_stays_held() -> None:
    held = KernelInventory({})
    failed = held.apply(event("create_failed", reason="disk_full"))
    held.ordered(Start(K1, 1, template("true"), {}))
    held.acknowledged(failed)
    assert list(held) == [((K1, 1), HeldStatus.QUEUED)]


def test_new_supervisors_word_replaces_what_was_believed() -> None:
    held = KernelInventory({})
    held.ordered(Start(KernelId("krn-9"), 1, template("true"), {}))
    held.reset([{"id": K1, "generation": 2, "status": "stopping"}])
    assert list(held) == [((K1, 2), HeldStatus.RUNNING)]
