"""The entity of incidents: its record, its table, and the mapping between them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NewType

from sqlalchemy import Column, Connection, Float, Index, Integer, Row, String, Table, Text, select

from muster.control.health.ladder import Heal, Progress
from muster.core.health.remedy import Remedy
from muster.core.health.verdict import CheckResult
from muster.core.ids import AgentId, IdKind, JobId, SessionId
from muster.core.reasons import Reason
from muster.core.states.health import HEALTH_TABLE, HealthStatus
from muster.store import schema
from muster.store.entity import Entity, Tried, Visible
from muster.store.live import Live
from muster.store.lookup import Lookup
from muster.store.mapping import RowMapping
from muster.store.rows import REASON, load_reason
from muster.store.sql import one_of

if TYPE_CHECKING:
    from muster.control.health.rebooting.effects import MachineRebooted

IncidentId = NewType("IncidentId", str)

MAX_CHECKS = 16
"""The newest completed checks that an incident keeps."""

incidents = Table(
    "incidents",
    schema.metadata,
    Column("id", String, primary_key=True),
    Column("agent_id", String, nullable=False),
    Column("agent", String, nullable=False),
    Column("group", String, nullable=False),
    Column("job_id", String, nullable=True),
    Column("status", String, nullable=False),
    Column("status_changed_at", Float, nullable=False),
    Column("why", String, nullable=False),
    Column("why_numbers", Text, nullable=False),
    Column("devices", Text, nullable=False),  # JSON, indexes
    Column("confirmed", Integer, nullable=False),
    Column("is_out", Integer, nullable=False),
    Column("has_turn", Integer, nullable=False),
    Column("needs_no_turn", Integer, nullable=False),
    Column("progress", Text, nullable=False),  # JSON, as Progress
    Column("heal", Integer, nullable=True),
    Column("boot_id", String, nullable=False),
    Column("leave_by", Float, nullable=True),
    Column("acted_at", Float, nullable=True),
    Column("session", String, nullable=True),
    Column("generation", Integer, nullable=False),
    Column("result", String, nullable=True),  # CheckResult
    Column("checks", Text, nullable=False),  # JSON, as CheckRecord
    Column("began_at", Float, nullable=False),
    Column("finished_at", Float, nullable=True),
    Column("tries", Integer, nullable=False),
    Column("retry_at", Float, nullable=False),
    *schema.reason_columns(),
    sqlite_with_rowid=False,
)
Index(
    "incidents_live",
    incidents.c.id,
    sqlite_where=incidents.c.status.in_(sorted(HEALTH_TABLE.live)),
    postgresql_where=incidents.c.status.in_(sorted(HEALTH_TABLE.live)),
)
Index("incidents_by_agent", incidents.c.agent_id, incidents.c.id)


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

    id: IncidentId
    agent_id: AgentId
    agent: str
    group: str
    job: JobId | None = None
    status: HealthStatus
    why: Reason
    devices: tuple[int, ...] = ()
    confirmed: bool = False
    is_out: bool = False
    has_turn: bool = False
    needs_no_turn: bool = False
    progress: Progress = field(default_factory=Progress)
    heal: Heal | None = None
    boot_id: str = ""
    leave_by: float | None = None
    acted_at: float | None = None
    session: SessionId | None = None
    generation: int = 0
    result: CheckResult | None = None
    checks: tuple[CheckRecord, ...] = ()
    began_at: float
    finished_at: float | None = None
    reason: Reason | None = None
    rebooted: "MachineRebooted | None" = None


# Rows


def _dump_progress(progress: Progress) -> str:
    last = None if progress.last is None else int(progress.last)
    steps = progress.rounds, progress.unknowns, last, progress.remedy, progress.healed
    return json.dumps(steps)


def _load_progress(text: str) -> Progress:
    rounds, unknowns, last, remedy, *healed = json.loads(text)  # older rows do not count heals
    return Progress(rounds, unknowns, None if last is None else Heal(last), Remedy(remedy), *healed)


def _dump_checks(checks: Sequence[CheckRecord]) -> str:
    return json.dumps(
        [
            [each.at, each.result, each.sentence, each.took_s, each.session, each.rest]
            for each in checks
        ]
    )


def _load_checks(text: str) -> tuple[CheckRecord, ...]:
    return tuple(
        CheckRecord(at, CheckResult(result), sentence, took_s, SessionId(session), *rest)
        for at, result, sentence, took_s, session, *rest in json.loads(text)
    )


def load_incident(row: Row[Any]) -> Incident:
    """The incident of a row, whether it has ended or not."""
    why = load_reason(row.why, row.why_numbers)
    assert why is not None, "an incident begins with a suspicion"
    return Incident(
        id=IncidentId(row.id),
        agent_id=AgentId(row.agent_id),
        agent=row.agent,
        group=row.group,
        job=None if row.job_id is None else JobId(row.job_id),
        status=HealthStatus(row.status),
        status_changed_at=row.status_changed_at,
        why=why,
        devices=tuple(json.loads(row.devices)),
        confirmed=bool(row.confirmed),
        is_out=bool(row.is_out),
        has_turn=bool(row.has_turn),
        needs_no_turn=bool(row.needs_no_turn),
        progress=_load_progress(row.progress),
        heal=None if row.heal is None else Heal(row.heal),
        boot_id=row.boot_id,
        leave_by=row.leave_by,
        acted_at=row.acted_at,
        session=None if row.session is None else SessionId(row.session),
        generation=row.generation,
        result=None if row.result is None else CheckResult(row.result),
        checks=_load_checks(row.checks),
        began_at=row.began_at,
        finished_at=row.finished_at,
        tries=row.tries,
        retry_at=row.retry_at,
        reason=load_reason(row.reason, row.reason_numbers),
    )


_LIVE = Lookup(
    select(incidents).where(one_of(incidents.c.status, HEALTH_TABLE.live)).order_by(incidents.c.id)
)


def _load(connection: Connection, live: Live) -> None:
    for row in _LIVE.named(connection):
        live.add(load_incident(row))


INCIDENT = Entity(
    "incident",
    Incident,
    HEALTH_TABLE,
    RowMapping[Incident](
        incidents,
        changing=(
            "job_id",
            "status",
            "status_changed_at",
            "devices",
            "confirmed",
            "is_out",
            "has_turn",
            "needs_no_turn",
            "progress",
            "heal",
            "boot_id",
            "leave_by",
            "acted_at",
            "session",
            "generation",
            "result",
            "checks",
            "finished_at",
            "tries",
            "retry_at",
            *REASON,
        ),
        sources={
            "job_id": "job",
            "why": ("why", lambda why: why.code),
            "why_numbers": ("why", Reason.to_json),
            "devices": ("devices", json.dumps),
            "confirmed": ("confirmed", int),
            "is_out": ("is_out", int),
            "has_turn": ("has_turn", int),
            "needs_no_turn": ("needs_no_turn", int),
            "progress": ("progress", _dump_progress),
            "heal": ("heal", lambda heal: None if heal is None else int(heal)),
            "checks": ("checks", _dump_checks),
            **REASON,
        },
    ),
    _load,
    described="a stretch of a machine's ill health",
    prefix=IdKind.INCIDENT,
    visible=Visible.TO_ALL,
    id_of=lambda incident: name_of(incident.id, incident.agent_id),
    id_column=incidents.c.agent_id + "/" + incidents.c.id,
    lasts=True,
)
