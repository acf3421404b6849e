"""A part of a module that raises is our defect: it costs a wake at most, and nobody else waits."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import insert, select
from tests.control.conftest import MakeWorld
from tests.control.world import ADA, World, state

from muster.control.agent.desk import AgentDesk
from muster.control.agent.requests import AgentRequests
from muster.control.engine.declared import Declared
from muster.control.engine.defects import LEFT_OUT_S
from muster.control.engine.module import Context, Module, Parts
from muster.control.engine.sweeps import SWEEP_S
from muster.control.engine.work import Work
from muster.control.inbox import NotStored
from muster.control.job.requests import JobRequests
from muster.core.errors import MusterError
from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, AgentStatus, JobState
from muster.store import schema
from muster.store.live import Live
from muster.store.store import Store

LARGE = Resources(cpu_milli=8000, memory_bytes=2**33)


@pytest.fixture
def make_world(worlds: MakeWorld) -> MakeWorld:
    def make(*modules: Module) -> World:
        world = worlds({"a": LARGE, "b": LARGE}, more=modules)
        world.expect_defects()
        return world

    return make


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """As many as wakes were undone: each has the whole state read again."""
    found: list[None] = []
    reload = Store.reload

    def counted(store: Store) -> None:
        found.append(None)
        reload(store)

    monkeypatch.setattr(Store, "reload", counted)
    return found


class Sweeping(Module):
    """Stores a row with each sweep, and then raises, if it ``fails``."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.since: list[float] = []

    def sweep(self, work: Work, since: float) -> None:
        self.since.append(since)
        row = {"key": f"{type(self).__name__} {len(self.since)}", "value": ""}
        work.unit.also(insert(schema.cluster), row)
        if self.fails:
            self.break_(work)

    def break_(self, work: Work) -> None:
        raise ZeroDivisionError


class Unstorable(Sweeping):
    """Stores a row twice, if it ``fails``."""

    def break_(self, work: Work) -> None:
        row = {"key": "the same", "value": ""}
        work.unit.also(insert(schema.cluster), [row, row])


class Sound(Sweeping):
    pass


def rows_of(world: World, module: Module) -> int:
    """How many rows the module has stored."""
    key = schema.cluster.c.key
    mine = select(key).where(key.startswith(f"{type(module).__name__} "))
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        return len(connection.execute(mine).all())


def submit(work: Work, parts: Parts) -> Any:
    return parts[JobRequests].submit(work, ADA, JobSpec(command=["x"]))


def refuse(work: Work, parts: Parts) -> None:
    work.unit.also(insert(schema.cluster), [{"key": "mine", "value": ""}] * 2)


DEFECTS: Sequence[type[Sweeping]] = (Sweeping, Unstorable)


@pytest.mark.parametrize("kind", DEFECTS)
@pytest.mark.parametrize("first", [False, True])
def test_sweep_that_fails_leaves_nothing_half_made_and_the_rest_of_its_wake_goes_on(
    make_world: MakeWorld, kind: type[Sweeping], first: bool
) -> None:
    bad, good = kind(), Sound()
    world = make_world(*((bad, good) if first else (good, bad)))
    bad.fails = True
    before = rows_of(world, bad), rows_of(world, good)
    world.clock.advance(SWEEP_S)
    answers = world.ask_together(submit, refuse, submit)
    assert [isinstance(each, MusterError) for each in answers].count(True) == 1
    assert rows_of(world, bad) == before[0]
    assert rows_of(world, good) > before[1]
    world.connect_again()
    jobs = [world.plane.live.jobs[each.id] for each in answers if not isinstance(each, MusterError)]
    assert {job.status for job in jobs} == {JobState.RUNNING}


@pytest.mark.parametrize("kind", DEFECTS)
def test_sweep_that_fails_each_time_costs_two_wakes_a_period_at_most_and_is_done_once_mended(
    make_world: MakeWorld, readings: list[None], kind: type[Sweeping]
) -> None:
    bad, good = kind(), Sound()
    world = make_world(bad, good)
    stored, times = rows_of(world, bad), len(good.since)
    bad.fails = True
    bad.since.clear()
    readings.clear()
    world.run(10 * SWEEP_S)
    wakes = 2 if kind is Unstorable else 1  # the second is tried out before it is committed
    assert 9 * wakes <= len(readings) <= 11 * wakes
    assert len(good.since) >= times + 9
    assert rows_of(world, bad) == stored

    bad.fails = False
    world.run(SWEEP_S)
    assert rows_of(world, bad) == stored + 1
    assert len(bad.since) >= 10
    assert len({*bad.since}) == 1, "each time it was to make up for all that was missed"


def test_catching_up_that_raises_rests_and_nobody_notices(make_world: MakeWorld) -> None:
    class Deaf(Module):
        calls = 0

        def catch_up(self) -> None:
            self.calls += 1
            raise ZeroDivisionError

    deaf = Deaf()
    world = make_world(deaf)
    job = world.submit(JobSpec(command=["x"]))
    world.run(5.0)
    assert state(job) is JobState.SUCCEEDED
    assert deaf.calls == 1
    agents = world.plane.live.agents.values()
    assert all(world.clock.now() - agent.seen_at < 1.0 for agent in agents), "others catch up"
    world.run(LEFT_OUT_S)
    assert deaf.calls == 2


def test_module_that_raises_after_a_commit_keeps_nobody_else_from_being_told(
    make_world: MakeWorld, readings: list[None]
) -> None:
    class Told(Module):
        commits = 0

        def committed(self, work: Work) -> None:
            self.commits += 1

    class Raises(Module):
        def committed(self, work: Work) -> None:
            raise ZeroDivisionError

    told = Told()
    world = make_world(Raises(), told)
    readings.clear()
    before = told.commits
    job = world.submit(JobSpec(command=["x"]))
    world.run(5.0)
    assert state(job) is JobState.SUCCEEDED
    assert told.commits > before
    assert not readings


def test_agent_whose_removal_the_desk_did_not_hear_of_gets_no_lease_after_the_next_sweep(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    agent = world.agent("b")
    agent.online = False
    world.run_until(lambda: world.plane.live.agents[agent.id].status is AgentStatus.LOST)

    def deaf(desk: AgentDesk, work: Work) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(AgentDesk, "committed", deaf)
        world.ask(lambda work, parts: parts[AgentRequests].remove(work, ADA, agent.id))
    assert world.leases.heard_at(agent.id) > -math.inf, "the book still has its lease"
    world.run(SWEEP_S)
    assert world.leases.heard_at(agent.id) == -math.inf
    assert world.leases.renew(agent.id, agent.heartbeat()) is None


class Stubborn(Module):
    """Cannot take over the state while it ``fails`` in the ``where`` method."""

    def __init__(self, where: str, fails: bool = False) -> None:
        self.where = where
        self.fails = fails
        self.former: list[Live | None] = []

    def _fail(self, where: str) -> None:
        if self.fails and where == self.where:
            raise ZeroDivisionError

    def begin(self, live: Live, before: Live | None) -> None:
        self._fail("begin")
        self.former.append(before)

    def declare(self, context: Context) -> Declared:
        self._fail("declare")
        return Declared()


@pytest.mark.parametrize("where", ["begin", "declare"])
def test_nothing_changes_while_a_module_cannot_take_over_the_state_and_nothing_is_lost(
    make_world: MakeWorld, where: str
) -> None:
    stubborn = Stubborn(where)
    world = make_world(stubborn)
    world.behaviour = lambda start: Run(1.5)
    job_id = world.submit(JobSpec(command=["x"])).id
    former = world.store.live
    stubborn.fails = True
    (answer,) = world.ask_together(refuse)
    assert isinstance(answer, NotStored)
    assert "cannot be taken over" in (world.plane.trouble or "")
    refused: list[Exception | None] = []
    for _ in range(5):
        world.clock.advance(1.0)
        for agent in world.agents.values():
            agent.tick()
            world.beat(agent)
        world.plane.ask(submit, lambda _, error: refused.append(error))
        world.plane.step()
    assert [type(error) for error in refused] == [NotStored] * 5

    stubborn.fails = False
    world.clock.advance(1.0)
    world.settle()
    assert not world.plane.trouble
    assert stubborn.former[-1] is former, "the last mirror that was whole"
    world.connect_again()
    world.run(5.0)
    with world.store.engine.connect() as connection:
        jobs = connection.execute(select(schema.jobs.c.id, schema.jobs.c.status)).all()
    assert [tuple(job) for job in jobs] == [(job_id, JobState.SUCCEEDED)]


@pytest.mark.parametrize("where", ["begin", "declare"])
def test_controller_does_not_start_with_a_module_that_cannot_take_over_the_state(
    make_world: MakeWorld, where: str
) -> None:
    with pytest.raises(ZeroDivisionError):
        make_world(Stubborn(where, fails=True))


def test_caller_that_cannot_be_answered_keeps_no_other_from_its_answer(
    make_world: MakeWorld,
) -> None:
    world = make_world()
    answers: list[Any] = []

    def away(result: Any, error: Exception | None) -> None:
        raise RuntimeError("the loop is closed")

    world.plane.ask(submit, away)
    world.plane.ask(submit, lambda job, error: answers.append(job))
    world.settle()
    assert [job.status in JOB_TABLE.live for job in answers] == [True]
