"""Another priority for work that was handed in: the queue, running work and agents' backlogs follow
at once, and so does a new controller."""

import math
from typing import Any

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import select
from tests.control.conftest import MakeWorld, under
from tests.control.world import ADA, BOB, World
from tests.databases import ON_BOTH

from muster.control.job.explanation import explain_job
from muster.control.job.requests import JobRequests
from muster.control.session.requests import SessionRequests
from muster.core.errors import Conflict, NotFound
from muster.core.owner import Owner, Principal, Role
from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.specs import JobSpec, SessionSpec
from muster.core.states import JobState, SessionStatus, TaskState
from muster.store import schema
from muster.store.queries.history import read_history
from muster.store.queries.jobs import read_job_detail
from muster.store.queries.sessions import read_session_detail
from muster.store.records import Job, Session
from muster.wire.messages import Start

pytestmark = ON_BOTH
ROOT = Principal(Owner("default", "default", "root"), Role.ADMIN)
AT_ONCE = {"minimum_lease": 0}


def job(name: str, priority: int = 50, **more: Any) -> JobSpec:
    spec = {"name": name, "command": [name], "priority": priority, "grace": 0}
    return JobSpec.model_validate(spec | more)


def lone(priority: int = 50) -> SessionSpec:
    return SessionSpec.model_validate({"kernels": [{"command": ["lone"]}], "priority": priority})


def reprioritise(world: World, of: Job | Session, priority: int, by: Principal = ADA) -> int:
    """The former priority."""
    before: int
    if isinstance(of, Job):
        before = world.ask(
            lambda work, parts: parts[JobRequests].reprioritise(work, by, of.id, priority)
        )
    else:
        before = world.ask(
            lambda work, parts: parts[SessionRequests].reprioritise(work, by, of.id, priority)
        )
    return before


class Runs:
    """The behaviour of work that runs for so long; ``order`` are its commands as they started."""

    def __init__(self, seconds: float = 10, **more: Any) -> None:
        self.order: list[str] = []
        self._run = Run(seconds, **more)

    def __call__(self, start: Start) -> Run:
        self.order.append(start.template.command[0])
        return self._run


def told(world: World, of: Job | Session) -> list[str]:
    """The sentences of its history that tell of its priority."""
    history = schema.history
    query = select(history.c.reasons).where(history.c.reasons.contains("REPRIORITISED"))
    with world.store.engine.connect() as connection:
        assert len(connection.execute(query).all()) <= 1, "nobody else's history tells of it"
        found = read_history(connection, world.store.entities, ROOT, of.id, 100).items
    sentences = [reason.sentence for entry in found for reason in entry.reasons]
    return [each for each in sentences if each.startswith("priority")]


def waiting_classes(world: World) -> dict[str, int]:
    """The priority as of which each session waits."""
    return {each.id: each.workload.priority for each in world.cluster.groups["default"].queue}


@pytest.mark.parametrize("queue", ["strict", "backfill", "best_effort"])
def test_job_that_waits_goes_ahead_of_those_that_it_outranks_now(
    group_world: MakeWorld, queue: str
) -> None:
    runs = Runs()
    world = group_world({"a": 1}, runs, queue=queue)
    for name in ("runs", "first", "second"):
        last = world.submit(job(name))
    assert reprioritise(world, last, 80) == 50
    world.run(25)
    assert runs.order == ["runs", "second", "first"]


def test_job_that_waits_falls_behind_those_that_outrank_it_now(group_world: MakeWorld) -> None:
    runs = Runs()
    world = group_world({"a": 1}, runs, queue="strict")
    world.submit(job("runs"))
    first = world.submit(job("first"))
    world.submit(job("second"))
    reprioritise(world, first, 10)
    world.run(25)
    assert runs.order == ["runs", "second", "first"]


def test_tasks_that_have_not_begun_get_the_priority_too(group_world: MakeWorld) -> None:
    runs = Runs()
    world = group_world({"a": 1}, runs)
    many = world.submit(job("many", 10, tasks=100))
    world.submit(job("other", 50))
    assert len(many.tasks) < 100, "most have no session yet"
    reprioritise(world, many, 60)
    world.run(200)
    assert runs.order[:10] == ["many"] * 10
    sessions = {each.priority for each in world.plane.live.sessions.values() if each.job is many}
    assert sessions == {60}


def test_lone_session_moves_and_others_of_its_spec_do_not(group_world: MakeWorld) -> None:
    runs = Runs()
    world = group_world({"a": 1}, runs)
    world.submit(job("runs"))
    one, other = world.submit_session(lone()), world.submit_session(lone())
    assert one.spec is other.spec
    reprioritise(world, other, 80)
    assert waiting_classes(world) == {one.id: 50, other.id: 80}
    world.run(12)
    assert (one.status, other.status) == (SessionStatus.PENDING, SessionStatus.RUNNING)


def test_gang_that_waits_moves_whole(group_world: MakeWorld) -> None:
    runs = Runs()
    world = group_world({"a": 1, "b": 1}, runs, queue="strict")
    world.submit(job("runs", tasks=2))
    world.submit(job("first"))
    gang = world.submit(job("gang", 10, tasks=2, coscheduled=True))
    reprioritise(world, gang, 90)
    world.run(12)
    assert gang.status is JobState.RUNNING
    assert sorted(runs.order) == ["gang", "gang", "runs", "runs"]


def test_running_work_that_fell_is_displaced_and_what_rose_is_spared(
    group_world: MakeWorld,
) -> None:
    runs = Runs(1000)
    world = group_world({"a": 2}, runs, preemption=AT_ONCE)
    falls, rises = world.submit(job("falls", 50)), world.submit(job("rises", 50))
    world.run(1)
    reprioritise(world, rises, 90)
    urgent = world.submit(job("urgent", 50))
    world.run(1)
    assert urgent.status is JobState.PENDING
    reprioritise(world, falls, 40)
    world.run(1)
    states = [each.status for each in (falls, rises, urgent)]
    assert states == [JobState.RUNNING, JobState.RUNNING, JobState.RUNNING]
    assert runs.order == ["falls", "rises", "urgent"]
    assert falls.counts.get(TaskState.PENDING) == 1, "it was displaced, and waits"


@pytest.mark.parametrize("restart", [False, True])
def test_session_for_which_others_leave_displaces_nobody_else_when_it_rises(
    group_world: MakeWorld, restart: bool
) -> None:
    stays = Run(1000, stubborn=True, outlives_kill_s=math.inf)
    world = group_world({"a": 1, "b": 1}, lambda start: stays, preemption=AT_ONCE)
    world.submit(job("low", 10, tasks=2, grace=600))
    world.run(1)
    high = world.submit(job("high", 80))
    world.run(1)
    (leaving,) = world.cluster.groups["default"].displacing.values()
    reprioritise(world, high, 90)
    if restart:
        world.restart_controller()
    world.run(5)
    assert world.cluster.groups["default"].displacing == {
        next(iter(waiting_classes(world))): leaving
    }
    assert len(leaving) == 1


def test_reservation_of_a_session_that_fell_behind_goes_to_the_next(
    group_world: MakeWorld,
) -> None:
    runs = Runs()
    world = group_world({"a": 2}, runs, queue="backfill")
    world.submit(job("runs", timeout=10))
    head = world.submit(job("head", 90, resources={"cpu": 2}))
    world.submit(job("next", 60, resources={"cpu": 2}))
    state = world.cluster.groups["default"]
    assert list(state.queue.rooms) == [head.tasks[0].session_id]
    reprioritise(world, head, 10)
    assert list(state.queue.rooms) != [head.tasks[0].session_id]
    world.run(12)
    assert runs.order == ["runs", "next"]


def test_prefilled_work_that_fell_gives_way_at_once(worlds: MakeWorld) -> None:
    one = Resources(cpu_milli=1000, memory_bytes=2**30)
    world = worlds(
        {"a": one},
        group=under(backlog_window=1.0),
        behaviour=lambda start: Run(0.1 if start.template.command[0] == "short" else 300),
    )
    short = world.submit(job("short", 60, tasks=600))
    world.run(2, 0.05)
    agent = world.agent("a")
    long = world.submit(job("long", 50))
    assert agent.queued, "it is prefilled, and outranks what waits"
    reprioritise(world, short, 40)
    assert not agent.queued
    world.run(1, 0.05)
    assert long.status is JobState.RUNNING


def test_prefilled_work_that_rose_stays_where_it_is(worlds: MakeWorld) -> None:
    runs = Runs(0.1)
    one = Resources(cpu_milli=1000, memory_bytes=2**30)
    world = worlds({"a": one}, group=under(backlog_window=1.0), behaviour=runs)
    short = world.submit(job("short", 10, tasks=600))
    world.run(2, 0.05)
    held = set(world.agent("a").queued)
    reprioritise(world, short, 80)
    assert set(world.agent("a").queued) == held
    world.submit(job("other", 60))
    world.run(1, 0.05)
    assert "other" not in runs.order


def test_same_priority_changes_nothing(group_world: MakeWorld) -> None:
    runs = Runs()
    world = group_world({"a": 1}, runs)
    world.submit(job("runs"))
    waits = world.submit(job("waits"))
    events: list[tuple[str, str, str]] = []
    end = world.plane.watch(events.extend)
    assert reprioritise(world, waits, 50) == 50
    assert (events, told(world, waits)) == ([], [])
    reprioritise(world, waits, 80, ROOT)
    assert events == [("job", waits.id, "PENDING")]
    assert told(world, waits) == ["priority 50 → 80, by root"]
    end()


def test_lone_session_tells_of_it_in_its_own_history(group_world: MakeWorld) -> None:
    runs = Runs()
    world = group_world({"a": 1}, runs)
    session = world.submit_session(lone())
    reprioritise(world, session, 7)
    assert told(world, session) == ["priority 50 → 7, by ada"]


def test_why_follows_at_once(group_world: MakeWorld) -> None:
    runs = Runs()
    world = group_world({"a": 1}, runs, queue="strict")
    world.submit(job("runs"))
    first, second = world.submit(job("first")), world.submit(job("second"))

    def is_behind(of: Job) -> bool:
        """Whether strict order is a reason why it waits."""
        why = explain_job(world.plane.live, world.cluster, of.id, world.clock.now())
        return ReasonCode.STRICT_ORDER in [each.code for each in why.reasons]

    assert (is_behind(first), is_behind(second)) == (False, True)
    reprioritise(world, second, 80)
    assert (is_behind(first), is_behind(second)) == (True, False)


def test_new_controller_knows_the_priority_and_so_do_readers_of_sql(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 1}, Runs(1000))
    runs, waits = world.submit(job("runs", tasks=2)), world.submit_session(lone())
    reprioritise(world, runs, 70)
    reprioritise(world, waits, 60)
    before = waiting_classes(world)
    world.restart_controller()
    assert waiting_classes(world) == before
    assert sorted(before.values()) == [60, 70]
    (held,) = world.cluster.groups["default"].placed.values()
    assert held.workload.priority == 70
    with world.store.engine.connect() as connection:
        assert read_job_detail(connection, ADA, runs.id).spec["priority"] == 70
        shown = read_session_detail(connection, ADA, waits.id)
        assert (shown.priority, shown.spec and shown.spec["priority"]) == (60, 60)


def test_only_its_owner_and_admins_change_a_priority(group_world: MakeWorld) -> None:
    runs = Runs()
    world = group_world({"a": 1}, runs)
    of = world.submit(job("adas")), world.submit_session(lone())
    for work in of:
        with pytest.raises(NotFound):
            reprioritise(world, work, 90, BOB)
        assert reprioritise(world, work, 90, ROOT) == 50


def test_session_of_a_job_has_the_priority_of_that(group_world: MakeWorld) -> None:
    runs = Runs()
    world = group_world({"a": 1}, runs)
    of = world.submit(job("runs"))
    with pytest.raises(Conflict, match=f"belongs to job {of.name}: change the priority of that"):
        reprioritise(world, world.only_session(), 90)


def test_work_that_is_handed_in_and_changed_in_one_wake_has_the_priority(
    group_world: MakeWorld,
) -> None:
    runs = Runs()
    world = group_world({}, runs)
    handed_in: list[Job] = []
    world.ask_together(
        lambda work, parts: handed_in.append(parts[JobRequests].submit(work, ADA, job("x"))),
        lambda work, parts: parts[JobRequests].reprioritise(work, ADA, handed_in[0].id, 80),
    )
    assert list(waiting_classes(world).values()) == [80]
    with world.store.engine.connect() as connection:
        assert read_job_detail(connection, ADA, handed_in[0].id).spec["priority"] == 80


@pytest.mark.usefixtures("strangers")
def test_plugin_that_sets_priorities_is_asked_again(group_world: MakeWorld) -> None:
    runs = Runs()
    world = group_world({"a": 1}, runs, hooks={"batch": "badge_hook"})
    world.submit(job("runs"))
    waits = world.submit(job("waits"))
    reprioritise(world, waits, 10)
    assert list(waiting_classes(world).values()) == [99]
