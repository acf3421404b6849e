"""Lamps in simulations."""

from proving.swarm.judge import Invariant
from proving.swarm.part import Part
from proving.swarm.scene import ADMIN, USERS, Scene
from proving.swarm.steps import Count, Kinds, Lot, Params
from sqlalchemy import select
from tests.control.lamp.entity import Lamp, LampStatus, lamps

KINDS = Kinds()


def _draw_lamp(lot: Lot) -> Params:
    return {"number": lot.rng.randrange(10**6)}


@KINDS.add(1, _draw_lamp, apart=True)
def lamp(scene: Scene, number: Count) -> None:
    """A user hangs up a lamp."""
    scene.ask(USERS[0], "POST", f"/v1/lamps/lamp-{number}")


def _calm(scene: Scene) -> None:
    for each in list(scene.world.store.live.of(Lamp)):
        scene.insist(ADMIN, "POST", f"/v1/lamps/{each}/cancel")


class LampsGoOut(Invariant):
    """No lamp is left over once all of them were put out."""

    says = "a lamp that was put out is out"

    def at_rest(self) -> None:
        with self.world.store.engine.connect() as connection:
            for row in connection.execute(select(lamps.c.id, lamps.c.status)):
                self.expect(row.status == LampStatus.OUT, f"{row.id} is {row.status}")


LAMPS = Part(KINDS, [LampsGoOut], _calm)
