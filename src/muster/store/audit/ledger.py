"""Audits of the ledger: its rows against the kernels that hold room and the agents that give it."""

import json
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import Row, Select, and_, func, select

from muster.core.resources import Resources
from muster.core.states import KERNEL_TABLE, AgentStatus, KernelStatus
from muster.store import schema
from muster.store.audit.finding import MAX_SENTENCE, UNREADABLE, Audit, AuditFinding, Stored
from muster.store.ledger import capacity_of, charged_amounts, exceeds
from muster.store.lookup import Lookup, given
from muster.store.queries.workload_history import request_of
from muster.store.records import AGENTS
from muster.store.stored_values import load_shares

_AGENTS_AT_A_TIME = 500
_devices_of = AGENTS.loader("devices")
_GONE = frozenset({AgentStatus.LOST, AgentStatus.REMOVED})
"""Statuses of an agent whose kernels are proven gone."""
_allocations, _kernels, _agents = schema.allocations, schema.kernels, schema.agents


def _name(row: Row[Any]) -> str:
    return f"allocations {row.kernel_id}/{row.generation}"


@cache
def _founded() -> Select[Any]:
    joined = _allocations.join(_kernels, _kernels.c.id == _allocations.c.kernel_id).join(
        _agents, _agents.c.id == _allocations.c.agent_id
    )
    return select(
        _allocations.c.kernel_id,
        _allocations.c.generation,
        _allocations.c.agent_id,
        _allocations.c.boot_id,
        _kernels.c.generation.label("newest"),
        _kernels.c.agent_id.label("placed_on"),
        _kernels.c.status,
        _kernels.c.ended_at,
        _agents.c.status.label("agent_status"),
        _agents.c.boot_id.label("booted"),
    ).select_from(joined)


def _unfounded(stored: Stored) -> Iterator[AuditFinding]:
    """Rows of the ledger that hold room for a kernel that cannot have room, or on an agent that
    cannot give it."""
    for row in stored.connection.execute(_founded()):
        for sentence in _not_held(row):
            yield AuditFinding(_name(row), sentence)


def _not_held(row: Row[Any]) -> Iterator[str]:
    if row.generation > row.newest:
        yield f"holds room for a generation that comes after its kernel's, which is {row.newest}"
    if row.generation == row.newest:
        if row.placed_on != row.agent_id:
            yield f"holds room on {row.agent_id}, and its kernel is placed on {row.placed_on}"
        # A kernel that nobody has seen end keeps its room (design: The ledger).
        has_ended = row.status in KERNEL_TABLE.terminal and row.ended_at is not None
        if has_ended or row.status in (KernelStatus.PENDING, KernelStatus.CANCELLED):
            yield f"holds room for a kernel that is {row.status}"
    if row.agent_status in _GONE:
        yield f"holds room on {row.agent_id}, which is {row.agent_status}"
    elif row.boot_id != row.booted:
        yield f"holds room since boot {row.boot_id} of {row.agent_id}, which is at {row.booted}"


@cache
def _without_room() -> Lookup:
    placed = sorted(KERNEL_TABLE.live - {KernelStatus.PENDING})
    k = _kernels.c
    held = and_(_allocations.c.kernel_id == k.id, _allocations.c.generation == k.generation)
    return Lookup(
        select(k.id, k.session_id, k.status)
        .select_from(_kernels.outerjoin(_allocations, held))
        .where(
            k.status.in_(placed),
            k.status_changed_at < given("settled"),
            _allocations.c.kernel_id.is_(None),
        )
    )


def _unheld(stored: Stored) -> Iterator[AuditFinding]:
    """Kernels that are placed and hold no room."""
    found = _without_room().each(stored.connection, {"settled": stored.settled})
    for id_, session, status in found:
        yield AuditFinding(f"{session}/{id_}", f"is {status} and holds no room")


@cache
def _with_specs() -> Select[Any]:
    sessions, jobs = schema.sessions, schema.jobs
    joined = (
        _allocations.join(_kernels, _kernels.c.id == _allocations.c.kernel_id)
        .join(sessions, sessions.c.id == _kernels.c.session_id)
        .outerjoin(jobs, jobs.c.id == sessions.c.job_id)
    )
    return select(
        _allocations,
        _kernels.c.idx,
        func.coalesce(sessions.c.spec, jobs.c.spec).label("spec"),
    ).select_from(joined)


def _wrong_amounts(stored: Stored) -> Iterator[AuditFinding]:
    """Rows with other amounts than their kernels ask for."""
    for row in stored.connection.execute(_with_specs()):
        try:
            for sentence in _differing(row):
                yield AuditFinding(_name(row), sentence)
        except UNREADABLE as error:
            yield AuditFinding(
                _name(row), f"cannot be compared with its spec: {error!r}"[:MAX_SENTENCE]
            )


def _differing(row: Row[Any]) -> Iterator[str]:
    asked = _requests(row.spec)
    asks = asked[row.idx] if len(asked) > 1 else asked[0]
    has = Resources.with_extra(
        row.cpu_milli,
        row.memory_bytes,
        row.disk_bytes,
        row.gpu_milli,
        json.loads(row.extra),
        kernels=1,
    )
    if has.as_dict() != asks.as_dict():
        yield f"holds {has.describe()}, and its kernel asks for {asks.describe()}"
    on_devices = sum(share.milli for share in load_shares(row.devices))
    if row.charged and on_devices != row.gpu_milli:
        yield f"holds {row.gpu_milli / 1000:g} gpu, and {on_devices / 1000:g} of devices"


@lru_cache(maxsize=256)
def _requests(spec: str) -> Sequence[Resources]:
    """The requests of the kernels of a session with this spec; or of each task of a job with it."""
    found = json.loads(spec)
    if "kernels" not in found:
        return [request_of(found)]
    return [
        request
        for process in found["kernels"]
        for request in [request_of(process)] * process.get("replicas", 1)
    ]


_CHARGED = select(_agents.c.id, _agents.c.capacity, _agents.c.devices).where(
    _agents.c.id.in_(select(_allocations.c.agent_id))
)


def _overcommitted(stored: Stored) -> Iterator[AuditFinding]:
    """Agents that are charged with more than they have."""
    for agents in stored.connection.execute(_CHARGED).partitions(_AGENTS_AT_A_TIME):
        charged = charged_amounts(stored.connection, [agent.id for agent in agents])
        for agent in agents:
            indexes = {device.index for device in _devices_of(agent.devices)}
            capacity = capacity_of(agent.capacity)
            for name, amount in charged.get(agent.id, {}).items():
                if exceeds(name, amount, capacity):
                    yield AuditFinding(
                        agent.id, f"is charged with {_said(name, amount)}, and has less"
                    )
                elif amount and name not in indexes and isinstance(name, int):
                    yield AuditFinding(agent.id, f"is charged with device {name}, which it has not")


def _said(name: str | int, amount: int) -> str:
    return f"{amount} {name}" if isinstance(name, str) else f"{amount / 1000:g} of device {name}"


AUDITS = (
    Audit(
        "the ledger holds room for kernels that may run, on agents that may run them", _unfounded
    ),
    Audit("each placed kernel holds room", _unheld),
    Audit("each row of the ledger has the amounts that its kernel asks for", _wrong_amounts),
    Audit("no agent is charged with more than it has", _overcommitted),
)
