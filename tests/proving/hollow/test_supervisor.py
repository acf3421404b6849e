"""The hollow supervisor keeps the promises of the real one."""

import pytest
from proving.hollow.machine import Machine
from proving.hollow.stages import Stage
from proving.hollow.supervisor import HollowSupervisor, Kernel, Run
from proving.hollow.timeline import Timeline
from proving.hollow.virtual_clock import VirtualClock

from muster.core.ids import KernelId
from muster.core.reasons import ReasonCode
from muster.wire.messages import HeldKernel, HeldStatus, KernelTemplate, ReportKind, Start, Stop

K = KernelId("krn-1")
L = KernelId("krn-2")


class Supervised:
    """A supervisor, and the processes that run under it."""

    def __init__(self) -> None:
        self.timeline = Timeline(VirtualClock())
        self.machine = Machine("m", self.timeline.clock)
        self.runs: dict[KernelId, Run] = {}
        self.processes: list[tuple[KernelId, int]] = []
        self.it = HollowSupervisor(
            self.timeline,
            self.machine,
            lambda start: self.runs.get(start.kernel, Run(100.0)),
            lambda kernel: self.processes.append(kernel.key),
            lambda kernel: self.processes.remove(kernel.key),
        )

    def start(
        self, kernel: KernelId, generation: int = 0, *, queued: bool = False, hold: bool = False
    ) -> bool:
        template = KernelTemplate(("x",), {}, None, {}, 1.0, 0, 0, "s", "o", 0)
        return self.it.start([Start(kernel, generation, template, {}, (), queued, hold)])

    def stop(self, kernel: KernelId, generation: int = 0) -> None:
        self.it.stop(Stop(kernel, generation, 1.0, "test"))

    def told(self) -> list[tuple[KernelId, int, ReportKind, ReasonCode | None]]:
        return [
            (report.kernel, report.generation, report.kind, report.reason)
            for _, report in self.it.journal
        ]

    def kernel(self, kernel: KernelId, generation: int = 0) -> Kernel:
        return self.it.kernels[kernel, generation]


@pytest.fixture
def supervised() -> Supervised:
    return Supervised()


def test_kernel_is_accepted_once_and_not_again_after_its_end_was_acknowledged(
    supervised: Supervised,
) -> None:
    supervised.runs[K] = Run(1.0)
    for _ in range(3):
        supervised.start(K)
    supervised.timeline.run(2)
    assert [kind for _, _, kind, _ in supervised.told()] == [ReportKind.STARTED, ReportKind.ENDED]
    supervised.it.acknowledge(2)
    supervised.start(K)
    supervised.timeline.run(2)
    assert (supervised.told(), supervised.processes) == ([], [])


def test_heir_begins_when_a_kernel_of_its_shape_ends(supervised: Supervised) -> None:
    supervised.runs[K] = Run(1.0)
    supervised.start(K)
    supervised.start(L, queued=True)
    supervised.timeline.run(2)
    assert supervised.processes == [(L, 0)]
    end, heir = supervised.it.journal[1][1], supervised.it.journal[2][1]
    assert (end.heir, heir.predecessor) == ((L, 0), (K, 0))


def test_kernel_that_is_being_created_is_told_as_queued_and_can_be_recalled(
    supervised: Supervised,
) -> None:
    supervised.runs[K] = Run(1.0, creating_s=3.0)
    supervised.start(K)
    supervised.timeline.run(1)
    assert supervised.it.inventory() == [HeldKernel(K, 0, HeldStatus.QUEUED)]
    supervised.it.recall((K, 0))
    supervised.timeline.run(5)
    assert supervised.told() == [(K, 0, ReportKind.ENDED, ReasonCode.NEVER_STARTED)]


def test_newer_generation_waits_until_the_older_one_is_gone(supervised: Supervised) -> None:
    supervised.runs[K] = Run(100.0, stubborn=True)
    supervised.start(K)
    supervised.timeline.run(0.5)
    supervised.start(K, 1)
    supervised.timeline.run(0.9)
    assert supervised.processes == [(K, 0)]
    supervised.timeline.run(0.2)
    assert supervised.processes == [(K, 1)]
    supervised.start(K, 0)
    supervised.timeline.run(1)
    assert supervised.processes == [(K, 1)]


def test_held_kernel_runs_when_it_is_let_go(supervised: Supervised) -> None:
    supervised.start(K, hold=True)
    supervised.timeline.run(1)
    assert (supervised.kernel(K).stage, supervised.processes) == (Stage.CREATED, [])
    supervised.it.go((K, 0))
    assert supervised.processes == [(K, 0)]


def test_kernel_that_outlives_sigkill_is_gone_later_or_with_the_lease(
    supervised: Supervised,
) -> None:
    for kernel in (K, L):
        supervised.runs[kernel] = Run(100.0, stubborn=True, outlives_kill_s=20.0)
        supervised.start(kernel)
    supervised.timeline.run(0.5)
    supervised.stop(K)  # with a grace of one second
    supervised.timeline.run(20)
    supervised.stop(K)
    assert len(supervised.processes) == 2
    supervised.timeline.run(2)
    assert supervised.processes == [(L, 0)]
    supervised.stop(L)
    supervised.it.renew_lease(supervised.machine.boot_s + 5)
    supervised.timeline.run(7)
    assert not supervised.processes


def test_lease_that_runs_out_ends_all_kernels_and_lets_none_begin(supervised: Supervised) -> None:
    supervised.start(K)
    supervised.start(L, hold=True)
    supervised.it.renew_lease(supervised.machine.boot_s + 5)
    supervised.timeline.run(4)
    supervised.it.renew_lease(supervised.machine.boot_s + 5)
    supervised.timeline.run(4)
    assert supervised.processes == [(K, 0)]
    supervised.timeline.run(2)
    assert not supervised.processes
    assert [why for *_, why in supervised.told()][-2:] == [
        ReasonCode.NEVER_STARTED,
        ReasonCode.LEASE_EXPIRED,
    ]
    assert not supervised.start(KernelId("krn-3"))


def test_kernels_of_a_killed_supervisor_are_told_as_lost_by_the_next(
    supervised: Supervised,
) -> None:
    supervised.start(K)
    supervised.start(L, queued=True)
    supervised.timeline.run(1)
    supervised.it.kill()
    assert supervised.processes == [(K, 0)], "until the next one comes"
    supervised.timeline.run(1)
    assert not supervised.processes
    lost = [(kernel, why) for kernel, _, kind, why in supervised.told() if kind is ReportKind.ENDED]
    assert lost == [(K, ReasonCode.SUPERVISOR_LOST), (L, ReasonCode.SUPERVISOR_LOST)]


def test_frozen_supervisor_does_everything_once_it_thaws(supervised: Supervised) -> None:
    supervised.runs[K] = Run(1.0)
    supervised.start(K)
    supervised.timeline.run(0.5)
    supervised.it.freeze()
    supervised.it.obey(lambda: supervised.stop(L))
    supervised.timeline.run(5)
    assert supervised.processes == [(K, 0)]
    assert len(supervised.told()) == 1
    supervised.it.thaw()
    assert [why for *_, why in supervised.told()[1:]] == [
        ReasonCode.KERNEL_VANISHED,
        ReasonCode.EXITED,
    ] or [why for *_, why in supervised.told()[1:]] == [
        ReasonCode.EXITED,
        ReasonCode.KERNEL_VANISHED,
    ]


def test_reboot_leaves_nothing_but_the_journal(supervised: Supervised) -> None:
    supervised.runs[L] = Run(0.5)
    supervised.start(K)
    supervised.start(L)
    supervised.it.renew_lease(2.0)
    supervised.timeline.run(1)
    supervised.machine.reboot()
    supervised.it.reboot()
    assert not supervised.processes
    assert supervised.told()[-1][2:] == (ReportKind.ENDED, ReasonCode.SUPERVISOR_LOST)
    held = {each.kernel: each.status for each in supervised.it.inventory()}
    assert held == {K: HeldStatus.LOST, L: HeldStatus.ENDED}
    assert supervised.start(KernelId("krn-3")), "the lease ended with the boot"
