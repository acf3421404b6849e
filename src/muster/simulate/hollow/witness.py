"""Who hears of what really happens in a hollow world."""

from typing import TYPE_CHECKING

from muster.core.ids import AgentId
from muster.store.unit import Unit
from muster.wire.messages import AgentMessage, ControllerMessage, KernelReport

if TYPE_CHECKING:
    from muster.simulate.hollow.agent import HollowAgent
    from muster.simulate.hollow.supervisor import Kernel


class Witness:
    """Hears of everything, and cares for nothing: whoever watches overrides what matters."""

    def begun(self, agent: "HollowAgent", kernel: "Kernel") -> None:
        """A process of the kernel runs from now on."""

    def gone(self, agent: "HollowAgent", kernel: "Kernel") -> None:
        """No process of the kernel is left."""

    def journalled(self, agent: "HollowAgent", report: KernelReport) -> None:
        """The agent's supervisor wrote down what happened just now."""

    def heard(self, agent: AgentId, message: AgentMessage) -> None:
        """A message of an agent has come in; the next wake takes it."""

    def sent(self, agent: AgentId, message: ControllerMessage) -> None:
        """A message to an agent is on its way."""

    def committed(self, unit: Unit) -> None:
        """The unit was written; its mirror is as SQL is."""

    def controller_died(self) -> None:
        """What it had heard and not committed is forgotten."""
