"""A hollow agent that its test drives: the test carries its messages, at once and by hand, and time
passes only in ``tick``."""

from collections.abc import Mapping
from dataclasses import replace

from proving.hollow.agent_twin import AgentTwin, Offer
from proving.hollow.machine import Machine
from proving.hollow.route_probes import HollowRouteProbes
from proving.hollow.services import has_it_reboot, result_of
from proving.hollow.stages import Stage
from proving.hollow.supervisor import Behaviour, HollowSupervisor, Kernel, Run
from proving.hollow.timeline import Timeline
from proving.hollow.virtual_clock import VirtualClock

from muster.core.ids import AgentId
from muster.core.resources import Device, Resources
from muster.core.serving.probes import ProbeOrder
from muster.wire.messages import (
    Command,
    ControllerMessage,
    HealthNoted,
    Hello,
    KernelKey,
    KernelReport,
    ReportKind,
    Reports,
    Start,
)

ALL = 1_000_000
"""More reports than there are: all of them are sent at once."""

UP_FOR_S = 7 * 86_400.0
"""How long its machine has been up when it joins."""


class DrivenAgent(AgentTwin):
    """An agent that ``World`` drives. One that is not ``online`` loses what is sent to it and says
    nothing.

    Attributes:
        behaviour: of its kernels; those of services leave what a healthy machine has them leave.
        starts: the kernels whose processes were made, in order, also of those that wait to run.
        commands: the commands that it heard, in order.
        noted: the last of its sightings that control has dealt with.
        asked_to_reboot: whether a service had the machine reboot; its test calls ``reboot``.
    """

    def __init__(
        self,
        id_: AgentId,
        name: str,
        clock: VirtualClock,
        capacity: Resources,
        devices: tuple[Device, ...],
        behaviour: Behaviour,
        attributes: Mapping[str, str] | None = None,
        group: str = "default",
    ) -> None:
        self.timeline = Timeline(clock)
        machine = Machine(name, clock)
        machine.booted_at -= UP_FOR_S
        supervisor = HollowSupervisor(
            self.timeline,
            machine,
            self._course,
            lambda kernel: self.begun(kernel),
            lambda kernel: None,
            self._journalled,
            self._ending,
            spawn_s=0.0,
        )
        offer = Offer(capacity, devices, attributes)
        super().__init__(name, machine, supervisor, offer, group)
        self.id = id_
        self.online = True
        self.behaviour = behaviour
        self.starts: list[KernelKey] = []
        self._ready: set[KernelKey] = set()  # that were made to wait
        self.commands: list[Command] = []
        self.noted = 0
        self.asked_to_reboot = False
        self.attach()

    # -- its kernels -----------------------------------------------------------------------------

    @property
    def running(self) -> dict[KernelKey, Kernel]:
        """The kernels whose processes run."""
        return self._in(Stage.RUNNING, Stage.STOPPING)

    @property
    def queued(self) -> dict[KernelKey, Kernel]:
        """The kernels that wait for one of their shape to end."""
        return self._in(Stage.BACKLOG)

    @property
    def creating(self) -> dict[KernelKey, Kernel]:
        """The kernels whose processes are being made."""
        return self._in(Stage.CREATING)

    @property
    def held(self) -> dict[KernelKey, Kernel]:
        """The kernels that are ready and wait for their gang."""
        return self._in(Stage.CREATED)

    def begun(self, kernel: Kernel) -> None:
        """The process of a kernel runs from now on."""

    def _journalled(self, report: KernelReport) -> None:
        key = (report.kernel, report.generation)
        if report.kind is ReportKind.CREATED:
            self._ready.add(key)
            self.starts.append(key)
        elif report.kind is ReportKind.STARTED and key not in self._ready:
            self.starts.append(key)

    def _in(self, *stages: Stage) -> dict[KernelKey, Kernel]:
        kernels = self.supervisor.kernels
        return {key: kernel for key, kernel in kernels.items() if kernel.stage in stages}

    def _course(self, start: Start) -> Run:
        run, service = self.behaviour(start), start.template.service
        return run if service is None else replace(run, result=result_of(service, run.result))

    def _ending(self, kernel: Kernel) -> None:
        service = kernel.start.template.service
        self.asked_to_reboot |= has_it_reboot(service, kernel.run.exit_code)

    # -- messages --------------------------------------------------------------------------------

    @property
    def acknowledged(self) -> int:
        """The number of its last report that control has acknowledged."""
        return self.supervisor.acknowledged_seq

    @property
    def reports(self) -> list[KernelReport]:
        """Its numbered reports that control has not acknowledged."""
        return [report for _, report in self.supervisor.journal]

    def hello(self) -> Hello:
        """Its Hello."""
        return self.hello_as(self.id)

    def news(self, limit: int = ALL) -> Reports | None:
        """The reports that it has not sent on its stream yet; None if there are none."""
        return self.outbox.take(limit) if self.outbox else None

    def all_reports(self) -> Reports:
        """Everything unacknowledged, in a message that its test carries by hand; it is sent on its
        stream nevertheless."""
        self.rewind()
        told = self.outbox.take(ALL)
        self.rewind()
        return told

    def can_probe(self) -> None:
        """Have it be of a version that can probe replicas; its test tells what it finds out."""
        self.probes = HollowRouteProbes(self.timeline, lambda *_: None, lambda told: None)

    @property
    def probed(self) -> dict[str, ProbeOrder]:
        """The probes that it was ordered to make, by their routes."""
        return {} if self.probes is None else self.probes.orders

    def hear(self, message: ControllerMessage) -> None:
        if isinstance(message, HealthNoted):
            self.noted = max(self.noted, message.seq)
        super().hear(message)

    def obey(self, command: Command) -> None:
        self.commands.append(command)
        super().obey(command)

    # -- time ------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Have everything happen that is due by now: kernels end, and leases run out."""
        self.timeline.run(0.0)

    def reboot(self, *, keeps_disk: bool = True) -> None:
        """The machine boots anew, with its disk as it was or without what its supervisor wrote."""
        self.asked_to_reboot = False
        self.ports.clear()
        self.machine.reboot()
        self.supervisor.reboot()
        if not keeps_disk:
            self.supervisor.kernels.clear()
            self.supervisor.journal.clear()
        self.attach()


def kernel_index(start: Start) -> int:
    return int(start.env["MUSTER_KERNEL_INDEX"])


def task_index(start: Start) -> int:
    return int(start.env["MUSTER_TASK_INDEX"])


def attempt(start: Start) -> int:
    return int(start.env["MUSTER_ATTEMPT"])
