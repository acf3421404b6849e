"""History: it tells everything that happened, each thing once."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Row, select

from muster.core.ids import IdKind
from muster.core.results import SchedulingResult
from muster.store import schema
from muster.store.entity import Entity, Told, Tried
from muster.store.lookup import Lookup
from muster.store.unit import NEW, Unit
from proving.swarm.judge import Invariant, Judge

LOOKED_AT_EVERY = 8
_ALL = Lookup(select(schema.history).order_by(schema.history.c.seq))
_MERGED = frozenset({SchedulingResult.SKIPPED, SchedulingResult.NEED_RETRY})


class HistoryTellsAll(Invariant):
    """The rows of a record lead from its first status to its last, without a gap, by changes that
    its table allows; and what one commit changed is told with that commit's time."""

    says = "history tells each change of status once, in order"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._changes: dict[str, list[tuple[float, str, str]]] = defaultdict(list)
        self._of: dict[str, Entity[Any]] = {}

    def committed(self, unit: Unit) -> None:
        entities = unit.live.entities
        for kind, entity in entities.items():
            if entity.told is not Told.ALWAYS:
                continue
            for record, stored in unit.touched[kind].items():
                name = entities.name_of(record)
                self._of[name] = entity
                before = stored if stored != NEW else entity.states.initial
                if record.status != before:
                    self._changes[name].append((unit.now, str(before), str(record.status)))

    def at_rest(self) -> None:
        told: dict[str, list[Row[Any]]] = defaultdict(list)
        with self.world.store.engine.connect() as connection:
            for row in _ALL.named(connection):
                if row.from_status != row.to_status:
                    told[row.entity].append(row)
        for name, entity in self._of.items():
            wrong = self._gap(entity, told[name]) or self._untold(name, told[name])
            self.expect(wrong is None, f"{name}: {wrong}")

    def _gap(self, entity: Entity[Any], rows: Sequence[Row[Any]]) -> str | None:
        status = entity.states.initial
        for row in rows:
            if row.from_status != status:
                return f"it was {status}, and history goes on from {row.from_status}"
            if (row.from_status, row.to_status) not in entity.states.allowed:
                return f"it went from {row.from_status} to {row.to_status}"
            if row.times != 1:
                return f"it became {row.to_status} {row.times} times at once"
            status = row.to_status
        return None

    def _untold(self, name: str, rows: Sequence[Row[Any]]) -> str | None:
        steps: Mapping[float, list[Row[Any]]] = defaultdict(list)
        for row in rows:
            steps[row.first_at].append(row)
        for at, before, after in self._changes[name]:
            path = steps.pop(at, [])  # type: ignore[attr-defined]
            if not path or (path[0].from_status, path[-1].to_status) != (before, after):
                return f"it went from {before} to {after}, and history tells {path}"
        back = [at for at, path in steps.items() if path[0].from_status != path[-1].to_status]
        return f"history tells of changes at {back} that were not" if back else None


class RepeatsMerge(Invariant):
    """While a record keeps its status, rows of one phase, result and reasons are one row with a
    count, as long as the mirror is not read again; others are rows of their own."""

    says = "history merges what repeats, and nothing else"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._mirror: object = None
        self._forgot_at: list[float] = []
        self._codes: dict[tuple[str, int], Sequence[str]] = {}
        self._steps = 0

    def committed(self, unit: Unit) -> None:
        if unit.live is not self._mirror:
            self._mirror = unit.live
            self._forgot_at.append(unit.now)

    def between_steps(self) -> None:
        self._steps += 1
        if self._steps % LOOKED_AT_EVERY == 0 and self.world.controller is not None:
            self._read()

    def _read(self) -> Sequence[Row[Any]]:
        """All rows; the codes of a row are those with which it was written."""
        with self.world.store.engine.connect() as connection:
            rows = [*_ALL.named(connection)]
        for row in rows:
            codes = _codes(row.reasons)
            known = self._codes.setdefault((row.entity, row.seq), codes)
            self.expect(known == codes, f"{row.entity}: {known} became {codes}")
        return rows

    def at_rest(self) -> None:
        last: dict[str, Row[Any]] = {}
        for row in self._read():
            repeats = _may_repeat(row) and row.from_status == row.to_status
            self.expect(
                row.times == 1 or (repeats and row.first_at <= row.last_at),
                f"{row.entity}: {row.phase} {row.result} was told {row.times} times",
            )
            before = last.get(row.entity)
            if repeats and before is not None and _is_equal(before, row):
                forgot = any(before.first_at < at <= row.first_at for at in self._forgot_at)
                self.expect(forgot, f"{row.entity}: {row.phase} {row.result} twice")
            last[row.entity] = row


def _may_repeat(row: Row[Any]) -> bool:
    """Whether rows with this result merge: refusals and retries. Deployments and their routes have
    failures in place of refusals."""
    is_served = row.entity.startswith(f"{IdKind.DEPLOYMENT}-")
    return row.result in _MERGED or (is_served and row.result == SchedulingResult.FAILURE)


class CountsAreKept(Invariant):
    """The counts that the mirror had of a record's rows, when later rows could still merge with
    them. A mirror that is read again may know less."""

    says = "history counts all that it merges"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._mirror: object = None
        self._counted: dict[tuple[str, int], int] = {}
        self._final: dict[tuple[str, int], int] = {}

    def between_steps(self) -> None:
        controller = self.world.controller
        if controller is None or self.world.is_broken:
            return
        live = controller.store.live
        if live is not self._mirror:
            self._mirror, self._counted = live, {}
        counted = {
            (live.entities.name_of(record), repeat.seq): repeat.count
            for entity in live.entities.values()
            if issubclass(entity.record, Tried)
            for record in live.all_of(entity)
            for repeat in record.repeats
        }
        self._final |= {key: self._counted[key] for key in self._counted.keys() - counted.keys()}
        self._counted = counted

    def at_rest(self) -> None:
        with self.world.store.engine.connect() as connection:
            for row in _ALL.named(connection):
                counted = self._final.get((row.entity, row.seq), 1)
                self.expect(
                    row.times >= counted,
                    f"{row.entity}: {row.phase} {row.result} is counted {row.times} times, and was "
                    f"told {counted} times",
                )


@lru_cache(maxsize=4096)
def _codes(reasons: str | None) -> Sequence[str]:
    return tuple(code for code, _ in json.loads(reasons or "[]"))


def _is_equal(one: Row[Any], other: Row[Any]) -> bool:
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("phase", "result", "from_status", "to_status")
    ) and _codes(one.reasons) == _codes(other.reasons)
