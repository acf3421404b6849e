"""Operators: they cordon and drain agents, and change policies and quotas."""

from typing import Any, Literal

from muster.core.specs import Level
from muster.core.states import AgentBar
from proving.swarm.part import Part
from proving.swarm.scene import ADMIN, USERS, Scene
from proving.swarm.steps import Kinds, Lot, Params, Seconds

KINDS = Kinds()

_GROUP = "/v1/groups/default"
_CALM = {"name": "default", "agent_silence": 5, "kernel_lease": 20, "max_reschedules": 1000}
"""A policy under which all work that is left ends soon."""
_QUOTAS = [("project", "default/default"), ("user", str(USERS[0].owner))]
_SCOPES = [*_QUOTAS, ("domain", "default"), ("domain", "*"), ("user", "default/default/*")]


def _draw_bar(lot: Lot) -> Params:
    rng = lot.rng
    bar = rng.choice(["cordoned", "draining"])
    deadline = rng.choice([None, 0, 2]) if bar == "draining" else None
    return {"agent": rng.randrange(10), "bar": bar, "deadline": deadline}


@KINDS.add(2, _draw_bar)
def bar(scene: Scene, agent: int, bar: AgentBar, deadline: Seconds | None) -> None:
    """An operator cordons or drains an agent."""
    _bar(scene, agent, {"bar": bar, "note": "upkeep", "deadline": deadline})


@KINDS.add(4, lambda lot: {})
def unbar(scene: Scene) -> None:
    """All agents are to take work again."""
    for number in range(sum(each.token is None for each in scene.world.agents.values())):
        _bar(scene, number, {"bar": None})


def _bar(scene: Scene, agent: int, body: dict[str, Any]) -> None:
    identity = scene.agent(agent).identity
    if identity is not None:
        scene.ask(ADMIN, "POST", f"/v1/agents/{identity.id}/bar", body)


def draw_group(lot: Lot) -> dict[str, Any]:
    """The policy of a group."""
    rng, tries, slots = lot.rng, lot.topic("tries"), lot.topic("slots")
    return {
        "name": "default",
        "queue": rng.choice(["strict", "backfill", "best_effort"]),
        "kernel_lease": rng.choice([None, 5, 20, 60]),
        "agent_silence": rng.choice([2, 5, 15]),
        "create_timeout": rng.choice([5, 30, 120]),
        "terminate_timeout": rng.choice([5, 60]),
        "preemption": rng.choice(
            [None, {"minimum_lease": 0}, {"minimum_lease": 1, "mode": "terminate"}]
        ),
        "backlog_window": rng.choice([0, 0.25, 5.0]),
        "max_tries": tries.choice([1, 2, 3, 3, 6]),
        "retry_backoff": tries.choice([0.1, 0.5, 0.5, 4]),
        "kernels_per_agent": slots.choice([1000, 1000, 1000, 3, 2, 1]),
        "max_reschedules": rng.choice([0, 10, 100]),
        "starvation_after": rng.choice([1, 300]),
    }


@KINDS.add(2, lambda lot: {"policy": draw_group(lot)})
def group(scene: Scene, policy: dict[str, Any]) -> None:
    """The group gets another policy."""
    scene.ask(ADMIN, "PUT", _GROUP, policy)


def _draw_quota(lot: Lot) -> Params:
    rng = lot.rng
    level, name = rng.choice(_QUOTAS)
    limits = rng.choice([{}, {"sessions": 1}, {"sessions": 3}, {"limits": {"cpu": 4}}])
    return {"level": level, "name": name, "limits": limits}


@KINDS.add(1, _draw_quota)
def quota(scene: Scene, level: Level, name: str, limits: dict[str, Any]) -> None:
    """Somebody's quota is set, or removed where there are no limits."""
    path = f"/v1/quotas/{level}/{name}"
    if limits:
        scene.ask(ADMIN, "PUT", path, {"level": level, "name": name, **limits})
    else:
        scene.ask(ADMIN, "DELETE", path)


def _draw_limits(lot: Lot) -> Params:
    rng = lot.rng
    level, name = rng.choice(_SCOPES)
    devices, memory = rng.choice([1, 2, 4]), rng.choice(["24GiB", "40GiB", "100GiB"])
    amounts = rng.choice([{"cpu": 6}, {"gpu": devices}, {"memory": memory}])
    limits = rng.choice([{"limits": amounts}, {"limits": amounts}, {"sessions": 2}, {}, {}])
    return {"level": level, "name": name, "limits": limits}


@KINDS.add(3, _draw_limits, every=2, apart=True)
def limit(scene: Scene, level: Level, name: str, limits: dict[str, Any]) -> None:
    """The sessions, processors, devices or memory of a user, a project or a domain, or of each
    that has no limits of its own, are limited, or no more."""
    quota(scene, level, name, limits)


@KINDS.add(1, lambda lot: {"kind": lot.rng.choice(["quota", "group", "bar"])})
def meddle(scene: Scene, kind: Literal["quota", "group", "bar"]) -> None:
    """A user tries what only operators may."""
    user = USERS[1]
    if kind == "quota":
        scene.ask(user, "DELETE", f"/v1/quotas/user/{user.owner}")
    elif kind == "group":
        scene.ask(user, "PUT", _GROUP, _CALM)
    elif (identity := scene.agent(0).identity) is not None:
        scene.ask(user, "POST", f"/v1/agents/{identity.id}/bar", {"bar": "cordoned"})


def _calm(scene: Scene) -> None:
    scene.insist(ADMIN, "PUT", _GROUP, _CALM)
    for level, name in _SCOPES:
        scene.insist(ADMIN, "DELETE", f"/v1/quotas/{level}/{name}")
    for agent in scene.world.agents.values():
        if agent.identity is not None:
            scene.insist(ADMIN, "POST", f"/v1/agents/{agent.identity.id}/bar", {"bar": None})


OPERATORS = Part(KINDS, calm=_calm, place=5)
