"""Input that the database cannot store is refused alone, though others' is stored beside it.

Whatever enters is checked so that it can be stored, so the database itself is made to refuse.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from tests.attacks.hostile_agent import hostile_agent
from tests.attacks.target import Target
from tests.patience import until

from muster.core.errors import MusterError
from muster.core.states import JobState
from muster.wire.client import Disconnected

POISON_CODE = 66


@contextmanager
def refusing(target: Target, table: str, change: str, poison: str) -> Iterator[None]:
    """The database takes no such change of a row of which ``poison`` is true."""

    def say(*statements: str) -> None:
        database = sqlite3.connect(target.cluster.home.database, timeout=30.0, isolation_level=None)
        with closing(database):
            for statement in statements:
                database.execute(statement)

    say(
        f"CREATE TRIGGER poison BEFORE {change} ON {table} WHEN {poison} "
        "BEGIN SELECT RAISE(ABORT, 'poison'); END"
    )
    try:
        yield
    finally:
        say("DROP TRIGGER poison")


def test_request_that_cannot_be_stored_is_refused_alone(target: Target) -> None:
    with (
        refusing(target, "jobs", "INSERT", "NEW.name = 'poison'"),
        target.client("mallory") as mallory,
    ):
        for _ in range(20):
            with pytest.raises(MusterError, match="cannot be carried out"):
                mallory.submit(name="poison", command=["true"])
        job = mallory.submit(name="wholesome", command=["true"])
        assert mallory.wait(job.id, 30.0).state == JobState.SUCCEEDED


def test_report_that_cannot_be_stored_is_dropped_alone(target: Target) -> None:
    with target.client("mallory") as mallory:
        with refusing(target, "kernels", "UPDATE", f"NEW.exit_code = {POISON_CODE}"):
            poisoned = mallory.submit(
                command=["sh", "-c", f"exit {POISON_CODE}"], max_retries_failure=0
            )
            others = [mallory.submit(command=["sh", "-c", "exit 0"]) for _ in range(5)]
            for job in others:
                assert mallory.wait(job.id, 30.0).state == JobState.SUCCEEDED
            log = target.cluster.home.log
            until(lambda: "is dropped" in log.read_text())
        assert mallory.wait(poisoned.id, 60.0).state == JobState.FAILED


async def test_agent_whose_hello_cannot_be_stored_is_closed_alone(target: Target) -> None:
    async with hostile_agent(target, "poisoned") as agent:
        with (
            refusing(target, "agents", "UPDATE", "NEW.name = 'poisoned'"),
            pytest.raises(Disconnected, match="what it said could not be understood"),
        ):
            await agent.greet()
