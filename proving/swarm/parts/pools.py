"""Pools of two groups of their own: operators change them, work asks for their machines, and
providers, machines and networks fail them."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Literal

from muster.autoscaling.standing import CreateOutcome
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.pool.records import Pool, Slice
from muster.control.pool.requests import PoolRequests
from muster.control.pool.states import PoolStatus
from muster.core.errors import MusterError
from muster.core.owner import Principal
from muster.core.specs.pool import SLICE, PoolSpec
from muster.store.live import Live
from proving.hollow.performers.providers import NO_FARM_FAULTS, REFUSALS, FarmFaults, HollowMachine
from proving.swarm.chance import ToldRun, behaviour
from proving.swarm.invariants.pools import INVARIANTS
from proving.swarm.invariants.rest import unended
from proving.swarm.part import Part
from proving.swarm.scene import ADMIN, USERS, Scene
from proving.swarm.steps import Kinds, Lot, Params, Seconds

KINDS = Kinds()
FAULTS = Kinds(faults=True)

EVERY = 4
"""One of so many seeds has pools."""
GROUP_OF = {"p0": "east", "p1": "east", "p2": "west"}
_CALM = {"agent_silence": 5, "kernel_lease": 20, "max_reschedules": 1000}
_ROOT = Principal(ADMIN.owner, ADMIN.role)
_BOOT_S = 5.0
_WORK_S = 1500.0
"""Seconds within which all work of pools must end once faults have stopped."""
_SETTLES_S = 700.0
"""Seconds after which a pool without new demand makes and deletes nothing more: slices are idle for
600 s before they are deleted, and a machine that comes back is nobody's for 300 s."""
_STEADY_S = 150.0


# Operators


def _draw_pool(lot: Lot) -> Params:
    rng = lot.rng
    name = rng.choice([*GROUP_OF])
    most, gpus = rng.choice([1, 2, 3, 4]), rng.choice([0, 0, 2])
    machine = {"cpu": 4, "memory": "64GiB", "gpus": gpus} | ({"gpu_model": "H100"} if gpus else {})
    spec = {
        "name": name,
        "group": GROUP_OF[name],
        "provider": "hollow",
        "machine": machine,
        "slice_size": rng.choice([1, 1, 2, 3]),
        "min_slices": min(most, rng.choice([0, 0, 1, 2])),
        "max_slices": most,
        "buffer_slices": min(most, rng.choice([0, 0, 0, 1])),
        "priority": rng.choice([10, 10, 20]),
        "preemptible": rng.random() < 0.3,
        "attributes": rng.choice([{}, {}, {"zone": "a"}, {"zone": "b"}]),
        "idle_timeout": rng.choice([5, 20, 60]),
        "request_timeout": rng.choice([30, 120]),
        "boot_timeout": rng.choice([15, 60]),
        "join_timeout": rng.choice([15, 60]),
        "price": rng.choice([0, 1, 2.5]),
        "quota_key": rng.choice([None, "region"]),
    }
    return {"spec": spec}


@KINDS.add(14, _draw_pool, every=EVERY, apart=True)
def pool(scene: Scene, spec: dict[str, Any]) -> None:
    """An operator makes a pool, or changes one; its group is made with the first."""
    live = _live(scene)
    if live is not None and spec["group"] not in live.groups:
        _put_group(scene, spec["group"], {})
    read = PoolSpec.model_validate(spec)
    scene.world.ask(lambda work, parts: parts[PoolRequests].apply(work, _ROOT, read))


def _draw_pool_request(lot: Lot) -> Params:
    asked = ["pause", "resume", "resume", "replace", "delete"]
    return {"name": lot.rng.choice([*GROUP_OF]), "asks": lot.rng.choice(asked)}


@KINDS.add(6, _draw_pool_request, every=EVERY, apart=True)
def pool_request(
    scene: Scene, name: str, asks: Literal["pause", "resume", "replace", "delete"]
) -> None:
    """An operator pauses, resumes or deletes a pool, or has its older slices replaced."""
    if asks == "delete":
        scene.unwanted.add(name)

    def action(work: Work, parts: Parts) -> object:
        requests = parts[PoolRequests]
        match asks:
            case "pause":
                return requests.pause(work, _ROOT, name)
            case "resume":
                return requests.resume(work, _ROOT, name)
            case "replace":
                return requests.replace(work, _ROOT, name, 1)
            case "delete":
                return requests.delete(work, _ROOT, name)

    scene.world.ask(action)


def _draw_slice_request(lot: Lot) -> Params:
    asked = ["hold", "release", "delete", "drain"]
    return {"number": lot.rng.randrange(10), "asks": lot.rng.choice(asked)}


@KINDS.add(6, _draw_slice_request, every=EVERY, apart=True)
def slice_request(
    scene: Scene, number: int, asks: Literal["hold", "release", "delete", "drain"]
) -> None:
    """An operator holds, releases, deletes or drains a slice."""
    live = _live(scene)
    slices = [] if live is None else [*live.of(Slice)]
    if not slices:
        return
    id_ = slices[number % len(slices)]
    if asks in ("delete", "drain"):
        scene.unwanted.add(id_)

    def action(work: Work, parts: Parts) -> object:
        requests = parts[PoolRequests]
        if asks in ("hold", "release"):
            return requests.hold(work, _ROOT, id_, held=asks == "hold")
        return requests.delete_slice(work, _ROOT, id_, 5.0 if asks == "drain" else 0.0)

    scene.world.ask(action)


def _draw_ceilings(lot: Lot) -> Params:
    limits = [{}, {"max_machines": 3}, {"max_machines": 0}, {"max_gpus": 4}, {"max_price": 4}]
    name, chosen = lot.rng.choice(["east", "west"]), lot.rng.choice(limits)
    after = lot.topic("consolidation").choice([None, None, 60])
    return {"name": name, "limits": chosen | ({"consolidate_after": after} if after else {})}


@KINDS.add(4, _draw_ceilings, every=EVERY, apart=True)
def ceilings(scene: Scene, name: str, limits: dict[str, Any]) -> None:
    """An operator limits the machines, devices or price of a group's pools, or no more, and has
    slices emptied whose work has room elsewhere, or none."""
    live = _live(scene)
    if live is not None and name in live.groups:
        _put_group(scene, name, limits)


def _put_group(scene: Scene, name: str, limits: dict[str, Any]) -> None:
    scene.ask(ADMIN, "PUT", f"/v1/groups/{name}", {"name": name, **_CALM, **limits})


# Users


def _draw_demand(lot: Lot) -> Params:
    rng = lot.rng
    tasks = rng.choice([1, 1, 2, 3, 5])
    spec = {
        "command": ["x"],
        "group": rng.choice(["east", "east", "west"]),
        "priority": rng.choice([10, 50, 90]),
        "tasks": tasks,
        "coscheduled": tasks > 1 and rng.random() < 0.6,
        "grace": rng.choice([0.5, 5]),
        "max_retries_failure": 1,
        "max_retries_preemption": 100,
        "scheduling_timeout": rng.choice([None, None, None, 60]),
        "resources": {"cpu": rng.choice([1, 2, 4]), "gpu": rng.choice([0, 0, 0, 1, 2])},
    }
    number, gang = rng.randrange(1000, 10**9), bool(spec["coscheduled"])
    placement = _draw_placement(lot, is_gang=gang)
    return {"number": number, "spec": {**spec, **placement}}


def _draw_placement(lot: Lot, *, is_gang: bool) -> Params:
    """The machines that some work asks for; none may ever come, so it does not wait for ever."""
    rng = lot.topic("placement on pools")
    is_together, constraints = rng.random() < 0.3, rng.choice([[], [], [], ["zone=a"], ["zone!=b"]])
    placement: dict[str, object] = {"constraints": constraints} if constraints else {}
    if is_together and is_gang:
        placement["together"] = SLICE
    return {"placement": placement, "scheduling_timeout": 60} if placement else {}


@KINDS.add(30, _draw_demand, every=EVERY, apart=True)
def demand(scene: Scene, number: int, spec: dict[str, Any], runs: ToldRun | None = None) -> None:
    """A user hands in a job for a group that has no machines but those of pools."""
    scene.submit(number, "/v1/jobs", {"env": behaviour(number, runs), **spec}, USERS[0])


@KINDS.add(10, lambda lot: {"seconds": lot.rng.choice([20, 40, 120])}, every=EVERY, apart=True)
def pass_time(scene: Scene, seconds: Seconds) -> None:
    """More time passes than machines take to boot."""
    scene.world.run(seconds)


# Faults


def _draw_farm(lot: Lot) -> Params:
    rng = lot.rng
    faults = FarmFaults(
        lost=rng.choice([0, 0, 0.3]),
        doubled=rng.choice([0, 0.3]),
        mute=rng.choice([0, 0, 0.3]),
        refused=rng.choice([0, 0, 0.3]),
        unknown=rng.choice([0, 0, 0.4]),
        never_boots=rng.choice([0, 0, 0.3]),
        late_devices=rng.choice([0, 0.5]),
        partial_lists=rng.choice([0, 0.5]),
        stale_lists=rng.choice([0, 0.5]),
        late_s=rng.choice([0, 0.5, 8, 30]),
    )
    return {**asdict(faults), "boot_s": rng.choice([1, 5, 25])}


@FAULTS.add(8, _draw_farm, every=EVERY, apart=True)
def providers(
    scene: Scene,
    lost: float = 0.0,
    doubled: float = 0.0,
    mute: float = 0.0,
    refused: float = 0.0,
    unknown: float = 0.0,
    never_boots: float = 0.0,
    late_devices: float = 0.0,
    partial_lists: float = 0.0,
    stale_lists: float = 0.0,
    late_s: Seconds = 0.0,
    boot_s: Seconds = _BOOT_S,
) -> None:
    """Calls of providers are lost, doubled, refused, late, partly done or not answered, lists are
    partial or old, and machines do not boot, or without their devices."""
    farm = scene.world.farm
    farm.boot_s = boot_s
    farm.faults = FarmFaults(
        lost,
        doubled,
        mute,
        refused,
        unknown,
        never_boots,
        late_devices,
        partial_lists,
        stale_lists,
        late_s,
    )


def _draw_refusal(lot: Lot) -> Params:
    outcome = lot.rng.choice([None, *(each.value for each in REFUSALS)])
    return {"name": lot.rng.choice([*GROUP_OF]), "outcome": outcome}


@FAULTS.add(3, _draw_refusal, every=EVERY, apart=True)
def refusal(scene: Scene, name: str, outcome: CreateOutcome | None) -> None:
    """The provider of a pool refuses to make machines, or no more."""
    scene.world.farm.refuses.pop(name, None)
    if outcome is not None:
        scene.world.farm.refuses[name] = outcome


def _draw_machine(lot: Lot) -> Params:
    rng = lot.rng
    befalls = ["vanish", "return", "stop", "notice", "reboot", "die", "cut"]
    return {
        "number": rng.randrange(20),
        "befalls": rng.choice(befalls),
        "seconds": rng.choice([1, 10, 60, 100]),
    }


@FAULTS.add(12, _draw_machine, every=EVERY, apart=True)
def machine(
    scene: Scene,
    number: int,
    befalls: Literal["vanish", "return", "stop", "notice", "reboot", "die", "cut"],
    seconds: Seconds,
) -> None:
    """A machine of a pool vanishes, for good or for so long, stops, is to leave after so long,
    reboots, or its agent is killed or cut off."""
    farm, timeline = scene.world.farm, scene.world.timeline
    there = [*farm.machines.values()]
    if not there:
        return
    hit = there[number % len(there)]
    agent = scene.world.of_pools.get(hit.id) if hit.is_up else None
    match befalls:
        case "vanish":
            farm.vanish(hit)
        case "return":
            farm.vanish(hit)
            timeline.after(seconds, lambda: _bring_back(scene, hit))
        case "stop":
            farm.stop(hit)
        case "notice":
            hit.leaves_at = scene.world.clock.now() + seconds
            timeline.after(seconds, lambda: _leave(scene, hit))
        case "reboot" if agent is not None:
            agent.reboot(seconds)
        case "die" if agent is not None:
            agent.kill()
            timeline.after(seconds, agent.start)
        case "cut" if agent is not None and agent.stream is not None:
            agent.stream.cut()


def _bring_back(scene: Scene, machine: HollowMachine) -> None:
    """It is there again, unless nobody has asked for such machines any more."""
    live = _live(scene)
    if live is not None and any(each.name == machine.pool for each in _pools(live)):
        scene.world.farm.bring_back(machine)


def _leave(scene: Scene, machine: HollowMachine) -> None:
    if machine.id in scene.world.farm.machines:
        scene.world.farm.vanish(machine)


def _draw_silence(lot: Lot) -> Params:
    return {"name": lot.rng.choice([*GROUP_OF]), "seconds": lot.rng.choice([10, 45, 100])}


@FAULTS.add(3, _draw_silence, every=EVERY, apart=True)
def silence(scene: Scene, name: str, seconds: Seconds) -> None:
    """All machines of a pool are cut off for a while."""
    for each in [*scene.world.farm.machines.values()]:
        agent = scene.world.of_pools.get(each.id)
        if each.pool == name and each.is_up and agent is not None:
            agent.kill()
            scene.world.timeline.after(seconds, agent.start)


# The end


def _live(scene: Scene) -> Live | None:
    controller = scene.world.controller
    return None if controller is None else controller.store.live


def _pools(live: Live) -> list[Pool]:
    return [each for each in live.of(Pool).values() if each.status is not PoolStatus.DELETING]


def _calm(scene: Scene) -> None:
    """Faults stop, and pools may make what work needs; once it has ended they make nothing more,
    and at last nothing is wanted. Pools that stand still since then, because machines had been lost
    for good, are resumed too."""
    world, farm = scene.world, scene.world.farm
    farm.faults, farm.boot_s = NO_FARM_FAULTS, _BOOT_S
    farm.refuses.clear()
    live = _live(scene)
    groups = [] if live is None else sorted({*GROUP_OF.values()} & live.groups.keys())
    if live is None or not groups:
        return
    for name in groups:
        scene.insist(ADMIN, "PUT", f"/v1/groups/{name}", {"name": name, **_CALM})
    _resume(scene)
    for id_ in [*live.of(Slice)]:
        _insist(scene, lambda requests, work, id_=id_: requests.hold(work, _ROOT, id_, held=False))
    for name in groups:
        spec = _last_resort(name)
        _insist(scene, lambda requests, work, spec=spec: requests.apply(work, _ROOT, spec))
    with suppress(TimeoutError):  # the judge says what is left
        world.run_until(lambda: not _work_left(scene), _WORK_S)
    _resume(scene)
    world.run(_SETTLES_S)
    before = _counts(scene)
    world.run(_STEADY_S)
    scene.steadiness = before, _counts(scene)
    for each in _pools(live):
        spec = each.spec.model_copy(update={"min_slices": 0, "buffer_slices": 0})
        _insist(scene, lambda requests, work, spec=spec: requests.apply(work, _ROOT, spec))
    with suppress(TimeoutError):
        world.run_until(lambda: not farm.machines and not _slices(scene), _WORK_S)


def _resume(scene: Scene) -> None:
    live = _live(scene)
    for each in [] if live is None else _pools(live):
        _insist(scene, lambda requests, work, name=each.name: requests.resume(work, _ROOT, name))


def _last_resort(group: str) -> PoolSpec:
    """A pool that can hold all work of a group."""
    machine = {"cpu": 4, "memory": "64GiB", "gpus": 2, "gpu_model": "H100"}
    return PoolSpec.model_validate(
        {
            "name": f"last-{group}",
            "group": group,
            "provider": "hollow",
            "machine": machine,
            "max_slices": 6,
            "priority": 1000,
            "idle_timeout": 20,
        }
    )


def _insist(scene: Scene, ask: Callable[..., object]) -> None:
    with suppress(MusterError):  # what it was about is gone meanwhile
        scene.world.request(lambda work, parts: ask(parts[PoolRequests], work))


def _slices(scene: Scene) -> list[Slice]:
    live = _live(scene)
    return [] if live is None else [*live.of(Slice).values()]


def _work_left(scene: Scene) -> bool:
    return any(not isinstance(each, Slice) for each in unended(scene.world.store))


def _counts(scene: Scene) -> tuple[int, int]:
    farm = scene.world.farm
    return sum(farm.made.values()), sum(farm.deleted.values())


POOLS = Part(Kinds(KINDS, FAULTS), INVARIANTS, _calm, place=9)
