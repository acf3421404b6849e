"""The story of a run: who said what, what was decided, and what happened on machines."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from muster.core.ids import AgentId, KernelId
from muster.store.unit import Unit
from muster.wire.messages import (
    AgentMessage,
    Commands,
    ControllerMessage,
    Disk,
    HealthSeen,
    Hello,
    KernelReport,
    Reports,
)
from proving.hollow.agent import HollowAgent
from proving.hollow.supervisor import Kernel
from proving.hollow.witness import Witness
from proving.swarm.chance import attempt_of
from proving.swarm.scene import Request, Scene

Tell: TypeAlias = Callable[[float, str], None]


def in_silence(moment: float, sentence: str) -> None:
    """Tell nobody."""


class Story(Witness):
    """Tells all that a witness hears.

    Args:
        tell: hears the story: moments in seconds since the beginning, and sentences.
    """

    def __init__(self, scene: Scene, tell: Tell) -> None:
        self._scene = scene
        self._tell = tell
        self._began = scene.world.clock.now()

    def note(self, sentence: str) -> None:
        """Tell the next sentence."""
        self._tell(self._scene.world.clock.now() - self._began, sentence)

    def answered(self, request: Request) -> None:
        self.note(f"   {request}")

    def begun(self, agent: HollowAgent, kernel: Kernel) -> None:
        attempt = attempt_of(kernel.start)
        of = "" if attempt is None else ": task {1} of {0}, attempt {2}".format(*attempt)
        self.note(f"   {_name(kernel.start)} begins on {agent.name}{of}")

    def gone(self, agent: HollowAgent, kernel: Kernel) -> None:
        self.note(f"   {_name(kernel.start)} is gone from {agent.name}")

    def heard(self, agent: AgentId, message: AgentMessage) -> None:
        match message:
            case Hello():
                held = ", ".join(f"{_name(each)} {each.status}" for each in message.kernels)
                self.note(f"   {self._called(agent)} says Hello, and holds {held or 'nothing'}")
            case Reports():
                for report in message.reports:
                    self.note(f"   {self._called(agent)} reports {_told(report)}")
            case Disk():
                self.note(f"   {self._called(agent)} has {'no ' * message.full}room on its disk")
            case HealthSeen():
                for seen in message.sightings:
                    self.note(f"   {self._called(agent)} sees of itself: {seen.what}")

    def sent(self, agent: AgentId, message: ControllerMessage) -> None:
        if isinstance(message, Commands):
            for each in message.commands:
                told = f"{type(each).__name__} {_name(each)}"
                self.note(f"   {self._called(agent)} is told: {told}")

    def committed(self, unit: Unit) -> None:
        for kind, name, status in unit.events():
            self.note(f"      {kind} {name}: {status}")

    def controller_died(self) -> None:
        self.note("   the controller is gone")

    def _called(self, id_: AgentId) -> str:
        for agent in self._scene.world.agents.values():
            if agent.identity is not None and agent.identity.id == id_:
                return agent.name
        return id_


class _OfKernel(Protocol):
    @property
    def kernel(self) -> KernelId: ...
    @property
    def generation(self) -> int: ...


def _name(of: _OfKernel) -> str:
    return f"{of.kernel} ({of.generation})"


def _told(report: KernelReport) -> str:
    code = f", exit code {report.exit_code}" if report.exit_code is not None else ""
    why = f": {report.reason}{code}" if report.reason is not None else ""
    heir = "" if report.heir is None else "; its heir is {} ({})".format(*report.heir)
    return f"{_name(report)} {report.kind}{why}{heir}"
