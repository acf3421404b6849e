"""The state that the controller keeps: ends, the mirror, placement's view."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields

from muster.control.pool.records import Slice
from muster.control.session.cluster.state import ClusterState
from muster.core.ids import AgentId
from muster.core.resources import GPU_WHOLE
from muster.core.specs import Level
from muster.scheduling.cluster.snapshot import Snapshot
from muster.store.entity import Record
from muster.store.live import Live
from muster.store.load import load_live
from muster.store.unit import Unit
from proving.swarm.invariants.placing import Placed
from proving.swarm.judge import Invariant, Judge
from proving.swarm.scene import USERS

MIRROR_EVERY = 8
"""Steps from one comparison with SQL to the next: each reads the whole state."""


class EndsStay(Invariant):
    says = "no terminal status changes"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._ended: dict[tuple[str, str], str] = {}

    def committed(self, unit: Unit) -> None:
        for kind, name, status in unit.events():
            ended = self._ended.get((kind, name))
            entity = unit.live.entities.named(kind)
            if ended is not None:
                self.expect(ended == status, f"{kind} {name} was {ended}, and is {status}")
            elif entity is not None and status in entity.states.terminal:
                self._ended[kind, name] = status


class MirrorIsAsSql(Invariant):
    """A controller that reads the state anew would have the same mirror."""

    says = "the mirror is as SQL is"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._steps = 0

    def between_steps(self) -> None:
        self._steps += 1
        if self._steps % MIRROR_EVERY == 0 and not self.world.is_broken:
            self._compare()

    def at_rest(self) -> None:
        self._compare()

    def _compare(self) -> None:
        store = self.world.store
        with store.engine.connect() as connection:
            stored = _rows(load_live(connection, store.entities))
        for name, known in _rows(store.live).items():
            read = stored[name]
            for key in known.keys() | read.keys():
                wrong = _difference(known.get(key), read.get(key))
                self.expect(wrong is None, f"{name} {key}: {wrong}")


def _difference(
    known: Mapping[str, object] | None, read: Mapping[str, object] | None
) -> str | None:
    if known is None or read is None:
        return f"it is in {'SQL' if known is None else 'the mirror'} alone"
    return next(
        (
            f"{column} is {value!r} in the mirror, and {read[column]!r} in SQL"
            for column, value in known.items()
            if value != read[column]
        ),
        None,
    )


def _rows(live: Live) -> dict[str, dict[str, Mapping[str, object]]]:
    """The rows of all live records, by entity and name, of the ledger, and of settings."""
    found: dict[str, dict[str, Mapping[str, object]]] = {}
    for entity in live.entities.values():
        columns = [column.name for column in entity.rows.table.columns]
        found[entity.name] = {
            entity.id_of(record): {
                column: getattr(value, "id", value) if isinstance(value, Record) else value
                for column, value in zip(columns, entity.rows.whole(record), strict=True)
                if column not in entity.rows.lagging
            }
            for record in live.all_of(entity)
        }
    found["spec of a slice"] = {id_: {"spec": each.spec} for id_, each in live.of(Slice).items()}
    found["ledger"] = {str(key): _values_of(row) for key, row in live.ledger.items()}
    found["group"] = {name: {"spec": spec} for name, spec in live.groups.items()}
    found["quota"] = {str(key): {"spec": spec} for key, spec in live.quotas.items()}
    return found


def _values_of(row: object) -> dict[str, object]:
    return {field.name: getattr(row, field.name) for field in fields(row)}  # type: ignore[arg-type]


class PlacementKnowsTheLedger(Invariant):
    """Sums that placement keeps by deltas, of agents and of owners, are what the ledger charges."""

    says = "placement's sums are as the ledger is"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._placed = judge.of(Placed)

    def between_steps(self) -> None:
        controller = self.world.controller
        if controller is None or self.world.is_broken:
            return
        live, cluster = controller.store.live, controller.plane.parts[ClusterState]
        charged = [row for row in live.ledger.values() if row.charged]
        used: Counter[str] = Counter()
        shares: Counter[tuple[str, int]] = Counter()
        for row in charged:
            used[row.agent_id] += row.resources.cpu_milli
            shares.update({(row.agent_id, each.index): each.milli for each in row.shares})
        for agent in live.agents.values():
            snapshot = cluster.groups[agent.group].snapshot
            seen = _cpu_used(snapshot, agent.id)
            self.expect(
                seen == used[agent.id],
                f"{used[agent.id]} are charged on {agent.name}, and {seen} counted",
            )
            free = snapshot.columns.device_free[snapshot.slot(agent.id)]
            for device in agent.devices:
                left = GPU_WHOLE - shares[agent.id, device.index]
                self.expect(
                    free[device.index] == left,
                    f"{left} of device {device.index} of {agent.name} is left by the ledger, and "
                    f"{free[device.index]} counted",
                )
        for user in USERS:
            placed = {self._placed.session_of[row.kernel_id] for row in charged}
            ids = {session.id for session in placed if session.owner == user.owner}
            scope = Level.USER, Level.USER.of(user.owner)
            seen = cluster.accounting.usage.of(scope).sessions
            self.expect(
                seen == len(ids), f"{user.name} has {len(ids)} sessions with room, {seen} counted"
            )


class PlacementKnowsPriorities(Invariant):
    """Sessions in the queue, with room of their own, and in the backlogs of agents; services have a
    priority that nobody wrote."""

    says = "placement counts each session as of the priority of its work"

    def between_steps(self) -> None:
        controller = self.world.controller
        if controller is None or self.world.is_broken:
            return
        live, cluster = controller.store.live, controller.plane.parts[ClusterState]
        for session in live.sessions.values():
            if session.service is not None:
                continue
            state, work = cluster.groups[session.group], session.job or session
            right = 0 if work.spec is None else work.spec.priority
            counted = [session.priority]
            if (waits_as := state.waits_as(session.id)) is not None:
                counted.append(waits_as.priority)
            if (held := state.placed.get(session.id)) is not None:
                counted.append(held.workload.priority)
            for kernel in session.kernels:
                counted += [
                    cluster.shapes.priority_of(row)
                    for row in live.allocations_of.get(kernel.id, ())
                    if not row.charged
                ]
            self.expect({*counted} == {right}, f"{session.id} of {right} counts as of {counted}")


def _cpu_used(snapshot: Snapshot, agent: AgentId) -> int:
    columns, slot = snapshot.columns, snapshot.slot(agent)
    cpu = columns.dimensions.index("cpu")
    return int(columns.capacity[slot][cpu] - columns.free[slot][cpu])
