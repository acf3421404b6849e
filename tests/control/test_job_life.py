"""A job's whole life on the real control plane, without a process or a second passing."""

import re

from proving.hollow.supervisor import Run
from sqlalchemy import select
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import attempt, kernel_index, task_index
from tests.control.world import ADA, World
from tests.databases import ON_BOTH

from muster.control.job.explanation import explain_job
from muster.control.job.requests import JobRequests
from muster.control.modules import cluster_entities
from muster.core.reasons import ReasonCode
from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.states import JobState, SessionStatus, TaskState
from muster.store import schema
from muster.store.load import load_live
from muster.wire.messages import Start

pytestmark = ON_BOTH

CPU = Resources(cpu_milli=2000, memory_bytes=2**30)


def task_rows(world: World, job_id: str) -> list[tuple[str, int, int | None]]:
    """(state, attempt, exit code) of each task, from SQL."""
    tasks = schema.tasks
    with world.store.engine.connect() as connection:
        found = connection.execute(
            select(tasks.c.status, tasks.c.attempt, tasks.c.exit_code)
            .where(tasks.c.job_id == job_id)
            .order_by(tasks.c.idx)
        ).all()
    return [(row.status, row.attempt, row.exit_code) for row in found]


def history(world: World, entity: str) -> list[tuple[str | None, str, str]]:
    table = schema.history
    with world.store.engine.connect() as connection:
        found = connection.execute(
            select(table.c.from_status, table.c.to_status, table.c.result)
            .where(table.c.entity == entity)
            .order_by(table.c.seq)
        ).all()
    return [(row.from_status, row.to_status, row.result) for row in found]


def test_job_of_one_task_runs_through_every_status_in_the_order_of_the_reference(
    worlds: MakeWorld,
) -> None:
    world = worlds({"a": CPU})
    job = world.submit(JobSpec(command=["true"]))
    session = next(iter(world.plane.live.sessions.values()))
    world.run(2)

    assert job.status is JobState.SUCCEEDED
    passed = [to for _, to, _ in history(world, session.id)]
    assert passed == [
        SessionStatus.SCHEDULED,
        SessionStatus.PREPARING,
        SessionStatus.PREPARED,
        SessionStatus.CREATING,
        SessionStatus.RUNNING,
        SessionStatus.TERMINATING,
        SessionStatus.TERMINATED,
    ]
    assert task_rows(world, job.id) == [("SUCCEEDED", 1, 0)]
    assert not world.plane.live.ledger
    assert not world.plane.live.sessions
    assert not world.plane.live.jobs


def test_job_with_a_retry_fails_once_and_succeeds(worlds: MakeWorld) -> None:
    world = worlds(
        {"a": CPU}, behaviour=lambda start: Run(exit_code=1 if attempt(start) == 1 else 0)
    )
    job = world.submit(JobSpec(command=["flaky"], max_retries_failure=1))
    world.run(5)

    assert job.status is JobState.SUCCEEDED
    assert task_rows(world, job.id) == [("SUCCEEDED", 2, 0)]
    assert [result for *_, result in history(world, f"{job.id}/0")] == ["NEED_RETRY"]


def test_job_fails_once_its_failure_budget_is_spent(worlds: MakeWorld) -> None:
    world = worlds({"a": CPU}, behaviour=lambda start: Run(exit_code=3))
    job = world.submit(JobSpec(command=["bad"], max_retries_failure=2))
    world.run(10)

    assert job.status is JobState.FAILED
    assert job.reason is not None
    assert job.reason.sentence() == "exited with code 3"
    assert task_rows(world, job.id) == [("FAILED", 3, 3)]


def test_job_whose_only_task_fails_has_failed_whatever_it_tolerates(worlds: MakeWorld) -> None:
    world = worlds({"a": CPU}, behaviour=lambda start: Run(exit_code=3))
    job = world.submit(JobSpec(command=["bad"], max_task_failures=1))
    world.run(5)

    assert job.status is JobState.FAILED
    assert job.reason is not None
    assert job.reason.sentence() == "exited with code 3"


def test_failure_beyond_tolerance_kills_the_tasks_that_are_left(worlds: MakeWorld) -> None:
    world = worlds(
        {"a": CPU},
        behaviour=lambda start: Run(seconds=1 if task_index(start) == 0 else 60, exit_code=1),
    )
    job = world.submit(JobSpec(command=["x"], tasks=4))
    world.run(5)

    assert job.status is JobState.FAILED
    assert [state for state, *_ in task_rows(world, job.id)] == ["FAILED"] + ["KILLED"] * 3
    assert not world.plane.live.ledger


def test_many_short_tasks_pass_through_the_backlog_without_going_over_capacity(
    worlds: MakeWorld,
) -> None:
    world = worlds({"a": CPU}, behaviour=lambda start: Run(seconds=0.01))
    job = world.submit(JobSpec(command=["true"], tasks=500))
    most = 0
    while job.status in (JobState.PENDING, JobState.RUNNING):
        world.run(0.01, step_s=0.01)
        most = max(most, len(world.agent("a").running))
    assert most == 2
    assert job.status is JobState.SUCCEEDED
    assert len(world.agent("a").starts) == len(set(world.agent("a").starts)) == 500
    assert not world.plane.live.ledger


def test_gang_waits_for_room_for_all_and_gets_ranks_and_an_address(worlds: MakeWorld) -> None:
    envs: list[dict[str, str]] = []

    def note(start: Start) -> Run:
        envs.append({**start.template.env, **start.env})
        return Run()

    world = worlds({"a": CPU}, behaviour=note)
    job = world.submit(JobSpec(command=["train"], tasks=4, coscheduled=True))
    world.run(2)
    assert not envs
    assert [state for state, *_ in task_rows(world, job.id)] == ["PENDING"] * 4

    world.add_agent("b", CPU)
    world.run(3)
    assert job.status is JobState.SUCCEEDED
    assert sorted(env["RANK"] for env in envs) == ["0", "1", "2", "3"]
    assert {env["WORLD_SIZE"] for env in envs} == {"4"}
    assert {env["MASTER_PORT"] for env in envs} == {"20000"}
    assert sorted(env["LOCAL_RANK"] for env in envs) == ["0", "0", "1", "1"]


def test_gang_with_a_failing_task_is_requeued_whole_and_only_that_task_is_charged(
    worlds: MakeWorld,
) -> None:
    world = worlds(
        {"a": CPU, "b": CPU},
        behaviour=lambda start: Run(
            seconds=1 if task_index(start) == 2 else 5,
            exit_code=1 if task_index(start) == 2 and attempt(start) == 1 else 0,
        ),
    )
    job = world.submit(JobSpec(command=["x"], tasks=4, coscheduled=True, max_retries_failure=1))
    world.run(1.5)
    world.run(20)

    assert job.status is JobState.SUCCEEDED
    assert task_rows(world, job.id) == [("SUCCEEDED", 2, 0)] * 4
    with world.store.engine.connect() as connection:
        counts = connection.execute(
            select(schema.tasks.c.failure_count).order_by(schema.tasks.c.idx)
        ).scalars()
        assert list(counts) == [0, 0, 1, 0]


def test_gang_whose_task_fails_for_good_ends_its_siblings_as_worker_failed(
    worlds: MakeWorld,
) -> None:
    world = worlds(
        {"a": CPU, "b": CPU},
        behaviour=lambda start: Run(
            seconds=1 if task_index(start) == 2 else 50, exit_code=int(task_index(start) == 2)
        ),
    )
    job = world.submit(JobSpec(command=["x"], tasks=4, coscheduled=True))
    world.run(10)

    assert job.status is JobState.FAILED
    assert [state for state, *_ in task_rows(world, job.id)] == [
        "WORKER_FAILED",
        "WORKER_FAILED",
        "FAILED",
        "WORKER_FAILED",
    ]


def test_cancelled_job_is_killed_and_its_processes_stopped(worlds: MakeWorld) -> None:
    world = worlds({"a": CPU}, behaviour=lambda start: Run(seconds=100))
    job = world.submit(JobSpec(command=["x"], tasks=10))
    world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, job.id))
    world.run(1)
    assert job.status is JobState.KILLED
    assert job.reason is not None
    assert job.reason.code is ReasonCode.CANCELLED
    assert not world.agent("a").running
    assert not world.plane.live.ledger


def test_task_that_runs_past_its_timeout_is_killed(worlds: MakeWorld) -> None:
    world = worlds({"a": CPU}, behaviour=lambda start: Run(seconds=100))
    job = world.submit(JobSpec(command=["x"], timeout=5))
    world.run(10)
    assert job.status is JobState.KILLED
    assert task_rows(world, job.id)[0][0] == TaskState.KILLED
    assert job.reason is not None
    assert job.reason.code is ReasonCode.TIMEOUT


def test_job_without_room_within_its_scheduling_timeout_is_unschedulable(
    worlds: MakeWorld,
) -> None:
    world = worlds({"a": CPU})
    spec = {"command": ["x"], "resources": {"cpu": 4}, "scheduling_timeout": 5}
    job = world.submit(JobSpec.model_validate(spec))
    world.run(10)
    assert job.status is JobState.UNSCHEDULABLE
    assert task_rows(world, job.id)[0][0] == TaskState.UNSCHEDULABLE


def test_kernel_that_an_agent_cannot_create_moves_to_another_agent(worlds: MakeWorld) -> None:
    world = worlds({"a": CPU, "b": CPU})
    bad = world.agent("a")
    bad.behaviour = lambda start: Run(create_failure=ReasonCode.DISK_FULL)
    job = world.submit(JobSpec(command=["x"]))
    world.run(30)
    assert job.status is JobState.SUCCEEDED
    assert not bad.starts
    assert len(world.agent("b").starts) == 1


def test_agent_that_falls_silent_is_lost_after_the_lease_and_its_task_runs_elsewhere(
    worlds: MakeWorld,
) -> None:
    world = worlds({"a": CPU}, behaviour=lambda start: Run(seconds=50))
    job = world.submit(JobSpec(command=["x"]))
    world.run(2)
    lost = world.agent("a")
    lost.online = False
    other = world.add_agent("b", CPU)
    world.run(100)
    assert not other.starts, "an unreachable agent is not a failed one"
    world.run(250)
    assert len(other.starts) == 1
    world.run(60)
    assert job.status is JobState.SUCCEEDED
    assert task_rows(world, job.id) == [("SUCCEEDED", 2, 0)]


def test_rebooted_agent_loses_its_kernels_at_once(worlds: MakeWorld) -> None:
    world = worlds({"a": CPU}, behaviour=lambda start: Run(seconds=10))
    job = world.submit(JobSpec(command=["x"]))
    world.run(2)
    agent = world.agent("a")
    agent.reboot()
    world.connect(agent)
    world.run(15)
    assert job.status is JobState.SUCCEEDED
    assert task_rows(world, job.id) == [("SUCCEEDED", 2, 0)]


def test_task_that_ended_before_its_machine_rebooted_is_not_lost(worlds: MakeWorld) -> None:
    world = worlds({"a": CPU}, behaviour=lambda start: Run(seconds=3))
    job = world.submit(JobSpec(command=["x"]))
    world.run(2)
    agent = world.agent("a")
    agent.online = False  # so that nobody hears of the end
    world.run(2)
    agent.reboot()
    world.connect(agent)
    world.run(1)
    assert job.status is JobState.SUCCEEDED
    assert task_rows(world, job.id) == [("SUCCEEDED", 1, 0)]
    assert not world.plane.live.ledger


def test_room_of_an_end_that_a_reboot_outlived_is_given_back_by_its_report_or_the_next_reboot(
    worlds: MakeWorld,
) -> None:
    world = worlds({"a": CPU}, behaviour=lambda start: Run(seconds=3))
    job = world.submit(JobSpec(command=["x"]))
    world.run(2)
    agent = world.agent("a")
    agent.online = False
    world.run(2)
    agent.reboot()
    world.greet(agent)  # which says that it has ended; its report is still under way
    world.wake()
    with world.store.engine.connect() as connection:
        stored = load_live(connection, cluster_entities())
    assert [row.boot_id for row in stored.ledger.values()] == [agent.machine.boot_id]
    assert task_rows(world, job.id) == [("RUNNING", 1, None)]

    agent.reboot(keeps_disk=False)  # and is lost
    world.connect(agent)
    world.run(15)
    assert task_rows(world, job.id) == [("SUCCEEDED", 2, 0)]
    assert not world.plane.live.ledger


def test_controller_killed_at_any_step_loses_nothing_and_runs_nothing_twice(
    worlds: MakeWorld,
) -> None:
    world = worlds({"a": CPU, "b": CPU}, behaviour=lambda start: Run(seconds=0.7))
    job_id = world.submit(JobSpec(command=["x"], tasks=60)).id
    for _ in range(40):
        world.run(0.6, step_s=0.3)
        world.restart_controller()
    world.run(60)
    assert [state for state, *_ in task_rows(world, job_id)] == ["SUCCEEDED"] * 60
    starts = [key for agent in world.agents.values() for key in agent.starts]
    assert len(starts) == len(set(starts)) == 60
    assert not world.plane.live.ledger


def test_mirror_equals_what_is_read_from_sql(worlds: MakeWorld) -> None:
    world = worlds({"a": CPU}, behaviour=lambda start: Run(seconds=3))
    world.submit(JobSpec(command=["x"], tasks=7))
    world.run(4)
    with world.store.engine.connect() as connection:
        stored = load_live(connection, cluster_entities())
    live = world.plane.live
    assert {k: s.status for k, s in stored.sessions.items()} == {
        k: s.status for k, s in live.sessions.items()
    }
    assert {k: (r.charged, r.agent_id) for k, r in stored.ledger.items()} == {
        k: (r.charged, r.agent_id) for k, r in live.ledger.items()
    }
    assert {k: j.counts for k, j in stored.jobs.items()} == {
        k: j.counts for k, j in live.jobs.items()
    }


def test_agent_that_has_not_said_hello_since_the_controller_restarted_gets_nothing(
    worlds: MakeWorld,
) -> None:
    world = worlds({"a": CPU, "b": CPU})
    gone = world.agent("a")
    gone.online = False
    world.restart_controller()
    job = world.submit(JobSpec(command=["x"], tasks=3))
    world.run(5)
    assert job.finished_at is not None
    assert not gone.starts


def test_agent_whose_stream_ended_gets_nothing_until_it_says_hello(worlds: MakeWorld) -> None:
    world = worlds({"a": CPU})
    agent = world.agent("a")
    world.desk.agent_left(agent.id)
    job = world.submit(JobSpec(command=["x"]))
    world.run(5)
    assert job.started_at is None
    world.connect(agent)
    world.run(5)
    assert job.finished_at is not None


def test_start_that_was_delivered_before_a_long_downtime_does_not_run_twice(
    worlds: MakeWorld,
) -> None:
    world = worlds({"a": CPU, "b": CPU}, behaviour=lambda start: Run(seconds=1))
    job = world.submit(JobSpec(command=["x"]))
    world.clock.advance(135)  # nobody listened for longer than create_timeout
    for agent in world.agents.values():
        agent.tick()
    world.restart_controller()
    world.run(5)
    assert [key[1] for agent in world.agents.values() for key in agent.starts] == [0]
    assert task_rows(world, job.id) == [("SUCCEEDED", 1, 0)]


def test_end_that_could_not_be_told_in_time_keeps_its_exit_code(worlds: MakeWorld) -> None:
    world = worlds({"a": CPU}, behaviour=lambda start: Run(seconds=30, exit_code=7))
    job = world.submit(JobSpec(command=["x"], timeout=60))
    world.run(2)
    agent = world.agent("a")
    world.disconnect(agent)
    world.run(200)
    world.connect(agent)
    world.run(5)
    assert task_rows(world, job.id) == [("FAILED", 1, 7)], "it failed before its time was over"
    assert job.status is JobState.FAILED


def test_gang_that_loses_a_machine_charges_that_and_not_who_failed_of_it(
    worlds: MakeWorld,
) -> None:
    world = worlds(
        {"a": Resources(cpu_milli=1000), "b": Resources(cpu_milli=1000)},
        behaviour=lambda start: Run(seconds=500),
    )
    job = world.submit(JobSpec(command=["x"], tasks=2, coscheduled=True))
    world.run(2)
    first, second = world.agents.values()
    starts = [kernel.start for kernel in first.running.values()]
    lost, other = (first, second) if kernel_index(starts[0]) == 0 else (second, first)
    world.disconnect(lost)
    world.run(3)
    (key,) = other.running
    other.supervisor.end_process(key, 1)
    world.run(400)
    counts = {
        task.index: (task.failure_count, task.preemption_count) for task in job.tasks.values()
    }
    assert job.status in (JobState.PENDING, JobState.RUNNING)
    assert counts == {0: (0, 1), 1: (0, 0)}


def test_why_counts_from_the_present_attempts_of_a_job_that_has_begun_anew(
    worlds: MakeWorld,
) -> None:
    world = worlds({"a": CPU}, behaviour=lambda start: Run(1e9))
    job = world.submit(JobSpec(command=["x"], name="long", tasks=2))
    world.run(500.0)
    world.agent("a").reboot()
    world.connect(world.agent("a"))
    world.run_until(lambda: job.counts.get(TaskState.RUNNING) == 2)
    world.run(7.0)
    why = explain_job(world.plane.live, world.cluster, job.id, world.clock.now())
    assert re.fullmatch(r"long has run for (7|7\.5|8)s on a", why.details[0])
