"""The course of incidents, as commits pass their statuses."""

from collections import defaultdict

from muster.control.health.entity import Incident, name_of
from muster.core.ids import AgentId, KernelId, SessionId
from muster.core.states.health import HealthStatus
from muster.store.unit import Unit
from proving.hollow.agent import HollowAgent
from proving.hollow.health import Answered
from proving.swarm.invariants.placing import Placed
from proving.swarm.judge import Judge, Observer


class Course(Observer):
    """The statuses of incidents, each with the one before, as the latest commit passed them.

    ``answers`` are the checks of a session, as the machine carried them out.
    """

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._placed = judge.of(Placed)
        self._status: dict[str, HealthStatus] = {}
        self._of_session: dict[SessionId, set[KernelId]] = defaultdict(set)
        self.passed: list[tuple[Incident, HealthStatus | None, HealthStatus]] = []

    def committed(self, unit: Unit) -> None:
        touched = {name_of(each.id, each.agent_id): each for each in unit.touched[Incident]}
        self.passed = []
        for kind, name, status in unit.events():
            incident = touched.get(name) if kind == "incident" else None
            before = self._status.get(name)
            if incident is not None and status != before:  # else it was told of another change
                self._status[name] = now = HealthStatus(status)
                self.passed.append((incident, before, now))
        for kernel, session in self._placed.session_of.items():
            self._of_session[session.id].add(kernel)

    def answer(self, incident: Incident, session: SessionId) -> Answered | None:
        """The answer of the machine when this session checked it; None if it did not."""
        agent = self.machine(incident.agent_id)
        if agent is None:
            return None
        kernels = self._of_session[session]
        answers = agent.health.answers.items()
        return next((each for (kernel, _), each in answers if kernel in kernels), None)

    def machine(self, id_: AgentId) -> HollowAgent | None:
        for agent in self.world.agents.values():
            if agent.identity is not None and agent.identity.id == id_:
                return agent
        return None
