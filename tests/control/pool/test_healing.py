"""Slices of which a machine is being healed are no idle ones."""

from pathlib import Path

from tests.control.pool.pooled import make, only
from tests.control.pool_scenarios import job
from tests.control.world import World

from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.health.lifecycle import IncidentLifecycle
from muster.core.reasons.of_health import HealthHealAsked
from muster.core.states import JobState
from muster.core.states.health import ILL, HealthStatus


def heal(world: World) -> None:
    """Have all machines rebooted."""

    def decide(work: Work, parts: Parts) -> None:
        why = HealthHealAsked(by="ada")
        for agent in list(work.live.agents.values()):
            parts[IncidentLifecycle].heal(work, agent, "Request", why)

    world.ask(decide)


def test_a_slice_is_not_idle_while_its_machine_is_healed(tmp_path: Path) -> None:
    world = make(tmp_path, idle_timeout=10)
    submitted = world.submit(job("one"))
    world.run_until(lambda: submitted.status is JobState.SUCCEEDED)
    heal(world)
    world.run(200)
    (agent,) = world.plane.live.agents.values()
    assert agent.ill == ILL[HealthStatus.REBOOTING]
    assert only(world).doomed is None
    world.run_until(lambda: not world.slices(), 5000)  # it did not come back
    world.close()
