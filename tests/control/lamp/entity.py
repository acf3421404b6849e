"""A lamp: its record, its states, its table."""

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Column, Connection, Float, Integer, MetaData, String, Table, select

from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.core.states import StateTable
from muster.store import schema
from muster.store.entity import Entity, Tried, Visible
from muster.store.live import Live
from muster.store.mapping import RowMapping
from muster.store.queries.listing import owner_of
from muster.store.rows import OWNER, REASON, load_reason
from muster.store.sql import one_of


class LampStatus(StrEnum):
    OFF = "OFF"
    LIT = "LIT"
    OUT = "OUT"


_L = LampStatus
LAMP_TABLE: StateTable[LampStatus] = StateTable(
    "lamp",
    initial=_L.OFF,
    terminal=frozenset({_L.OUT}),
    allowed={
        (_L.OFF, _L.LIT): "it was lit",
        (_L.OFF, _L.OUT): "it could not be lit, or was put out",
        (_L.LIT, _L.OUT): "it was put out",
    },
)

lamps = Table(
    "lamps",
    MetaData(),  # its own: the product's migrations do not make it
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    *schema.owner_columns(),
    Column("status", String, nullable=False),
    Column("status_changed_at", Float, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("retry_at", Float, nullable=False),
    *schema.reason_columns(),
)


@dataclass(slots=True, eq=False, kw_only=True)
class Lamp(Tried):
    """``asked_at`` is when somebody was last asked to light it, ``was_lit`` what came of that;
    neither is stored."""

    id: str
    name: str
    owner: Owner
    status: LampStatus
    generation: int = 0
    reason: Reason | None = None
    asked_at: float | None = None
    was_lit: bool | None = None


def _load(connection: Connection, live: Live) -> None:
    for row in connection.execute(select(lamps).where(one_of(lamps.c.status, LAMP_TABLE.live))):
        live.add(
            Lamp(
                id=row.id,
                name=row.name,
                owner=owner_of(row),
                status=LampStatus(row.status),
                status_changed_at=row.status_changed_at,
                generation=row.generation,
                tries=row.tries,
                retry_at=row.retry_at,
                reason=load_reason(row.reason, row.reason_numbers),
            )
        )


LAMP = Entity(
    "lamp",
    Lamp,
    LAMP_TABLE,
    RowMapping[Lamp](
        lamps,
        changing=("status", "status_changed_at", "generation", "tries", "retry_at", *REASON),
        sources={**OWNER, **REASON},
    ),
    _load,
    described="what gives light",
    prefix="lmp",
    visible=Visible.TO_OWNER,
)
