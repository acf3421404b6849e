"""Kernels with GPUs: the end of one that failed tells of the errors of its GPUs."""

import random
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from proving.hollow.virtual_clock import VirtualClock

from muster.agent.accounts import MachineAccounts
from muster.agent.kernels import Kernels
from muster.agent.ports import PreparedPorts
from muster.agent.removed_outputs import RemovedOutputs
from muster.agent.services import RESETS, OwnServices
from muster.agent.supervisor_link import KernelState, Terms
from muster.wire.messages import KernelReport

if TYPE_CHECKING:
    from muster.agent.supervisor.kernel import Event


@pytest.fixture
def kernels(tmp_path: Path) -> Iterator[Kernels]:
    with closing(PreparedPorts(tmp_path, range(20_000, 20_010), random.Random(1))) as ports:
        made = Kernels(
            ports,
            tmp_path,
            RemovedOutputs(tmp_path / "removed-outputs"),
            cast(MachineAccounts, None),
            cast(OwnServices, None),
            Terms(log_max_bytes=65_536, pids_max=100, scratch_max_bytes=0),
            VirtualClock(),
        )
        made.errors_of = errors_of
        yield made


def errors_of(gpus: Collection[int]) -> str:
    return "Xid 31 on GPU 3" if 3 in gpus else ""


def ending(kernels: Kernels, devices: dict[str, object], **end: object) -> KernelReport:
    """The report of the end of a kernel that ran with these devices."""
    of = {"kernel": "krn-1", "generation": 1}
    started = {**of, "seq": 1, "kind": "started", "at": 1.0, **devices}
    ended = {**of, "seq": 2, "kind": "ended", "at": 2.0, "reason": "exited", **end}
    kernels.heard(cast("list[Event]", [started, ended]))
    *_, last = kernels.outbox.take(10).reports
    return last


def test_failed_kernel_tells_of_the_errors_of_its_gpus(kernels: Kernels) -> None:
    end = ending(kernels, {"devices": ["3"]}, exit_code=1)
    assert end.detail == "Xid 31 on GPU 3"


def test_what_else_there_is_to_tell_comes_first(kernels: Kernels) -> None:
    end = ending(kernels, {"devices": ["3"]}, exit_code=1, output_dropped_bytes=7)
    assert end.detail == "7 bytes of output were lost, the disk was full; Xid 31 on GPU 3"


@pytest.mark.parametrize(
    ("devices", "exit_code"),
    [({"devices": ["2"]}, 1), ({}, 1), ({"devices": ["3"]}, 0)],
    ids=["another's GPU", "no GPU", "a success"],
)
def test_any_other_kernel_tells_nothing_of_them(
    kernels: Kernels, devices: dict[str, object], exit_code: int
) -> None:
    assert ending(kernels, devices, exit_code=exit_code).detail == ""


RESET: KernelState = {"id": "krn-1", "generation": 1, "status": "running", "shape": RESETS}


def test_a_restarted_agent_does_not_open_gpus_in_the_middle_of_a_reset(kernels: Kernels) -> None:
    told: list[bool] = []
    kernels.resetting = told.append
    kernels.attached({"version": 1, "kernels": [RESET], "limits": "none"})
    assert told == [True]
    end = {"kernel": "krn-1", "generation": 1, "seq": 1, "kind": "ended", "at": 2.0}
    kernels.heard(cast("list[Event]", [{**end, "reason": "exited", "exit_code": 0}]))
    assert told == [True, False]


@pytest.mark.parametrize("held", [{**RESET, "status": "ended"}, {**RESET, "shape": "1"}])
def test_gpus_are_opened_once_a_supervisor_tells_that_nothing_resets_them(
    kernels: Kernels, held: KernelState
) -> None:
    told: list[bool] = []
    kernels.resetting = told.append
    kernels.attached({"version": 1, "kernels": [held], "limits": "none"})
    assert told == [False]


def test_gpus_are_held_while_their_kernel_runs(kernels: Kernels) -> None:
    assert kernels.held_gpus() == set()
    of = {"kernel": "krn-1", "generation": 1}
    started = {**of, "seq": 1, "kind": "started", "at": 1.0, "devices": ["2", "3"]}
    kernels.heard(cast("list[Event]", [started]))
    assert kernels.held_gpus() == {2, 3}
    ended = {**of, "seq": 2, "kind": "ended", "at": 2.0, "reason": "exited"}
    kernels.heard(cast("list[Event]", [ended]))
    assert kernels.held_gpus() == set()


def test_gpus_of_kernels_from_before_the_agents_start_are_not_known(kernels: Kernels) -> None:
    kernels.attached({"version": 1, "kernels": [{**RESET, "shape": "1"}], "limits": "none"})
    assert kernels.held_gpus() is None
    ended = {"kernel": "krn-1", "generation": 1, "seq": 2, "kind": "ended", "at": 2.0}
    kernels.heard(cast("list[Event]", [ended]))
    assert kernels.held_gpus() == set()
