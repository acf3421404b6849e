"""Steps at which two systems meet: a fault is healed beside a machine that is isolated, demand for
machines exceeds quotas or asks for some pools only, machines are drained under deployments, and an
update brings replicas that answer well by turns."""

from typing import Any, Literal

from muster.control.health.ladder import Heal
from muster.core.health.remedy import Remedy
from muster.core.states import AgentBar
from proving.hollow.agent import HollowAgent
from proving.hollow.health import Ailment
from proving.hollow.serving import SERVES
from proving.swarm.chance import ToldRun, behaviour
from proving.swarm.invariants.need import MachinesAreNeeded
from proving.swarm.invariants.turns import NobodyWaitsForTheIsolated
from proving.swarm.invariants.updates import UpdatesKeepServing
from proving.swarm.part import Part
from proving.swarm.parts import deployments, health, operators, pools
from proving.swarm.scene import ADMIN, USERS, Scene
from proving.swarm.steps import Count, Kinds, Lot, Params, Seconds

KINDS = Kinds()
FAULTS = Kinds(faults=True)

HEALTH_EVERY = 7
POOLS_EVERY = 8
SERVING_EVERY = 6
"""Each pair is in one of so many seeds: pools are in those of their own seeds, deployments too."""
_ZONE = "zone=a"


# An isolated machine, and a job that recovers


def _draw_fault_beside_isolated(lot: Lot) -> Params:
    rng = lot.rng
    recovery = {
        "max_restarts": rng.choice([1, 3]),
        "replace": rng.random() < 0.5,
        "check_timeout": rng.choice([60, 300]),
        "return_timeout": rng.choice([120, 600]),
        "restart_timeout": rng.choice([120, 600]),
    }
    spec = {
        "command": ["x"],
        "group": health.GROUP,
        "tasks": rng.choice([1, 1, 2]),
        "max_retries_failure": rng.choice([0, 2]),
        "max_retries_preemption": 100,
        "coscheduled": rng.random() < 0.5,
        "resources": {"cpu": 1, "gpu": rng.choice([1, 2])},
        "recovery": recovery,
    }
    health.draw_scope(lot, spec)
    return {
        "policy": health.draw_lab(lot)["policy"],
        "isolated": rng.randrange(4),
        "number": rng.randrange(1000, 10**9),
        "spec": spec,
        "cured_by": rng.choice([1, 2, 2, 3, None]),
        "seconds": rng.choice([60, 200]),
    }


@FAULTS.add(8, _draw_fault_beside_isolated, every=HEALTH_EVERY, apart=True)
def fault_beside_isolated(
    scene: Scene,
    policy: dict[str, Any],
    isolated: Count,
    number: int,
    spec: dict[str, Any],
    cured_by: Literal[1, 2, 3] | None,
    seconds: Seconds,
) -> None:
    """An operator isolates a machine; then a job that has its machines checked fails on another
    one, whose device is broken, and some time passes."""
    if not health.machines(scene):
        health.lab(scene, policy)
        scene.world.run(2.0)
    health.decide(scene, isolated, "isolate")
    fails = ToldRun(seconds=4.0, exit_code=1)
    scene.submit(number, "/v1/jobs", {"env": behaviour(number, fails), **spec}, USERS[0])
    scene.world.run(2.0)
    heal = None if cured_by is None else Heal(cured_by)
    for agent in _machines_of(scene, number):
        agent.health.break_device(0, Ailment(heal, Remedy.CHECK))
    scene.world.run(seconds)


def _machines_of(scene: Scene, number: int) -> list[HollowAgent]:
    """The machine on which the first kernel of a job lies, if there is one."""
    work, controller = scene.work(number), scene.world.controller
    if work is None or controller is None:
        return []
    sessions = [
        each
        for each in controller.store.live.sessions.values()
        if each.job is not None and each.job.id == work.id
    ]
    on = {kernel.agent_id for session in sessions[:1] for kernel in session.kernels[:1]}
    return [
        agent
        for agent in health.machines(scene)
        if agent.identity is not None and agent.identity.id in on
    ]


# Quotas, and the pools that make machines for what waits


def _draw_demand_beyond_quota(lot: Lot) -> Params:
    rng = lot.rng
    limits = rng.choice([{"sessions": 1}, {"sessions": 2}, {"limits": {"cpu": 8}}])
    return {
        "number": rng.randrange(1000, 10**9),
        "group": rng.choice(["east", "west"]),
        "jobs": rng.choice([3, 6, 10]),
        "gang": rng.random() < 0.3,
        "limits": limits,
        "apart": rng.choice([0, 0.5, 3]),
    }


@KINDS.add(6, _draw_demand_beyond_quota, every=POOLS_EVERY, apart=True)
def demand_beyond_quota(
    scene: Scene,
    number: int,
    group: str,
    jobs: Count,
    gang: bool,
    limits: dict[str, Any],
    apart: Seconds,
) -> None:
    """A user with a quota hands in more jobs for machines of pools than it allows, one after
    another."""
    name = str(USERS[0].owner)
    operators.quota(scene, "user", name, limits)
    spec = {"tasks": 2 if gang else 1, "coscheduled": gang}
    _hand_in(scene, number, jobs, {"group": group, **spec}, apart)


def _draw_demand_for_some_pools(lot: Lot) -> Params:
    rng = lot.rng
    return {
        "number": rng.randrange(1000, 10**9),
        "flexible": rng.choice([2, 3, 4]),
        "bound": rng.choice([2, 3, 4]),
        "apart": rng.choice([0, 0.5, 3]),
        "most": rng.choice([4, 8, 16]),
        "order": rng.sample(["p0", "p1"], 2),
    }


@KINDS.add(5, _draw_demand_for_some_pools, every=POOLS_EVERY, apart=True)
def demand_for_some_pools(
    scene: Scene,
    number: int,
    flexible: Count,
    bound: Count,
    apart: Seconds,
    most: Count,
    order: list[Literal["p0", "p1"]],
) -> None:
    """A group has two pools of equal machines, one of them in a zone; a user hands in jobs that any
    of them can serve, and then such as ask for the zone."""
    for priority, name in enumerate(order):
        pools.pool(scene, _pool_of_zone(name, most, priority))
    spec = {"group": "east", "tasks": 1, "scheduling_timeout": 120}
    _hand_in(scene, number, flexible, spec, apart)
    bound_spec = {**spec, "placement": {"constraints": [_ZONE]}}
    _hand_in(scene, number + flexible, bound, bound_spec, apart)


def _pool_of_zone(name: str, most: int, priority: int) -> dict[str, Any]:
    return {
        "name": name,
        "group": "east",
        "provider": "hollow",
        "machine": {"cpu": 4, "memory": "64GiB"},
        "max_slices": most,
        "priority": priority,
        "attributes": {"zone": "a"} if name == "p0" else {},
        "idle_timeout": 20,
    }


def _hand_in(scene: Scene, number: int, jobs: int, spec: dict[str, Any], apart: float) -> None:
    """Hand in so many jobs, of which each fills a machine, so many seconds apart."""
    for each in range(number, number + jobs):
        whole = {"command": ["x"], "resources": {"cpu": 4}, "max_retries_preemption": 100, **spec}
        whole["env"] = behaviour(each, ToldRun(seconds=30.0))
        scene.submit(each, "/v1/jobs", whole, USERS[0])
        scene.world.run(apart)


# Drains under deployments, and updates that bring bad replicas


def _draw_drain_serving(lot: Lot) -> Params:
    rng = lot.rng
    return {
        "number": rng.randrange(4),
        "bar": rng.choice(["draining", "draining", "draining", None]),
        "deadline": rng.choice([None, None, 2, 30]),
    }


@KINDS.add(8, _draw_drain_serving, every=SERVING_EVERY, apart=True)
def drain_serving(
    scene: Scene, number: Count, bar: AgentBar | None, deadline: Seconds | None
) -> None:
    """An operator drains a machine of those that hold replicas, or has all of them take work
    again."""
    its = [each for each in scene.world.agents.values() if each.group == deployments.GROUP]
    if not its:
        return
    chosen = its if bar is None else [its[number % len(its)]]
    for agent in chosen:
        if agent.identity is not None:
            body = {"bar": bar, "note": "upkeep", "deadline": None if bar is None else deadline}
            scene.ask(ADMIN, "POST", f"/v1/agents/{agent.identity.id}/bar", body)


def _draw_update_that_flaps(lot: Lot) -> Params:
    rng = lot.rng
    update = {
        "strategy": "rolling",
        "surge": 1,
        "unavailable": rng.choice([0, 0, 1]),
        "min_healthy_time": rng.choice([2, 5]),
        "progress_deadline": 60,
    }
    return {
        "name": rng.choice(deployments.NAMES),
        "replicas": rng.choice([2, 3, 4]),
        "update": update,
        "threshold": rng.choice([2, 3, 5]),
        "seconds": rng.choice([20, 40]),
    }


@KINDS.add(4, _draw_update_that_flaps, every=SERVING_EVERY, apart=True)
def update_that_flaps(
    scene: Scene,
    name: str,
    replicas: Count,
    update: dict[str, Any],
    threshold: Count,
    seconds: Seconds,
) -> None:
    """A user has a deployment serve, and then rolls out a revision whose replicas are well and bad
    every other second."""
    for serves in ("always", "flaps fast"):
        spec = {
            "name": name,
            "group": deployments.GROUP,
            "command": ["x"],
            "env": {SERVES: serves},
            "replicas": replicas,
            "resources": {"cpu": 1},
            "grace": 0.5,
            "update": update,
            "probe": {"interval": 1, "timeout": 1, "unhealthy_threshold": threshold},
        }
        deployments.deploy(scene, spec)
        scene.world.run(seconds)


PAIRS = Part(
    Kinds(KINDS, FAULTS),
    [NobodyWaitsForTheIsolated, MachinesAreNeeded, UpdatesKeepServing],
    place=6,
)
"""Its steps leave nothing that the parts which they lead together do not calm themselves."""
