"""Situations of jobs that recover, by which tests reach all that their handlers declare."""

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.world import World

from muster.control import put_off
from muster.control.engine import coordinator
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.health.lifecycle import IncidentLifecycle
from muster.core.reasons.of_health import HealthIsolatedBy
from muster.core.specs import JobSpec, RecoverySpec
from muster.wire.messages import Start

HEALTH = {"max_unhealthy": 1.0, "passive": False, "leave": 0}


def gang_fails_though_a_task_succeeded(make: MakeWorld) -> World:
    def behaviour(start: Start) -> Run:
        return Run(3.0, exit_code=int(start.env.get("MUSTER_TASK_INDEX", "0")))

    world = make({"a": 1, "b": 1}, behaviour, health=HEALTH)
    world.submit(JobSpec(command=["x"], tasks=2, coscheduled=True, recovery=RecoverySpec()))
    world.run(30.0)
    return world


def isolated(world: World, name: str) -> None:
    """An operator takes a machine out of work; what follows is for later wakes."""
    agent = world.plane.live.agents[world.agent(name).id]
    why = HealthIsolatedBy(by="root", agent=name)

    def isolate(work: Work, parts: Parts) -> None:
        parts[IncidentLifecycle].isolate(work, agent, "Request", why)

    world.plane.ask(isolate, lambda answer, error: None)


def restart_begins_and_ends_between_two_looks_at_it(make: MakeWorld) -> World:
    world = make({"a": 1, "b": 1}, lambda start: Run(50.0), health=HEALTH)
    world.submit(JobSpec(command=["x"], recovery=RecoverySpec()))
    world.run(1.0)
    first = next(agent for agent in world.agents.values() if agent.running)
    world.behaviour = lambda start: Run(0.0)
    isolated(world, first.name)
    with pytest.MonkeyPatch.context() as patch:  # each wake ends with its first change
        for module in (coordinator, put_off):
            patch.setattr(module, "MAX_CHANGES", 0)
        for _ in range(80):
            world.wake()
            for agent in world.agents.values():
                agent.tick()
            world._deliver()
    return world


MOVING = [gang_fails_though_a_task_succeeded, restart_begins_and_ends_between_two_looks_at_it]
