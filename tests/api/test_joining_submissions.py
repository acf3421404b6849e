"""A submission that is repeated before its answer is joined to the first, not begun again."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from proving.hollow.virtual_clock import VirtualClock
from tests.api.served import ADA, BOB
from tests.databases import migrated_url, open_unsynced

from muster.api.reader import Reader
from muster.api.submissions import Submissions
from muster.core.errors import Conflict
from muster.core.owner import Owner


@dataclass
class Accepted:
    id: str


class Plane:
    """Takes requests; they are answered when a test says so."""

    def __init__(self) -> None:
        self.answers: list[Callable[[Any, Exception | None], None]] = []

    def ask(
        self, _action: object, answer: Callable[[Any, Exception | None], None], _owner: Owner
    ) -> None:
        self.answers.append(answer)


@pytest.fixture
def plane() -> Plane:
    return Plane()


@pytest.fixture
def submissions(plane: Plane, tmp_path: Path) -> Iterator[Submissions]:
    engine = open_unsynced(migrated_url(tmp_path / "muster.db"))
    yield Submissions(engine, plane, VirtualClock(), Reader(engine))  # type: ignore[arg-type]
    engine.dispose()


def action(*_: object) -> Any:
    raise AssertionError("the plane of these tests does nothing")


async def begun(*submitted: "asyncio.Task[Any]") -> None:
    """Let these get as far as they can."""
    await asyncio.wait(submitted, timeout=0)


async def test_submission_is_joined_until_it_is_answered_and_known_from_then_on(
    plane: Plane, submissions: Submissions
) -> None:
    first = asyncio.create_task(submissions.once(ADA, "key", action))
    second = asyncio.create_task(submissions.once(ADA, "key", action))
    other = asyncio.create_task(submissions.once(BOB, "key", action))
    await begun(first, second, other)
    assert len(plane.answers) == 2, "one of each owner"
    job = Accepted("job-1")
    plane.answers[0](job, None)
    assert await first is await second is job
    assert await submissions.once(ADA, "key", action) == "job-1"
    assert not other.done()
    other.cancel()


async def test_caller_that_leaves_takes_the_submission_from_nobody(
    plane: Plane, submissions: Submissions
) -> None:
    first = asyncio.create_task(submissions.once(ADA, "key", action))
    second = asyncio.create_task(submissions.once(ADA, "key", action))
    await begun(first, second)
    first.cancel()
    await begun(first)
    job = Accepted("job-1")
    plane.answers[0](job, None)
    assert await second is job


async def test_refusal_is_told_to_all_and_not_remembered(
    plane: Plane, submissions: Submissions
) -> None:
    first = asyncio.create_task(submissions.once(ADA, "key", action))
    second = asyncio.create_task(submissions.once(ADA, "key", action))
    await begun(first, second)
    plane.answers[0](None, Conflict("the name is taken"))
    for refused in (first, second):
        with pytest.raises(Conflict):
            await refused
    again = asyncio.create_task(submissions.once(ADA, "key", action))
    await begun(again)
    assert len(plane.answers) == 2
    again.cancel()
