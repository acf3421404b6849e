"""An input that cannot be stored is refused in its own action, and is not taken again."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text
from tests.control.conftest import MakeWorld
from tests.control.world import ADA, World

from muster.control.agent.desk import REFUSED_S, AgentDesk, Said
from muster.control.agent.hello import Greeter
from muster.control.engine.coordinator import Coordinator
from muster.control.engine.inputs import Input
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.inbox import Inbox, NotStored, RequestInput
from muster.control.job.requests import JobRequests
from muster.control.session.kernel_reports import KernelReports
from muster.core.errors import Conflict, MusterError
from muster.core.ids import AgentId, KernelId
from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, JobState
from muster.store import schema
from muster.store.records import Agent, Job, Kernel
from muster.wire.messages import Acknowledge, Hello, KernelReport, ReportKind, Reports

LARGE = Resources(cpu_milli=8000, memory_bytes=2**33)
POISON = "\udcffpoison"
STATEMENTS: dict[str, Callable[[Work], None]] = {
    "half of a pair": lambda work: work.unit.also(text("SELECT :a"), {"a": POISON}),
    "number without end": lambda work: work.unit.also(
        text("SELECT CAST(:a AS bigint)"), {"a": 2**70}
    ),
    "value of no type": lambda work: work.unit.also(text("SELECT :a"), {"a": object()}),
    "row that is there": lambda work: work.unit.also(
        text("INSERT INTO cluster VALUES ('id', 'a'), ('id', 'b')")
    ),
}


@pytest.fixture
def world(worlds: MakeWorld) -> World:
    return worlds({"a": LARGE, "b": LARGE})


def asked(world: World, spec: JobSpec, poison: Callable[[Work], None] | None) -> list[object]:
    """A submission that waits for the next wake; what came of it will be in the list."""
    answers: list[object] = []

    def submit(work: Work, parts: Parts) -> Job:
        if poison is not None:
            poison(work)
        return parts[JobRequests].submit(work, ADA, spec)

    world.plane.ask(submit, lambda job, error: answers.append(job if error is None else error))
    return answers


@pytest.mark.parametrize("poison", STATEMENTS)
@pytest.mark.parametrize("place", [0, 3, 6])
def test_request_that_cannot_be_stored_is_refused_and_those_around_it_are_not(
    world: World, poison: str, place: int
) -> None:
    now = world.clock.now()
    answers = [
        asked(world, JobSpec(command=["x"]), STATEMENTS[poison] if index == place else None)
        for index in range(7)
    ]
    world.settle()
    for index, (answer,) in enumerate(answers):
        if index == place:
            assert isinstance(answer, MusterError)
            assert "cannot be carried out" in str(answer)
        else:
            assert isinstance(answer, Job)
    assert len(world.plane.live.jobs) == 6
    assert world.clock.now() == now, "nobody waited"
    world.run_until(lambda: not world.plane.live.jobs, 30.0)


def half_way(work: Work) -> None:
    work.unit.also(text("INSERT INTO cluster VALUES ('half', 'made')"))
    raise ZeroDivisionError


def refused_half_way(work: Work) -> None:
    work.unit.also(text("INSERT INTO cluster VALUES ('half', 'refused')"))
    raise Conflict("this cannot be")


POISONS: dict[str, Callable[[Work], None]] = {
    "cannot be stored": STATEMENTS["half of a pair"],
    "raises": half_way,
    "is refused": refused_half_way,
}


def is_half_made(world: World) -> bool:
    with world.store.engine.connect() as connection:
        return bool(connection.execute(text("SELECT 1 FROM cluster WHERE key = 'half'")).all())


@given(st.lists(st.sampled_from([None, *POISONS]), min_size=1, max_size=12))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_exactly_the_poisoned_requests_are_refused_and_leave_nothing(
    world: World, poisoned: list[str | None]
) -> None:
    before = {*world.plane.live.jobs}
    answers = [
        asked(world, JobSpec(command=["x"]), None if kind is None else POISONS[kind])
        for kind in poisoned
    ]
    world.settle()
    assert [isinstance(answer, Exception) for (answer,) in answers] == [*map(bool, poisoned)]
    made = {answer.id for (answer,) in answers if isinstance(answer, Job)}
    assert {*world.plane.live.jobs} == before | made
    assert not is_half_made(world)


def test_request_that_is_refused_half_way_tells_its_caller_why(world: World) -> None:
    told = asked(world, JobSpec(command=["x"]), refused_half_way)
    world.settle()
    assert [str(each) for each in told] == ["this cannot be"]
    assert isinstance(told[0], Conflict)


@pytest.mark.parametrize("poison", [POISONS["cannot be stored"], half_way])
def test_report_that_fails_is_dropped_whole_and_all_others_are_heard(
    world: World, monkeypatch: pytest.MonkeyPatch, poison: Callable[[Work], None]
) -> None:
    apply = KernelReports.apply

    def poisoned(
        kernel_reports: KernelReports, work: Work, agent: AgentId, report: KernelReport
    ) -> None:
        if report.detail == "poison":
            poison(work)
        apply(kernel_reports, work, agent, report)

    monkeypatch.setattr(KernelReports, "apply", poisoned)
    refuse, stored = AgentDesk.refuse, []

    def refused(desk: AgentDesk, said: Said, error: Exception) -> None:
        with world.store.engine.connect() as connection:
            ended = text("SELECT count(*) FROM kernels WHERE status = 'TERMINATED'")
            stored.append(connection.scalar(ended))
        refuse(desk, said, error)

    monkeypatch.setattr(AgentDesk, "refuse", refused)
    job_id = world.submit(JobSpec(command=["x"], tasks=4)).id
    agent = next(each for each in world.agents.values() if each.running)
    running = [*agent.running]
    ends = len(running)
    for number, key in enumerate(running):
        if number == ends // 2:
            agent.supervisor.tell((KernelId("krn-none"), 1), ReportKind.ENDED, detail="poison")
        agent.supervisor.end_process(key)
    world.settle()
    assert (agent.id, "a report of it could not be taken, and is dropped") in world.closed
    assert not agent.reports, "all of them are acknowledged, that one too"
    assert min(stored) >= ends // 2 > 0, "the reports before it are stored"
    assert not is_half_made(world)
    with world.store.engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM kernels")) == ends
    world.connect_again()
    world.run_until(lambda: job_id not in world.plane.live.jobs, 60.0)
    with world.store.engine.connect() as connection:
        assert connection.scalar(text("SELECT status FROM jobs")) == JobState.SUCCEEDED


def test_end_whose_report_fails_is_learnt_from_the_agents_next_hello(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(
        kernel_reports: KernelReports, work: Work, kernel: Kernel, report: KernelReport
    ) -> None:
        work.unit.release((kernel.id, kernel.generation))
        raise ZeroDivisionError

    job_id = world.submit(JobSpec(command=["x"])).id
    (agent,) = (each for each in world.agents.values() if each.running)
    with monkeypatch.context() as patch:
        patch.setattr(KernelReports, "_end", broken)
        world.clock.advance(60.0)
        agent.tick()
        world.settle()
        assert len(world.plane.live.ledger) == 1, "the room is not given back by half of a report"
    world.connect_again()
    job = world.plane.live.jobs[job_id]
    world.run_until(lambda: job.status in JOB_TABLE.terminal, 60.0)
    assert job.status is JobState.SUCCEEDED
    starts = sum(len(each.starts) for each in world.agents.values())
    assert starts == 2, "the lost end is a lost machine's"


def test_hello_that_cannot_be_taken_is_not_heard_again_for_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = world.agent("a")
    greet = Greeter.greet
    calls: list[str] = []

    def broken(greeter: Greeter, work: Work, record: Agent, hello: Hello) -> None:
        if record.name == "a":
            calls.append("a")
            raise ValueError("poison")
        greet(greeter, work, record, hello)

    monkeypatch.setattr(Greeter, "greet", broken)
    for _ in range(10):
        world.connect(agent)
    assert len(calls) == 1
    assert world.closed[0] == (agent.id, "what it said could not be understood")
    monkeypatch.undo()
    world.run(REFUSED_S + 1.0)
    world.closed.clear()
    world.connect(agent)
    assert world.closed == []
    world.connect(world.agent("b"))
    assert world.submit(JobSpec(command=["x"])).status is JobState.RUNNING


def test_agent_with_more_kinds_of_resources_than_a_group_can_have_is_told_limit_and_count(
    world: World,
) -> None:
    """Each agent by itself keeps to the limit of a Hello, so its group finds that they are many."""
    agent = world.agent("a")
    extra = {f"extra-{number}": 1000 for number in range(130)}
    capacity = Resources.with_extra(8000, 2**33, 0, 0, extra)
    agent.offer = replace(agent.offer, capacity=capacity)
    for _ in range(2):
        world.connect(agent)
    told = "the agents of a group have at most 128 kinds of resources in all; with extra-0, "
    refused = [why for id_, why in world.closed if id_ == agent.id and why.startswith(told)]
    assert len(refused) == 2
    assert "of this one there would be 134" in refused[0]
    assert refused[1].endswith("; it is not heard again for a while")
    world.connect(world.agent("b"))
    assert world.submit(JobSpec(command=["x"])).status is JobState.RUNNING


def test_inputs_given_back_keep_their_order() -> None:
    inbox = Inbox()
    inputs: list[Input] = [RequestInput(lambda *_: None, lambda *_: None) for _ in range(5)]
    for item in inputs:
        inbox.put(item)
    taken = inbox.take(0.0)
    assert inbox.give_back_apart(taken) is None
    later: Input = RequestInput(lambda *_: None, lambda *_: None)
    inbox.put(later)
    found: list[Input] = []
    while inbox:
        batch = inbox.take(0.0)
        assert batch
        found += batch
    assert all(a is b for a, b in zip(found, [*inputs, later], strict=True))


def test_reports_taken_apart_are_acknowledged_up_to_each_of_them(world: World) -> None:
    reports = tuple(KernelReport(KernelId(f"k{n}"), 1, ReportKind.ENDED, 0.0) for n in range(3))
    inbox = Inbox()
    said = Said(world.desk, AgentId("a"), Reports(12, reports))
    assert inbox.give_back_apart([said]) is None
    seqs = []
    while inbox:
        for item in inbox.take(0.0):
            assert isinstance(item, Said)
            assert isinstance(item.message, Reports)
            seqs.append(item.message.last_seq)
    assert seqs == [10, 11, 12]


def test_no_input_is_dropped_while_the_state_itself_fails_every_wake(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.expect_defects()
    job_id = world.submit(JobSpec(command=["x"], tasks=4)).id
    agent = world.agent("a")
    world.clock.advance(60.0)
    agent.tick()
    ended = agent.all_reports()
    assert ended.reports

    def defective(self: Coordinator, work: Work) -> bool:
        raise RuntimeError("a defect that no input brings")

    with monkeypatch.context() as broken:
        broken.setattr(Coordinator, "run", defective)
        answers = asked(world, JobSpec(command=["y"]), None)
        world.desk.agent_said(agent.id, ended)
        for _ in range(50):
            world.plane.step()
            world.clock.advance(1.0)
    assert all(isinstance(answer, NotStored) for answer in answers)
    assert len(answers) == 1
    acknowledged = [each for _, each in world.outgoing if isinstance(each, Acknowledge)]
    assert not acknowledged, "the agent still has what ended"
    world.settle()
    world.connect_again()
    world.run_until(lambda: job_id not in world.plane.live.jobs, 60.0)
    with world.store.engine.connect() as connection:
        status = select(schema.jobs.c.status).where(schema.jobs.c.id == job_id)
        assert connection.scalar(status) == JobState.SUCCEEDED
