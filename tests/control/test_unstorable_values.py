"""A handler that gives one record a value that cannot be stored holds that record up, and nothing
else."""

from collections.abc import Sequence
from typing import Any

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import select
from tests.control.conftest import MakeWorld, cpus
from tests.control.world import World
from tests.databases import ON_BOTH

from muster.control.engine.defects import LEFT_OUT_S
from muster.control.engine.handler import HandlerResult, TransitionStatus
from muster.control.engine.work import Work
from muster.control.job.expand import ExpandJobs
from muster.control.session.handlers.promote import EnforceTimeout
from muster.control.session.handlers.start import StartSessions
from muster.core.reasons import Reason, ReasonCode
from muster.core.specs import JobSpec
from muster.core.states import JobState
from muster.store import schema
from muster.store.records import Job, Session

pytestmark = ON_BOTH

BAD: dict[str, Any] = {
    "no number or text": object(),
    "more than a column holds": 2**70,
    "half of a pair": "\ud800",
}


@pytest.fixture
def world(worlds: MakeWorld) -> World:
    world = worlds({"a": cpus(8), "b": cpus(8)}, behaviour=lambda start: Run(20.0))
    world.expect_defects()
    return world


@pytest.fixture(params=[*BAD])
def bad(request: pytest.FixtureRequest) -> Any:
    return BAD[request.param]


def stored(world: World, name: str) -> str:
    with world.store.engine.connect() as connection:
        jobs = schema.jobs.c
        return str(connection.scalars(select(jobs.status).where(jobs.name == name)).one())


def was_told(world: World, record: str) -> bool:
    history = schema.history.c
    with world.store.engine.connect() as connection:
        reasons = connection.scalars(select(history.reasons).where(history.entity == record)).all()
    return any(ReasonCode.HANDLER_ERROR in (each or "") for each in reasons)


def test_value_that_comes_with_time_alone_holds_up_its_record_and_no_input_and_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch, bad: Any
) -> None:
    def derive(
        self: EnforceTimeout, record: Session, work: Work
    ) -> tuple[TransitionStatus, Reason | None] | None:
        found = right(self, record, work)
        if found is not None:
            record.reschedules = bad
        return found

    right = EnforceTimeout.derive
    with monkeypatch.context() as patch:
        patch.setattr(EnforceTimeout, "derive", derive)
        world.submit(JobSpec(command=["x"], name="spoilt", timeout=5))
        world.run(3.0)
        (spoilt,) = world.plane.live.sessions
        world.run(3.0)
        assert world.plane.trouble is None
        world.submit(JobSpec(command=["x"], name="other"))
        world.run(30.0)
        assert world.plane.trouble is None
        assert stored(world, "other") == JobState.SUCCEEDED
        assert was_told(world, spoilt)
    world.run(2 * LEFT_OUT_S + 60.0)
    assert stored(world, "spoilt") in {JobState.SUCCEEDED, JobState.FAILED}
    assert not world.plane.live.ledger


def test_value_that_comes_with_an_input_has_no_input_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, bad: Any
) -> None:
    def execute(
        self: StartSessions, targets: Sequence[Session], work: Work
    ) -> HandlerResult[Session]:
        for session in targets:
            if session.job is not None and session.job.name == "spoilt":
                session.reschedules = bad
                work.unit.touch(session)
        return right(self, targets, work)

    right = StartSessions.execute
    with monkeypatch.context() as patch:
        patch.setattr(StartSessions, "execute", execute)
        world.submit(JobSpec(command=["x"], name="spoilt"))
        world.run(5.0)
        world.connect_again()
        world.submit(JobSpec(command=["x"], name="other"))
        world.run(30.0)
        assert world.plane.trouble is None
        assert stored(world, "other") == JobState.SUCCEEDED
        assert len(world.agent("a").starts) + len(world.agent("b").starts) == 1
    world.run(2 * LEFT_OUT_S + 60.0)
    assert stored(world, "spoilt") == JobState.SUCCEEDED


def test_value_that_a_jobs_handler_gives_its_sessions_holds_up_the_job(
    world: World, monkeypatch: pytest.MonkeyPatch, bad: Any
) -> None:
    def follow(self: ExpandJobs, record: Job, work: Work) -> None:
        right(self, record, work)
        for session in work.live.sessions.values():
            if record.name == "spoilt" and session.job is record:
                session.reschedules = bad
                work.unit.touch(session)

    right = ExpandJobs.follow
    with monkeypatch.context() as patch:
        patch.setattr(ExpandJobs, "follow", follow)
        world.submit(JobSpec(command=["x"], name="spoilt", tasks=2))
        world.submit(JobSpec(command=["x"], name="other"))
        world.run(30.0)
        assert world.plane.trouble is None
        assert stored(world, "other") == JobState.SUCCEEDED
    world.run(2 * LEFT_OUT_S + 60.0)
    assert stored(world, "spoilt") == JobState.SUCCEEDED
