"""Records as rows and back: the only place that knows both forms."""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Table, bindparam, select

from muster.core.reasons import Reason
from muster.core.resources import Device, DeviceShare, Resources
from muster.store import schema
from muster.store.batch import deleting, inserting, updating
from muster.store.records import Agent, Allocation, Job, Kernel, Session, Task

R = TypeVar("R")
Row = list[Any]


class Mapping(Generic[R]):
    """How one kind of record is kept.

    Args:
        table: where; its status column is ``status`` or ``state``.
        changing: columns that may change after the insert; always written together.
        sources: where a column's value comes from, unless it is the attribute of its name.

    ``update`` is a compare-and-set: the primary key and the status that the row had find it.
    """

    def __init__(
        self, table: Table, changing: Sequence[str], **sources: Callable[[R], Any]
    ) -> None:
        keys = [column.name for column in table.primary_key]
        status = [name for name in ("status", "state") if name in table.c and name in changing]
        self.insert = inserting(table)
        self.update = updating(table, changing, [*keys, *status])
        self.delete = deleting(table, keys)
        self._whole = [sources.get(c.name) or attrgetter(c.name) for c in table.columns]
        self._changing = [sources.get(name) or attrgetter(name) for name in changing]
        self._key_names = [f"key_{name}" for name in keys]
        is_row = (table.c[name] == bindparam(f"key_{name}") for name in keys)
        self._stored = select(table.c[(status or keys)[0]]).where(*is_row)
        self._key = [sources.get(name) or attrgetter(name) for name in keys]

    def whole(self, record: R) -> Row:
        return [get(record) for get in self._whole]

    def changed(self, record: R, *status: str) -> Row:
        """The row for ``update``; ``status`` is the one that the stored row still has."""
        return [*[get(record) for get in self._changing], *self.key(record), *status]

    def key(self, record: R) -> Row:
        return [get(record) for get in self._key]

    def stored(self, connection: Connection, record: R) -> str | None:
        """The status that SQL has for the record, or its key where it has no status; None if there
        is no such row."""
        found: str | None = connection.execute(
            self._stored, dict(zip(self._key_names, self.key(record), strict=True))
        ).scalar()
        return found


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


_REASON: dict[str, Callable[[Any], Any]] = {
    "reason": lambda record: record.reason and record.reason.code.value,
    "reason_numbers": lambda record: record.reason and _numbers(record.reason),
}
_OWNER: dict[str, Callable[[Any], Any]] = {
    "domain": attrgetter("owner.domain"),
    "project": attrgetter("owner.project"),
    "user": attrgetter("owner.user"),
}
_STATE: dict[str, Callable[[Any], Any]] = {
    "state": attrgetter("status"),
    "state_changed_at": attrgetter("status_changed_at"),
}


def _job_id(record: Session) -> str | None:
    return record.job.id if record.job else None


def _spec(record: Job | Session) -> str | None:
    return record.spec.model_dump_json(exclude_defaults=True) if record.spec else None


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
        *_REASON,
    ),
    barred=lambda agent: agent.barred or "",
    capacity=lambda agent: dump_resources(agent.capacity),
    devices=lambda agent: dump_devices(agent.devices),
    attributes=lambda agent: json.dumps(agent.attributes),
    **_REASON,
)
JOBS = Mapping[Job](
    schema.jobs,
    changing=(*_STATE, "next_task", "counts", "started_at", "finished_at", *_REASON),
    spec=_spec,
    counts=lambda job: json.dumps(job.counts),
    task_count=attrgetter("spec.tasks"),
    only=lambda job: job.spec.only and str(job.spec.only),
    **_STATE,
    **_OWNER,
    **_REASON,
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
    job_id=attrgetter("job.id"),
    idx=attrgetter("index"),
    **_STATE,
    **_REASON,
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
    job_id=_job_id,
    spec=_spec,
    failed_agents=lambda s: json.dumps(s.failed_agents) if s.failed_agents else "[]",
    **_OWNER,
    **_REASON,
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
    session_id=attrgetter("session.id"),
    idx=attrgetter("index"),
    job_id=lambda kernel: _job_id(kernel.session),
    devices=lambda kernel: dump_shares(kernel.shares),
    ports=lambda kernel: json.dumps(kernel.ports) if kernel.ports else "[]",
    **_REASON,
)
ALLOCATIONS = Mapping[Allocation](
    schema.allocations,
    changing=("charged", "devices"),
    cpu_milli=attrgetter("resources.cpu_milli"),
    memory_bytes=attrgetter("resources.memory_bytes"),
    disk_bytes=attrgetter("resources.disk_bytes"),
    gpu_milli=attrgetter("resources.gpu_milli"),
    extra=lambda a: json.dumps(dict(a.resources.extra)) if a.resources.extra else "{}",
    devices=lambda allocation: dump_shares(allocation.shares),
)
INSERT_HISTORY = inserting(schema.history)
UPDATE_HISTORY = updating(schema.history, ("reasons", "times", "last_at"), ("entity", "seq"))
