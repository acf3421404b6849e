"""The twin of an agent, as far as the agents' protocol goes: it obeys the controller's messages,
has its hollow supervisor carry them out, and has reports to tell. Others carry its messages."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from muster.agent.health.sightings import SightingBox
from muster.agent.outbox import Outbox
from muster.core.health.counters import GpuMeans
from muster.core.ids import AgentId
from muster.core.reasons import ReasonCode
from muster.core.resources import Device, Resources
from muster.core.serving.port_holders import PortOrder, PortOrders
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
from proving.hollow.machine import Machine
from proving.hollow.ports import HollowPorts
from proving.hollow.route_probes import HollowRouteProbes
from proving.hollow.supervisor import HollowSupervisor

_GONE = {HeldStatus.ENDED, HeldStatus.LOST, HeldStatus.CREATE_FAILED}


@dataclass(frozen=True, slots=True)
class Offer:
    """The capacity and attributes that an agent offers."""

    capacity: Resources
    devices: tuple[Device, ...] = ()
    attributes: Mapping[str, str] | None = None


class AgentTwin:
    """An agent without a stream of its own.

    Attributes:
        instance: the name of its directory, which has its ports, sightings and journal.
        outbox: its reports that the controller has not acknowledged.
        prepare_failures: of the next kernels that it is to prepare, the last one first.
        probes: the probes that it makes of replicas on its machine; None if it cannot.
        sees_ports: whether it can watch ports.
        watched_ports: the ports that it watches, by route.
        loses: the kinds of commands that it hears and never carries out.
        gpus: the counters of its GPUs, which its next heartbeat tells.
        renewed_s: the moment on its boot clock of the heartbeat by which its lease was renewed.
    """

    def __init__(
        self, name: str, machine: Machine, supervisor: HollowSupervisor, offer: Offer, group: str
    ) -> None:
        self.name = name
        self.group = group
        self.machine = machine
        self.supervisor = supervisor
        self.offer = offer
        self.instance = f"{machine.name}-directory"
        self.disk_full = False
        self.sightings = SightingBox()
        self.probes: HollowRouteProbes | None = None
        self.knows_health_commands = True
        self.sees_ports = False
        self.watched_ports: dict[str, PortOrder] = {}
        self.loses: tuple[type[Command], ...] = ()
        self.gpus: tuple[GpuMeans, ...] = ()
        self.prepare_failures: list[ReasonCode] = []
        self.outbox = Outbox()
        self.ports = HollowPorts()
        self.renewed_s = 0.0

    def holds(self) -> set[KernelKey]:
        """The kernels that it, or its supervisor, has and could still run."""
        held = self.supervisor.inventory()
        kernels = {(each.kernel, each.generation) for each in held if each.status not in _GONE}
        return kernels.union(self.prepared_only())

    def prepared_only(self) -> list[KernelKey]:
        """The kernels that it has prepared, and the supervisor has not been told of."""
        return [key for key in self.ports.reserved if key not in self.supervisor.kernels]

    # -- its own messages ------------------------------------------------------------------------

    def hello_as(self, id_: AgentId) -> Hello:
        """The first message on a stream, by its identity."""
        held = self.supervisor.inventory()
        held += [HeldKernel(*key, HeldStatus.PREPARED) for key in self.prepared_only()]
        return Hello(
            agent=id_,
            name=self.name,
            group=self.group,
            boot_id=self.machine.boot_id,
            version="0",
            host="127.0.0.1",
            capacity=self.offer.capacity,
            devices=self.offer.devices,
            attributes=dict(self.offer.attributes or {}),
            kernels=tuple(held),
            instance=self.instance,
            sent_s=self.machine.boot_s,
            time_s=self.machine.time_s,
            disk_full=self.disk_full,
            probes=self.probes is not None,
            health_commands=self.probes is not None and self.knows_health_commands,
            ports=self.sees_ports,
        )

    def heartbeat(self) -> Heartbeat:
        """A heartbeat, by which its lease is renewed."""
        gpus, self.gpus = self.gpus, ()
        return Heartbeat(self.machine.boot_s, self.renewed_s, self.machine.time_s, gpus)

    def forget_stream(self) -> None:
        """A new stream begins: the orders of the last one are void, and everything that is
        unacknowledged is reported again."""
        if self.probes is not None:
            self.probes.forget()
        self.watched_ports.clear()
        self.rewind()

    def rewind(self) -> None:
        """Have everything that is unacknowledged reported again."""
        self.outbox.rewind([self._prepared_report(key) for key in self.prepared_only()])

    def attach(self) -> None:
        """Look after its supervisor, if another agent, or none, has done so until now."""
        if self.supervisor.agent is self:
            return
        self.supervisor.agent = self
        self.outbox = Outbox()
        self.renewed_s = 0.0
        self.outbox.acknowledge(self.supervisor.acknowledged_seq)
        for seq, report in self.supervisor.journal:
            self.outbox.add(seq, report)

    # -- its supervisor --------------------------------------------------------------------------

    def heard(self, seq: int, report: KernelReport) -> None:
        """An event of the supervisor's is to be told to the controller."""
        key = (report.kernel, report.generation)
        if report.reason is ReasonCode.KERNEL_VANISHED and key in self.ports.reserved:
            report = replace(report, reason=ReasonCode.NEVER_STARTED)
        if report.kind is ReportKind.ENDED:
            self.ports.release_fixed(key)
        self.outbox.add(seq, report)
        self.has_news()

    def supervisor_died(self) -> None:
        """The supervisor is gone; another takes over soon."""

    def has_news(self) -> None:
        """There is something in the outbox."""

    def refused(self) -> None:
        """The supervisor has refused to start a kernel, because the lease has run out."""

    # -- the controller's messages ---------------------------------------------------------------

    def hear(self, message: ControllerMessage) -> None:
        """Take a message of the controller's."""
        match message:
            case Renew(sent_s, lease_s):
                if sent_s >= self.renewed_s:
                    self.renewed_s = sent_s
                    self.supervisor.obey(lambda: self.supervisor.renew_lease(sent_s + lease_s))
            case Acknowledge(seq):
                for report in self.outbox.acknowledge(seq):
                    if report.kind is ReportKind.ENDED:
                        self.ports.release((report.kernel, report.generation))
                if seq > 0:
                    self.supervisor.obey(lambda: self.supervisor.acknowledge(seq))
            case HealthNoted(seq):
                self.sightings.noted(seq)
            case ProbeOrders() if self.probes is not None:
                self.probes.obey(message)
            case PortOrders(orders=orders) if self.sees_ports:
                for order in orders:
                    self.watched_ports.pop(order.route, None)
                    if order.port is not None:
                        self.watched_ports[order.route] = order
            case Commands(commands) if self.supervisor.agent is self:
                for command in commands:
                    self.obey(command)
            case ProbeOrders() | Commands() | PortOrders():
                pass  # what it does not say that it can do, and the commands for another agent
            case unknown:
                assert_never(unknown)

    def obey(self, command: Command) -> None:
        """Carry out a command."""
        if isinstance(command, self.loses):
            return
        match command:
            case Prepare():
                self._prepare(command)
            case Start():
                self.supervisor.obey(lambda: self._start(command))
            case Stop():
                self.supervisor.obey(lambda: self.supervisor.stop(command))
            case Go(kernel, generation):
                self.supervisor.obey(lambda: self.supervisor.go((kernel, generation)))
            case Recall(kernel, generation):
                self.supervisor.obey(lambda: self.supervisor.recall((kernel, generation)))
            case unknown:
                assert_never(unknown)

    def _start(self, command: Start) -> None:
        if not self.supervisor.start([command]) and self.supervisor.agent is self:
            self.refused()

    def _prepare(self, command: Prepare) -> None:
        key = (command.kernel, command.generation)
        why: ReasonCode | None = None
        if self.prepare_failures:
            why = self.prepare_failures.pop()
        elif not self.ports.reserve(command):
            why = ReasonCode.PORT_IN_USE
        if why is None:
            report = self._prepared_report(key)
        else:
            report = KernelReport(*key, ReportKind.PREPARE_FAILED, self.machine.time_s, reason=why)
        self.outbox.add_unnumbered(report)
        self.has_news()

    def _prepared_report(self, key: KernelKey) -> KernelReport:
        ports = self.ports.reserved[key]
        return KernelReport(*key, ReportKind.PREPARED, self.machine.time_s, ports=ports)
