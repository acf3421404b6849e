"""The performer of hard reboots over a database of its own, with providers that are toys."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import String, Table, insert, update
from tests.control.pool.performing import Cloud, Performers, Reported, performing

from muster.control.engine.effects import Surroundings
from muster.control.health.entity import IncidentId, incidents
from muster.control.health.rebooting.effects import MachineRebooted, RebootMachine
from muster.control.health.rebooting.performer import MachineRebooter
from muster.control.health.rebooting.settings import HealthSettings
from muster.core.ids import AgentId
from muster.core.specs.pool import POOL, SLICE
from muster.store import schema

OWN_BOOT, OWN_MACHINE = "boot-of-controller", "machine-of-controller"


class Rebooters:
    """Machines with incidents, and the performer that reboots them."""

    def __init__(self, performers: Performers) -> None:
        self._performers = performers
        self.cloud: Cloud = performers.cloud
        self.reported: Reported = performers.reported
        self._rebooter: MachineRebooter | None = None
        schema.metadata.create_all(performers.engine, [schema.agents, incidents])
        self.use()

    def use(
        self, *command: str, timeout: float = 20.0, call_s: float = 60.0, pace_s: float = 0.0
    ) -> None:
        """Have another performer, with this command of the operator's."""
        self.close()
        performers = self._performers
        surroundings = Surroundings(
            performers.engine,
            self.reported.append,
            performers.home,
            boot_id=OWN_BOOT,
            machine_id=OWN_MACHINE,
        )
        settings = HealthSettings(reboot_command=command, reboot_timeout=timeout)
        self._rebooter = MachineRebooter(surroundings, settings, call_s, pace_s)

    def close(self) -> None:
        if self._rebooter is not None:
            self._rebooter.close()

    def machine(self, name: str, pool: str | None = None, **columns: Any) -> RebootMachine:
        """The effect for a machine that is being rebooted, of a slice of the pool if there is one;
        both are made."""
        fixed = {}
        if pool is not None:
            spec = self._performers.pool(pool)
            slice_ = f"sl-{name}"
            machines = columns.pop("machines", json.dumps([{"name": name, "id": f"i-{name}"}]))
            self._performers.slice(slice_, spec, status="READY", machines=machines)
            fixed = {POOL: pool, SLICE: slice_}
        agent = {
            "id": f"ag-{name}",
            "name": name,
            "group": "default",
            "status": "ALIVE",
            "boot_id": f"boot-of-{name}",
            "host": f"{name}.example",
            "attributes": '{"rack": "r7"}',
            "fixed": json.dumps(fixed),
        }
        self._insert(schema.agents, agent | columns)
        incident = {"id": f"inc-{name}", "agent_id": agent["id"], "status": "REBOOTING"}
        self._insert(incidents, incident | {"generation": 1, "boot_id": f"boot-of-{name}"})
        return RebootMachine(IncidentId(f"inc-{name}"), 1, AgentId(f"ag-{name}"), "GPU 0 is broken")

    def change(self, effect: RebootMachine, **columns: Any) -> None:
        """Have the incident go on."""
        self._update(incidents, effect.incident, columns)

    def return_(self, effect: RebootMachine, boot_id: str) -> None:
        """Have the agent return with this boot id."""
        self._update(schema.agents, effect.agent, {"boot_id": boot_id})

    def perform(self, *effects: RebootMachine) -> None:
        assert self._rebooter is not None
        self._rebooter.perform(effects)

    def outcomes(self, count: int) -> list[MachineRebooted]:
        """All outcomes, once there are so many."""
        found = self.reported.until(count)
        return [each for each in found if isinstance(each, MachineRebooted)]

    def outcome(self, effect: RebootMachine) -> MachineRebooted:
        """The outcome of one effect that nothing came before."""
        self.perform(effect)
        (outcome,) = self.outcomes(1)
        assert (outcome.incident, outcome.generation) == (effect.incident, effect.generation)
        self.reported.clear()
        return outcome

    def _insert(self, table: Table, row: dict[str, Any]) -> None:
        others = (column for column in table.c if not column.nullable)
        blank = {column.name: "" if isinstance(column.type, String) else 0 for column in others}
        with self._performers.engine.begin() as connection:
            connection.execute(insert(table), blank | row)

    def _update(self, table: Table, id_: str, columns: dict[str, Any]) -> None:
        with self._performers.engine.begin() as connection:
            connection.execute(update(table).where(table.c.id == id_).values(columns))


@contextmanager
def rebooting(tmp_path: Path) -> Iterator[Rebooters]:
    with performing(tmp_path) as performers:
        rebooters = Rebooters(performers)
        try:
            yield rebooters
        finally:
            for gate in performers.cloud.shut.values():
                gate.set()
            rebooters.close()
