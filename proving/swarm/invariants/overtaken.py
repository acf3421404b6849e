"""An invariant of controllers whose place another has taken (design: Storage)."""

from muster.core.ids import AgentId
from muster.wire.messages import ControllerMessage, Renew
from proving.swarm.judge import Invariant


class OvertakenOnlyRenew(Invariant):
    """It commits nothing, and so has nothing to tell; until it knows that, it renews leases, for
    which its successor waits. An agent that goes back to it hears no more than that: no command,
    and no acknowledgement of reports that nobody will ever read."""

    says = "a controller that was overtaken tells agents nothing but that leases are renewed"

    def overtaken_sent(self, agent: AgentId, message: ControllerMessage) -> None:
        self.expect(
            isinstance(message, Renew), f"{agent} is told by a former controller: {message}"
        )
