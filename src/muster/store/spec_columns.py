"""Specs in SQL: their size, and what is known of those that were cut."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import BigInteger, Text

from muster.core.specs import JobSpec, SessionSpec
from muster.scheduling.accounting.holdings import LARGE_SPEC_BYTES
from muster.store.fields import Written
from muster.store.record_table import Computed, RecordTable, index


def dump_spec(spec: JobSpec | SessionSpec | None) -> str | None:
    """A spec as it is stored."""
    return None if spec is None else spec.model_dump_json(exclude_defaults=True)


def spec_size(spec: JobSpec | SessionSpec) -> int:
    """The bytes of a spec as it is stored."""
    return len(spec.model_dump_json(exclude_defaults=True).encode())


def large_or_none(spec_bytes: int) -> int | None:
    """The value of the column ``large_bytes``."""
    return spec_bytes if spec_bytes > LARGE_SPEC_BYTES else None


def spec_columns(written: Written = Written.ONCE) -> Mapping[str, Computed]:
    """The size of a large spec that is stored whole, null of a small one; and, where long values
    were removed from the spec of ended work, the numbers of the reason, as JSON."""
    return {
        "large_bytes": Computed(BigInteger, "spec_bytes", large_or_none, True, written),
        "spec_cut": Computed(Text, "id", lambda _: None, True),  # only that of ended work is cut
    }


def index_whole_specs(rows: RecordTable[Any]) -> None:
    """Have the large specs of ended work found that are stored whole."""
    assert rows.states is not None, "the records of the table have no states"
    c = rows.table.c
    is_one = c.large_bytes.is_not(None) & c.status.in_(sorted(rows.states.terminal))
    owner = c.domain, c.project, c.user
    index(f"{rows.table.name}_whole_specs", c.id, *owner, c.large_bytes, where=is_one)
