"""In which order inputs are taken."""

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.world import ADA, BOB, World

from muster.control import inbox
from muster.control.agent.desk import Said
from muster.control.engine.coordinator import MAX_CHANGES
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.inbox import FEW_TOLD, INPUTS_A_WAKE, LARGE, LARGE_AGAIN_S, NotStored
from muster.control.job.requests import JobRequests
from muster.control.plane import RETRY_COMMIT_S
from muster.control.session.requests import SessionRequests
from muster.core.ids import KernelId
from muster.core.owner import Owner, Principal
from muster.core.resources import Resources
from muster.core.specs import JobSpec, SessionSpec
from muster.core.states import JobState
from muster.store.records import Session
from muster.store.store import CommitFailed, Store
from muster.store.unit import Unit
from muster.wire.messages import KernelReport, ReportKind, Reports


@pytest.fixture
def world(worlds: MakeWorld) -> World:
    return worlds({"a": Resources(cpu_milli=1000)})


class Asking:
    """Sessions that are asked for, and whose were accepted since the last look."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._answered: list[str] = []

    def submit(self, who: Principal, kernels: int) -> None:
        spec = SessionSpec.model_validate(
            {"kernels": [{"command": ["x"], "replicas": kernels, "resources": {"cpu": 2}}]}
        )

        def action(work: Work, parts: Parts) -> Session:
            return parts[SessionRequests].submit(work, who, spec)

        def answer(session: Session | None, error: Exception | None) -> None:
            assert session is not None
            self._answered.append(f"{session.owner.user} {kernels}")

        self._world.plane.ask(action, answer, who.owner)

    def step(self) -> list[str]:
        self._world.plane.step()
        answered, self._answered = self._answered, []
        return answered


def test_who_sends_large_inputs_has_them_taken_apart_from_everybody_elses(world: World) -> None:
    asking = Asking(world)
    asking.submit(ADA, LARGE + 1)
    assert asking.step() == [f"ada {LARGE + 1}"], "nobody could know"
    for _ in range(3):
        asking.submit(ADA, LARGE + 1)
        asking.submit(BOB, 1)
    assert asking.step() == ["bob 1"] * 3
    asking.submit(BOB, 1)
    assert asking.step() == [f"ada {LARGE + 1}"], "nor does she wait for all of his"
    assert asking.step() == ["bob 1"]
    assert [*asking.step(), *asking.step()] == [f"ada {LARGE + 1}"] * 2


def test_who_has_sent_no_large_input_for_a_while_is_like_everybody_else(world: World) -> None:
    asking = Asking(world)
    asking.submit(ADA, LARGE + 1)
    asking.step()
    world.clock.advance(LARGE_AGAIN_S)
    asking.step()
    asking.submit(ADA, 1)
    asking.submit(BOB, 1)
    assert asking.step() == ["ada 1", "bob 1"]


def test_burst_of_large_inputs_holds_up_nobody_else(world: World) -> None:
    asking = Asking(world)
    for _ in range(3):
        asking.submit(ADA, MAX_CHANGES)
    asking.submit(BOB, 1)
    assert asking.step() == [f"ada {MAX_CHANGES}"]
    assert asking.step() == ["bob 1"]
    asking.submit(BOB, 1)
    assert asking.step() == [f"ada {MAX_CHANGES}"]
    assert asking.step() == ["bob 1"]


def test_users_who_send_large_inputs_take_turns_and_each_keeps_its_order(world: World) -> None:
    asking = Asking(world)
    for who in (ADA, BOB):
        asking.submit(who, LARGE + 1)
        asking.step()
    for kernels in (LARGE + 1, 1):
        asking.submit(ADA, kernels)
    asking.submit(BOB, 2)
    found = [each for _ in range(6) for each in asking.step()]
    assert found == [f"ada {LARGE + 1}", "bob 2", "ada 1"]


def test_sessions_that_end_at_once_end_in_many_wakes(
    worlds: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wake ends the sessions of whose ends it takes the reports."""
    monkeypatch.setattr(inbox, "MAX_RECORDS", 5)
    agents = {f"agent-{number}": Resources(cpu_milli=1000) for number in range(20)}
    world = worlds(agents, behaviour=lambda start: Run(1))
    job = world.submit(JobSpec(command=["x"], tasks=len(agents)))
    world.clock.advance(1)
    for agent in world.agents.values():
        agent.tick()
    world._deliver()
    live = [len(world.plane.live.sessions)]
    while live[-1]:
        world.wake()
        live.append(len(world.plane.live.sessions))
    assert live == [20, 16, 12, 8, 4, 0], "four sessions, and their job"
    assert job.status is JobState.SUCCEEDED


def test_requests_are_refused_while_nothing_can_be_stored_though_an_agent_has_more_to_say(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Store, unit: Unit) -> None:
        raise CommitFailed("the disk is full")

    monkeypatch.setattr(Store, "commit", fails)
    world.desk.agent_left(world.agent("a").id)
    world.plane.step()
    answers: list[Exception | None] = []
    for _ in range(3):
        world.plane.ask(lambda work, parts: None, lambda result, error: answers.append(error))
    world.clock.advance(RETRY_COMMIT_S)
    world.plane.step()
    assert [type(error) for error in answers] == [NotStored] * 3


def test_reports_that_are_repeated_are_looked_at_a_bounded_number_a_wake(
    worlds: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent repeats all that is not acknowledged; none of it changes anything."""
    world = worlds({"a": Resources(cpu_milli=4000)}, behaviour=lambda start: Run(1))
    agent = world.agent("a")
    world.submit(JobSpec(command=["x"], tasks=4))
    world.clock.advance(1)
    agent.tick()
    told = agent.all_reports()
    world.settle()
    monkeypatch.setattr(inbox, "MAX_TOLD", 2 * (1 + len(told.reports)))
    for _ in range(5):
        world.desk.agent_said(agent.id, told)
    waiting = []
    for _ in range(3):
        world.wake()
        assert world.plane.changes == 0
        waiting.append(len([*world.inbox.waiting()]))
    assert waiting == [3, 1, 0]


def test_message_with_more_reports_than_a_wake_should_look_at_is_taken_by_itself(
    worlds: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "MAX_TOLD", 1)
    world = worlds({"a": Resources(cpu_milli=4000)}, behaviour=lambda start: Run(1))
    job = world.submit(JobSpec(command=["x"], tasks=4))
    world.run(3)
    assert job.status is JobState.SUCCEEDED


def flood(world: World, messages: int, reports: int) -> None:
    """Each agent reports so many kernels that nobody knows, in so many messages."""
    for number in range(messages):
        batch = tuple(
            KernelReport(KernelId(f"krn-{number}-{index}"), 1, ReportKind.STARTED, 1.0)
            for index in range(reports)
        )
        for agent in world.agents.values():
            world.desk.agent_said(agent.id, Reports(1000 + (number + 1) * reports, batch))


@pytest.mark.parametrize("wakes_before", range(4))
def test_request_is_answered_within_two_wakes_however_much_of_agents_waits(
    worlds: MakeWorld, monkeypatch: pytest.MonkeyPatch, wakes_before: int
) -> None:
    monkeypatch.setattr(inbox, "MAX_TOLD", 50)
    world = worlds({f"a{n}": Resources(cpu_milli=1000) for n in range(4)})
    flood(world, messages=40, reports=10)
    for _ in range(wakes_before):
        world.plane.step()
    answers: list[Exception | None] = []
    waiting = [len([*world.inbox.waiting()])]
    for asked in range(1, 5):
        world.plane.ask(lambda work, parts: None, lambda result, error: answers.append(error))
        for _ in range(2):
            world.plane.step()
            waiting.append(len([*world.inbox.waiting()]))
        assert len(answers) == asked
    assert set(answers) == {None}
    assert waiting[-1] > 50
    assert waiting[::2] == sorted(waiting[::2], reverse=True), "agents are heard in between"
    assert len({*waiting[::2]}) == 5


def test_few_requests_are_answered_before_handlers_act_on_them_where_agents_tell_much(
    world: World,
) -> None:
    flood(world, messages=1, reports=FEW_TOLD + 1)
    answers: list[str] = []

    def submit(work: Work, parts: Parts) -> None:
        parts[JobRequests].submit(work, ADA, JobSpec(command=["x"]))

    world.plane.ask(submit, lambda *_: answers.append("submitted"), ADA.owner)
    world.plane.step()
    assert answers == ["submitted"]
    assert not world.plane.live.sessions
    world.plane.step()
    assert len(world.plane.live.sessions) == 1


def test_agent_is_heard_soon_however_many_requests_wait(
    worlds: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "MAX_TOLD", 50)  # as many requests, too
    world = worlds({"a": Resources(cpu_milli=1000)})
    world.disconnect(world.agent("a"))
    for _ in range(3):
        for _ in range(INPUTS_A_WAKE + 500):
            world.plane.ask(lambda work, parts: None, lambda result, error: None)
        world.plane.step()
        if not world.plane.live.agents[world.agent("a").id].connected:
            break
    assert len([*world.inbox.waiting()]) > INPUTS_A_WAKE
    assert not world.plane.live.agents[world.agent("a").id].connected


def test_requests_that_fill_all_wakes_leave_a_part_to_agents(world: World) -> None:
    world.disconnect(world.agent("a"))
    for _ in range(INPUTS_A_WAKE + 500):
        world.plane.ask(lambda work, parts: None, lambda result, error: None)
    world.plane.step()
    assert not world.plane.live.agents[world.agent("a").id].connected


@pytest.mark.parametrize("owner", [None, ADA.owner])
def test_only_requests_of_people_make_wakes_shorter(world: World, owner: Owner | None) -> None:
    world.clock.advance(10)
    share = world.ask(lambda work, parts: work.share)
    now = world.clock.now()
    assert not share.is_beside_people(now), "the controller asked itself"
    world.plane.ask(lambda work, parts: None, lambda result, error: None, owner)
    world.plane.step()
    assert share.is_beside_people(now) is (owner is not None)


@pytest.mark.parametrize(
    ("kinds", "can_wait"),
    [
        ([ReportKind.STARTED, ReportKind.STARTED], True),
        ([ReportKind.STARTED, ReportKind.ENDED], False),
        ([ReportKind.ENDED], False),
    ],
)
def test_reports_of_begun_work_alone_wait_for_a_moment(
    world: World, kinds: list[ReportKind], *, can_wait: bool
) -> None:
    reports = tuple(
        KernelReport(KernelId(f"krn-{number}"), 1, kind, 1.0) for number, kind in enumerate(kinds)
    )
    hints: list[str] = []
    box = inbox.Inbox(lambda: hints.append("now"), lambda: hints.append("soon"))
    box.put(Said(world.desk, world.agent("a").id, Reports(len(reports), reports)))
    assert hints == ["soon" if can_wait else "now"]
