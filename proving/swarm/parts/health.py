"""A group of its own whose machines break, and are checked and healed: devices fail, checks hang,
lie, disagree or find out nothing, machines come back from reboots in every way but the right one,
and operators decide at random times."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Literal

from muster.control.health.entity import Incident
from muster.control.health.ladder import Heal
from muster.core.health.remedy import Remedy
from muster.core.resources import Device, Resources
from muster.core.states.health import HealthStatus
from proving.hollow.agent import HollowAgent
from proving.hollow.agent_twin import Offer
from proving.hollow.door import Answered
from proving.hollow.health import Ailment, CheckFault, Comeback
from proving.hollow.performers.rebooting import NO_REBOOT_FAULTS, RebootFaults
from proving.swarm.chance import ToldRun, behaviour
from proving.swarm.invariants import health, recoveries
from proving.swarm.part import Part
from proving.swarm.scene import ADMIN, USERS, HealthDecision, Scene
from proving.swarm.steps import Count, Kinds, Lot, Params, Seconds

KINDS = Kinds()
FAULTS = Kinds(faults=True)

EVERY = 5
"""One of so many seeds has such a group."""
GROUP = "lab"
MACHINES = ("h0", "h1", "h2", "h3")
_OFFER = Offer(
    Resources(cpu_milli=4000, memory_bytes=64 << 30, gpu_milli=2000),
    (Device(0, "H100"), Device(1, "H100")),
)
_PATH = f"/v1/groups/{GROUP}"
_WHOLE = 0.4
"""So many of the jobs that recover and are no gangs do so whole."""
_CALM = {
    "name": GROUP,
    "agent_silence": 5,
    "kernel_lease": 20,
    "max_reschedules": 1000,
    "health": {
        "check_timeout": 20,
        "leave": 5,
        "reset_timeout": 20,
        "reboot_timeout": 60,
        "max_unhealthy": 1,
    },
}
"""A policy under which all incidents end soon."""
_TOLD_S = 5.0
"""Seconds within which agents have told what they saw before faults stopped."""
_HEALS_S = 1500.0
"""Seconds within which all incidents must end, or wait for an operator, once faults have
stopped."""


def machines(scene: Scene) -> Sequence[HollowAgent]:
    """The machines of the group."""
    return [each for each in scene.world.agents.values() if each.group == GROUP]


def _machine(scene: Scene, number: int) -> HollowAgent | None:
    found = machines(scene)
    return found[number % len(found)] if found else None


def incidents(scene: Scene) -> Sequence[Incident]:
    """The incidents that have not ended."""
    controller = scene.world.controller
    return [] if controller is None else [*controller.store.live.of(Incident).values()]


# People


def draw_lab(lot: Lot) -> Params:
    rng = lot.rng
    health = {
        "unknowns": rng.choice([1, 2, 3]),
        "rounds": rng.choice([1, 2, 3]),
        "leave": rng.choice([0, 5, 30]),
        "check_timeout": rng.choice([5, 20, 60]),
        "reset_timeout": rng.choice([5, 20]),
        "reboot_timeout": rng.choice([20, 60, 200]),
        "max_unhealthy": rng.choice([0, 0.2, 0.5, 1]),
        "passive": rng.random() < 0.8,
    }
    policy = {
        "agent_silence": rng.choice([2, 5, 15]),
        "kernel_lease": rng.choice([5, 20, 60]),
        "queue": rng.choice(["strict", "backfill", "best_effort"]),
        "backlog_window": rng.choice([0, 0.25, 5.0]),
    }
    return {"policy": {"name": GROUP, **policy, "health": health}}


@KINDS.add(25, draw_lab, every=EVERY, apart=True)
def lab(scene: Scene, policy: dict[str, Any]) -> None:
    """An operator has the machines of a group checked and healed, or in another way than before;
    the machines join once the group is there."""
    scene.ask(ADMIN, "PUT", _PATH, policy)
    if not machines(scene):
        for name in MACHINES:
            scene.world.add_agent(name, _OFFER, GROUP)


def _draw_recoverable(lot: Lot) -> Params:
    rng, number = lot.rng, lot.rng.randrange(1000, 10**9)
    recovery = {
        "max_restarts": rng.choice([0, 1, 3]),
        "replace": rng.random() < 0.5,
        "check_timeout": rng.choice([10, 60, 300]),
        "return_timeout": rng.choice([20, 120, 600]),
        "restart_timeout": rng.choice([30, 120, 600]),
    }
    spec = {
        "command": ["x"],
        "group": GROUP,
        "tasks": rng.choice([1, 1, 2, 3, 4]),
        "grace": rng.choice([0.5, 5]),
        "priority": rng.choice([10, 50, 50, 90]),
        "max_retries_failure": rng.choice([0, 0, 2]),
        "max_retries_preemption": 100,
        "timeout": rng.choice([None, None, 60]),
        "coscheduled": rng.random() < 0.6,
        "resources": {"cpu": 1, "gpu": rng.choice([0, 1, 1, 2])},
        "recovery": rng.choice([recovery, recovery, recovery, None]),
    }
    draw_scope(lot, spec)
    return {"number": number, "spec": spec}


def draw_scope(lot: Lot, spec: Params) -> None:
    """Have a job that is no gang recover whole at times: with one failure all tasks stop."""
    is_whole = lot.topic("scopes of recovery").random() < _WHOLE
    if is_whole and spec["recovery"] is not None and not spec["coscheduled"]:
        spec["recovery"]["scope"] = "job"


@KINDS.add(40, _draw_recoverable, every=EVERY, apart=True)
def recoverable(
    scene: Scene, number: int, spec: dict[str, Any], runs: ToldRun | None = None
) -> None:
    """A user hands in a job for that group, which may have its machines checked when it fails."""
    told = {key: value for key, value in spec.items() if value is not None}
    scene.submit(number, "/v1/jobs", {"env": behaviour(number, runs), **told}, USERS[0])


def _draw_decision(lot: Lot) -> Params:
    decisions = ["check", "check", "heal", "isolate", "return", "return"]
    return {"number": lot.rng.randrange(4), "decision": lot.rng.choice(decisions)}


@KINDS.add(12, _draw_decision, every=EVERY, apart=True)
def decide(
    scene: Scene, number: int, decision: Literal["check", "heal", "isolate", "return"]
) -> None:
    """An operator decides about the health of a machine."""
    agent = _machine(scene, number)
    if agent is None or agent.identity is None or scene.world.controller is None:
        return
    id_ = agent.identity.id
    told = HealthDecision(decision)
    scene.decided[id_].append(told)

    def answered(answer: Answered) -> None:
        told.answered_at = scene.world.clock.now()
        if 400 <= answer.status < 500:
            scene.decided[id_].remove(told)

    scene.ask(ADMIN, "POST", f"/v1/agents/{id_}/health", {"decision": decision}, answered)


@KINDS.add(15, lambda lot: {"seconds": lot.rng.choice([20, 60, 200])}, every=EVERY, apart=True)
def healing_time(scene: Scene, seconds: Seconds) -> None:
    """More time passes than checks and reboots take."""
    scene.world.run(seconds)


# Faults


def _draw_ailment(lot: Lot) -> Params:
    rng = lot.rng
    return {
        "number": rng.randrange(4),
        "device": rng.randrange(2),
        "cured_by": rng.choice([1, 2, 2, 3, None]),
        "remedy": rng.choice(["check", "check", "reset", "reboot", "operator"]),
        "is_seen": rng.random() < 0.4,
        "confirmed": rng.random() < 0.5,
    }


@FAULTS.add(18, _draw_ailment, every=EVERY, apart=True)
def ail(
    scene: Scene,
    number: int,
    device: Count,
    cured_by: Literal[1, 2, 3] | None,
    remedy: Remedy,
    is_seen: bool,
    confirmed: bool,
) -> None:
    """A device of a machine breaks; its agent may see that by itself, and be sure or not."""
    agent = _machine(scene, number)
    if agent is None:
        return
    heal = None if cured_by is None else Heal(cured_by)
    agent.health.break_device(device, Ailment(heal, remedy))
    if is_seen:
        agent.sees(remedy, "a GPU is broken", (device,), confirmed=confirmed)


_LATE_REFUSALS = RebootFaults(doubled=1, refused=0.5, outcome_doubled=1, late_s=60)


def _draw_waste(lot: Lot) -> Params:
    return {"number": lot.rng.choice([0, 1, 2, 3, None]), "seconds": lot.rng.choice([0, 60, 400])}


@FAULTS.add(6, _draw_waste, every=EVERY, apart=True)
def waste(scene: Scene, number: int | None, seconds: Seconds) -> None:
    """Nothing mends a machine, or any, nor can it be rebooted but from outside, where orders are
    followed twice, late, and at times refused; some time passes."""
    one = None if number is None else _machine(scene, number)
    for agent in machines(scene) if number is None else [one]:
        if agent is not None:
            agent.health.break_device(0, Ailment(None, Remedy.REBOOT))
            agent.health.failing_resets = agent.health.failing_reboots = 3
            agent.sees(Remedy.REBOOT, "a GPU is broken for good", (0,), confirmed=True)
    scene.world.set_rebooter(_LATE_REFUSALS)
    scene.world.run(seconds)


def _draw_flapping(lot: Lot) -> Params:
    rng = lot.rng
    return {
        "number": rng.randrange(4),
        "device": rng.randrange(2),
        "seconds": rng.choice([0.5, 2, 10]),
        "times": rng.choice([2, 5]),
    }


@FAULTS.add(5, _draw_flapping, every=EVERY, apart=True)
def flap(scene: Scene, number: int, device: Count, seconds: Seconds, times: Count) -> None:
    """A device is broken and whole in turn, so often, and so long each time."""
    agent = _machine(scene, number)
    if agent is None:
        return
    health, timeline = agent.health, scene.world.timeline
    for turn in range(times):
        at_s = 2 * turn * seconds
        timeline.after(at_s, lambda: health.break_device(device, Ailment()))
        timeline.after(at_s + seconds, lambda: health.mend(device))


def _draw_alarm(lot: Lot) -> Params:
    rng = lot.rng
    return {
        "number": rng.randrange(4),
        "devices": rng.choice([[], [0], [1], [0, 1], [7]]),
        "remedy": rng.choice(["check", "check", "reset", "reboot", "operator"]),
        "confirmed": rng.random() < 0.3,
    }


@FAULTS.add(8, _draw_alarm, every=EVERY, apart=True)
def false_alarm(
    scene: Scene, number: int, devices: list[Count], remedy: Remedy, confirmed: bool
) -> None:
    """An agent sees an error that is none."""
    agent = _machine(scene, number)
    if agent is not None:
        agent.sees(remedy, "a false alarm", tuple(devices), confirmed=confirmed)


def _draw_checks(lot: Lot) -> Params:
    kinds = [each.value for each in CheckFault]
    count = lot.rng.choice([1, 1, 2, 4, 12])
    return {
        "number": lot.rng.choice([0, 1, 2, 3, None]),
        "faults": [lot.rng.choice(kinds) for _ in range(count)],
    }


@FAULTS.add(15, _draw_checks, every=EVERY, apart=True)
def checks(scene: Scene, number: int | None, faults: list[CheckFault]) -> None:
    """The next checks of a machine, or of each, go wrong."""
    one = None if number is None else _machine(scene, number)
    for agent in machines(scene) if number is None else [one]:
        if agent is not None:
            agent.health.check_faults += faults


def _draw_comeback(lot: Lot) -> Params:
    rng = lot.rng
    return {
        "number": rng.randrange(4),
        "comeback": rng.choice([each.value for each in Comeback]),
        "seconds": rng.choice([1, 5, 30, 100]),
        "resets": rng.choice([0, 0, 1, 3]),
        "reboots": rng.choice([0, 1, 3]),
    }


@FAULTS.add(15, _draw_comeback, every=EVERY, apart=True)
def comeback(
    scene: Scene, number: int, comeback: Comeback, seconds: Seconds, resets: Count, reboots: Count
) -> None:
    """A machine comes back from its next reboot so, after so long; so many of its next resets, and
    of the reboots that its agent is to begin, fail."""
    agent = _machine(scene, number)
    if agent is not None:
        agent.health.comebacks.append((comeback, seconds))
        agent.health.failing_resets = resets
        agent.health.failing_reboots = reboots


def _draw_rebooter(lot: Lot) -> Params:
    rng = lot.rng
    faults = RebootFaults(
        lost=rng.choice([0, 0.5, 1]),
        doubled=rng.choice([0, 0.5, 1]),
        mute=rng.choice([0, 0.5]),
        refused=rng.choice([0, 0.5]),
        unknown=rng.choice([0, 0.5]),
        outcome_doubled=rng.choice([0, 0.5]),
        late_s=rng.choice([0, 20, 60]),
    )
    return asdict(faults)


@FAULTS.add(8, _draw_rebooter, every=EVERY, apart=True)
def rebooter(
    scene: Scene,
    lost: float = 0.0,
    doubled: float = 0.0,
    mute: float = 0.0,
    refused: float = 0.0,
    unknown: float = 0.0,
    outcome_doubled: float = 0.0,
    late_s: Seconds = 0.0,
) -> None:
    """Reboots from outside and their outcomes are lost, doubled, refused, late or not known."""
    scene.world.set_rebooter(
        RebootFaults(lost, doubled, mute, refused, unknown, outcome_doubled, late_s)
    )


# The end


def _calm(scene: Scene) -> None:
    """All devices are whole, checks tell the truth and machines come back; operators return those
    that are isolated."""
    scene.world.set_rebooter(NO_REBOOT_FAULTS)
    if not machines(scene):
        return
    for agent in machines(scene):
        agent.health.be_well()
        agent.start()
    scene.insist(ADMIN, "PUT", _PATH, _CALM)
    scene.world.run(_TOLD_S)
    for _ in range(2):  # a check that was under way may have lied
        for each in incidents(scene):
            if each.retry_at > scene.world.clock.now():  # its next check may be hours ahead
                _insist(scene, each, "check")
        with suppress(TimeoutError):  # the judge says what is left
            scene.world.run_until(lambda: not _busy(scene), _HEALS_S)
        for each in incidents(scene):
            if each.status is HealthStatus.ISOLATED:
                _insist(scene, each, "return")


def _busy(scene: Scene) -> bool:
    return any(each.status is not HealthStatus.ISOLATED for each in incidents(scene))


def _insist(scene: Scene, incident: Incident, decision: str) -> None:
    told = HealthDecision(decision)
    scene.decided[incident.agent_id].append(told)
    path = f"/v1/agents/{incident.agent_id}/health"
    scene.insist(ADMIN, "POST", path, {"decision": decision})
    told.answered_at = scene.world.clock.now()


HEALTH = Part(Kinds(KINDS, FAULTS), [*health.INVARIANTS, *recoveries.INVARIANTS], _calm, place=8)
