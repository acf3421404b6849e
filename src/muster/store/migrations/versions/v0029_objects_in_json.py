"""values of several parts are JSON objects, by the names of their parts"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

_PROGRESS = ("rounds", "unknowns", "last", "remedy", "healed")
_CHECK = ("at", "result", "sentence", "took_s", "session", "rest")
_DEVICE = ("index", "model", "uuid", "memory_bytes")
_MACHINE = ("name", "id", "address")
_STANDING = ("outcome", "in_a_row", "failures", "closed_until", "told")
_TASK = ("index", "attempt", "charged", "had_to_leave", "agent")
_AGENT = ("id", "name", "devices", "incident", "result", "heals", "said")
_TIMES = ("began_at", "checked_at", "healed_at", "ended_at")


def upgrade() -> None:
    _convert("incidents", "progress", lambda value: _named(_PROGRESS, value))
    _convert("incidents", "checks", lambda value: _each_named(_CHECK, value))
    _convert("agents", "devices", lambda value: _each_named(_DEVICE, value))
    _convert("slices", "machines", lambda value: _each_named(_MACHINE, value))
    _convert("pools", "standing", lambda value: _named(_STANDING, value))
    for column in ("open", "next"):
        _convert("recoveries", column, _round)
    _convert("recoveries", "kept", lambda value: [_round(each) for each in value])


def _convert(table: str, column: str, convert: Callable[[Any], Any]) -> None:
    """Write a column of JSON anew in each row that has a value there."""
    rows = sa.table(table, sa.column("id"), sa.column(column))
    connection = op.get_bind()
    found = connection.execute(sa.select(rows).where(rows.c[column].is_not(None))).all()
    for id_, text in found:
        value = json.dumps(convert(json.loads(text)))
        connection.execute(rows.update().where(rows.c.id == id_).values({column: value}))


def _named(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """An object of values by their names; older rows lack the last ones."""
    return dict(zip(names, values, strict=False))


def _each_named(names: Sequence[str], lists: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    return [_named(names, values) for values in lists]


def _round(value: dict[str, Any]) -> dict[str, Any]:
    times = _named(_TIMES, value.pop("times"))
    outcome = value["outcome"]
    return {
        **value,
        **times,
        "why": _reason(value["why"]),
        "outcome": None if outcome is None else _reason(outcome),
        "tasks": _each_named(_TASK, value["tasks"]),
        "agents": _each_named(_AGENT, value["agents"]),
    }


def _reason(value: Sequence[Any]) -> dict[str, Any]:
    code, numbers = value
    return {"code": code, "numbers": [[name, number] for name, number in numbers.items()]}
