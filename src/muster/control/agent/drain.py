"""DrainAgents: kernels that a draining agent still runs at its deadline are stopped."""

from muster.control.engine.handler import FollowingHandler, Stage
from muster.control.engine.work import Work
from muster.control.session.cluster.guard import HELD_UP_S
from muster.control.session.lifecycle import SessionLifecycle
from muster.core.reasons.of_sessions import Drained
from muster.core.states import AGENT_TABLE, AgentBar
from muster.store.records import Agent


class DrainAgents(FollowingHandler[Agent]):
    """Stops the work on agents whose deadline has come; until then work may end by itself. A
    stopped kernel stays charged until its processes are proven gone, so an agent that does not
    answer still counts as occupied. A service, which is about the machine itself, goes on. Replicas
    of deployments leave as the budgets of these allow."""

    name = "DrainAgents"
    stage = Stage.OBSERVE
    entity = Agent
    statuses = frozenset(AGENT_TABLE.live)

    def __init__(self, sessions: SessionLifecycle) -> None:
        self._sessions = sessions

    def follow(self, record: Agent, work: Work) -> None:
        if record.barred is not AgentBar.DRAINING or record.leave_by is None:
            return
        if work.now < record.leave_by:
            return
        why = Drained(agent=record.name, note=record.bar_note)
        for kernel_id, generation in list(work.live.allocations_on.get(record.id, ())):
            kernel = work.live.kernels.get(kernel_id)
            if kernel is None or kernel.generation != generation:
                continue
            if kernel.session.service is None:
                until = record.leave_by + HELD_UP_S
                self._sessions.displace(work, kernel.session, self.name, why, until)
