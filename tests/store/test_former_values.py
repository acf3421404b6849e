"""Values of several parts that a former version stored as lists come back as they were."""

import json
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Float, Integer, MetaData, Numeric, Table, create_engine, select
from tests.databases import ON_BOTH, empty_url_at

from muster.autoscaling.standing import CreateOutcome, PoolStanding
from muster.control.health.entity import INCIDENTS, CheckRecord
from muster.control.health.ladder import Heal, Progress
from muster.control.pool.records import POOLS, SLICES, OwnMachine
from muster.control.recovery.entity import RECOVERIES
from muster.control.recovery.rounds import AgentResult, Round, RoundAgent, RoundTask
from muster.core.health.remedy import Remedy
from muster.core.health.verdict import CheckResult
from muster.core.ids import AgentId, SessionId
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_recovery import RecoveryHealed
from muster.core.reasons.stored import StoredReason
from muster.core.resources import Device
from muster.store.database.address import parsed
from muster.store.database.migrating import migrate
from muster.store.record_table import RecordTable
from muster.store.records import AGENTS

pytestmark = ON_BOTH

CODE = ReasonCode.RECOVERY_HEALED
FORMER: dict[str, dict[str, Any]] = {
    "agents": {"devices": [[0, "H100", "GPU-1", 80], [1, "H100", "", 0]]},
    "slices": {"machines": [["m0", "i-1", "10.0.0.1"], ["m1", "", ""]]},
    "pools": {"standing": ["quota", 2, 0, 17.5, "no more"]},
    "incidents": {
        "progress": [1, 2, 3, "reset"],
        "checks": [
            [1.5, "faulty", "broken", 12.0, "ses-1"],
            [2.5, "healthy", "", 1.0, "ses-2", "x"],
        ],
    },
    "recoveries": {
        "open": {
            "number": 2,
            "why": [CODE, {"agent": "m0", "others": 0}],
            "tasks": [[0, 1, True, False, None], [1, 1]],
            "agents": [
                ["agt-1", "m0", [0, 3], "inc-1", "faulty", 1, "broken"],
                ["agt-2", "m1", [], "", "healthy"],
            ],
            "gpu_milli": 4000,
            "times": [1.0, 2.5, None, None],
            "outcome": None,
            "leaves_before": 1,
        },
        "kept": [],
    },
}
WHY = StoredReason.of(RecoveryHealed(agent="m0", others=0))
ROUND = Round(
    number=2,
    why=WHY,
    tasks=(RoundTask(0, 1, charged=True), RoundTask(1, 1)),
    agents=(
        RoundAgent(AgentId("agt-1"), "m0", (0, 3), "inc-1", AgentResult.FAULTY, 1, "broken"),
        RoundAgent(AgentId("agt-2"), "m1", result=AgentResult.HEALTHY),
    ),
    gpu_milli=4000,
    began_at=1.0,
    checked_at=2.5,
    leaves_before=1,
)
MEANT: dict[RecordTable[Any], dict[str, Any]] = {
    AGENTS: {"devices": (Device(0, "H100", "GPU-1", 80), Device(1, "H100"))},
    SLICES: {"machines": (OwnMachine("m0", "i-1", "10.0.0.1"), OwnMachine("m1"))},
    POOLS: {"standing": PoolStanding(CreateOutcome.QUOTA, 2, 0, 17.5, "no more")},
    INCIDENTS: {
        "progress": Progress(1, 2, Heal.HARD_REBOOT, Remedy.RESET),
        "checks": (
            CheckRecord(1.5, CheckResult.FAULTY, "broken", 12.0, SessionId("ses-1")),
            CheckRecord(2.5, CheckResult.HEALTHY, "", 1.0, SessionId("ses-2"), "x"),
        ),
    },
    RECOVERIES: {"open": ROUND, "kept": ()},
}


def insert(connection: Connection, table: str, values: dict[str, Any]) -> None:
    """A row of a former version's table, with some values of JSON."""
    found = Table(table, MetaData(), autoload_with=connection)
    row = {
        column.name: 0 if isinstance(column.type, Integer | Float | Numeric) else ""
        for column in found.columns
        if not column.nullable
    }
    row |= {name: json.dumps(value) for name, value in values.items()}
    connection.execute(found.insert().values(row))


def test_values_of_several_parts_are_read_as_a_former_version_wrote_them(tmp_path: Path) -> None:
    engine = create_engine(parsed(empty_url_at(tmp_path)))
    with engine.begin() as connection:
        migrate(connection, "0028")
        for table, values in FORMER.items():
            insert(connection, table, values)
        migrate(connection)
        for rows, fields in MEANT.items():
            row = connection.execute(select(rows.table)).one()
            for name, value in fields.items():
                assert rows.loader(name)(getattr(row, name)) == value
    engine.dispose()
