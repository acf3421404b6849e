"""The mappings of all entities: records to rows and back, known nowhere else."""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any

from muster.core.reasons import Reason
from muster.core.resources import Device, DeviceShare, Resources
from muster.store import schema
from muster.store.batch import inserting, updating
from muster.store.mapping import RowMapping
from muster.store.records import Agent, Allocation, Job, Kernel, Session, Task


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


REASON: Mapping[str, Callable[[Any], Any]] = {
    "reason": lambda record: record.reason and record.reason.code.value,
    "reason_numbers": lambda record: record.reason and _numbers(record.reason),
}
"""Where the columns of ``schema.reason_columns`` come from."""
OWNER: Mapping[str, Callable[[Any], Any]] = {
    "domain": attrgetter("owner.domain"),
    "project": attrgetter("owner.project"),
    "user": attrgetter("owner.user"),
}
"""Where the columns of ``schema.owner_columns`` come from."""


def _job_id(record: Session) -> str | None:
    return record.job.id if record.job else None


def _spec(record: Job | Session) -> str | None:
    return record.spec.model_dump_json(exclude_defaults=True) if record.spec else None


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
        *REASON,
    ),
    barred=lambda agent: agent.barred or "",
    capacity=lambda agent: dump_resources(agent.capacity),
    devices=lambda agent: dump_devices(agent.devices),
    attributes=lambda agent: json.dumps(agent.attributes),
    **REASON,
)
JOBS = RowMapping[Job](
    schema.jobs,
    changing=(
        "status",
        "status_changed_at",
        "next_task",
        "counts",
        "started_at",
        "finished_at",
        *REASON,
    ),
    spec=_spec,
    counts=lambda job: json.dumps(job.counts),
    task_count=attrgetter("spec.tasks"),
    only=lambda job: job.spec.only and str(job.spec.only),
    **OWNER,
    **REASON,
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
    job_id=attrgetter("job.id"),
    idx=attrgetter("index"),
    **REASON,
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
    job_id=_job_id,
    spec=_spec,
    failed_agents=lambda s: json.dumps(s.failed_agents) if s.failed_agents else "[]",
    **OWNER,
    **REASON,
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
    session_id=attrgetter("session.id"),
    idx=attrgetter("index"),
    job_id=lambda kernel: _job_id(kernel.session),
    devices=lambda kernel: dump_shares(kernel.shares),
    ports=lambda kernel: json.dumps(kernel.ports) if kernel.ports else "[]",
    **REASON,
)
ALLOCATIONS = RowMapping[Allocation](
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
