"""Invariants of a world at rest: faults have stopped, and all work has had the time to end."""

from sqlalchemy import select

from muster.store import schema
from muster.store.entity import Record
from muster.store.store import Store
from proving.hollow.stages import LIVE
from proving.swarm.judge import Invariant


def unended(store: Store) -> list[Record]:
    """The live records of all entities whose records end once there is nothing to do."""
    entities = store.entities
    return [record for record in store.live.swept() if not entities[type(record)].lasts]


class WorkEnds(Invariant):
    says = "all work ends once faults have stopped"

    def at_rest(self) -> None:
        store = self.world.store
        told = [
            (store.entities.name_of(each), each.status, getattr(each, "reason", None))
            for each in unended(store)[:6]
        ]
        self.expect(not told, f"work never ends: {told}")
        with store.engine.connect() as connection:
            for entity in store.entities.values():
                if not entity.lasts:
                    status = entity.rows.table.c.status
                    found = {*connection.execute(select(status).distinct()).scalars()}
                    wrong = found - entity.states.terminal
                    self.expect(not wrong, f"{entity.name} in SQL: {wrong}")


class RoomReturns(Invariant):
    says = "nothing keeps its room once work has ended"

    def at_rest(self) -> None:
        store = self.world.store
        kept = [*store.live.ledger.values()][:3]
        self.expect(not kept, f"room stays taken: {kept}")
        with store.engine.connect() as connection:
            rows = connection.execute(select(schema.allocations)).all()
        self.expect(not rows, f"rows of the ledger stay: {rows[:3]}")
        for agent in self.world.agents.values():
            left = [
                (kernel.key, kernel.stage)
                for kernel in agent.supervisor.kernels.values()
                if kernel.stage in LIVE
            ]
            self.expect(not left, f"{agent.name} holds {left}")
