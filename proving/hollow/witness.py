"""The witness of a hollow world: it is told of all events there, also of events that the controller
never learns of."""

from typing import TYPE_CHECKING

from muster.core.ids import AgentId
from muster.store.unit import Unit
from muster.wire.messages import AgentMessage, ControllerMessage, KernelReport

if TYPE_CHECKING:
    from proving.hollow.agent import HollowAgent
    from proving.hollow.supervisor import Kernel


class Witness:
    """A witness that ignores all events; a subclass overrides the methods of the events that it
    watches."""

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

    def overtaken_sent(self, agent: AgentId, message: ControllerMessage) -> None:
        """A message to an agent is on its way from a controller whose place another has taken."""

    def committed(self, unit: Unit) -> None:
        """The unit was written; its mirror is as SQL is."""

    def woke(self) -> None:
        """A wake of the controller is over. Who raises here ends the run."""

    def controller_died(self) -> None:
        """The controller was killed: it has forgotten all messages that it had not committed."""
