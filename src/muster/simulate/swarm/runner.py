"""One run: steps drawn from a seed, or given, over a fresh world, until a violation or the end."""

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from muster.control.group.requests import GroupRequests
from muster.core.resources import Resources
from muster.core.specs import Level, ScalingGroup
from muster.simulate.hollow.agent import Offer
from muster.simulate.hollow.network import CALM
from muster.simulate.hollow.world import World
from muster.simulate.swarm.chance import Chance
from muster.simulate.swarm.databases import databases
from muster.simulate.swarm.faults import FAULTS
from muster.simulate.swarm.invariants import Judge, Tell, Violation, in_silence, unended
from muster.simulate.swarm.life import LIFE, draw_group
from muster.simulate.swarm.scene import USERS, Scene
from muster.simulate.swarm.steps import Kinds, Lot, Step

KINDS = Kinds(LIFE, FAULTS)
"""All kinds of steps; an entity's own join here."""
STEPS = 80
MIRROR_EVERY = 8
REST_S = 1500.0
"""How long all work may take once faults have stopped."""
CAPACITY = Resources(cpu_milli=4000, memory_bytes=64 << 30)


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    seed: int
    steps: list[Step] = field(default_factory=list)
    violation: Violation | None = None
    faults: Counter[str] = field(default_factory=Counter)
    wakes: int = 0
    seconds: float = 0.0


def draw_steps(seed: int, count: int = STEPS) -> list[Step]:
    """The steps of a seed."""
    lot = Lot(random.Random(seed))
    first = Step("group", {"policy": draw_group(lot.rng)})
    return [first, *(KINDS.draw(lot) for _ in range(count))]


def run(seed: int, steps: Sequence[Step] | None = None, tell: Tell = in_silence) -> Outcome:
    """Carry out the steps, let the world come to rest, and judge all the while.

    Args:
        steps: those of the seed unless given.
        tell: hears the story: moments in seconds since the beginning, and sentences.
    """
    steps = draw_steps(seed) if steps is None else steps
    outcome = Outcome(seed)
    chance, judge = Chance(seed), Judge(tell)
    with tempfile.TemporaryDirectory(prefix="muster-swarm-") as place:
        engine = databases().create(Path(place))
        world = World(
            Path(place),
            lambda: engine,
            {name: Offer(CAPACITY) for name in ("a", "b", "c")},
            chance,
            seed=seed,
            witness=judge,
        )
        judge.world = world
        scene = Scene(world)
        began = world.clock.now()
        try:
            world.run(1.0)
            for step in steps:
                outcome.steps.append(step)
                if KINDS.is_fault(step):
                    outcome.faults[step.name] += 1
                judge.note(f"-> {step}")
                KINDS.do(step, scene)
                world.run(0.01)
                if world.controller is None:
                    world.run(scene.away_s)
                    world.start_controller()
                    judge.note("the controller is back")
                judge.judge()
                if len(outcome.steps) % MIRROR_EVERY == 0 and not world.is_broken:
                    judge.judge_mirror(world.store)
            judge.note("faults stop")
            _come_to_rest(scene, chance)
            judge.judge()
            judge.judge_rest(world)
        except Violation as violation:
            outcome.violation = violation
            judge.note(f"VIOLATION: {violation}")
        finally:
            outcome.seconds = world.clock.now() - began
            world.close()
            outcome.wakes = world.wakes
    return outcome


def _come_to_rest(scene: Scene, chance: Chance) -> None:
    """Faults stop, bars and quotas fall, and what runs ends soon."""
    world = scene.world
    chance.is_kind = True
    world.fate.coming.clear()
    world.fate.sends_left = None
    world.weather = CALM
    world.start_controller()
    for agent in world.agents.values():
        agent.disk_full = False
        agent.prepare_failures.clear()
        agent.start()
    world.run(60.0)
    calm = {"name": "default", "agent_silence": 5, "kernel_lease": 20, "max_reschedules": 1000}
    policy = ScalingGroup.model_validate(calm)
    scene.ask(lambda work, parts: parts[GroupRequests].put_group(work, policy))
    name = str(USERS[0].owner)
    scene.ask(lambda work, parts: parts[GroupRequests].remove_quota(work, Level.USER, name))
    scene.unbar_all()

    def is_quiet() -> bool:
        return not (unended(world.store) or world.store.live.ledger)

    try:
        world.run_until(is_quiet, REST_S)
    except TimeoutError:
        return  # the judge says what is left
    world.run(60.0)
