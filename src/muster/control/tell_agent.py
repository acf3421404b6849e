"""The effects whose performers talk to agents (design: Effects)."""

from typing import NamedTuple

from muster.control.engine.effects import ORDERS
from muster.core.ids import AgentId
from muster.core.serving.port_holders import PortOrder
from muster.core.serving.probes import ProbeOrder
from muster.wire.messages import Acknowledge, Command, HealthNoted, Hello, KernelKey


class TellAgent(NamedTuple):
    """Tell an agent something.

    A command is idempotent by (kernel, generation); a lost command is repeated when the agent says
    Hello. Its own ``Hello`` makes the stream on which it came the agent's current one, and grants
    the lease that it asked for; commands and acknowledgements emitted before it in the same wake
    are about the kernels that the agent held before, and are dropped. A key as the message says
    that the end of this kernel was reported: earlier commands for the kernel are dropped. Of the
    orders to probe a route, or to look at its port, the last one is told. None says that the
    agent's stream ended.
    """

    agent: AgentId
    message: Command | Acknowledge | HealthNoted | ProbeOrder | PortOrder | Hello | KernelKey | None


class CloseStream(NamedTuple):
    """End an agent's stream, and hear no Hello of the agent for a while."""

    agent: AgentId
    why: str


ORDERS.add(TellAgent)
