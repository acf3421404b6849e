"""Reports that come again, late, in another order, or of what is not the agent's own."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from proving.hollow.supervisor import Behaviour, Run
from sqlalchemy import func, select
from tests.control.conftest import MakeWorld, under
from tests.control.world import World
from tests.databases import ON_BOTH

from muster.control.agent.desk import MAX_FOREIGN, MAX_IDLE, REPORTS_IN_ONE
from muster.control.engine.sweeps import SWEEP_S
from muster.core.ids import AgentId, KernelId
from muster.core.reasons import ReasonCode
from muster.core.resources import DeviceShare, Resources
from muster.core.specs import JobSpec, ResourcesSpec, ScalingGroup
from muster.core.states import JOB_TABLE, JobState, KernelStatus, SessionStatus
from muster.store import schema
from muster.store.records import Kernel
from muster.wire.messages import KernelReport, ReportKind, Reports, Start

pytestmark = ON_BOTH

ONE_CPU = Resources(cpu_milli=1000, memory_bytes=2**30)


@pytest.fixture
def make_world(worlds: MakeWorld) -> MakeWorld:
    def make(agents: str, behaviour: Behaviour, **policy: float) -> World:
        return worlds(dict.fromkeys(agents, ONE_CPU), group=under(**policy), behaviour=behaviour)

    return make


def only_kernel(world: World) -> Kernel:
    (kernel,) = world.plane.live.kernels.values()
    return kernel


@pytest.mark.parametrize("restarts", [True, False])
def test_failed_start_that_is_told_again_after_the_kernel_runs_changes_nothing(
    make_world: MakeWorld, restarts: bool
) -> None:
    failures = [ReasonCode.DISK_FULL]
    world = make_world(
        "a", lambda start: Run(create_failure=failures.pop()) if failures else Run(20.0)
    )
    job_id = world.submit(JobSpec(command=["x"])).id
    world.run_until(lambda: only_kernel(world).status is KernelStatus.RUNNING)
    if restarts:
        world.restart_controller()
    job, kernel = world.plane.live.jobs[job_id], only_kernel(world)
    agent, key = world.agent("a"), (kernel.id, kernel.generation)
    failed = KernelReport(*key, ReportKind.CREATE_FAILED, 0.0, reason=ReasonCode.DISK_FULL)
    begun = KernelReport(*key, ReportKind.STARTED, 0.0)

    for reports in ((failed, begun), (failed,)):  # whatever the acknowledgement did not reach
        world.desk.agent_said(agent.id, Reports(agent.acknowledged, reports))
        world.settle()
        assert kernel.session.status is SessionStatus.RUNNING
        assert key in world.plane.live.ledger
        assert key in agent.running
    world.run_until(lambda: job.status in JOB_TABLE.terminal)
    assert job.status is JobState.SUCCEEDED
    assert agent.starts == [key]


def test_failed_start_that_is_told_together_with_the_next_that_went_well_is_no_failure(
    make_world: MakeWorld,
) -> None:
    failures = [ReasonCode.DISK_FULL]

    def behaviour(start: Start) -> Run:
        if not failures:
            return Run(20.0)
        world.agent("a").online = False  # so that the failure is not heard yet
        return Run(create_failure=failures.pop())

    world = make_world("a", behaviour)
    world.submit(JobSpec(command=["x"]))
    agent = world.agent("a")
    before = replace(agent.hello(), kernels=())  # the start failed while this was on its way
    agent.hello = lambda: before  # type: ignore[method-assign]
    world.connect(agent)  # which has it started again

    kernel = only_kernel(world)
    assert kernel.session.status is SessionStatus.RUNNING
    assert (kernel.failure, kernel.session.retry_at) == (None, 0.0)
    history = schema.history
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        results = select(history.c.result).where(history.c.entity == kernel.session.id).distinct()
        assert connection.execute(results).scalars().all() == ["SUCCESS"]


def test_preparation_that_failed_and_then_went_well_is_forgotten_and_the_kernel_runs_once(
    make_world: MakeWorld,
) -> None:
    world = make_world("a", lambda start: Run(20.0), retry_backoff=60.0)
    agent = world.agent("a")
    agent.prepare_failures.append(ReasonCode.NO_PORTS)
    job = world.submit(JobSpec(command=["x"], ports=1))
    session = only_kernel(world).session
    assert session.retry_at > world.clock.now()
    world.connect(agent)  # which has it prepared again, before the backoff is over

    kernel = only_kernel(world)
    assert kernel.failure is None
    assert kernel.status is KernelStatus.RUNNING
    world.run_until(lambda: job.status in JOB_TABLE.terminal, 30.0)
    assert job.status is JobState.SUCCEEDED
    assert agent.starts == [(kernel.id, 0)]


@pytest.mark.parametrize("share", [DeviceShare(5, 500), DeviceShare(-1, 500), DeviceShare(1, -9)])
@pytest.mark.parametrize("selector", ["concentrated", "fragmentation"])
def test_devices_that_the_agent_does_not_have_are_not_believed(
    tmp_path: Path, share: DeviceShare, selector: str
) -> None:
    group = ScalingGroup(name="default", selector=selector, backlog_window=0)
    half = ResourcesSpec.model_validate({"cpu": 0.5, "gpu": 0.5})
    with closing(World(tmp_path, {"a": ONE_CPU}, gpus={"a": 2}, group=group)) as world:
        world.behaviour = lambda start: Run(20.0)
        world.submit(JobSpec(command=["x"], resources=half))
        agent, kernel = world.agent("a"), only_kernel(world)
        started = KernelReport(kernel.id, 0, ReportKind.STARTED, 0.0, shares=(share,))
        world.desk.agent_said(agent.id, Reports(agent.acknowledged, (started,)))
        world.settle()
        assert kernel.shares == (DeviceShare(0, 500),)
        columns = world.cluster.groups["default"].snapshot.columns
        assert columns.device_free.tolist() == [[500, 1000]]
        other = world.submit(JobSpec(command=["y"], resources=half))
        assert other.status is JobState.RUNNING


def test_devices_are_where_the_agent_says_if_it_has_them(tmp_path: Path) -> None:
    with closing(World(tmp_path, {"a": ONE_CPU}, gpus={"a": 2})) as world:
        world.behaviour = lambda start: Run(20.0)
        whole = ResourcesSpec.model_validate({"cpu": 0.5, "gpu": 1})
        world.submit(JobSpec(command=["x"], resources=whole))
        agent, kernel = world.agent("a"), only_kernel(world)
        share = DeviceShare(1, 1000)
        started = KernelReport(kernel.id, 0, ReportKind.STARTED, 0.0, shares=(share,))
        world.desk.agent_said(agent.id, Reports(agent.acknowledged, (started,)))
        world.settle()
        assert kernel.shares == (share,)
        columns = world.cluster.groups["default"].snapshot.columns
        assert columns.device_free.tolist() == [[1000, 0]]


def foreign_notes(world: World, agent: AgentId) -> int:
    """How often it is on record that the agent told of kernels that are not its own."""
    history = schema.history
    with world.store.engine.connect().execution_options(readonly=True) as connection:
        rows = select(func.count()).where(
            history.c.entity == agent, history.c.reasons.contains(ReasonCode.FOREIGN_REPORT)
        )
        return connection.execute(rows).scalar_one()


def test_report_of_another_agents_kernel_is_refused_and_noted_once_a_connection(
    make_world: MakeWorld,
) -> None:
    world = make_world("ab", lambda start: Run(20.0))
    job = world.submit(JobSpec(command=["x"]))
    kernel = only_kernel(world)
    (liar,) = [agent for agent in world.agents.values() if agent.id != kernel.agent_id]
    ended = KernelReport(kernel.id, 0, ReportKind.ENDED, 0.0, exit_code=1)

    for connections in (1, 2):
        for _ in range(3):
            world.desk.agent_said(liar.id, Reports(liar.acknowledged, (ended, ended)))
            world.settle()
        assert foreign_notes(world, liar.id) == connections
        assert kernel.session.status is SessionStatus.RUNNING
        world.connect(liar)
    world.run_until(lambda: job.status in JOB_TABLE.terminal)
    assert job.status is JobState.SUCCEEDED


def test_agent_that_reports_kernels_of_others_without_end_is_not_heard_for_a_while(
    make_world: MakeWorld,
) -> None:
    world = make_world("ab", lambda start: Run(20.0))
    world.submit(JobSpec(command=["x"]))
    kernel = only_kernel(world)
    (liar,) = [agent for agent in world.agents.values() if agent.id != kernel.agent_id]
    ended = KernelReport(kernel.id, 0, ReportKind.ENDED, 0.0, exit_code=1)
    world.desk.agent_said(liar.id, Reports(MAX_FOREIGN, (ended,) * MAX_FOREIGN))
    world.settle()
    assert world.closed == []
    world.desk.agent_said(liar.id, Reports(5_000, (ended,) * 5_000))
    world.settle()
    (agent, why), *_ = world.closed
    assert agent == liar.id
    assert "kernels of other agents" in why
    assert world.plane.live.agents[liar.id].foreign_reports <= MAX_FOREIGN + REPORTS_IN_ONE
    assert kernel.session.status is SessionStatus.RUNNING


def test_agent_whose_reports_say_nothing_new_is_not_heard_for_a_while(
    make_world: MakeWorld,
) -> None:
    world = make_world("a", lambda start: Run(20.0))
    agent = world.agent("a")
    nobodys = KernelReport(KernelId("krn-nobodys"), 0, ReportKind.ENDED, 0.0, exit_code=1)
    for _ in range(MAX_IDLE // 1_000):
        world.desk.agent_said(agent.id, Reports(1_000, (nobodys,) * 1_000))
        world.settle()
    assert world.closed == []
    world.desk.agent_said(agent.id, Reports(1_000, (nobodys,) * 1_000))
    world.settle()
    assert {id_ for id_, _ in world.closed} == {agent.id}


def test_agent_whose_reports_said_nothing_new_is_forgotten_after_a_while(
    make_world: MakeWorld,
) -> None:
    world = make_world("a", lambda start: Run(20.0))
    agent = world.agent("a")
    nobodys = KernelReport(KernelId("krn-nobodys"), 0, ReportKind.ENDED, 0.0, exit_code=1)
    world.desk.agent_said(agent.id, Reports(1, (nobodys,)))
    world.settle()
    assert len(world.desk._idle_reports) == 1
    world.run(2 * SWEEP_S, step_s=5.0)
    assert len(world.desk._idle_reports) == 0


def test_end_says_what_else_the_agent_tells_of_it(make_world: MakeWorld) -> None:
    world = make_world("a", lambda start: Run(20.0))
    job = world.submit(JobSpec(command=["x"]))
    world.run_until(lambda: only_kernel(world).status is KernelStatus.RUNNING)
    kernel, agent = only_kernel(world), world.agent("a")
    key = (kernel.id, kernel.generation)
    told = "Xid 31 on GPU 0, page fault of GPU memory"
    ended = KernelReport(
        *key, ReportKind.ENDED, 1.0, exit_code=1, reason=ReasonCode.EXITED, detail=told
    )
    world.desk.agent_said(agent.id, Reports(agent.acknowledged + 1, (ended,)))
    world.settle()
    assert job.status is JobState.FAILED
    assert job.reason is not None
    assert f"exited with code 1: {told}" in job.reason.sentence()
