"""The performers of effects on machines, over a cloud of toys that answers as a test wants."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import Engine, String, Table, insert
from tests.databases import open_unsynced, url_at
from tests.patience import until

from muster.autoscaling.standing import CreateOutcome
from muster.control.engine.effects import AgentsDoor, Surroundings
from muster.control.engine.inputs import Input
from muster.control.pool.effects import MakeSlice, SliceMade
from muster.control.pool.performing.performers import (
    MachineLister,
    MachineLogReader,
    ProviderCalls,
    SliceDeleter,
    SliceMaker,
)
from muster.control.pool.records import SliceId, pools, slices
from muster.control.pool.specs import pool_revisions
from muster.core.errors import Problem
from muster.core.specs.pool import MachineShape, PoolSpec
from muster.core.states.slice import SLICE_TABLE
from muster.providers import found
from muster.providers.provider import Machine, MachineListing, MachineState, Provider, SliceOrder
from muster.store import schema

SECRET = "mjt-0123456789abcdefghijklmnopqrstuvwxyz"
SHAPE = MachineShape(cpu=8, memory=2**33)
HANGS_S = 0.2
"""How long a call may last where a test has one hang."""


def machine(slice_: str, id_: str = "i-1", **fields: Any) -> Machine:
    return Machine(id_, slice_, f"{slice_}-0", MachineState.RUNNING, **fields)


@dataclass
class Cloud:
    """The requests that providers of a test get, and their answers."""

    asked: list[tuple[str, ...]] = field(default_factory=list)
    orders: list[SliceOrder] = field(default_factory=list)
    made: list[Provider] = field(default_factory=list)
    closed: list[Provider] = field(default_factory=list)
    shut: dict[str, threading.Event] = field(default_factory=dict)
    """Calls about these slices last until the event is set."""
    answers: dict[str, Callable[[], Any]] = field(default_factory=dict)
    """Answers to calls of a name, or about a slice, in place of the usual ones."""

    def ask(self, provider: Provider, call: str, slice_: str, usual: Any) -> Any:
        self.asked.append((provider.scope.pool, call, slice_))
        if (gate := self.shut.get(slice_)) is not None:
            gate.wait(60.0)
        answer = self.answers.get(slice_) or self.answers.get(call)
        return usual if answer is None else answer()

    def shut_for(self, *ids: str) -> threading.Event:
        gate = threading.Event()
        self.shut.update(dict.fromkeys(ids, gate))
        return gate

    def told(self, call: str) -> list[str]:
        """The slices about which this was called."""
        return [slice_ for _, name, slice_ in self.asked if name == call]


def provider_of(cloud: Cloud, *, beside: bool) -> type[Provider]:
    class Toy(Provider):
        name = "beside" if beside else "toy"
        is_beside = beside

        def __init__(self, spec: PoolSpec, scope: Any) -> None:
            super().__init__(spec, scope)
            cloud.made.append(self)

        @classmethod
        def problems(cls, spec: PoolSpec) -> Iterable[Problem]:
            return ()

        def check(self) -> None:
            raise NotImplementedError

        def create(self, order: SliceOrder) -> tuple[Machine, ...]:
            cloud.orders.append(order)
            usual = (machine(order.slice),)
            answer: tuple[Machine, ...] = cloud.ask(self, "create", order.slice, usual)
            return answer

        def delete(self, slice_: str) -> bool:
            answer: bool = cloud.ask(self, "delete", slice_, True)
            return answer

        def list(self) -> MachineListing:
            region = str(self.spec.settings.get("region", "here"))
            answer: MachineListing = cloud.ask(
                self, "list", region, MachineListing((machine("sl-1", region),))
            )
            return answer

        def log(self, machine: Machine) -> str:
            answer: str = cloud.ask(self, "log", machine.id, "")
            return answer

        def forget(self) -> None:
            cloud.ask(self, "forget", "", None)

        def reboot(self, machine: Machine, *, hard: bool = False) -> None:
            cloud.ask(self, "hard reboot" if hard else "reboot", machine.id, None)

        def close(self) -> None:
            cloud.closed.append(self)
            cloud.answers.get("close", lambda: None)()

    return Toy


class Reported(list[Input]):
    """Outcomes, as they come in from threads."""

    def until(self, count: int) -> "Reported":
        until(lambda: len(self) >= count)
        return self


class Performers:
    """The performers over a database, and the rows that their effects name."""

    def __init__(self, engine: Engine, cloud: Cloud, tmp_path: Path) -> None:
        self.engine = engine
        self.cloud = cloud
        self.reported = Reported()
        self.door = AgentsDoor("127.0.0.1:7", "head.example:7", "PEM")
        self.home = tmp_path
        self._calls: list[ProviderCalls] = []
        self._revisions: dict[tuple[str, str], int] = {}
        self.restart()

    def restart(self, call_s: float = 60.0, home: Path | None = None) -> None:
        surroundings = Surroundings(
            self.engine, self.reported.append, home or self.home, door=self.door
        )
        self._use(surroundings, call_s)

    def without_directory(self) -> None:
        self._use(Surroundings(self.engine, self.reported.append, door=self.door), 60.0)

    def _use(self, surroundings: Surroundings, call_s: float) -> None:
        calls = ProviderCalls(surroundings, call_s)
        self._calls.append(calls)
        self.make = SliceMaker(calls).perform
        self.delete = SliceDeleter(calls).perform
        self.list = MachineLister(calls).perform
        self.read = MachineLogReader(calls).perform

    def close(self) -> None:
        for calls in self._calls:
            calls.close()

    def pool(self, name: str, ended: int = 0, status: str = "ACTIVE", **fields: Any) -> PoolSpec:
        """A pool in the database, after so many others of its name that have ended."""
        spec = a_pool(name, **fields)
        for number in range(ended):
            former = dump(a_pool(name, settings={"region": f"former-{number}"}))
            row = {"id": f"po-{number}-{name}", "name": name, "spec": former}
            self._insert(pools, row | {"status": "DELETED", "finished_at": 5.0})
        present = {"id": f"po-{ended}-{name}", "name": name, "spec": dump(spec)}
        self._insert(pools, present | {"status": status})
        self._revisions[name, dump(spec)] = 0
        return spec

    def slice(self, id_: str, spec: PoolSpec, **columns: Any) -> None:
        """A slice in the database that is to be made; where it has ended, it keeps no spec."""
        row: dict[str, Any] = {"id": id_, "pool": spec.name, "group": "default"}
        has_ended = columns.get("status") in SLICE_TABLE.terminal
        row["revision"] = self._revision(spec, keeps=not has_ended)
        own = {"status": "REQUESTING", "generation": 1, "secret": SECRET}
        self._insert(slices, {**row, **own, "machines": f'[{{"name": "{id_}-0"}}]', **columns})

    def _revision(self, spec: PoolSpec, *, keeps: bool) -> int:
        """The revision of a pool that has this spec, which is stored if a slice ``keeps`` it."""
        key = spec.name, dump(spec)
        if key not in self._revisions and not keeps:
            return 1_000
        if key not in self._revisions:
            self._revisions[key] = len(self._revisions) + 1
            row = {"pool": spec.name, "revision": self._revisions[key], "spec": dump(spec)}
            self._insert(pool_revisions, row)
        return self._revisions[key]

    def _insert(self, table: Table, row: dict[str, Any]) -> None:
        others = (column for column in table.c if not column.nullable)
        blank = {column.name: "" if isinstance(column.type, String) else 0 for column in others}
        with self.engine.begin() as connection:
            connection.execute(insert(table), blank | row)


def threads() -> list[str]:
    """The threads of all performers."""
    return [each.name for each in threading.enumerate() if "providers" in each.name]


def a_pool(name: str, **fields: Any) -> PoolSpec:
    return PoolSpec.model_validate(
        {"name": name, "provider": "toy", "machine": SHAPE, "max_slices": 9, **fields}
    )


def throw(error: BaseException) -> Callable[[], Any]:
    def raise_it() -> Any:
        raise error

    return raise_it


def dump(spec: PoolSpec) -> str:
    return spec.model_dump_json(exclude_defaults=True)


def making(*numbers: int, generation: int = 1) -> list[MakeSlice]:
    return [MakeSlice(SliceId(f"sl-{number}"), generation) for number in numbers]


def made(number: int) -> SliceMade:
    id_ = f"sl-{number}"
    return SliceMade(SliceId(id_), 1, CreateOutcome.CREATED, (machine(id_),))


def _engine(tmp_path: Path) -> Engine:
    """A database with the tables of pools and the cluster's id."""
    engine = open_unsynced(url_at(tmp_path))
    schema.metadata.create_all(engine, [pools, slices, pool_revisions])
    with engine.begin() as connection:
        connection.execute(insert(schema.cluster), {"key": "id", "value": "c1"})
    return engine


@contextmanager
def performing(tmp_path: Path) -> Iterator[Performers]:
    """Performers over a database of their own, whose providers are a cloud's."""
    engine, cloud = _engine(tmp_path), Cloud()
    module = ModuleType("toy_providers")
    module.__dict__.update({"toy": provider_of(cloud, beside=False)})
    module.__dict__.update({"beside": provider_of(cloud, beside=True)})
    performers = Performers(engine, cloud, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        for name in ("toy", "beside"):
            patch.setitem(found.BUILTIN, name, f"{module.__name__}:{name}")
        try:
            yield performers
        finally:
            for gate in cloud.shut.values():
                gate.set()
            performers.close()
            until(lambda: not threads())
            engine.dispose()
