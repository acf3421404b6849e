"""A fake agent, which keeps to the agent protocol: idempotent commands, numbered reports repeated
until acknowledged, backlog, lease.

It acts within the calls of its test: no message is on its way, and time passes only in ``tick``.
The hollow agents of simulations are another thing: they have a supervisor, a network and faults.
A ``stubborn`` kernel of a fake agent is never ended by a Stop.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

from proving.hollow.services import has_it_reboot, result_of
from proving.hollow.supervisor import Behaviour, Run
from proving.hollow.virtual_clock import VirtualClock

from muster.core.health.counters import GpuMeans
from muster.core.ids import AgentId
from muster.core.reasons import ReasonCode
from muster.core.resources import Device, DeviceShare, Resources
from muster.core.serving.port_holders import PortOrder, PortOrders
from muster.core.serving.probes import ProbeOrder
from muster.wire.messages import (
    Acknowledge,
    Command,
    Commands,
    ControllerMessage,
    Go,
    HealthNoted,
    Heartbeat,
    HeldKernel,
    HeldStatus,
    Hello,
    KernelKey,
    KernelReport,
    Prepare,
    ProbeOrders,
    Recall,
    Renew,
    ReportKind,
    Start,
    Stop,
)


@dataclass(frozen=True, slots=True)
class LosesSupervisor(Run):
    """A kernel whose supervisor dies before it has told that the kernel began."""


@dataclass
class FakeAgent:
    """An agent that ``World`` drives. One that is not ``online`` loses what is sent to it and says
    nothing."""

    id: AgentId
    name: str
    clock: VirtualClock
    capacity: Resources
    devices: tuple[Device, ...]
    behaviour: Behaviour
    boot_id: str = "boot-1"
    clock_ahead_s: float = 0.0  # of the controller's
    instance: str = "dir-1"
    online: bool = True
    running: dict[KernelKey, tuple[Start, Run, float]] = field(default_factory=dict)
    queued: dict[KernelKey, Start] = field(default_factory=dict)
    creating: dict[KernelKey, tuple[Callable[[], None], float]] = field(default_factory=dict)
    prepared: dict[KernelKey, tuple[int, ...]] = field(default_factory=dict)
    held: dict[KernelKey, Callable[[], None]] = field(default_factory=dict)  # wait for Go
    supervisor_frozen: bool = False  # it neither creates nor lets run
    reports: list[KernelReport] = field(default_factory=list)
    acknowledged: int = 0
    gpus: tuple[GpuMeans, ...] = ()  # the next heartbeat tells them
    noted: int = 0  # the last of its sightings that control has dealt with
    starts: list[KernelKey] = field(default_factory=list)
    stops: list[float] = field(default_factory=list)  # the graces of the Stops that came
    seen: set[KernelKey] = field(default_factory=set)
    ports: "itertools.count[int]" = field(default_factory=lambda: itertools.count(20000))
    prepare_failures: list[ReasonCode] = field(default_factory=list)  # of the next Prepares
    taken: dict[int, KernelKey | None] = field(default_factory=dict)
    """Fixed ports that are in use on its machine, and its kernels that have them; None for another
    program. Agents of one machine share it."""
    lease_end_s: float = math.inf  # on the boot clock
    renewed_s: float = 0.0
    booted_at: float = 0.0
    lease_grace_s: float = 0.0  # how much longer its kernels need to end with the lease
    disk_full: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    probes: bool = False
    probed: dict[str, ProbeOrder] = field(default_factory=dict)  # as it was told to
    sees_ports: bool = False
    watched_ports: dict[str, PortOrder] = field(default_factory=dict)  # as it was told to
    asked_to_reboot: bool = False  # a service had the machine reboot; its test calls ``reboot``

    def hello(self) -> Hello:
        held = [HeldKernel(*key, HeldStatus.RUNNING) for key in self.running]
        held += [HeldKernel(*key, HeldStatus.QUEUED) for key in self.queued]
        held += [HeldKernel(*key, HeldStatus.CREATED) for key in self.held]
        held += [HeldKernel(*key, HeldStatus.PREPARED) for key in self.prepared]
        held += [
            HeldKernel(report.kernel, report.generation, _held_as(report))
            for report in self.reports
            if report.kind is ReportKind.ENDED
        ]
        return Hello(
            self.id,
            self.name,
            "default",
            self.boot_id,
            "0",
            "127.0.0.1",
            self.capacity,
            self.devices,
            self.attributes,
            tuple(held),
            instance=self.instance,
            sent_s=self.boot_s,
            time_s=self.time_s,
            disk_full=self.disk_full,
            probes=self.probes,
            ports=self.sees_ports,
        )

    @property
    def time_s(self) -> float:
        """The time of day, as its machine has it."""
        return self.clock.now() + self.clock_ahead_s

    @property
    def boot_s(self) -> float:
        """Its boot clock."""
        return self.clock.now() - self.booted_at

    def heartbeat(self) -> Heartbeat:
        gpus, self.gpus = self.gpus, ()
        return Heartbeat(self.boot_s, self.renewed_s, self.time_s, gpus)

    def receive(self, message: ControllerMessage) -> None:
        match message:
            case Renew(sent_s, lease_s):
                if sent_s >= self.renewed_s:
                    self.renewed_s, self.lease_end_s = sent_s, sent_s + lease_s
            case ProbeOrders(orders):
                for order in orders:
                    self.probed.pop(order.route, None)
                    if order.target is not None:
                        self.probed[order.route] = order
            case PortOrders(orders=port_orders):
                for each in port_orders:
                    self.watched_ports.pop(each.route, None)
                    if each.port is not None:
                        self.watched_ports[each.route] = each
            case HealthNoted(seq):
                self.noted = max(self.noted, seq)
            case Acknowledge(seq):
                done = seq - self.acknowledged
                self.acknowledged = seq
                del self.reports[:done]
            case Commands(commands):
                for command in commands:
                    self._obey(command)
            case unknown:
                assert_never(unknown)

    def _obey(self, command: Command) -> None:
        key = (command.kernel, command.generation)
        if self.supervisor_frozen and not isinstance(command, Prepare):
            return
        if isinstance(command, Start) and self.boot_s >= self.lease_end_s:
            return  # it is refused: the lease has run out
        match command:
            case Prepare() if self.prepare_failures:
                reason = self.prepare_failures.pop()
                self._report(key, ReportKind.PREPARE_FAILED, reason=reason)
            case Prepare(port=int(port)) if self.taken.setdefault(port, key) != key:
                self._report(key, ReportKind.PREPARE_FAILED, reason=ReasonCode.PORT_IN_USE)
            case Prepare(ports=count):
                ports = self.prepared.setdefault(key, tuple(next(self.ports) for _ in range(count)))
                self._report(key, ReportKind.PREPARED, ports=ports)
            case Start(queued=True):
                if key not in self.seen:
                    self.seen.add(key)
                    self.queued[key] = command
            case Start():
                was_queued = self.queued.pop(key, None) is not None
                if was_queued or key not in self.seen:
                    self._start(command, command.shares, None)
            case Go():
                if key in self.held:
                    self.held.pop(key)()
            case Stop(grace_s=grace_s):
                self.stops.append(grace_s)
                self._stop(key)
            case Recall():
                if self.queued.pop(key, None) is not None:
                    self._report(key, ReportKind.ENDED, reason=ReasonCode.NEVER_STARTED)
            case unknown:
                assert_never(unknown)

    def _start(
        self, start: Start, shares: tuple[DeviceShare, ...], predecessor: KernelKey | None
    ) -> None:
        key = (start.kernel, start.generation)
        run = self.behaviour(start)
        self.prepared.pop(key, None)
        fail = partial(self._report, key, ReportKind.CREATE_FAILED, reason=run.create_failure)
        if run.create_failure is not None:
            if run.fails_at_go and start.hold:
                self._hold(key, fail)
            else:
                fail()
            return
        self.seen.add(key)
        self.starts.append(key)
        if isinstance(run, LosesSupervisor):
            self._report(key, ReportKind.ENDED, reason=ReasonCode.SUPERVISOR_LOST)
            return
        begin = partial(self._begin, start, shares, run, predecessor)
        if start.hold:
            begin = partial(self._hold, key, begin)
        if run.creating_s:
            self.creating[key] = begin, self.clock.now() + run.creating_s
        else:
            begin()

    def _hold(self, key: KernelKey, begin: Callable[[], None]) -> None:
        self.held[key] = begin
        self._report(key, ReportKind.CREATED)

    def _begin(
        self,
        start: Start,
        shares: tuple[DeviceShare, ...],
        run: Run,
        predecessor: KernelKey | None,
    ) -> None:
        key = (start.kernel, start.generation)
        self.running[key] = (start, run, self.clock.now() + run.seconds)
        self._report(key, ReportKind.STARTED, shares=shares, predecessor=predecessor)

    def _stop(self, key: KernelKey) -> None:
        if key in self.running:
            _, run, _ = self.running[key]
            if not run.stubborn:
                code = run.stopped_exit_code
                signal = 15 if code is None else None
                self._end(key, ReasonCode.STOPPED, code, signal=signal)
        elif self.queued.pop(key, None) is not None or self.held.pop(key, None) is not None:
            self._report(key, ReportKind.ENDED, reason=ReasonCode.NEVER_STARTED)
        else:
            self.seen.add(key)
            self.prepared.pop(key, None)
            self.creating.pop(key, None)
            self._report(key, ReportKind.ENDED, reason=ReasonCode.KERNEL_VANISHED)

    def _end(
        self, key: KernelKey, why: ReasonCode, exit_code: int | None, signal: int | None = None
    ) -> None:
        start, run, _ = self.running.pop(key)
        shape, service = start.template.shape, start.template.service
        heir = next((k for k, s in self.queued.items() if s.template.shape == shape), None)
        result = None
        if why is ReasonCode.EXITED and exit_code is not None:
            result = result_of(service, run.result)
            self.asked_to_reboot |= has_it_reboot(service, exit_code)
        self._report(
            key,
            ReportKind.ENDED,
            reason=why,
            exit_code=exit_code,
            signal=signal,
            heir=heir,
            result=result,
        )
        if heir is not None:
            self._start(self.queued.pop(heir), start.shares, key)

    def tick(self) -> None:
        """Begin what has been created, and end what has run its time, or its lease."""
        if self.boot_s >= self.lease_end_s + self.lease_grace_s:
            self.creating.clear()
            for key in [*self.queued, *self.held]:
                self._stop(key)
            for key in [*self.running]:
                self._end(key, ReasonCode.LEASE_EXPIRED, None, signal=15)
        for key, (begin, due) in list(self.creating.items()):
            if due <= self.clock.now():
                del self.creating[key]
                begin()
        for key, (_, run, due) in list(self.running.items()):
            if due <= self.clock.now():
                self._end(key, ReasonCode.EXITED, run.exit_code)

    def reboot(self, *, keeps_journal: bool = False) -> None:
        self.boot_id += "'"
        self.asked_to_reboot = False
        self.booted_at = self.clock.now()
        self.lease_end_s, self.renewed_s = math.inf, 0.0
        self.running.clear()
        self.queued.clear()
        self.creating.clear()
        self.held.clear()
        self.prepared.clear()
        self.taken.clear()
        if not keeps_journal:
            self.reports.clear()

    def _report(self, key: KernelKey, kind: ReportKind, **facts: object) -> None:
        if kind is ReportKind.ENDED:
            for port in [port for port, its in self.taken.items() if its == key]:
                del self.taken[port]
        report = KernelReport(*key, kind, self.time_s, **facts)  # type: ignore[arg-type]
        self.reports.append(report)


def _held_as(end: KernelReport) -> HeldStatus:
    return HeldStatus.LOST if end.reason is ReasonCode.SUPERVISOR_LOST else HeldStatus.ENDED


def kernel_index(start: Start) -> int:
    return int(start.env["MUSTER_KERNEL_INDEX"])


def task_index(start: Start) -> int:
    return int(start.env["MUSTER_TASK_INDEX"])


def attempt(start: Start) -> int:
    return int(start.env["MUSTER_ATTEMPT"])
