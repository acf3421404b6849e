"""Deployments on machines of a group of their own: people make, change and scale them, probes lie,
and replicas, agents and controllers fail meanwhile."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Literal

from muster.control.deployment.entity import Deployment, Route
from muster.control.deployment.lifecycle import why_not
from muster.control.deployment.load_reports import take_load
from muster.control.deployment.requests import DeploymentRequests
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.core.errors import MusterError
from muster.core.owner import Principal
from muster.core.resources import Resources
from muster.core.serving.traffic import LoadReport, RouteLoad, ServiceLoad
from muster.core.specs.deployment import DeploymentSpec
from muster.core.states.deployment import UP, RouteStatus
from proving.hollow.agent_twin import Offer
from proving.hollow.performers.probing import NO_PROBE_FAULTS, ProbeFaults
from proving.hollow.performers.publishing import NO_PUBLISH_FAULTS, PublishFaults
from proving.hollow.serving import SERVES
from proving.swarm.chance import RUN
from proving.swarm.invariants.deployments import INVARIANTS
from proving.swarm.part import Part
from proving.swarm.scene import ADMIN, USERS, Scene
from proving.swarm.steps import Count, Kinds, Lot, Params, Seconds

KINDS = Kinds()
FAULTS = Kinds(faults=True)

EVERY = 6
"""One of so many seeds has deployments."""
GROUP = "serving"
MACHINES = ("d0", "d1", "d2", "d3")
NAMES = ("web", "api")
_OFFER = Offer(Resources(cpu_milli=4000, memory_bytes=64 << 30), ())
_POLICY = {"name": GROUP, "agent_silence": 5, "kernel_lease": 20, "max_reschedules": 1000}
_OWNER = Principal(USERS[0].owner, USERS[0].role)
_SETTLES_S = 1500.0
"""Seconds within which each deployment has its replicas, or says why not, once faults stopped."""
_ENDS_S = 600.0


def deployments(scene: Scene) -> list[Deployment]:
    """The deployments that are not to go."""
    controller = scene.world.controller
    known = () if controller is None else controller.store.live.of(Deployment).values()
    return [each for each in known if not each.is_going]


def _ask(scene: Scene, name: str, ask: Callable[[DeploymentRequests, Work, str], object]) -> None:
    """Have something be asked about the deployment of this name, if there is one."""
    its = next((each.id for each in deployments(scene) if each.name == name), None)
    if its is not None:
        scene.world.ask(lambda work, parts: ask(parts[DeploymentRequests], work, its))


# People


def _draw_deploy(lot: Lot) -> Params:
    rng = lot.rng
    serves = rng.choice(["always"] * 6 + ["never", "flaps"])
    strategy = rng.choice(["rolling", "rolling", "blue-green", "canary"])
    update = {
        "strategy": strategy,
        "surge": rng.choice([0, 1, 1, "50%"]),
        "unavailable": rng.choice([0, 0, 1]),
        "min_healthy_time": rng.choice([0, 2, 5]),
        "progress_deadline": rng.choice([30, 120]),
        "keep_old": rng.choice([0, 10]),
        "min_requests": 5,
        "steps": [{"weight": 20, "watch": 5}, {"weight": 60, "watch": 5}],
    }
    probe = {
        "interval": rng.choice([1, 2, 2]),
        "timeout": 1,
        "unhealthy_threshold": rng.choice([1, 3]),
        "start_timeout": rng.choice([20, 60]),
        "evict_after": rng.choice([5, 20]),
    }
    replicas = rng.choice([0, 1, 2, 3, 3])
    least = min(replicas, rng.choice([0, 1]))
    scales = {"min": least, "max": 3, "target": 1, "window": 10, "cool_down_down": 10}
    crash = {RUN: json.dumps({"seconds": 20, "exit_code": 1})}
    env = {SERVES: serves, **(crash if rng.random() < 0.1 else {})}
    return {
        "spec": {
            "name": rng.choice(NAMES),
            "group": GROUP,
            "command": ["x", str(rng.randrange(3))],
            "env": env,
            "replicas": replicas,
            "resources": {"cpu": 1},
            "grace": rng.choice([0.5, 5]),
            "drain": rng.choice([0, 5]),
            "disruption": rng.choice([1, "50%"]),
            "priority": 50,
            "update": update,
            "probe": probe,
            **({"scale": scales} if rng.random() < 0.2 else {}),
        }
    }


@KINDS.add(25, _draw_deploy, every=EVERY, apart=True)
def deploy(scene: Scene, spec: dict[str, Any]) -> None:
    """A user makes a deployment, or changes one; its group and machines come with the first."""
    if not any(each.group == GROUP for each in scene.world.agents.values()):
        scene.ask(ADMIN, "PUT", f"/v1/groups/{GROUP}", _POLICY)
        for name in MACHINES:
            scene.world.add_agent(name, _OFFER, GROUP)
    read = DeploymentSpec.model_validate(spec)
    scene.world.ask(lambda work, parts: parts[DeploymentRequests].apply(work, _OWNER, read))


def _draw_rollout(lot: Lot) -> Params:
    asked = ["pause", "resume", "resume", "undo", "destroy"]
    return {"name": lot.rng.choice(NAMES), "asks": lot.rng.choice(asked)}


@KINDS.add(8, _draw_rollout, every=EVERY, apart=True)
def rollout(scene: Scene, name: str, asks: Literal["pause", "resume", "undo", "destroy"]) -> None:
    """A user has an update stand still or go on, goes back, or takes the deployment down."""

    def ask(requests: DeploymentRequests, work: Work, id_: str) -> object:
        match asks:
            case "pause":
                return requests.pause(work, _OWNER, id_)
            case "resume":
                return requests.resume(work, _OWNER, id_)
            case "undo":
                return requests.undo(work, _OWNER, id_)
            case "destroy":
                return requests.destroy(work, _OWNER, id_)

    _ask(scene, name, ask)


def _draw_scale(lot: Lot) -> Params:
    return {"name": lot.rng.choice(NAMES), "replicas": lot.rng.choice([0, 1, 2, 3])}


@KINDS.add(6, _draw_scale, every=EVERY, apart=True)
def scale(scene: Scene, name: str, replicas: Count) -> None:
    """A user wishes another number of replicas."""
    _ask(scene, name, lambda requests, work, id_: requests.scale(work, _OWNER, id_, replicas))


def _draw_traffic(lot: Lot) -> Params:
    return {"failures": lot.rng.choice([0, 0, 0, 5]), "in_flight": lot.rng.choice([0, 2])}


@KINDS.add(10, _draw_traffic, every=EVERY, apart=True)
def traffic(scene: Scene, failures: Count, in_flight: Count) -> None:
    """A proxy tells of ten requests to each replica that has an address; so many of those to
    revisions that are rolled out have failed."""

    def action(work: Work, parts: Parts) -> None:
        services = []
        for each in work.live.of(Deployment).values():
            routes = tuple(
                RouteLoad(
                    route=route.id,
                    in_flight=in_flight,
                    requests=10,
                    failures=0 if route.revision == each.stable else failures,
                )
                for route in work.live.of(Route).values()
                if route.deployment is each and route.address is not None
            )
            services.append(ServiceLoad(service=each.id, routes=routes))
        take_load(work, parts, LoadReport(proxy="proxy", seconds=1.0, services=tuple(services)))

    scene.world.ask(action)


@KINDS.add(15, lambda lot: {"seconds": lot.rng.choice([5, 20, 60])}, every=EVERY, apart=True)
def serving_time(scene: Scene, seconds: Seconds) -> None:
    """More time passes than replicas take to start."""
    scene.world.run(seconds)


# Faults


def _draw_probes(lot: Lot) -> Params:
    rng = lot.rng
    faults = ProbeFaults(
        lost=rng.choice([0, 0.3]),
        doubled=rng.choice([0, 0.3]),
        lies=rng.choice([0, 0, 0.2]),
        stuck=rng.choice([0, 0, 0.02]),
        late_s=rng.choice([0, 1, 10]),
        ignored=rng.choice([0, 0, 0.2]),
    )
    return {**asdict(faults), "publishing_late_s": rng.choice([0, 0, 3])}


@FAULTS.add(10, _draw_probes, every=EVERY, apart=True)
def probes(
    scene: Scene,
    lost: float = 0.0,
    doubled: float = 0.0,
    lies: float = 0.0,
    stuck: float = 0.0,
    stuck_s: Seconds = 30.0,
    late_s: Seconds = 0.0,
    publishing_late_s: Seconds = 0.0,
    ignored: float = 0.0,
) -> None:
    """Results of probes are lost, doubled, late or lies, or there are none for a while, and orders
    to the prober are lost; balancers hear of changes late, twice and in another order."""
    publishing = PublishFaults(doubled=doubled, late_s=publishing_late_s)
    faults = ProbeFaults(ignored, lost, doubled, lies, stuck, stuck_s, late_s)
    scene.world.set_serving(faults, publishing)


@FAULTS.add(4, lambda lot: {"seconds": lot.rng.choice([5, 30])}, every=EVERY, apart=True)
def blind(scene: Scene, seconds: Seconds) -> None:
    """No probe of any replica comes to its end for so long."""
    scene.world.serving.blind_until = scene.world.clock.now() + seconds


def _draw_wall(lot: Lot) -> Params:
    return {"machine": lot.rng.choice(MACHINES), "seconds": lot.rng.choice([5, 30, 300])}


@FAULTS.add(6, _draw_wall, every=EVERY, apart=True)
def wall(scene: Scene, machine: str, seconds: Seconds) -> None:
    """The controller's probes do not reach a machine for so long; its agent is to probe there."""
    scene.world.serving.be_walled(machine, seconds)


def _draw_illness(lot: Lot) -> Params:
    return {"number": lot.rng.randrange(12), "seconds": lot.rng.choice([2, 10, 40])}


@FAULTS.add(15, _draw_illness, every=EVERY, apart=True)
def fall_ill(scene: Scene, number: Count, seconds: Seconds) -> None:
    """A replica answers no probe well for so long."""
    controller = scene.world.controller
    names = [] if controller is None else [*controller.store.live.of(Route)]
    if names:
        scene.world.serving.be_ill(names[number % len(names)], seconds)


# The end


def _calm(scene: Scene) -> None:
    """Probes and replicas are well and paused updates go on, until each deployment has settled;
    then all are taken down."""
    world = scene.world
    world.serving.be_well()
    world.set_serving(NO_PROBE_FAULTS, NO_PUBLISH_FAULTS)
    if deployments(scene):
        _settle(scene)
    with suppress(TimeoutError):  # the judge says which
        world.run_until(lambda: not (_routes(scene) or _probed(scene)), _ENDS_S)


def _settle(scene: Scene) -> None:
    scene.insist(ADMIN, "PUT", f"/v1/groups/{GROUP}", _POLICY)
    for each in deployments(scene):
        if each.rollout is not None:
            _insist(scene, lambda requests, work, id_=each.id: requests.resume(work, _OWNER, id_))
    with suppress(TimeoutError):
        scene.world.run_until(lambda: not _unsettled(scene), _SETTLES_S)
    scene.unsettled = _unsettled(scene)
    for each in deployments(scene):
        _insist(scene, lambda requests, work, id_=each.id: requests.destroy(work, _OWNER, id_))


def _insist(scene: Scene, ask: Callable[..., object]) -> None:
    with suppress(MusterError):  # what it was about is over meanwhile
        scene.world.request(lambda work, parts: ask(parts[DeploymentRequests], work))


def _routes(scene: Scene) -> list[Route]:
    controller = scene.world.controller
    return [] if controller is None else [*controller.store.live.of(Route).values()]


def _probed(scene: Scene) -> bool:
    """Whether anything is probed: a lost order to end is repeated with the next result."""
    controller = scene.world.controller
    return controller is not None and bool(controller.prober.watched)


def _unsettled(scene: Scene) -> list[str]:
    """The deployments that have not settled, each with what it wants and has."""
    told, now = [], scene.world.clock.now()
    for each in deployments(scene):
        its = [route for route in _routes(scene) if route.deployment is each]
        up = [route for route in its if route.status in UP]
        well = [route for route in up if route.status is RouteStatus.HEALTHY]
        is_whole = len(well) == len(up) == each.replicas
        is_right = all(route.revision == each.stable for route in up)
        says_why = each.failed_starts > 0 and why_not(each, now) is not None
        flaps = any(route.good_at is not None for route in up) and "flaps" in str(each.revisions)
        settled = each.rollout is None and ((is_whole and is_right) or says_why or flaps)
        if not settled:
            states = [(str(route.status), route.revision) for route in its]
            told.append(f"{each.name} is {each.status}, wants {each.replicas}, has {states}")
    return told


DEPLOYMENTS = Part(Kinds(KINDS, FAULTS), INVARIANTS, _calm, place=7)
