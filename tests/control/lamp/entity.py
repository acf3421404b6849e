"""A lamp: its record, its states, its table."""

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import MetaData, select
from tests.control.lamp.spec import LampSpec

from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.core.states import StateTable
from muster.store.entity import Entity, Tried, Visible
from muster.store.fields import Fixed, Key, Memory
from muster.store.record_table import RecordTable


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


@dataclass(slots=True, eq=False, kw_only=True)
class Lamp(Tried):
    """``asked_at`` is when somebody was last asked to light it, ``was_lit`` what came of that;
    neither is stored."""

    id: Key[str]
    name: Fixed[str]
    owner: Fixed[Owner]
    spec: Fixed[LampSpec]
    session_id: Fixed[str | None] = None
    status: LampStatus
    generation: int = 0
    reason: Reason | None = None
    asked_at: Memory[float | None] = None
    was_lit: Memory[bool | None] = None


LAMPS = RecordTable(
    Lamp,
    "lamps",
    LAMP_TABLE,
    among=MetaData(),  # its own: the product's migrations do not make it
)
lamps = LAMPS.table

LAMP = Entity(
    "lamp",
    LAMPS,
    described="what gives light",
    prefix="lmp",
    visible=Visible.TO_OWNER,
    beside=lambda id_: select(lamps.c.session_id).where(lamps.c.id == id_),
)
