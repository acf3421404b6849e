"""The audits of `muster db check` find nothing in the rows of the control plane, and find each
damage that is done to them."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from tests.control.lived_in import make_lived_in
from tests.databases import OF_ITS_OWN

from muster.control.modules import cluster_audits, cluster_entities
from muster.store.audit.finding import AuditFinding, carry_out, stored_in
from muster.store.database import sqlite_url

pytestmark = OF_ITS_OWN


def findings(database: Path) -> dict[str, list[AuditFinding]]:
    """The findings of all audits, by their titles."""
    engine = create_engine(sqlite_url(database))
    try:
        with engine.connect() as connection:
            stored = stored_in(connection, cluster_entities())
            audited = [carry_out(audit, stored, 10) for audit in cluster_audits()]
    finally:
        engine.dispose()
    assert [each.trouble for each in audited if each.trouble] == []
    return {each.title: list(each.first) for each in audited if each.found}


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_lived_in(tmp_path_factory.mktemp("lived_in"))


@pytest.fixture
def database(lived_in: Path, tmp_path: Path) -> Path:
    with (
        closing(sqlite3.connect(lived_in)) as source,
        closing(sqlite3.connect(tmp_path / "muster.db")) as copy,
    ):
        source.backup(copy)
    return tmp_path / "muster.db"


def test_audits_of_a_cluster_that_nobody_damaged_find_nothing(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT name, status FROM jobs ORDER BY name").fetchall()
        assert connection.execute("SELECT count(*) FROM allocations").fetchone() == (5,)
    assert dict(rows) == {
        "done": "SUCCEEDED",
        "failing": "FAILED",
        "gang": "RUNNING",
        "running": "RUNNING",
        "waiting": "PENDING",
    }
    assert findings(database) == {}


JOB = "(SELECT id FROM jobs WHERE name = '{}')"
RUNNING, DONE, GANG = JOB.format("running"), JOB.format("done"), JOB.format("gang")
DAMAGES: Mapping[str, tuple[str, str]] = {
    "an unknown status": (
        f"UPDATE sessions SET status = 'SLEEPING' WHERE job_id = {RUNNING}",
        "has the status 'SLEEPING', which no session can have",
    ),
    "an end of what runs": (
        f"UPDATE jobs SET finished_at = 1.0 WHERE id = {RUNNING}",
        "is RUNNING and has a time of its end",
    ),
    "an end without a time": (
        f"UPDATE jobs SET finished_at = NULL WHERE id = {DONE}",
        "is SUCCEEDED and has no time of its end",
    ),
    "a session that is gone": (
        f"DELETE FROM sessions WHERE job_id = {RUNNING}",
        "which is not in sessions",
    ),
    "a step of history that is gone": (
        "DELETE FROM history WHERE to_status = 'PREPARED' AND entity ="
        f" (SELECT id FROM sessions WHERE job_id = {RUNNING})",
        "and the step before it ended at PREPARING",
    ),
    "a step that no session can make": (
        "UPDATE history SET from_status = 'RUNNING', to_status = 'RUNNING' WHERE"
        " to_status = 'SCHEDULED'",
        "begins at RUNNING, and the step before it ended at PENDING",
    ),
    "the last step of a history that is gone": (
        "DELETE FROM history WHERE (entity, seq) ="
        f" (SELECT entity, max(seq) FROM history WHERE entity = {DONE})",
        "is SUCCEEDED, and its history ends at RUNNING",
    ),
    "a task that has another end than its history": (
        f"UPDATE tasks SET status = 'SUCCEEDED' WHERE job_id = {JOB.format('failing')}",
        "is SUCCEEDED, and its history ends at FAILED",
    ),
    "history that runs backwards": (
        f"UPDATE history SET first_at = 1.0, last_at = 1.0 WHERE entity = {DONE}"
        " AND to_status = 'SUCCEEDED'",
        "is out of order in time",
    ),
    "another time of a change": (
        f"UPDATE jobs SET status_changed_at = 1.0 WHERE id = {DONE}",
        "changed its status at 1.0, and by its history at",
    ),
    "history of nothing": (
        "INSERT INTO history SELECT 'ses-0', seq, phase, from_status, to_status, result, reasons,"
        f" times, first_at, last_at FROM history WHERE entity = {DONE} AND seq ="
        f" (SELECT min(seq) FROM history WHERE entity = {DONE})",
        "has a history, and is not there",
    ),
    "a kernel behind its session": (
        f"UPDATE kernels SET status = 'PREPARED' WHERE job_id = {RUNNING}",
        "is RUNNING, and its kernel",
    ),
    "a gang without its first kernel": (
        f"DELETE FROM kernels WHERE job_id = {GANG} AND idx = 0",
        "has 1 kernels, of which the last is number 1",
    ),
    "two live attempts": (
        f"UPDATE kernels SET task_index = 0 WHERE job_id = {GANG}",
        "has 2 live attempts",
    ),
    "two attempts with one number": (
        f"UPDATE kernels SET attempt = 2 WHERE job_id = {JOB.format('failing')}",
        "has 2 attempts with the number 2",
    ),
    "room that is not held": (
        "DELETE FROM allocations WHERE kernel_id IN"
        f" (SELECT id FROM kernels WHERE job_id = {RUNNING})",
        "is RUNNING and holds no room",
    ),
    "room for a kernel that has ended": (
        "UPDATE allocations SET kernel_id ="
        f" (SELECT id FROM kernels WHERE job_id = {DONE} AND task_index = 0)"
        f" WHERE kernel_id = (SELECT id FROM kernels WHERE job_id = {RUNNING})",
        "holds room for a kernel that is TERMINATED",
    ),
    "room for a generation to come": (
        "UPDATE allocations SET generation = 9",
        "holds room for a generation that comes after its kernel's, which is 0",
    ),
    "room elsewhere": (
        "UPDATE allocations SET agent_id = (SELECT id FROM agents WHERE name = 'b')"
        f" WHERE kernel_id = (SELECT id FROM kernels WHERE job_id = {RUNNING})",
        "and its kernel is placed on agt-",
    ),
    "room on a lost agent": (
        "UPDATE agents SET status = 'LOST'",
        "which is LOST",
    ),
    "room since another boot": (
        "UPDATE allocations SET boot_id = 'earlier'",
        "holds room since boot earlier of agt-",
    ),
    "other amounts than asked for": (
        "UPDATE allocations SET cpu_milli = 1 WHERE kernel_id ="
        f" (SELECT id FROM kernels WHERE job_id = {RUNNING})",
        "and its kernel asks for 2 cpu, 0.5 gpu",
    ),
    "other devices than asked for": (
        "UPDATE allocations SET devices = '[[0, 700]]' WHERE gpu_milli > 0",
        "holds 0.5 gpu, and 0.7 of devices",
    ),
    "an agent that has less than it gave": (
        "UPDATE agents SET capacity = '[500, 0, 0, 0, {}]'",
        "cpu_milli, and has less",
    ),
    "a device that is not there": (
        "UPDATE agents SET devices = '[]'",
        "is charged with device 0, which it has not",
    ),
    "wrong counts of tasks": (
        f"UPDATE jobs SET counts = '{{\"RUNNING\": 2}}' WHERE id = {DONE}",
        "counts tasks that are RUNNING 2, and has tasks that are SUCCEEDED 3",
    ),
    "too few tasks": (
        f"UPDATE jobs SET next_task = 2 WHERE id = {DONE}",
        "has made 2 tasks, and has 3",
    ),
    "an end that no task tells": (
        f"UPDATE jobs SET status = 'FAILED' WHERE id = {DONE}",
        "is FAILED, and would be SUCCEEDED by its tasks: SUCCEEDED 3",
    ),
    "a beginning that was not noted": (
        f"UPDATE jobs SET status = 'PENDING' WHERE id = {RUNNING}",
        "is PENDING, and would be RUNNING by its tasks: RUNNING 1",
    ),
    "a task that outlives its job": (
        f"UPDATE tasks SET status = 'RUNNING' WHERE job_id = {DONE}",
        "is RUNNING, and its job is SUCCEEDED",
    ),
    "an attempt too many": (
        f"UPDATE tasks SET attempt = 7 WHERE job_id = {DONE}",
        "as attempt 7, which is None/None",
    ),
    "a task behind its attempt": (
        f"UPDATE tasks SET status = 'ASSIGNED' WHERE job_id = {RUNNING}",
        "is ASSIGNED, and its attempt",
    ),
    "a join token that is kept": (
        "UPDATE slices SET secret = 'x' WHERE status = 'READY'",
        "is READY and has a join token still",
    ),
    "a pool that is gone": (
        "UPDATE slices SET pool = 'nowhere'",
        "is a slice of pool nowhere, which is not there",
    ),
    "a deletion without a reason": (
        "UPDATE slices SET doomed_at = 1.0",
        "is to be deleted without a reason, or without a time",
    ),
    "a machine that is gone": (
        "UPDATE slices SET machines = '[]'",
        "has 0 machines of which 0 were made, and counts 1 and 1",
    ),
    "a slice without a spec": (
        "UPDATE slices SET revision = 7",
        "is of revision 7 of cpu, which has no spec",
    ),
    "a spec that is kept": (
        "INSERT INTO pool_revisions VALUES ('cpu', 7, 'nonsense')",
        "keeps the spec of revision 7 for no slice",
    ),
    "a pool's spec that cannot be read": (
        "UPDATE pools SET spec = '{}'",
        "has a spec of revision 1 that cannot be read",
    ),
    "an agent that stays": (
        "UPDATE slices SET status = 'TERMINATED', finished_at = 1.0",
        "which is gone",
    ),
    "a recovery that outlives its job": (
        "UPDATE recoveries SET job_id = 'nowhere'",
        "is IN_PROGRESS, and its job is missing",
    ),
    "a recovery without its round": (
        "UPDATE recoveries SET status = 'PENDING_RESTART'",
        "is PENDING_RESTART, and has no round open",
    ),
    "a round that cannot be read": (
        "UPDATE recoveries SET kept = 'nonsense'",
        "cannot be read",
    ),
    "a spec that cannot be read": (
        f"UPDATE jobs SET spec = 'nonsense' WHERE id = {RUNNING}",
        "cannot be read",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_found_and_said(database: Path, damage: str) -> None:
    statement, told = DAMAGES[damage]
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute(statement).rowcount > 0
        connection.commit()
    found = findings(database)
    sentences = [finding.sentence for several in found.values() for finding in several]
    assert any(told in sentence for sentence in sentences), sentences


def test_audit_of_nonsense_says_that_it_could_not_be_finished(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE agents SET capacity = 'nonsense'")
        connection.commit()
    with pytest.raises(AssertionError, match="Expecting value"):
        findings(database)
