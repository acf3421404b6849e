"""Invariants of inputs: whoever waits for an answer gets one.

Users and agents repeat what nobody answers, so that a lost input costs them time alone and shows in
nothing else.
"""

from muster.core.ids import AgentId
from muster.wire.messages import Acknowledge, AgentMessage, ControllerMessage, Hello, Reports
from proving.swarm.judge import Invariant, Judge


class RequestsAreAnswered(Invariant):
    """A controller that ends, or is overtaken, owes nothing any more."""

    says = "each request that a controller took in is answered, once it is idle"

    def between_steps(self) -> None:
        controller = self.world.controller
        if controller is not None and controller.is_idle:
            waits = [f"{at:.3f}" for at in controller.inbox.asked.values()]
            self.expect(not waits, f"requests wait for their answers since {', '.join(waits)}")


class ReportsAreAcknowledged(Invariant):
    """A stream that has ended is forgotten: its agent repeats on the next one what it reported."""

    says = "each report that a controller took in is acknowledged, once it is idle"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._owed: dict[AgentId, list[int]] = {}  # the last numbers of batches

    def controller_died(self) -> None:
        self._owed.clear()

    def heard(self, agent: AgentId, message: AgentMessage) -> None:
        match message:
            case Hello():
                self._owed[agent] = []
            case Reports(last_seq):
                self._owed.setdefault(agent, []).append(last_seq)

    def sent(self, agent: AgentId, message: ControllerMessage) -> None:
        if isinstance(message, Acknowledge):
            owed = self._owed.get(agent, [])
            self._owed[agent] = [last_seq for last_seq in owed if last_seq > message.seq]

    def between_steps(self) -> None:
        controller = self.world.controller
        if controller is None or not controller.is_idle:
            return
        for agent in controller.desk.connected & self._owed.keys():
            owed = self._owed[agent]
            self.expect(not owed, f"{agent} waits for acknowledgements of {owed}")
