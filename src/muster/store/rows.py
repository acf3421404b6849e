"""Records as rows and back: the only place that knows both forms."""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Generic, TypeAlias, TypeVar

from sqlalchemy import Connection, Table, bindparam, select

from muster.core.reasons import Reason
from muster.core.resources import Device, DeviceShare, Resources
from muster.core.specs import JobSpec, SessionSpec
from muster.store import schema
from muster.store.batch import (
    Batch,
    Dump,
    Insertion,
    RangeUpdate,
    deleting,
    inserting,
    updating,
)
from muster.store.records import Agent, Allocation, Job, Kernel, Session, Task

R = TypeVar("R")
Row = tuple[Any, ...]
Source: TypeAlias = str | tuple[str, Dump]
"""Where a column's value comes from: an attribute, and what makes it one that the driver takes."""


class Mapping(Generic[R]):
    """How one kind of record is kept.

    Args:
        table: where; its status column is ``status`` or ``state``.
        changing: columns that may change after the insert; always written together.
        sources: where columns' values come from that are not the attributes of their names.
        differ: columns in which the rows of a gang differ when they are inserted.
        number: the part of the primary key by which the rows of a gang follow each other.

    ``update`` is a compare-and-set: the primary key and the status that the row had find it.
    """

    def __init__(
        self,
        table: Table,
        changing: Sequence[str],
        sources: dict[str, Source],
        differ: Sequence[str] = (),
        number: str | None = None,
    ) -> None:
        columns = [column.name for column in table.columns]
        changing = [name for name in columns if name in changing]
        keys = [column.name for column in table.primary_key]
        status = [name for name in ("status", "state") if name in changing]
        dumps = {name: source[1] for name, source in sources.items() if isinstance(source, tuple)}
        self.insert: Batch | Insertion = (
            Insertion(table, columns, differ, dumps) if differ else inserting(table, columns, dumps)
        )
        self.update: Batch | RangeUpdate = (
            RangeUpdate(table, changing, [*keys, *status], number, dumps)
            if number
            else updating(table, changing, [*keys, *status], dumps)
        )
        self.delete = deleting(table, keys)
        self.whole = _reading(columns, sources)
        """The row of a record for ``insert``."""
        self._changed = _reading([*changing, *keys], sources)
        self._key_names = [f"key_{name}" for name in keys]
        is_row = (table.c[name] == bindparam(f"key_{name}") for name in keys)
        self._stored = select(table.c[(status or keys)[0]]).where(*is_row)
        self._key = _reading(keys, sources)

    def changed(self, record: R, *status: str) -> Row:
        """The row for ``update``; ``status`` is the one that the stored row still has."""
        return self._changed(record) + status

    def stored(self, connection: Connection, record: R) -> str | None:
        """The status that SQL has for the record, or its key where it has no status; None if there
        is no such row."""
        key = self._key(record)
        found: str | None = connection.execute(
            self._stored, dict(zip(self._key_names, key, strict=True))
        ).scalar()
        return found


def _reading(columns: Sequence[str], sources: dict[str, Source]) -> Callable[[Any], Row]:
    """Reads the attributes that columns come from, as a row."""
    found = (sources.get(name, name) for name in columns)
    attributes = [each if isinstance(each, str) else each[0] for each in found]
    get = attrgetter(*attributes)
    return get if len(attributes) > 1 else lambda record: (get(record),)


def load_reason(code: str | None, numbers: str | None) -> Reason | None:
    return None if code is None else Reason.from_json(code, numbers or "{}")


@lru_cache(maxsize=4096)
def _numbers(reason: Reason) -> str:
    """A reason's numbers as JSON; ten thousand tasks that exit with 0 share one."""
    return reason.to_json()


@lru_cache(maxsize=4096)
def dump_reasons(reasons: tuple[Reason, ...]) -> str | None:
    if not reasons:
        return None
    return json.dumps([[reason.code.value, dict(reason.numbers)] for reason in reasons])


def load_reasons(text: str | None) -> tuple[Reason, ...]:
    return tuple(
        Reason.from_json(code, json.dumps(numbers)) for code, numbers in json.loads(text or "[]")
    )


def dump_shares(shares: tuple[DeviceShare, ...]) -> str:
    return json.dumps([[share.index, share.milli] for share in shares]) if shares else "[]"


def load_shares(text: str | None) -> tuple[DeviceShare, ...]:
    return tuple(DeviceShare(index, milli) for index, milli in json.loads(text or "[]"))


def dump_resources(amount: Resources) -> str:
    return json.dumps(
        [
            amount.cpu_milli,
            amount.memory_bytes,
            amount.disk_bytes,
            amount.gpu_milli,
            dict(amount.extra),
        ]
    )


def load_resources(text: str) -> Resources:
    cpu, memory, disk, gpu, extra = json.loads(text)
    return Resources.with_extra(cpu, memory, disk, gpu, extra)


def dump_devices(devices: tuple[Device, ...]) -> str:
    return json.dumps([[d.index, d.model, d.uuid, d.memory_bytes] for d in devices])


def load_devices(text: str) -> tuple[Device, ...]:
    return tuple(Device(*fields) for fields in json.loads(text))


_REASON: dict[str, Source] = {
    "reason": ("reason", lambda reason: reason and reason.code),
    "reason_numbers": ("reason", lambda reason: reason and _numbers(reason)),
}
_OWNER: dict[str, Source] = {
    "domain": "owner.domain",
    "project": "owner.project",
    "user": "owner.user",
}
_STATE: dict[str, Source] = {
    "state": "status",
    "state_changed_at": "status_changed_at",
}


def _id_of(job: Job | None) -> str | None:
    return job.id if job else None


def _dump_spec(spec: JobSpec | SessionSpec | None) -> str | None:
    return spec.model_dump_json(exclude_defaults=True) if spec else None


def _dump_list(values: Sequence[Any]) -> str:
    return json.dumps(values) if values else "[]"


AGENTS = Mapping[Agent](
    schema.agents,
    changing=(
        "status",
        "status_changed_at",
        "group",
        "credential_hash",
        "boot_id",
        "version",
        "host",
        "capacity",
        "devices",
        "attributes",
        "seen_at",
        "barred",
        "bar_note",
        "leave_by",
        "instance",
        "lease_s",
        "silence_s",
        "machine",
        "supervisor",
        *_REASON,
    ),
    sources={
        "barred": ("barred", lambda barred: barred or ""),
        "capacity": ("capacity", dump_resources),
        "devices": ("devices", dump_devices),
        "attributes": ("attributes", json.dumps),
        **_REASON,
    },
)
JOBS = Mapping[Job](
    schema.jobs,
    changing=(*_STATE, "next_task", "counts", "started_at", "finished_at", *_REASON),
    sources={
        "spec": ("spec", _dump_spec),
        "counts": ("counts", json.dumps),
        "task_count": "spec.tasks",
        "only": ("spec.only", lambda only: only and str(only)),
        **_STATE,
        **_OWNER,
        **_REASON,
    },
)
TASKS = Mapping[Task](
    schema.tasks,
    changing=(
        *_STATE,
        "attempt",
        "failure_count",
        "preemption_count",
        "session_id",
        "kernel_id",
        "started_at",
        "finished_at",
        "exit_code",
        *_REASON,
    ),
    sources={"job_id": "job.id", "idx": "index", **_STATE, **_REASON},
    differ=("idx", "kernel_id"),
)
SESSIONS = Mapping[Session](
    schema.sessions,
    changing=(
        "status",
        "status_changed_at",
        "queued_at",
        "tries",
        "retry_at",
        "reschedules",
        "failed_agents",
        "started_at",
        "finished_at",
        "barrier_opened_at",
        *_REASON,
    ),
    sources={
        "job_id": ("job", _id_of),
        "spec": ("spec", _dump_spec),
        "failed_agents": ("failed_agents", _dump_list),
        **_OWNER,
        **_REASON,
    },
)
KERNELS = Mapping[Kernel](
    schema.kernels,
    changing=(
        "status",
        "status_changed_at",
        "generation",
        "agent_id",
        "devices",
        "ports",
        "started_at",
        "ended_at",
        "exit_code",
        "signal",
        "failed_at",
        *_REASON,
    ),
    sources={
        "session_id": "session.id",
        "idx": "index",
        "job_id": ("session.job", _id_of),
        "devices": ("shares", dump_shares),
        "ports": ("ports", _dump_list),
        **_REASON,
    },
    differ=("idx", "id", "task_index"),
    number="idx",
)
ALLOCATIONS = Mapping[Allocation](
    schema.allocations,
    changing=("charged", "devices"),
    sources={
        "cpu_milli": "resources.cpu_milli",
        "memory_bytes": "resources.memory_bytes",
        "disk_bytes": "resources.disk_bytes",
        "gpu_milli": "resources.gpu_milli",
        "extra": ("resources.extra", lambda extra: json.dumps(dict(extra)) if extra else "{}"),
        "devices": ("shares", dump_shares),
    },
    differ=("kernel_id", "agent_id"),
)
INSERT_HISTORY = inserting(schema.history, schema.history.columns.keys())
UPDATE_HISTORY = updating(schema.history, ("reasons", "times", "last_at"), ("entity", "seq"))
