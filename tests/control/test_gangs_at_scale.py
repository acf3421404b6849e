"""The controller's work for a gang grows with the gang, and not with its square."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from proving.hollow.supervisor import Run
from tests.control.driven_agent import attempt
from tests.control.world import ADA, World

import muster
from muster.control import put_off
from muster.control.engine import coordinator
from muster.control.job.requests import JobRequests
from muster.control.session.explaining.explanation import explain_session
from muster.control.session.requests import SessionRequests
from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.specs import JobSpec, SessionSpec
from muster.core.specs.amounts import ResourcesSpec
from muster.core.states import JOB_TABLE, JobState, SessionStatus, TaskState
from muster.store.records import Job, Session
from muster.wire.codec import encode_controller_message
from muster.wire.messages import Commands, Start

LARGE = Resources(cpu_milli=10**9, memory_bytes=2**50)
SOURCE = str(Path(muster.__file__).parent)
SMALL_GANG, TIMES = 250, 4
MOST = 1.2 * TIMES
"""How many times as much four times the kernels may cost: N log N, and what is constant."""


def gang(kernels: int, **more: object) -> SessionSpec:
    kernel = {"command": ["x"], "replicas": kernels, "resources": {"cpu": 0.001}, **more}
    return SessionSpec.model_validate({"kernels": [kernel]})


def lines_run(action: Callable[[], object]) -> int:
    """How many lines of the program are run: a measure of time that no other process changes."""
    lines = 0

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        return count if frame.f_code.co_filename.startswith(SOURCE) else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        action()
    finally:
        sys.settrace(before)
    return lines


def gang_of_which_no_start_arrived(
    path: Path, kernels: int, agents: int = 4
) -> tuple[World, Session]:
    path.mkdir()
    names = [f"node-{index}" for index in range(agents)]
    world = World(path, dict.fromkeys(names, LARGE), behaviour=lambda start: Run(10**6))
    for agent in world.agents.values():
        agent.loses = (Start,)
    session = world.submit_session(gang(kernels))
    assert session.status is SessionStatus.CREATING
    for agent in world.agents.values():
        agent.loses = ()
    return world, session


def hello_again(world: World) -> list[Start]:
    """All agents say Hello at once; the starts that they are sent."""
    for agent in world.agents.values():
        world.greet(agent)
    world.plane.step()
    starts = [command for message in sent(world) for command in message.commands]
    return [command for command in starts if isinstance(command, Start)]


def sent(world: World) -> list[Commands]:
    return [message for _, message in world.outgoing if isinstance(message, Commands)]


def test_environments_of_a_gang_are_as_long_as_the_gang_is_large(tmp_path: Path) -> None:
    sizes = []
    for kernels in (SMALL_GANG, SMALL_GANG * TIMES):
        world, _ = gang_of_which_no_start_arrived(tmp_path / str(kernels), kernels, 1)
        starts = hello_again(world)
        assert len(starts) == kernels
        assert len({id(start.template) for start in starts}) == 1
        sizes.append(encode_controller_message(Commands(tuple(starts))).ByteSize())
        world.close()
    assert sizes[1] < sizes[0] * MOST


def test_hello_with_a_gang_to_be_started_again_costs_as_much_as_the_gang_is_large(
    tmp_path: Path,
) -> None:
    costs = []
    for kernels in (SMALL_GANG, SMALL_GANG * TIMES):
        path = tmp_path / str(kernels)
        world, _ = gang_of_which_no_start_arrived(path, kernels, agents=kernels // 5)
        costs.append(lines_run(partial(hello_again, world)))
        assert sum(len(message.commands) for message in sent(world)) == kernels
        world.close()
    assert costs[1] < costs[0] * MOST


@pytest.mark.parametrize(("kernels", "listed"), [(400, True), (2000, False)])
def test_hosts_of_a_large_gang_are_in_a_file_of_its_first_kernel(
    tmp_path: Path, kernels: int, listed: bool
) -> None:
    world, session = gang_of_which_no_start_arrived(tmp_path / "world", kernels)
    starts = hello_again(world)
    assert len(starts) == kernels
    hosts = ["127.0.0.1"] * kernels
    if listed:
        assert {start.template.env["MUSTER_HOSTS"] for start in starts} == {",".join(hosts)}
        assert not any(start.template.files for start in starts)
    else:
        files = {start.env["RANK"]: start.template.files for start in starts}
        assert files.pop("0") == {"muster-hosts": "\n".join([*hosts, ""])}
        assert not any(files.values())
        assert not any("MUSTER_HOSTS" in start.template.env for start in starts)
    world.settle()
    assert session.status is SessionStatus.RUNNING
    world.close()


def life_of_a_session(world: World, kernels: int) -> None:
    """Each report comes in a wake of its own; in between the agent and the controller come anew."""
    session = world.submit_session(gang(kernels))
    assert session.status is SessionStatus.RUNNING
    live, cluster = world.plane.live, world.cluster
    assert explain_session(live, cluster, session.id, world.clock.now()).verdict
    world.connect(world.agent("a"))
    world.restart_controller()
    world.ask(lambda work, parts: parts[SessionRequests].cancel(work, ADA, session.id))
    assert session.id not in world.plane.live.sessions
    assert not world.plane.live.ledger


def life_of_a_job(world: World, kernels: int) -> None:
    """Its gang fails once, is tried again, and ends well."""
    world.behaviour = lambda start: Run(1, exit_code=int(attempt(start) == 1))
    spec = JobSpec(command=["x"], tasks=kernels, coscheduled=True, max_retries_failure=1)
    job = world.submit(spec.model_copy(update={"resources": ResourcesSpec(cpu=1)}))
    world.run_until(lambda: job.status in JOB_TABLE.terminal)
    assert (job.status, job.counts[TaskState.SUCCEEDED]) == (JobState.SUCCEEDED, kernels)


def life_of_a_gang_that_cannot_be_created(world: World, kernels: int) -> None:
    """All of its kernels fail; it goes back to the queue, and is cancelled there."""
    world.behaviour = lambda start: Run(create_failure=ReasonCode.DISK_FULL)
    session = world.submit_session(gang(kernels))
    world.run_until(lambda: session.reschedules > 0)
    world.ask(lambda work, parts: parts[SessionRequests].cancel(work, ADA, session.id))
    world.run(1)
    assert not world.plane.live.ledger


@pytest.mark.timeout(300)  # counting lines takes long
@pytest.mark.parametrize(
    "life", [life_of_a_session, life_of_a_job, life_of_a_gang_that_cannot_be_created]
)
def test_life_of_a_gang_costs_as_much_as_the_gang_is_large(
    tmp_path: Path, life: Callable[[World, int], None]
) -> None:
    costs = []
    for kernels in (SMALL_GANG, SMALL_GANG * TIMES):
        path = tmp_path / str(kernels)
        path.mkdir()
        world = World(path, {"a": LARGE}, behaviour=lambda start: Run(10**6))
        world.drips = True
        costs.append(lines_run(partial(life, world, kernels)))
        world.close()
    assert costs[1] < costs[0] * MOST


def test_large_gang_leaves_room_between_the_steps_of_its_life_for_the_requests_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are answered after the step that was under way when they asked."""
    for module in (coordinator, put_off):
        monkeypatch.setattr(module, "MAX_CHANGES", 100)
    world = World(tmp_path, {"a": LARGE}, behaviour=lambda start: Run(10**6))
    asked: list[Session] = []

    def submit(spec: SessionSpec) -> None:
        def answer(session: Session | None, error: Exception | None) -> None:
            assert session is not None
            asked.append(session)

        world.plane.ask(lambda work, parts: parts[SessionRequests].submit(work, ADA, spec), answer)

    submit(gang(500))
    statuses = []
    for steps in range(1, 9):
        submit(gang(1))
        world.plane.step()
        world._deliver()
        statuses.append(asked[0].status)
        assert len(asked) >= steps - 1, "at most one step without them"
    assert len(set(statuses)) > 2, "each step is a commit of its own"
    world.settle()
    assert {session.status for session in asked} == {SessionStatus.RUNNING}
    world.close()


def test_tasks_are_settled_with_the_session_that_ends_though_a_wake_makes_many_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next controller's mirror lacks sessions that ended: it would not settle their tasks."""
    for module in (coordinator, put_off):
        monkeypatch.setattr(module, "MAX_CHANGES", 1)
    world = World(tmp_path, {"a": Resources(cpu_milli=1000)}, behaviour=lambda start: Run(100))
    world.submit(JobSpec(command=["x"]))
    late = world.submit(JobSpec(command=["x"], scheduling_timeout=5))
    (session_id,) = (each.session_id for each in late.tasks.values())
    assert session_id is not None
    world.clock.advance(6)
    while session_id in world.plane.live.sessions:
        world.plane.step()
    world.restart_controller()
    world.run(1)
    assert late.id not in world.plane.live.jobs
    world.close()


def test_job_comes_up_in_many_wakes_though_tasks_of_it_end_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (coordinator, put_off):
        monkeypatch.setattr(module, "MAX_CHANGES", 100)
    tasks = 5_000
    world = World(tmp_path, {"a": LARGE}, behaviour=lambda start: Run(0.0))
    spec, asked = JobSpec(command=["x"], tasks=tasks), list[Job | Exception | None]()
    world.plane.ask(
        lambda work, parts: parts[JobRequests].submit(work, ADA, spec),
        lambda job, error: asked.append(job or error),
    )
    changes = []
    for _ in range(8):
        world.plane.step()
        changes.append(world.plane.changes)
        world._deliver()
        world.agent("a").tick()
    (job,) = asked
    assert isinstance(job, Job)
    assert job.counts[TaskState.SUCCEEDED], "some have ended"
    assert max(changes) < tasks, "a task is four rows: a wake brings up a few of them"
    world.close()


def test_handlers_go_on_in_the_next_wake_however_soon_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (coordinator, put_off):
        monkeypatch.setattr(module, "MAX_CHANGES", 1)
    world = World(tmp_path, {"a": LARGE}, behaviour=lambda start: Run(10**6))
    world.clock.advance(0.01)
    now, spec = world.clock.now(), JobSpec(command=["x"])
    world.plane.ask(lambda work, parts: parts[JobRequests].submit(work, ADA, spec), lambda *_: None)
    wakes = 1
    while world.plane.step() == now and wakes < 100:
        wakes += 1
    (session,) = world.plane.live.sessions.values()
    assert session.status is SessionStatus.CREATING
    assert 1 < wakes < 100, "the changes are too many for one wake"
    world.close()
