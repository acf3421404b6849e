"""A hollow supervisor: it accepts each (kernel, generation) once, numbers its events in a journal
that outlives it, and ends its kernels when their lease runs out."""

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from muster.agent.supervisor.supervisor import LEASE_GRACE_MAX_S
from muster.core.reasons import ReasonCode
from muster.core.resources import DeviceShare
from muster.wire.messages import (
    HeldKernel,
    KernelKey,
    KernelReport,
    ReportKind,
    Start,
    Stop,
)
from proving.hollow.machine import Machine
from proving.hollow.stages import HELD_AS, LIVE, UNBEGUN, WITH_PROCESSES, Stage
from proving.hollow.timeline import Appointment, Timeline

SPAWN_S = 0.001
TAKEOVER_S = 0.05
"""How long a new supervisor takes to end the kernels of a dead one."""


@dataclass(frozen=True, slots=True)
class Run:
    """The course of one attempt of a kernel.

    ``creating_s`` passes before its process begins. ``create_failure`` is the reason if its process
    never begins; with ``fails_at_go`` it fails only when the barrier of its gang opens.
    ``stubborn`` kernels end by SIGKILL alone; others end with ``stopped_exit_code`` on SIGTERM, or
    by the signal if that is None. A stubborn one ``outlives_kill_s``, as a process does that waits
    for a disk. A service that exits leaves a ``result``. A kernel that ``loses_supervisor`` is lost
    with it before its process begins. Of one that exits, so many other processes were killed for
    lack of memory, and so much output was lost.
    """

    seconds: float = 1.0
    exit_code: int = 0
    creating_s: float = 0.0
    create_failure: ReasonCode | None = None
    fails_at_go: bool = False
    stubborn: bool = False
    outlives_kill_s: float = 0.0
    stopped_exit_code: int | None = None
    result: str | None = None
    loses_supervisor: bool = False
    oom_kills: int = 0
    lost_output_bytes: int = 0


Behaviour = Callable[[Start], Run]


@dataclass(eq=False, slots=True)
class Kernel:
    """A kernel that the supervisor accepted."""

    start: Start
    run: Run
    shares: tuple[DeviceShare, ...]
    stage: Stage = Stage.CREATING
    may_run: bool = True
    predecessor: KernelKey | None = None
    stop_reason: ReasonCode = ReasonCode.STOPPED
    killed_at: float | None = None
    due: list[Appointment] = field(default_factory=list)
    behind: "Kernel | None" = None
    last_seq: int = 0

    @property
    def key(self) -> KernelKey:
        return self.start.kernel, self.start.generation

    def call_off(self) -> None:
        for appointment in self.due:
            appointment.cancel()
        self.due.clear()


class Hears(Protocol):
    """An agent that is attached to the supervisor."""

    def heard(self, seq: int, report: KernelReport) -> None:
        """An event was journalled."""

    def supervisor_died(self) -> None:
        """The supervisor is gone; another takes over soon."""


class HollowSupervisor:
    """All kernels of one agent's directory. A kill loses neither the journal nor the list of
    accepted kernels; a reboot loses everything but the journal.

    Args:
        begun, gone: called when the process of a kernel begins, and when its last one has ended.
        journalled: called with each report when it is written down.
        ending: called when the process of a kernel is about to end by itself.
        spawn_s: how long a process takes to begin, and to end on SIGTERM.
    """

    def __init__(
        self,
        timeline: Timeline,
        machine: Machine,
        behaviour: Behaviour,
        begun: Callable[[Kernel], None],
        gone: Callable[[Kernel], None],
        journalled: Callable[[KernelReport], None] = lambda report: None,
        ending: Callable[[Kernel], None] = lambda kernel: None,
        spawn_s: float = SPAWN_S,
    ) -> None:
        self._timeline = timeline
        self._machine = machine
        self._behaviour = behaviour
        self._begun = begun
        self._gone = gone
        self._journalled = journalled
        self._ending = ending
        self._spawn_s = spawn_s
        self.agent: Hears | None = None
        self.kernels: dict[KernelKey, Kernel] = {}
        self.journal: list[tuple[int, KernelReport]] = []  # unacknowledged
        self.acknowledged_seq = 0
        self.is_up = True
        self.is_frozen = False
        self._waiting: list[Callable[[], None]] = []  # orders and deaths of while it was frozen
        self._seqs = itertools.count(1)
        self._buried: dict[KernelKey, int] = {}
        self.lease_end_s = math.inf  # on the boot clock
        self._lease_ends: Appointment | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether it is awake, and the controller knows all that it has journalled."""
        return self.is_up and not self.is_frozen and not self.journal

    # -- orders ----------------------------------------------------------------------------------

    def start(self, orders: Iterable[Start]) -> bool:
        """Accept kernels; False if none can be accepted now, because the lease has run out."""
        if self._machine.boot_s >= self.lease_end_s:
            return False
        for order in orders:
            self._accept(order)
        return True

    def obey(self, order: Callable[[], None]) -> None:
        """Carry out an order, once it is awake."""
        self._when_awake(order)()

    def stop(self, order: Stop) -> None:
        key = (order.kernel, order.generation)
        kernel = self.kernels.get(key)
        if kernel is not None:
            self._stop(kernel, order.grace_s, ReasonCode.STOPPED)
        elif self._buried.get(key, 0) <= self.acknowledged_seq:
            self._buried[key] = self.tell(key, ReportKind.ENDED, reason=ReasonCode.KERNEL_VANISHED)

    def go(self, key: KernelKey) -> None:
        kernel = self.kernels.get(key)
        if kernel is not None and not kernel.may_run:
            kernel.may_run = True
            if kernel.stage is Stage.CREATED:
                self._begin(kernel)

    def recall(self, key: KernelKey) -> None:
        kernel = self.kernels.get(key)
        if kernel is not None and kernel.stage in UNBEGUN:
            self._end_unstarted(kernel)

    def renew_lease(self, until_s: float) -> None:
        """Let kernels run until a moment of the boot clock."""
        self.lease_end_s = until_s
        if self._lease_ends is not None:
            self._lease_ends.cancel()
        if until_s < math.inf:
            self._lease_ends = self._timeline.at(
                self._machine.moment_of(until_s), self._when_awake(self._end_lease)
            )

    def acknowledge(self, seq: int) -> None:
        """Forget events, and the kernels whose last event is among them."""
        self.acknowledged_seq = max(self.acknowledged_seq, seq)
        self.journal = [entry for entry in self.journal if entry[0] > seq]
        for key, kernel in list(self.kernels.items()):
            if kernel.stage not in LIVE and kernel.last_seq <= seq:
                del self.kernels[key]
                if kernel.stage is not Stage.CREATE_FAILED:
                    self._buried[key] = kernel.last_seq

    def inventory(self) -> list[HeldKernel]:
        return [HeldKernel(*kernel.key, HELD_AS[kernel.stage]) for kernel in self.kernels.values()]

    # -- faults ----------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Do nothing until ``thaw``, not even at the end of the lease; the kernels run on."""
        self.is_frozen = True

    def thaw(self) -> None:
        self.is_frozen = False
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def kill(self) -> None:
        """SIGKILL: the next supervisor ends its kernels and reports them as lost."""
        if not self.is_up:
            return
        self.is_up = self.is_frozen = False
        self._waiting.clear()
        for kernel in self.kernels.values():
            kernel.call_off()
        if self.agent is not None:
            self.agent.supervisor_died()
        self.agent = None
        self._timeline.after(TAKEOVER_S, self._take_over)

    def end_process(self, key: KernelKey, exit_code: int | None = 0) -> None:
        """Have a kernel's process end now, also one that is being stopped: with the code, and what
        a service leaves, or by SIGKILL if there is no code."""
        kernel = self.kernels[key]
        kernel.call_off()
        why = kernel.stop_reason if kernel.stage is Stage.STOPPING else ReasonCode.EXITED
        if exit_code is None:
            self._end(kernel, why, signal=9)
        else:
            self._end(kernel, why, exit_code=exit_code, result=kernel.run.result)

    def reboot(self) -> None:
        """Everything but the journal is gone, and the lease with it."""
        self.is_frozen = False
        self._waiting.clear()
        self.agent = None
        self._take_over()
        self.renew_lease(math.inf)

    def _take_over(self) -> None:
        self.is_up = True
        for kernel in list(self.kernels.values()):
            kernel.call_off()
            if kernel.stage in LIVE:
                if kernel.stage in WITH_PROCESSES:
                    self._gone(kernel)
                self._finish(kernel, ReasonCode.SUPERVISOR_LOST)

    def _when_awake(self, call: Callable[[], None]) -> Callable[[], None]:
        """The call, put off while the supervisor is frozen."""

        def woken() -> None:
            if self.is_frozen:
                self._waiting.append(woken)
            elif self.is_up:
                call()

        return woken

    def _later(self, kernel: Kernel, delay_s: float, call: Callable[[], None]) -> None:
        """Make the call in the kernel's life after so long; at once if that is no time."""
        if delay_s > 0:
            kernel.due.append(self._timeline.after(delay_s, self._when_awake(call)))
        else:
            self._when_awake(call)()

    # -- the life of a kernel --------------------------------------------------------------------

    def _accept(self, order: Start) -> None:
        key = (order.kernel, order.generation)
        known = self.kernels.get(key)
        if known is not None:
            if known.stage is Stage.CREATE_FAILED:
                known.run = self._behaviour(order)
                self._enqueue(known, order)
            elif not order.hold and known.start.hold:
                self.go(key)
            elif known.stage is Stage.BACKLOG and not order.queued:
                self._enqueue(known, order)
            return
        older = [each for each in self.kernels.values() if each.start.kernel == order.kernel]
        if key in self._buried or any(e.start.generation > order.generation for e in older):
            return
        kernel = Kernel(order, self._behaviour(order), order.shares)
        self.kernels[key] = kernel
        for each in older:
            if each.stage in WITH_PROCESSES:
                self._stop(each, each.start.template.grace_s, ReasonCode.STOPPED)
                kernel.behind = each
            elif each.stage in LIVE:
                self._end_unstarted(each)
        self._enqueue(kernel, order)

    def _enqueue(self, kernel: Kernel, order: Start) -> None:
        kernel.start, kernel.shares, kernel.may_run = order, order.shares, not order.hold
        if kernel.behind is not None and kernel.behind.stage in WITH_PROCESSES:
            kernel.stage = Stage.BEHIND
        elif order.queued:
            kernel.stage = Stage.BACKLOG
        else:
            kernel.stage = Stage.CREATING
            delay_s = self._spawn_s + kernel.run.creating_s
            self._later(kernel, delay_s, lambda: self._create(kernel))

    def _create(self, kernel: Kernel) -> None:
        if kernel.stage is not Stage.CREATING:
            return
        run = kernel.run
        if run.loses_supervisor:
            self._finish(kernel, ReasonCode.SUPERVISOR_LOST)
        elif run.create_failure is not None and not (run.fails_at_go and not kernel.may_run):
            self._fail(kernel, run.create_failure)
        elif kernel.may_run:
            self._begin(kernel)
        else:
            kernel.stage = Stage.CREATED
            self.tell(kernel.key, ReportKind.CREATED)

    def _fail(self, kernel: Kernel, why: ReasonCode) -> None:
        kernel.stage = Stage.CREATE_FAILED
        kernel.last_seq = self.tell(kernel.key, ReportKind.CREATE_FAILED, reason=why)
        self._follow(kernel)

    def _begin(self, kernel: Kernel) -> None:
        if kernel.run.create_failure is not None:
            self._fail(kernel, kernel.run.create_failure)
            return
        kernel.stage = Stage.RUNNING
        self._begun(kernel)
        self.tell(
            kernel.key, ReportKind.STARTED, shares=kernel.shares, predecessor=kernel.predecessor
        )
        exited = self._when_awake(lambda: self._exit(kernel))
        kernel.due.append(self._timeline.after(kernel.run.seconds, exited))

    def _exit(self, kernel: Kernel) -> None:
        if kernel.stage is Stage.RUNNING:
            self._ending(kernel)  # the machine may go down with it
        if kernel.stage is Stage.RUNNING:
            run = kernel.run
            self._end(
                kernel,
                ReasonCode.EXITED,
                exit_code=run.exit_code,
                result=run.result,
                oom_kills=run.oom_kills,
                lost_output_bytes=run.lost_output_bytes,
            )

    def _stop(self, kernel: Kernel, grace_s: float, why: ReasonCode) -> None:
        if kernel.stage in WITH_PROCESSES:
            if kernel.stage is Stage.RUNNING:
                kernel.stage, kernel.stop_reason = Stage.STOPPING, why
                kernel.call_off()
            takes_s = grace_s if kernel.run.stubborn else min(grace_s, self._spawn_s)
            self._later(kernel, takes_s, lambda: self._stopped(kernel))
        elif kernel.stage in LIVE or kernel.stage is Stage.CREATE_FAILED:
            self._end_unstarted(kernel)

    def _stopped(self, kernel: Kernel) -> None:
        if kernel.stage is not Stage.STOPPING:
            return
        kernel.call_off()
        if (left_s := self._outlives_kill_s(kernel)) > 0:
            gone = self._when_awake(lambda: self._stopped(kernel))
            kernel.due.append(self._timeline.after(left_s, gone))
        elif kernel.run.stubborn:
            self._end(kernel, kernel.stop_reason, signal=9)
        elif kernel.run.stopped_exit_code is None:
            self._end(kernel, kernel.stop_reason, signal=15)
        else:
            self._end(kernel, kernel.stop_reason, exit_code=kernel.run.stopped_exit_code)

    def _outlives_kill_s(self, kernel: Kernel) -> float:
        """How long processes of a stubborn kernel are still there, after SIGKILL. None outlives a
        lease: a supervisor could not keep its promise."""
        now = self._timeline.clock.now()
        if not kernel.run.stubborn:
            return 0.0
        kernel.killed_at = now if kernel.killed_at is None else kernel.killed_at
        if self._machine.boot_s >= self.lease_end_s:
            return 0.0
        return kernel.killed_at + kernel.run.outlives_kill_s - now

    def _end_unstarted(self, kernel: Kernel) -> None:
        kernel.call_off()
        self._finish(kernel, ReasonCode.NEVER_STARTED)

    def _end(self, kernel: Kernel, why: ReasonCode, **facts: object) -> None:
        self._gone(kernel)
        heir = self._heir_of(kernel)
        self._finish(kernel, why, heir=None if heir is None else heir.key, **facts)
        if heir is not None:
            heir.shares, heir.predecessor = kernel.shares, kernel.key
            heir.stage = Stage.CREATING
            if heir.run.create_failure is not None:
                self._fail(heir, heir.run.create_failure)
            else:
                self._begin(heir)

    def _heir_of(self, kernel: Kernel) -> Kernel | None:
        shape = kernel.start.template.shape
        waiting = (each for each in self.kernels.values() if each.stage is Stage.BACKLOG)
        return next((each for each in waiting if each.start.template.shape == shape), None)

    def _finish(self, kernel: Kernel, why: ReasonCode, **facts: object) -> None:
        kernel.stage = Stage.LOST if why is ReasonCode.SUPERVISOR_LOST else Stage.ENDED
        kernel.last_seq = self.tell(kernel.key, ReportKind.ENDED, reason=why, **facts)
        self._follow(kernel)

    def _follow(self, kernel: Kernel) -> None:
        """Start the kernels that waited for the end of this one."""
        for each in list(self.kernels.values()):
            if each.stage is Stage.BEHIND and each.behind is kernel:
                each.behind = None
                self._enqueue(each, each.start)

    def _end_lease(self) -> None:
        for kernel in list(self.kernels.values()):
            if kernel.stage in LIVE:
                grace_s = min(kernel.start.template.grace_s, LEASE_GRACE_MAX_S)
                self._stop(kernel, grace_s, ReasonCode.LEASE_EXPIRED)

    def tell(self, key: KernelKey, kind: ReportKind, **facts: object) -> int:
        """Write down an event and report it; its number."""
        seq = next(self._seqs)
        report = KernelReport(*key, kind, self._machine.time_s, **facts)  # type: ignore[arg-type]
        self.journal.append((seq, report))
        self._journalled(report)
        if self.agent is not None:
            self.agent.heard(seq, report)
        return seq
