"""One run: steps drawn from a seed, or given, over a fresh world, until a violation or the end."""

import random
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from muster.control.deployment.publishing.settings import FILE as TRAFFIC
from muster.control.health.rebooting.settings import FILE as REBOOTS
from muster.core.packages import modules_of, objects_of
from muster.core.resources import Device, Resources
from proving.hollow.agent_twin import Offer
from proving.hollow.controller import Wakes
from proving.hollow.world import World
from proving.swarm import parts
from proving.swarm.chance import Chance
from proving.swarm.databases import databases
from proving.swarm.invariants.rest import unended
from proving.swarm.judge import Invariant, Judge, Violation
from proving.swarm.part import Part
from proving.swarm.parts.operators import draw_group
from proving.swarm.scene import Scene
from proving.swarm.steps import Kinds, Lot, Step
from proving.swarm.story import Tell, in_silence
from proving.swarm.wayward import on_a_short_leash

PARTS: Sequence[Part] = sorted(objects_of(modules_of(parts), Part), key=lambda part: part.place)
"""The parts of every run, which modules of ``proving.swarm.parts`` declare, in the order in which
their steps are drawn and in which they are calmed."""
KINDS = Kinds(*(part.kinds for part in PARTS))
INVARIANTS = tuple(each for part in PARTS for each in part.invariants)
STEPS = 80
_REBOOT_COMMAND = "reboot_command: [hollow]"
"""Operators have one, so that machines of no pool can be rebooted from outside; nobody runs it."""
_TRAFFIC = "etcd: {endpoints: ['http://127.0.0.1:1']}"
"""They have a balancer, a hollow one; nobody connects there."""
NO_ERROR = "no step and no invariant has an error"
REST_S = 1500.0
"""Seconds within which all work must end once faults have stopped."""
OFFER = Offer(
    Resources(cpu_milli=4000, memory_bytes=64 << 30, gpu_milli=2000),
    (Device(0, "H100"), Device(1, "H100")),
)


@dataclass(slots=True)
class RunResult:
    """The result of a run: ``faults`` counts its faults by kind, ``evaluated`` the evaluations of
    each invariant. ``seconds`` are of virtual time, ``processor_s`` of the processor's."""

    seed: int
    steps: list[Step] = field(default_factory=list)
    violation: Violation | None = None
    faults: Counter[str] = field(default_factory=Counter)
    evaluated: Counter[str] = field(default_factory=Counter)
    wakes: Wakes = field(default_factory=Wakes)
    seconds: float = 0.0
    processor_s: float = 0.0


def draw_steps(seed: int, count: int = STEPS) -> list[Step]:
    """The steps of a seed: ``count``, and those that come in between. In a third of all seeds work
    asks for devices, which decide where it may lie, in a quarter for memory; in the others it may
    lie anywhere. Some kinds of steps are those of every so many seeds."""
    lot = Lot(random.Random(seed), seed, uses_devices=seed % 3 == 0, uses_memory=seed % 4 == 1)
    first = Step("group", {"policy": draw_group(lot)})
    return [first, *(step for _ in range(count) for step in KINDS.draw(lot))]


def run(
    seed: int,
    steps: Sequence[Step] | None = None,
    tell: Tell = in_silence,
    invariants: Sequence[type[Invariant]] = INVARIANTS,
) -> RunResult:
    """Carry out the steps, let the world come to rest, and judge all the while.

    Args:
        steps: those of the seed unless given.
        invariants: those that are judged.
        tell: hears the story: moments in seconds since the beginning, and sentences.
    """
    steps = draw_steps(seed) if steps is None else steps
    result = RunResult(seed)
    chance = Chance(seed)
    began_s = time.process_time()
    with tempfile.TemporaryDirectory(prefix="muster-swarm-") as place, on_a_short_leash():
        engine = databases().create(Path(place))
        (Path(place) / REBOOTS).write_text(_REBOOT_COMMAND)
        (Path(place) / TRAFFIC).write_text(_TRAFFIC)
        world = World(Path(place), lambda: engine, chance, seed=seed)
        scene = Scene(world, chance)
        world.witness = judge = Judge(scene, invariants, tell)
        began = world.clock.now()
        try:
            world.begin(dict.fromkeys(("a", "b", "c"), OFFER))
            scene.invite_users()
            world.run(1.0)
            for step in steps:
                result.steps.append(step)
                if KINDS.is_fault(step):
                    result.faults[_kind_of(step)] += 1
                judge.story.note(f"-> {step}")
                KINDS.do(step, scene)
                world.run(0.01)
                judge.judge()
            judge.story.note("faults stop")
            _come_to_rest(scene)
            judge.judge_rest()
        except Violation as violation:
            result.violation = violation
        except Exception:  # of a step or an invariant: a soak tells the seed, and goes on
            result.violation = Violation(NO_ERROR, traceback.format_exc())
        finally:
            result.evaluated = judge.evaluated
            result.seconds = world.clock.now() - began
            if result.violation is not None:
                judge.story.note(f"VIOLATION: {result.violation.kind}: {result.violation}")
            world.close()
            result.wakes = world.wakes
            result.processor_s = time.process_time() - began_s
    return result


def _kind_of(fault: Step) -> str:
    kind = fault.params.get("kind")
    return fault.name if kind is None else f"{fault.name} ({kind})"


def _come_to_rest(scene: Scene) -> None:
    """Faults stop, and what runs ends soon."""
    world = scene.world
    for part in PARTS:
        part.calm(scene)
    with suppress(TimeoutError):  # the judge says what is left
        world.run_until(lambda: world.is_quiet and not unended(world.store), REST_S)
