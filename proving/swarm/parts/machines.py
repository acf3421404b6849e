"""Steps of a run that are faults and changes of machines, of their agents and supervisors, and of
the network between them and the controller."""

from muster.core.reasons import ReasonCode
from proving.hollow.network import CALM, Way, Weather
from proving.swarm.invariants.barriers import OpenBarrierLetsRun
from proving.swarm.invariants.commands import CommandsAreNeeded
from proving.swarm.invariants.ledger import LedgerIsHeld, RoomIsGivenBackOnceGone
from proving.swarm.part import Part
from proving.swarm.scene import Scene
from proving.swarm.steps import Kinds, Lot, Params, Seconds

FAULTS = Kinds(faults=True)

LONGEST_FREEZE_S = 4.0
"""A supervisor that is frozen for longer than the margin of a lease cannot keep its promise."""


def _draw_agent(lot: Lot) -> Params:
    return {"agent": lot.rng.randrange(10)}


@FAULTS.add(2, lambda lot: {"lagging": lot.rng.choice([0, 0, 0.1, 0.5])})
def weather(scene: Scene, lagging: float) -> None:
    """Some messages take up to two seconds longer."""
    scene.world.weather = Weather(lagging=lagging, lag_s=2.0) if lagging else CALM


@FAULTS.add(3, _draw_agent)
def cut(scene: Scene, agent: int) -> None:
    """A stream breaks without a word; what was on its way is lost."""
    stream = scene.agent(agent).stream
    if stream is not None:
        stream.cut()


@FAULTS.add(3, _draw_agent)
def reset(scene: Scene, agent: int) -> None:
    """A stream breaks, and both ends know."""
    stream = scene.agent(agent).stream
    if stream is not None:
        stream.reset()


def _draw_stall(lot: Lot) -> Params:
    way = lot.rng.choice([*Way]).value
    return {"agent": lot.rng.randrange(10), "way": way, "seconds": lot.rng.choice([1, 5, 15, 40])}


@FAULTS.add(2, _draw_stall)
def stall(scene: Scene, agent: int, way: Way, seconds: Seconds) -> None:
    """One direction of a stream is held back for a while: the machine is cut off one way."""
    stream = scene.agent(agent).stream
    if stream is not None:
        pipe = stream.pipes[way]
        pipe.stall()
        scene.world.timeline.after(seconds, pipe.go_on)


def _draw_down(lot: Lot) -> Params:
    return {"agent": lot.rng.randrange(10), "seconds": lot.rng.choice([0.1, 1, 10, 30, 100])}


@FAULTS.add(3, _draw_down)
def kill_agent(scene: Scene, agent: int, seconds: Seconds) -> None:
    """kill -9 of an agent, which comes back after a while; its supervisor runs on."""
    killed = scene.agent(agent)
    killed.kill()
    scene.world.timeline.after(seconds, killed.start)


@FAULTS.add(2, _draw_agent)
def kill_supervisor(scene: Scene, agent: int) -> None:
    """kill -9 of a supervisor; the next one ends its kernels."""
    scene.agent(agent).supervisor.kill()


def _draw_freeze(lot: Lot) -> Params:
    return {"agent": lot.rng.randrange(10), "seconds": lot.rng.choice([0.5, LONGEST_FREEZE_S])}


@FAULTS.add(2, _draw_freeze)
def freeze_supervisor(scene: Scene, agent: int, seconds: Seconds) -> None:
    """A supervisor does nothing for a while, and then everything."""
    supervisor = scene.agent(agent).supervisor
    if supervisor.is_up and not supervisor.is_frozen:
        supervisor.freeze()
        scene.world.timeline.after(seconds, supervisor.thaw)


@FAULTS.add(1, _draw_freeze)
def freeze_machine(scene: Scene, agent: int, seconds: Seconds) -> None:
    """A machine does nothing for a while: its messages and its supervisor wait."""
    freeze_supervisor(scene, agent, seconds)
    for way in Way:
        stall(scene, agent, way, seconds)


@FAULTS.add(2, _draw_down)
def reboot(scene: Scene, agent: int, seconds: Seconds) -> None:
    """A machine goes down without a word, and comes back as another boot."""
    scene.agent(agent).reboot(seconds)


@FAULTS.add(1, _draw_down)
def replace(scene: Scene, agent: int, seconds: Seconds) -> None:
    """A machine breaks for good; after a while an empty one joins under its name, to which the
    operator invites it."""
    scene.world.replace_machine(scene.agent(agent), seconds)


def _draw_clock(lot: Lot) -> Params:
    return {"agent": lot.rng.randrange(10), "ahead_s": lot.rng.choice([0, -90, -1, 1, 300])}


@FAULTS.add(1, _draw_clock)
def set_clock(scene: Scene, agent: int, ahead_s: float) -> None:
    """The time of day of a machine is set, and may be wrong by minutes."""
    scene.agent(agent).machine.clock_ahead_s = ahead_s


@FAULTS.add(1, lambda lot: {**_draw_agent(lot), "full": lot.rng.random() < 0.5})
def disk(scene: Scene, agent: int, full: bool) -> None:
    """The disk of an agent's directory fills up, or has room again."""
    scene.agent(agent).disk_full = full


@FAULTS.add(1, _draw_agent)
def ports(scene: Scene, agent: int) -> None:
    """The next kernel finds no ports."""
    scene.agent(agent).prepare_failures.append(ReasonCode.NO_PORTS)


def _calm(scene: Scene) -> None:
    """The network is sound, machines are up, and their kernels end soon and well."""
    scene.chance.is_kind = True
    scene.world.weather = CALM
    for agent in scene.world.agents.values():
        agent.disk_full = False
        agent.prepare_failures.clear()
        agent.start()


MACHINES = Part(
    FAULTS,
    [CommandsAreNeeded, RoomIsGivenBackOnceGone, LedgerIsHeld, OpenBarrierLetsRun],
    _calm,
    place=1,
)
