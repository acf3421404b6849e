"""The entity of incidents: its record and its table."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, NewType

from sqlalchemy import Index

from muster.control.health.ladder import Heal, Progress
from muster.core.health.verdict import CheckResult
from muster.core.ids import AgentId, IdKind, JobId, SessionId
from muster.core.reasons import Reason
from muster.core.states.health import HEALTH_TABLE, HealthStatus
from muster.store.entity import Entity, Tried, Visible
from muster.store.fields import (
    Fixed,
    Flag,
    Key,
    Memory,
    StoredAs,
)
from muster.store.record_table import RecordTable, index_live

if TYPE_CHECKING:
    from muster.control.health.rebooting.effects import MachineRebooted

IncidentId = NewType("IncidentId", str)

MAX_CHECKS = 16
"""The newest completed checks that an incident keeps."""


def name_of(id_: str, agent_id: str) -> str:
    """The name of an incident in the mirror and in history: below its machine, so that it belongs
    to that machine's history."""
    return f"{agent_id}/{id_}"


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """A completed check.

    Args:
        at: when its verdict came.
        sentence: the verdict's.
        took_s: how long it took, in seconds, from its wish to its verdict.
        session: that ran it.
        rest: the findings that the sentence counts only.
    """

    at: float
    result: CheckResult
    sentence: str
    took_s: float
    session: SessionId
    rest: str = ""


@dataclass(slots=True, eq=False, kw_only=True)
class Incident(Tried):
    """One stretch of a machine's ill health, from the first suspicion to its verified return.

    ``agent`` is the machine's name. ``job`` is the job whose recovery found it, if one did; no
    reason names it. ``why`` is the first suspicion, ``devices`` are the indexes of the GPUs under
    suspicion, all of the machine if empty; ``confirmed`` is whether a check or the hardware itself
    found a fault.

    ``is_out`` is whether the machine takes no work (``conditions.is_out_of_work``). ``has_turn`` is
    whether it is among those that its group lets be emptied, checked and healed; an isolated one is
    not. ``needs_no_turn`` is whether its next check needs none, because it displaces nobody.

    ``progress`` are the steps taken, ``heal`` is the last heal, or the one that is due or under
    way. ``boot_id`` is the machine's boot when that heal began. Work has to have left by
    ``leave_by``. ``acted_at`` is when the check, reset or reboot under way began, None before;
    ``session`` is the session of its service. ``generation`` counts services, reboots and
    operators' decisions. ``result`` is that of the first completed check, ``checks`` are the newest
    completed ones, the oldest first; ``reason`` is why it has its status, where there is more to
    tell than ``why``.

    ``rebooted``, which is not stored, is the outcome of the hard reboot under way.
    """

    id: Key[IncidentId]
    agent_id: Fixed[AgentId]
    agent: Fixed[str]
    group: Fixed[str]
    job: Annotated[JobId | None, StoredAs(name="job_id")] = None
    status: HealthStatus
    why: Fixed[Reason]
    devices: tuple[int, ...] = ()
    confirmed: Flag = False
    is_out: Flag = False
    has_turn: Flag = False
    needs_no_turn: Flag = False
    progress: Progress = field(default_factory=Progress)
    heal: Heal | None = None
    boot_id: str = ""
    leave_by: float | None = None
    acted_at: float | None = None
    session: SessionId | None = None
    generation: int = 0
    result: CheckResult | None = None
    checks: tuple[CheckRecord, ...] = ()
    began_at: Fixed[float]
    finished_at: float | None = None
    reason: Reason | None = None
    rebooted: Memory["MachineRebooted | None"] = None


INCIDENTS = RecordTable(Incident, "incidents", HEALTH_TABLE)
incidents = INCIDENTS.table
index_live(INCIDENTS)
Index("incidents_by_agent", incidents.c.agent_id, incidents.c.id)

INCIDENT = Entity(
    "incident",
    INCIDENTS,
    described="a stretch of a machine's ill health",
    prefix=IdKind.INCIDENT,
    visible=Visible.TO_ALL,
    id_of=lambda incident: name_of(incident.id, incident.agent_id),
    id_column=incidents.c.agent_id + "/" + incidents.c.id,
    lasts=True,
)
