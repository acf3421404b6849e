"""The mappings between the records of the store's own entities and their rows."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from muster.core.reasons import Reason
from muster.core.resources import Device, DeviceShare, Resources
from muster.core.specs import JobSpec, SessionSpec
from muster.scheduling.accounting.holdings import LARGE_SPEC_BYTES
from muster.store import schema
from muster.store.batch import inserting_together, updating
from muster.store.mapping import RowMapping, Source
from muster.store.records import Agent, Allocation, Job, Kernel, Session, Task

# Rows are many, and most of their texts are equal: each text is parsed once.


@lru_cache(maxsize=4096)
def load_reason(code: str | None, numbers: str | None) -> Reason | None:
    return None if code is None else Reason.from_json(code, numbers or "{}")


@lru_cache(maxsize=4096)
def _numbers(reason: Reason) -> str:
    """A reason's numbers as JSON; equal reasons share one text."""
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


@lru_cache(maxsize=4096)
def load_shares(text: str | None) -> tuple[DeviceShare, ...]:
    return tuple(DeviceShare(index, milli) for index, milli in json.loads(text or "[]"))


@lru_cache(maxsize=4096)
def load_list(text: str | None) -> tuple[Any, ...]:
    """The plain values of a list."""
    return tuple(json.loads(text or "[]"))


@lru_cache(maxsize=4096)
def load_request(cpu: int, memory: int, disk: int, gpu: int, extra: str) -> Resources:
    """The request of a kernel, from a row of the ledger."""
    return Resources.with_extra(cpu, memory, disk, gpu, json.loads(extra), kernels=1)


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


REASON: Mapping[str, Source] = {
    "reason": ("reason", lambda reason: reason and reason.code),
    "reason_numbers": ("reason", lambda reason: reason and _numbers(reason)),
}
"""The fields behind the columns of ``schema.reason_columns``."""
OWNER: Mapping[str, Source] = {
    "domain": "owner.domain",
    "project": "owner.project",
    "user": "owner.user",
}
"""The fields behind the columns of ``schema.owner_columns``."""


def _id_of(job: Job | None) -> str | None:
    return job.id if job else None


def _dump_spec(spec: JobSpec | SessionSpec | None) -> str | None:
    return spec.model_dump_json(exclude_defaults=True) if spec else None


def large_or_none(spec_bytes: int) -> int | None:
    """The value of the column ``large_bytes``."""
    return spec_bytes if spec_bytes > LARGE_SPEC_BYTES else None


STORED_SPEC: Mapping[str, Source] = {
    "large_bytes": ("spec_bytes", large_or_none),
    "spec_cut": ("id", lambda _: None),  # only the spec of ended work is cut
}
"""The values behind ``schema.stored_spec_columns``."""


def spec_size(spec: JobSpec | SessionSpec) -> int:
    """The bytes of a spec as it is stored."""
    return len(spec.model_dump_json(exclude_defaults=True).encode())


def _dump_list(values: Sequence[Any]) -> str:
    return json.dumps(values) if values else "[]"


AGENTS = RowMapping[Agent](
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
        "booted_at",
        "fixed",
        *REASON,
    ),
    sources={
        "barred": ("barred", lambda barred: barred or ""),
        "capacity": ("capacity", dump_resources),
        "devices": ("devices", dump_devices),
        "attributes": ("attributes", json.dumps),
        "fixed": ("fixed", json.dumps),
        **REASON,
    },
    lagging=("seen_at",),  # heartbeats cost no commit
)
JOBS = RowMapping[Job](
    schema.jobs,
    changing=(
        "status",
        "status_changed_at",
        "next_task",
        "stopped",
        "counts",
        "started_at",
        "finished_at",
        *REASON,
    ),
    seldom=("spec",),
    sources={
        "spec": ("spec", _dump_spec),
        "counts": ("counts", json.dumps),
        "task_count": "spec.tasks",
        "only": ("spec.only", lambda only: only and str(only)),
        "stopped": ("stopped", lambda stopped: stopped and str(stopped)),
        **STORED_SPEC,
        **OWNER,
        **REASON,
    },
)
TASKS = RowMapping[Task](
    schema.tasks,
    changing=(
        "status",
        "status_changed_at",
        "attempt",
        "failure_count",
        "preemption_count",
        "session_id",
        "kernel_id",
        "started_at",
        "finished_at",
        "exit_code",
        *REASON,
    ),
    sources={"job_id": "job.id", "idx": "index", **REASON},
    differ=("idx", "session_id", "kernel_id"),
)
SESSIONS = RowMapping[Session](
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
        *REASON,
    ),
    seldom=("priority", "spec"),
    sources={
        "job_id": ("job", _id_of),
        "spec": ("spec", _dump_spec),
        "failed_agents": ("failed_agents", _dump_list),
        **STORED_SPEC,
        **OWNER,
        **REASON,
    },
    differ=("id", "name"),
    alike=True,
    lagging=("retry_at",),  # the failure for which a session waits is reported again
)
KERNELS = RowMapping[Kernel](
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
        *REASON,
    ),
    seldom=("result",),
    sources={
        "session_id": "session.id",
        "idx": "index",
        "job_id": ("session.job", _id_of),
        "devices": ("shares", dump_shares),
        "ports": ("ports", _dump_list),
        **REASON,
    },
    differ=("session_id", "idx", "id", "task_index", "agent_id"),
    number="idx",
)
ALLOCATIONS = RowMapping[Allocation](
    schema.allocations,
    changing=("charged", "devices", "boot_id"),
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
INSERT_HISTORY = inserting_together(
    schema.history, schema.history.columns.keys(), ("entity", "seq")
)
UPDATE_HISTORY = updating(schema.history, ("reasons", "times", "last_at"), ("entity", "seq"))
