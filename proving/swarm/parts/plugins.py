"""Plug-ins that operators name in the policy of their group, and that fail."""

from typing import Literal

from muster.core.specs import ScalingGroup
from proving.swarm.invariants.plugins import FailedPluginsServeNoMore
from proving.swarm.part import Part
from proving.swarm.scene import ADMIN, Scene
from proving.swarm.steps import Kinds, Lot, Params
from proving.swarm.wayward import NAMES, Failure

FAULTS = Kinds(faults=True)


def _draw_plugin(lot: Lot) -> Params:
    rng = lot.rng
    fails = rng.choices([*Failure], [4, 1, 4, 2])[0]  # each loop takes a while
    return {"kind": rng.choice([*NAMES]), "calls": rng.choice([0, 1, 5, 30]), "fails": fails.value}


@FAULTS.add(2, _draw_plugin)
def plugin(
    scene: Scene,
    kind: Literal["validators", "sequencers", "selectors", "hooks"],
    calls: int,
    fails: Failure,
) -> None:
    """The group gets a plug-in that serves for so many calls, and then fails."""
    controller = scene.world.controller
    if controller is None or "default" not in controller.store.live.groups:
        return
    group = controller.store.live.groups["default"]
    spec = group.model_dump(mode="json", exclude_defaults=True)
    spec["options"] = {**spec.get("options", {}), NAMES[kind]: {"calls": calls, "fails": fails}}
    spec |= _naming(group, kind)
    scene.ask(ADMIN, "PUT", f"/v1/groups/{group.name}", spec)


def _naming(group: ScalingGroup, kind: str) -> Params:
    """The part of the group's spec that names the plug-in of a kind."""
    name = NAMES[kind]
    if kind == "validators":
        return {kind: [*(each for each in group.validators if each != name), name]}
    if kind == "hooks":
        return {kind: {"batch": name}}
    return {kind.removesuffix("s"): name}


PLUGINS = Part(FAULTS, [FailedPluginsServeNoMore], place=4)
