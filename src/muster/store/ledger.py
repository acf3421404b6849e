"""The ledger's sums, checked in SQL when a wake is committed (design: Try, then commit). Its rows
are made, charged and released by the verbs of ``Unit``."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from sqlalchemy import ColumnElement, Connection, func, literal_column, or_, select

from muster.core.resources import GPU_WHOLE
from muster.store import schema
from muster.store.lookup import Selection
from muster.store.records import Allocation
from muster.store.stored_values import load_resources, load_shares

Amounts = dict[str | int, int]
"""Amounts by the name of a resource, and in thousandths by the index of a device."""

_agents, _rows = schema.agents.c, schema.allocations.c
_SUMMED = (_rows.cpu_milli, _rows.memory_bytes, _rows.disk_bytes)  # GPUs are counted by device
_NOTHING: ColumnElement[str] = literal_column("'{}'")
_NONE: ColumnElement[str] = literal_column("'[]'")

# Rows of agents stay locked until the commit, where the database can lock rows.
_CAPACITIES = Selection(
    lambda keys: select(_agents.id, _agents.capacity).where(_agents.id.in_(keys)).with_for_update()
)
_SUMS = Selection(
    lambda keys: (
        select(_rows.agent_id, *(func.sum(each) for each in _SUMMED))
        .where(_rows.charged.is_(True), _rows.agent_id.in_(keys))
        .group_by(_rows.agent_id)
    )
)
_PARTICULARS = Selection(
    lambda keys: select(_rows.agent_id, _rows.devices, _rows.extra).where(
        _rows.charged.is_(True),
        _rows.agent_id.in_(keys),
        or_(_rows.devices != _NONE, _rows.extra != _NOTHING),
    )
)


def overcommitted(connection: Connection, granted: Sequence[Allocation]) -> list[Allocation]:
    """The granted allocations that do not fit beside all other allocations with which their agent
    is charged; the latest first. All allocations have been written already. Agents without a
    granted allocation are not checked."""
    of_agent: dict[str, list[Allocation]] = {}
    for allocation in granted:
        of_agent.setdefault(allocation.agent_id, []).append(allocation)
    agents = list(of_agent)
    charged = charged_amounts(connection, agents)
    misfits: list[Allocation] = []
    for agent_id, capacity in _CAPACITIES.rows(connection, agents):
        misfits += _misfits(of_agent[agent_id], charged[agent_id], capacity_of(capacity))
    return misfits


def charged_amounts(connection: Connection, agents: Sequence[str]) -> dict[str, Amounts]:
    """The amounts that agents are charged with, all kernels together."""
    charged: dict[str, Amounts] = {}
    for row in _SUMS.rows(connection, agents):
        agent_id, cpu, memory, disk = row
        charged[agent_id] = {"cpu_milli": cpu, "memory_bytes": memory, "disk_bytes": disk}
    for row in _PARTICULARS.rows(connection, agents):
        amounts = charged[row[0]]
        for name, amount in _particular(row[1], row[2]):
            amounts[name] = amounts.get(name, 0) + amount
    return charged


def _misfits(
    granted: Sequence[Allocation], charged: Amounts, capacity: Mapping[str, int]
) -> Iterator[Allocation]:
    """The latest allocations that have to go so that the others fit. An allocation fits even on an
    agent whose earlier charges exceed its capacity, if it asks for none of the resources that are
    exceeded."""
    if not any(exceeds(name, amount, capacity) for name, amount in charged.items()):
        return
    for allocation in reversed(granted):
        requested = _requested(allocation)
        if any(amount > 0 and exceeds(name, charged[name], capacity) for name, amount in requested):
            for name, amount in requested:
                charged[name] -= amount
            yield allocation


def exceeds(name: str | int, amount: int, capacity: Mapping[str, int]) -> bool:
    """Whether the amount is more than the agent has of this resource or device."""
    return amount > (capacity.get(name, 0) if isinstance(name, str) else GPU_WHOLE)


def _requested(allocation: Allocation) -> list[tuple[str | int, int]]:
    has = allocation.resources
    amounts = (("cpu_milli", has.cpu_milli), ("memory_bytes", has.memory_bytes))
    shares = ((share.index, share.milli) for share in allocation.shares)
    return [*amounts, ("disk_bytes", has.disk_bytes), *has.extra, *shares]


@lru_cache(maxsize=1024)
def capacity_of(text: str) -> Mapping[str, int]:
    has = load_resources(text)
    return {
        "cpu_milli": has.cpu_milli,
        "memory_bytes": has.memory_bytes,
        "disk_bytes": has.disk_bytes,
        **dict(has.extra),
    }


@lru_cache(maxsize=4096)
def _particular(devices: str, extra: str) -> Sequence[tuple[str | int, int]]:
    """The amounts of an allocation that are not in ``_SUMMED``: devices and extra resources."""
    shares = [(share.index, share.milli) for share in load_shares(devices)]
    return [*shares, *json.loads(extra).items()]
