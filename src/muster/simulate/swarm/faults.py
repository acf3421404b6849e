"""What befalls machines, the network, the database and the controller."""

from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.core.reasons import ReasonCode
from muster.simulate.hollow.controller import Misfortune
from muster.simulate.hollow.network import CALM, Way, Weather
from muster.simulate.swarm.scene import Scene
from muster.simulate.swarm.steps import Kinds, Lot, Params

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
def stall(scene: Scene, agent: int, way: str, seconds: float) -> None:
    """One direction of a stream is held back for a while."""
    stream = scene.agent(agent).stream
    if stream is not None:
        pipe = stream.pipes[Way(way)]
        pipe.stall()
        scene.world.timeline.after(seconds, pipe.go_on)


def _draw_down(lot: Lot) -> Params:
    return {"agent": lot.rng.randrange(10), "seconds": lot.rng.choice([0.1, 1, 10, 30, 100])}


@FAULTS.add(3, _draw_down)
def kill_agent(scene: Scene, agent: int, seconds: float) -> None:
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
def freeze_supervisor(scene: Scene, agent: int, seconds: float) -> None:
    supervisor = scene.agent(agent).supervisor
    if supervisor.is_up and not supervisor.is_frozen:
        supervisor.freeze()
        scene.world.timeline.after(seconds, supervisor.thaw)


@FAULTS.add(2, _draw_down)
def reboot(scene: Scene, agent: int, seconds: float) -> None:
    """A machine goes down without a word, and comes back as another boot."""
    scene.agent(agent).reboot(seconds)


def _draw_clock(lot: Lot) -> Params:
    return {"agent": lot.rng.randrange(10), "ahead_s": lot.rng.choice([0, -90, -1, 1, 300])}


@FAULTS.add(1, _draw_clock)
def set_clock(scene: Scene, agent: int, ahead_s: float) -> None:
    """The time of day of a machine is set."""
    scene.agent(agent).machine.clock_ahead_s = ahead_s


@FAULTS.add(1, lambda lot: {**_draw_agent(lot), "full": lot.rng.random() < 0.5})
def disk(scene: Scene, agent: int, full: bool) -> None:
    """The disk of an agent's directory fills up, or has room again."""
    scene.agent(agent).disk_full = full


@FAULTS.add(1, _draw_agent)
def ports(scene: Scene, agent: int) -> None:
    """The next kernel finds no ports."""
    scene.agent(agent).prepare_failures.append(ReasonCode.NO_PORTS)


def _draw_away(lot: Lot) -> Params:
    return {"away_s": lot.rng.choice([0.01, 1, 30])}


def _draw_misfortune(lot: Lot) -> Params:
    return {"kind": lot.rng.choice([*Misfortune]).value, **_draw_away(lot)}


@FAULTS.add(6, _draw_misfortune)
def misfortune(scene: Scene, kind: str, away_s: float) -> None:
    """A coming commit of the controller does not go as it should."""
    scene.away_s = away_s
    scene.world.fate.coming.append(Misfortune(kind))


@FAULTS.add(2, _draw_away)
def kill_controller(scene: Scene, away_s: float) -> None:
    """kill -9 of the controller."""
    scene.away_s = away_s
    scene.world.kill_controller()


def _draw_poison(lot: Lot) -> Params:
    return {"kind": lot.rng.choice(["a defect", "what cannot be stored"])}


@FAULTS.add(2, _draw_poison)
def poison(scene: Scene, kind: str) -> None:
    """A request fails in a way that nobody foresaw."""

    def action(work: Work, parts: Parts) -> None:
        if kind == "a defect":
            raise ValueError(kind)
        record = next(iter(work.live.agents.values()), None)
        if record is not None:
            record.host = "\ud800"
            work.unit.touch(record)

    scene.ask(action)
