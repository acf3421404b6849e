"""Steps of a run that are faults of the controller and its database."""

from enum import StrEnum

from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from proving.hollow.fate import Coming, Misfortune, Outage
from proving.swarm.invariants.answers import ReportsAreAcknowledged, RequestsAreAnswered
from proving.swarm.invariants.clocks import LeapsCountForNothing
from proving.swarm.invariants.defects import ControllerRests, NoHandlerFailed
from proving.swarm.invariants.overtaken import OvertakenOnlyRenew
from proving.swarm.invariants.stored import StoredRowsAgree
from proving.swarm.part import Part
from proving.swarm.scene import Scene
from proving.swarm.steps import Count, Kinds, Lot, Params, Seconds

FAULTS = Kinds(faults=True)


def _draw_away(lot: Lot) -> Params:
    return {"away_s": lot.rng.choice([0.01, 1, 30])}


def _draw_misfortune(lot: Lot) -> Params:
    kind, away = lot.rng.choice([*Misfortune]), _draw_away(lot)
    among_sends = kind is Misfortune.KILLED_AMONG_SENDS
    sends = {"sends": lot.submissions % 5} if among_sends else {}  # as good as chance
    return {"kind": kind.value, **away, **sends}


@FAULTS.add(6, _draw_misfortune)
def misfortune(scene: Scene, kind: Misfortune, away_s: Seconds, sends: Count = 1) -> None:
    """A coming commit of the controller fails in some way; if that kills the controller, it stays
    away for a while. Among the sends that follow a commit it is killed after so many of them."""
    scene.world.fate.coming.append(Coming(kind, away_s, sends))


@FAULTS.add(2, _draw_away)
def kill_controller(scene: Scene, away_s: Seconds) -> None:
    """kill -9 of the controller."""
    scene.world.kill_controller(away_s)


def _draw_time_of_day(lot: Lot) -> Params:
    ahead_s, moves = lot.rng.choice([7200, 300, -3600, 0]), lot.rng.random() < 0.3
    return {"ahead_s": ahead_s, "moves": moves, **_draw_away(lot)}


@FAULTS.add(1, _draw_time_of_day, apart=True)
def set_controllers_clock(
    scene: Scene, ahead_s: float, away_s: Seconds, moves: bool = False
) -> None:
    """The time of day of the controller's machine is set, maybe by hours, and the controller is
    killed: it looks at the time of day when it starts again, maybe on another machine."""
    scene.world.time_of_day_ahead_s = ahead_s
    if moves:
        scene.world.move_controller()
    scene.world.kill_controller(away_s)


@FAULTS.add(1, lambda lot: {"cut_off_s": lot.rng.choice([0, 0, 10, 120])})
def second_controller(scene: Scene, cut_off_s: float = 0.0) -> None:
    """Somebody starts a controller beside the one that runs, on the same database; the first one
    may be cut off from it, though not from agents."""
    scene.world.supersede_controller(cut_off_s)


def _draw_astray(lot: Lot) -> Params:
    rng = lot.rng
    return {
        "agent": rng.randrange(10),
        "after_s": rng.choice([0.5, 2, 4]),
        "seconds": rng.choice([1, 8, 30]),
        "cut_off_s": rng.choice([10, 60]),
    }


@FAULTS.add(1, _draw_astray, every=2, apart=True)
def go_back(
    scene: Scene, agent: int, after_s: Seconds, seconds: Seconds, cut_off_s: Seconds
) -> None:
    """A second controller is started beside one that is cut off from the database. An agent changes
    over to it, and after a while goes back to the first one, where it stays for so long."""
    world, its = scene.world, scene.agent(agent)
    world.supersede_controller(cut_off_s)
    its.lose_stream()
    world.timeline.after(after_s, lambda: world.lead_astray(its, seconds))


def _draw_outage(lot: Lot) -> Params:
    return {"kind": lot.rng.choice([*Outage]).value, "seconds": lot.rng.choice([0.5, 3, 20])}


@FAULTS.add(2, _draw_outage)
def outage(scene: Scene, kind: Outage, seconds: Seconds) -> None:
    """The database is full, busy, slow or away for a while."""
    fate = scene.world.fate
    fate.outage, fate.outage_ends = kind, scene.world.clock.now() + seconds


class Poison(StrEnum):
    """The ways in which a request may fail that nobody foresaw."""

    DEFECT = "a defect"
    UNSTORABLE = "what cannot be stored"


def _draw_poison(lot: Lot) -> Params:
    return {"kind": lot.rng.choice([*Poison]).value}


@FAULTS.add(2, _draw_poison)
def poison(scene: Scene, kind: Poison) -> None:
    """A request fails in a way that nobody foresaw."""

    def action(work: Work, parts: Parts) -> None:
        if kind is Poison.DEFECT:
            raise ValueError(kind)
        record = next(iter(work.live.agents.values()), None)
        if record is not None:
            record.host = "\ud800"
            work.unit.touch(record)

    scene.world.ask(action)


def _calm(scene: Scene) -> None:
    scene.world.fate.clear()
    scene.world.lead_home()
    scene.world.start_controller()


CONTROLLER = Part(
    FAULTS,
    (
        StoredRowsAgree,
        NoHandlerFailed,
        ControllerRests,
        RequestsAreAnswered,
        ReportsAreAcknowledged,
        OvertakenOnlyRenew,
        LeapsCountForNothing,
    ),
    _calm,
    place=0,
)
