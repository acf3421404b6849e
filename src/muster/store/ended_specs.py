"""The stored specs of ended work: which are whole, reading them to cut them, and the cut itself.

A cut spec is still a spec: it lacks its long values, among them variables and files, and the rest
of its command. Resources and kernels stay, from which placement learns.
"""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table, bindparam, select, update
from sqlalchemy.sql.dml import Update

from muster.core.owner import Owner
from muster.core.text import made_text
from muster.scheduling.accounting.holdings import EndedSpec
from muster.store import schema
from muster.store.live import Live
from muster.store.sql import one_of

_TEXTS = ("spec", "revisions")
_MAX_VALUE_CHARS = 256
"""Of a value in a cut spec, as JSON."""
_MAX_ARGUMENTS = 8
_INSIDE = ("resources", "kernels", "template")
"""Keys whose own values are cut, and that are not removed themselves."""
_KEPT = ("only",)
"""Keys without which a record of ended work cannot be read."""

Texts = dict[str, str]
"""Stored texts by the column."""


def load_ended_specs(connection: Connection, live: Live) -> None:
    """Read which large specs of ended work are stored whole; the specs themselves are not read."""
    for entity in live.entities.values():
        table = entity.table
        if "large_bytes" not in table.c:
            continue
        columns = table.c.id, table.c.domain, table.c.project, table.c.user, table.c.large_bytes
        is_whole = table.c.large_bytes.is_not(None), one_of(table.c.status, entity.states.terminal)
        for row in connection.execute(select(*columns).where(*is_whole).order_by(table.c.id)):
            spec = EndedSpec(table.name, row.id, row.large_bytes)
            live.holdings.keep(Owner(row.domain, row.project, row.user), spec)


def read_whole(connection: Connection, spec: EndedSpec) -> Texts | None:
    """The texts of a spec; None if its row is gone."""
    table = schema.metadata.tables[spec.table]
    columns = [table.c[name] for name in _TEXTS if name in table.c]
    row = connection.execute(select(*columns).where(table.c.id == spec.id)).one_or_none()
    return None if row is None else dict(row._mapping)


def cut(texts: Texts) -> Texts:
    """The texts without their long values.

    Raises:
        ValueError: a text is damaged.
    """
    return {name: json.dumps(_cut(json.loads(text))) for name, text in texts.items()}


def storing(spec: EndedSpec, texts: Texts, why: str) -> tuple[Update, dict[str, Any]]:
    """The statement that stores cut texts, and its parameters; ``why`` is the numbers of the
    reason as JSON."""
    table: Table = schema.metadata.tables[spec.table]
    values = {"large_bytes": None, "spec_cut": why, **texts}
    return update(table).where(table.c.id == bindparam("of")).values(values), {"of": spec.id}


def _cut(value: Any) -> Any:
    if isinstance(value, list):
        return [_cut(each) for each in value]
    if not isinstance(value, dict):
        return value
    left = {}
    for key, inner in value.items():
        if key == "command":
            left[key] = _cut_command(inner)
        elif key in _INSIDE:
            left[key] = _cut(inner)
        elif key in _KEPT or len(json.dumps(inner)) <= _MAX_VALUE_CHARS:
            left[key] = inner
    return left


def _cut_command(command: Sequence[str]) -> list[str]:
    return [made_text(each, _MAX_VALUE_CHARS) for each in command[:_MAX_ARGUMENTS]]
