"""The scene of a run: the world, and what its users remember of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from muster.control.agent.requests import AgentRequests
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.job.requests import JobRequests
from muster.control.session.requests import SessionRequests
from muster.core.ids import AgentId
from muster.core.owner import Owner, Principal, Role
from muster.core.specs import JobSpec, SessionSpec
from muster.simulate.hollow.agent import HollowAgent
from muster.simulate.hollow.world import Asked, World
from muster.store.queries.dependencies import read_ended
from muster.store.records import Job, Session

USERS = tuple(Principal(Owner("default", "default", name), Role.USER) for name in ("ada", "bob"))
ADMIN = Principal(Owner("default", "default", "root"), Role.ADMIN)


@dataclass
class Scene:
    """``submitted`` are the requests of users for work, by number; ``away_s`` is how long the
    controller stays away once it is killed, as the latest step that may kill it says."""

    world: World
    submitted: dict[int, Asked] = field(default_factory=dict)
    away_s: float = 0.0

    # Steps name things by numbers, so that they keep their sense when other steps are taken out.

    def agent(self, number: int) -> HollowAgent:
        agents = [*self.world.agents.values()]
        return agents[number % len(agents)]

    def work(self, number: int) -> Job | Session | None:
        """The job or session of a submission, if it was accepted."""
        asked = self.submitted.get(number)
        return None if asked is None else asked.result

    def submit(self, number: int, spec: JobSpec | SessionSpec, user: Principal) -> None:
        world = self.world
        if world.controller is None:
            return
        with world.store.engine.connect() as connection:
            ended = read_ended(connection, user.owner, [each.on for each in spec.after])

        def action(work: Work, parts: Parts) -> Any:
            if isinstance(spec, SessionSpec):
                return parts[SessionRequests].submit(work, user, spec, ended)
            return parts[JobRequests].submit(work, user, spec, ended)

        self.submitted[number] = world.ask(action)

    def ask(self, action: Callable[[Work, Parts], Any]) -> None:
        """Ask for a change; whether it is refused matters to nobody."""
        self.world.ask(action)

    def unbar_all(self) -> None:
        """Have all agents take work again."""
        for agent in self.world.agents.values():
            if agent.identity is not None:
                self.ask(partial(_unbar, agent.identity.id))


def _unbar(id_: AgentId, work: Work, parts: Parts) -> None:
    parts[AgentRequests].bar(work, ADMIN, id_, None)
