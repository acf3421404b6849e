"""What holds at every moment of every run (design: Simulation)."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any, TypeAlias

from sqlalchemy import select

from muster.core.resources import GPU_WHOLE
from muster.core.states import JOB_TABLE, SESSION_TABLE
from muster.simulate.hollow.agent import HollowAgent
from muster.simulate.hollow.supervisor import WITH_PROCESSES, Kernel, Stage
from muster.simulate.hollow.world import World
from muster.simulate.swarm.chance import attempt_of
from muster.store import schema
from muster.store.entity import Entity, Record
from muster.store.live import Live
from muster.store.load import load_live
from muster.store.records import Agent, Task
from muster.store.records import Kernel as KernelRecord
from muster.store.store import Store
from muster.store.unit import Unit

Tell: TypeAlias = Callable[[float, str], None]


def in_silence(moment: float, sentence: str) -> None:
    """Tell nobody."""


MOST_BEGUN = 8
CHURN_S = 2.0


class Invariant(StrEnum):
    """What must hold, in few words."""

    ONE_LIVE_ATTEMPT = "a task has one live attempt at most"
    NO_ATTEMPT_TWICE = "no attempt runs twice"
    BARRIER = "no kernel of a gang runs before its barrier opens"
    CAPACITY = "no device is used beyond its capacity"
    ENDS_STAY = "no terminal status changes"
    PAUSES = "no task begins again and again without a pause"
    MIRROR = "the mirror is as SQL is"
    WORK_ENDS = "all work ends once faults have stopped"
    ROOM_RETURNS = "nothing keeps its room once work has ended"


class Violation(AssertionError):
    """An invariant does not hold; the text says why."""

    def __init__(self, kind: Invariant, text: str) -> None:
        super().__init__(kind, text)
        self.kind = kind
        self.text = text

    def __str__(self) -> str:
        return self.text


_UNSTORED = {"agent": {"seen_at"}, "session": {"retry_at"}}
"""Columns that SQL need not have as the mirror does: heartbeats cost no commit, and the failure for
which a session waits is reported again."""


def _rows(live: Live) -> dict[str, dict[str, Mapping[str, object]]]:
    """The rows of all live records, by entity and name, and of the ledger."""
    found: dict[str, dict[str, Mapping[str, object]]] = {}
    for entity in live.entities.values():
        columns = [column.name for column in entity.rows.table.columns]
        skipped = _UNSTORED.get(entity.name, set())
        found[entity.name] = {
            entity.id_of(record): {
                column: getattr(value, "id", value) if isinstance(value, Record) else value
                for column, value in zip(columns, entity.rows.whole(record), strict=True)
                if column not in skipped
            }
            for record in _records(live, entity)
        }
    found["ledger"] = {str(key): _values_of(row) for key, row in live.ledger.items()}
    return found


def _records(live: Live, entity: Entity[Any]) -> Iterable[Any]:
    if entity.record is KernelRecord:
        return live.kernels.values()
    if entity.record is Task:
        return [task for job in live.jobs.values() for task in job.tasks.values()]
    return live.of(entity.record).values()


def unended(store: Store) -> list[Record]:
    """The live records of all entities that end once there is nothing to do: agents stay."""
    return [record for record in store.live.swept() if not isinstance(record, Agent)]


def _values_of(row: object) -> dict[str, object]:
    return {field.name: getattr(row, field.name) for field in fields(row)}  # type: ignore[arg-type]


class Judge:
    """A witness that raises at the first thing that must not be. What happens while control is
    inside a wake is judged at the end of the step, because an exception there would be taken for a
    defect of a handler."""

    def __init__(self, tell: Tell) -> None:
        self.world: World | None = None
        self._tell = tell
        self._began: float | None = None
        self.found: list[Violation] = []
        self._running: dict[tuple[str, int], set[tuple[str, str, int]]] = defaultdict(set)
        self._begun: dict[tuple[str, int, int], str] = {}
        self._ended: dict[str, str] = {}
        self._begun_lately: dict[tuple[str, int], deque[float]] = {}

    def note(self, sentence: str) -> None:
        """Tell the next sentence of the story."""
        if self._tell is not in_silence and self.world is not None:
            now = self.world.clock.now()
            self._began = now if self._began is None else self._began
            self._tell(now - self._began, sentence)

    # -- witness ---------------------------------------------------------------------------------

    def begun(self, agent: HollowAgent, kernel: Kernel) -> None:
        attempt = attempt_of(kernel.start)
        self.note(f"   {kernel.key[0]} ({kernel.key[1]}) begins on {agent.name}: {attempt}")
        if attempt is not None:
            job, task, _ = attempt
            who = (agent.name, *kernel.key)
            running = self._running[job, task]
            if running:
                self._find(
                    Invariant.ONE_LIVE_ATTEMPT,
                    f"two live attempts of task {task} of {job}: {running} and {who}",
                )
            running.add(who)
            if attempt in self._begun:
                self._find(
                    Invariant.NO_ATTEMPT_TWICE,
                    f"attempt {attempt} ran twice: {self._begun[attempt]} and {who}",
                )
            self._begun[attempt] = str(who)
            self._judge_churn(agent, job, task)
        self._judge_capacity(agent)
        self._judge_barrier(kernel)

    def gone(self, agent: HollowAgent, kernel: Kernel) -> None:
        attempt = attempt_of(kernel.start)
        self.note(f"   {kernel.key[0]} ({kernel.key[1]}) is gone from {agent.name}")
        if attempt is not None:
            self._running[attempt[0], attempt[1]].discard((agent.name, *kernel.key))

    def committed(self, unit: Unit) -> None:
        for kind, name, status in unit.events():
            self.note(f"      {kind} {name}: {status}")
            if name in self._ended and self._ended[name] != status:
                self._find(
                    Invariant.ENDS_STAY, f"{kind} {name} was {self._ended[name]}, and is {status}"
                )
            if (kind == "job" and status in JOB_TABLE.terminal) or (
                kind == "session" and status in SESSION_TABLE.terminal
            ):
                self._ended[name] = status

    def _judge_churn(self, agent: HollowAgent, job: str, task: int) -> None:
        """No task is begun again and again without a pause: somebody takes its room each time."""
        lately = self._begun_lately.setdefault((job, task), deque(maxlen=MOST_BEGUN))
        now = agent.machine.now()
        if len(lately) == MOST_BEGUN and now - lately[0] < CHURN_S:
            self._find(
                Invariant.PAUSES, f"task {task} of {job} began {MOST_BEGUN} times in {CHURN_S:g} s"
            )
        lately.append(now)

    def _judge_capacity(self, agent: HollowAgent) -> None:
        used: dict[int, int] = defaultdict(int)
        for kernel in agent.supervisor.kernels.values():
            if kernel.stage in WITH_PROCESSES:
                for share in kernel.shares:
                    used[share.index] += share.milli
        for index, milli in used.items():
            if milli > GPU_WHOLE:
                self._find(
                    Invariant.CAPACITY,
                    f"device {index} of {agent.name} is used to {milli / GPU_WHOLE:.1f}",
                )

    def _judge_barrier(self, kernel: Kernel) -> None:
        if not kernel.start.hold or self.world is None or self.world.controller is None:
            return
        live = self.world.store.live
        record = live.kernels.get(kernel.start.kernel)
        if record is not None and record.session.barrier_opened_at is None:
            self._find(
                Invariant.BARRIER, f"kernel {kernel.key} of a gang ran before its barrier opened"
            )

    def _find(self, kind: Invariant, text: str) -> None:
        self.found.append(Violation(kind, text))

    # -- between steps, and in the end -----------------------------------------------------------

    def judge(self) -> None:
        """
        Raises:
            Violation: something that was seen must not be.
        """
        if self.found:
            raise self.found[0]

    def judge_mirror(self, store: Store) -> None:
        """The mirror is as SQL is: the next controller would know the same.

        Raises:
            Violation: it is not.
        """
        with store.engine.connect() as connection:
            stored = load_live(connection, store.entities)
        for name, known in _rows(store.live).items():
            read = _rows(stored).get(name, {})
            for key in known.keys() | read.keys():
                here, there = known.get(key), read.get(key)
                if here is None or there is None:
                    where = "SQL" if here is None else "the mirror"
                    raise Violation(Invariant.MIRROR, f"{name} {key} is in {where} alone")
                for column, value in here.items():
                    if value != there[column]:
                        raise Violation(
                            Invariant.MIRROR,
                            f"{column} of {name} {key} is {value!r} in the mirror, "
                            f"and {there[column]!r} in SQL",
                        )

    def judge_rest(self, world: World) -> None:
        """All faults have stopped and all work could end.

        Raises:
            Violation: something is left, or does not add up.
        """
        store = world.store
        if work := unended(store):
            told = [
                (store.entities.name_of(each), each.status, getattr(each, "reason", None))
                for each in work[:6]
            ]
            raise Violation(Invariant.WORK_ENDS, f"work never ends: {told}")
        if store.live.ledger:
            raise Violation(
                Invariant.ROOM_RETURNS, f"room stays taken: {[*store.live.ledger.values()][:3]}"
            )
        for agent in world.agents.values():
            left = [
                (kernel.key, kernel.stage)
                for kernel in agent.supervisor.kernels.values()
                if kernel.stage not in (Stage.ENDED, Stage.CREATE_FAILED)
            ]
            if left:
                raise Violation(Invariant.WORK_ENDS, f"{agent.name} holds {left}")
        with store.engine.connect() as connection:
            rows: Any = connection.execute(select(schema.allocations)).all()
            if rows:
                raise Violation(Invariant.ROOM_RETURNS, f"rows of the ledger stay: {rows[:3]}")
            for entity in store.entities.values():
                if entity.record is Agent:
                    continue
                table = entity.rows.table
                found = connection.execute(select(table.c.status).distinct()).scalars().all()
                if wrong := set(found) - set(entity.states.terminal):
                    raise Violation(
                        Invariant.WORK_ENDS, f"{table.name} that have not ended: {wrong}"
                    )
