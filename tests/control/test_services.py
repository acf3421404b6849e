"""Services: kernels by which a machine is checked, with what they are about to themselves."""

import math

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld, cpus, under
from tests.control.world import ADA, ROOT, World

from muster.control.agent.requests import AgentRequests
from muster.control.group.requests import GroupRequests
from muster.control.session.explaining.explanation import explain_session
from muster.control.session.requests import SessionRequests
from muster.control.session.services import Services
from muster.core.errors import Conflict, InvalidSpec, NotFound
from muster.core.health.service import SERVICE_OWNER, Service, ServiceName, dump, load
from muster.core.health.verdict import CheckResult, unknown
from muster.core.owner import Owner, Principal, Role
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_kernels import Timeout
from muster.core.reasons.of_sessions import Cancelled
from muster.core.resources import GPU_WHOLE
from muster.core.specs import JobSpec, Level, QuotaSpec, SessionSpec, parse_spec
from muster.core.states import AgentBar, JobState, KernelStatus, SessionStatus
from muster.store.queries.listing import Listing
from muster.store.queries.sessions import list_sessions, read_session_detail
from muster.store.records import Session
from muster.wire.messages import Start

CHECK = Service(ServiceName.CHECK)
WHY = Cancelled(by="a test")
PENDING, RUNNING, SUCCEEDED = JobState.PENDING, JobState.RUNNING, JobState.SUCCEEDED


def on_gpus(*devices: int) -> Service:
    return Service(ServiceName.CHECK, devices)


def begin(world: World, name: str, service: Service) -> Session | Reason:
    id_ = world.agent(name).id
    begun: Session | Reason = world.ask(
        lambda work, parts: parts[Services].begin(work, work.live.agents[id_], service, "Test")
    )
    return begun


def begun(world: World, name: str, service: Service) -> Session:
    session = begin(world, name, service)
    assert isinstance(session, Session), session
    return session


def lasting(seconds: float, result: str | None = None) -> object:
    """A behaviour in which services take so long, and work takes a second."""

    def behaviour(start: Start) -> Run:
        if start.template.service is None:
            return Run()
        return Run(seconds, result=result)

    return behaviour


def job(gpus: int = 0, cpu: float = 1, **fields: object) -> JobSpec:
    return JobSpec.model_validate(
        {"command": ["x"], "resources": {"cpu": cpu, "gpu": gpus}, **fields}
    )


def again(world: World, session: Session) -> Session:
    """The session as the mirror has it now."""
    return world.plane.live.sessions[session.id]


def status_of(world: World, session: Session) -> str:
    with world.store.engine.connect() as connection:
        return read_session_detail(connection, ROOT, session.id).status


def test_a_check_runs_on_its_gpus_alone_and_leaves_its_result(worlds: MakeWorld) -> None:
    told = unknown("nvml", "the driver does not answer")
    world = worlds({"a": cpus(8)}, gpus={"a": 4}, behaviour=lasting(5, dump(told)))
    session = begun(world, "a", on_gpus(1, 2))
    assert session.status is SessionStatus.RUNNING
    assert session.service == on_gpus(1, 2)
    (kernel,) = session.kernels
    assert [(each.index, each.milli) for each in kernel.shares] == [(1, 1000), (2, 1000)]

    beside = world.submit(job(gpus=2))
    waits = world.submit(job(gpus=1))
    assert (beside.status, waits.status) == (RUNNING, PENDING)
    used = [each.shares for each in world.plane.live.ledger.values()]
    assert sorted(share.index for shares in used for share in shares) == [0, 1, 2, 3]

    world.run(8)

    assert status_of(world, session) == "TERMINATED"
    assert (kernel.exit_code, kernel.result) == (0, dump(told))
    assert load(kernel.result) == told
    assert (beside.status, waits.status) == (SUCCEEDED, SUCCEEDED)
    assert not world.plane.live.ledger


def test_a_result_is_stored_with_its_kernel(worlds: MakeWorld) -> None:
    world = worlds({"a": cpus(8)}, behaviour=lasting(1))
    session = begun(world, "a", CHECK)
    world.run(3)

    with world.store.engine.connect() as connection:
        stored = connection.exec_driver_sql("SELECT result FROM kernels").scalar_one()
    assert load(stored).result is CheckResult.HEALTHY
    assert load(stored) == load(session.kernels[0].result)


def test_a_result_of_work_is_nothing(worlds: MakeWorld) -> None:
    """An agent may say what it likes about kernels that are no services."""
    world = worlds({"a": cpus(8)})
    submitted = world.submit(job())
    (kernel,) = world.only_session().kernels
    world.run(3)
    assert submitted.status is SUCCEEDED
    assert kernel.result is None


def test_the_whole_machine_is_for_one_service_alone(worlds: MakeWorld) -> None:
    world = worlds({"a": cpus(8)}, gpus={"a": 2}, behaviour=lasting(5))
    begun(world, "a", CHECK)
    asks_for_nothing = world.submit(job(cpu=0))
    assert asks_for_nothing.status is PENDING
    assert isinstance(begin(world, "a", on_gpus(0)), Reason)

    world.run(8)
    assert asks_for_nothing.status is SUCCEEDED


def test_a_machine_without_gpus_is_for_one_service_alone(worlds: MakeWorld) -> None:
    world = worlds({"a": cpus(8)}, behaviour=lasting(5))
    begun(world, "a", CHECK)
    assert world.submit(job()).status is PENDING
    assert isinstance(begin(world, "a", CHECK), Reason)


def test_a_service_waits_until_nothing_holds_what_it_is_about(worlds: MakeWorld) -> None:
    world = worlds({"a": cpus(8)}, gpus={"a": 2}, behaviour=lambda start: Run(5))
    world.submit(job(gpus=1))
    (held,) = world.only_session().kernels[0].shares
    free = 1 - held.index

    for service in (CHECK, on_gpus(held.index), on_gpus(0, 1)):
        refused = begin(world, "a", service)
        assert isinstance(refused, Reason)
        assert refused.code is ReasonCode.HEALTH_WAITS_EMPTY
        assert refused.sentence() == "it would have to itself what 1 kernel of agent a still hold"
    assert [*world.plane.live.sessions] == [world.only_session().id]  # nothing was made
    begun(world, "a", on_gpus(free))
    world.run(7)
    begun(world, "a", CHECK)


def test_a_kernel_that_is_ending_holds_its_gpu_still(worlds: MakeWorld) -> None:
    world = worlds(
        {"a": cpus(8)},
        gpus={"a": 1},
        behaviour=lambda start: Run(50, stubborn=True, outlives_kill_s=math.inf),
    )
    submitted = world.submit(job(gpus=1))
    world.run(1)
    world.disconnect(world.agent("a"))
    world.ask(lambda work, parts: parts[SessionRequests])  # a wake
    refused = begin(world, "a", on_gpus(0))
    assert isinstance(refused, Reason)
    assert refused.code is ReasonCode.AGENT_NOT_ALIVE
    world.connect(world.agent("a"))
    assert submitted.status is RUNNING
    assert isinstance(begin(world, "a", on_gpus(0)), Reason)


def test_gpus_that_are_not_there_are_asked_for_and_not_charged(worlds: MakeWorld) -> None:
    world = worlds({"a": cpus(8)}, gpus={"a": 2}, behaviour=lasting(5))
    session = begun(world, "a", on_gpus(1, 7))
    assert [each.index for each in session.kernels[0].shares] == [1]
    assert session.service == on_gpus(1, 7)


def test_a_service_ignores_whether_its_agent_takes_work(worlds: MakeWorld) -> None:
    world = worlds({"a": cpus(8)}, behaviour=lasting(5))
    id_, bar = world.agent("a").id, AgentBar.CORDONED
    world.ask(lambda work, parts: parts[AgentRequests].bar(work, ROOT, id_, bar))
    assert world.submit(job()).status is PENDING
    assert begun(world, "a", CHECK).status is SessionStatus.RUNNING


def test_a_drain_does_not_end_a_service(worlds: MakeWorld) -> None:
    world = worlds({"a": cpus(8)}, behaviour=lasting(20))
    session = begun(world, "a", CHECK)
    id_, bar = world.agent("a").id, AgentBar.DRAINING
    world.ask(lambda work, parts: parts[AgentRequests].bar(work, ROOT, id_, bar, leave_within_s=2))
    world.run(10)
    assert session.status is SessionStatus.RUNNING


def test_a_service_goes_on_with_the_next_controller(worlds: MakeWorld) -> None:
    told = dump(unknown("disk", "nothing can be written"))
    world = worlds({"a": cpus(8)}, gpus={"a": 2}, behaviour=lasting(10, told))
    before = begun(world, "a", Service(ServiceName.CHECK, (1,), 3, ("disk",), why="an Xid"))
    world.run(2)

    world.restart_controller()

    session = again(world, before)
    assert session.service == before.service
    assert session.status is SessionStatus.RUNNING
    assert world.submit(job(gpus=2)).status is PENDING
    beside = world.submit(job(gpus=1))
    assert beside.status is RUNNING
    (kernel,) = session.kernels
    world.run(12)
    assert status_of(world, before) == "TERMINATED"
    assert kernel.result == told
    assert not world.plane.live.ledger


def test_the_whole_machine_stays_taken_with_the_next_controller(worlds: MakeWorld) -> None:
    world = worlds({"a": cpus(8)}, behaviour=lasting(10))
    begun(world, "a", CHECK)
    world.restart_controller()
    waits = world.submit(job())
    world.run(5)
    assert waits.status is PENDING
    world.run(8)
    assert waits.status is SUCCEEDED


def test_a_service_whose_agent_is_lost_ends_and_is_never_placed_anew(worlds: MakeWorld) -> None:
    world = worlds({"a": cpus(8), "b": cpus(8)}, behaviour=lasting(500))
    session = begun(world, "a", CHECK)
    world.disconnect(world.agent("a"))
    world.run_until(lambda: session.status is SessionStatus.TERMINATED, step_s=2)

    (kernel,) = session.kernels
    assert kernel.status is KernelStatus.ERROR
    assert kernel.generation == 0
    assert not world.plane.live.sessions
    assert not world.plane.live.ledger


def test_a_machine_that_reboots_ends_its_service(worlds: MakeWorld) -> None:
    world = worlds({"a": cpus(8)}, behaviour=lasting(500))
    session = begun(world, "a", Service(ServiceName.REBOOT))
    agent = world.agent("a")
    world.disconnect(agent)
    agent.reboot()
    world.connect(agent)
    assert session.kernels[0].reason is not None
    assert session.kernels[0].reason.code is ReasonCode.AGENT_REBOOTED
    world.run(2)
    assert session.status is SessionStatus.TERMINATED
    assert world.submit(job()).status is RUNNING


@pytest.mark.parametrize("answers", [True, False])
def test_a_service_that_cannot_start_ends(worlds: MakeWorld, answers: bool) -> None:
    def behaviour(start: Start) -> Run:
        if answers:
            return Run(create_failure=ReasonCode.DISK_FULL)
        return Run(creating_s=10_000)

    world = worlds({"a": cpus(8), "b": cpus(8)}, behaviour=behaviour)
    session = begun(world, "a", CHECK)
    world.run_until(lambda: session.status is SessionStatus.TERMINATED, 5_000, step_s=5)
    assert session.reason is not None
    assert session.kernels[0].generation == 0
    assert session.kernels[0].agent_id == world.agent("a").id


def test_a_service_that_takes_too_long_is_ended(worlds: MakeWorld) -> None:
    world = worlds({"a": cpus(8)}, behaviour=lasting(1000))
    session = begun(world, "a", Service(ServiceName.CHECK, timeout_s=30))
    world.run(40)
    assert session.status is SessionStatus.TERMINATED
    assert session.reason == Timeout(timeout_s=30.0)
    assert session.kernels[0].result is None


def test_a_service_is_stopped(worlds: MakeWorld) -> None:
    world = worlds({"a": cpus(8)}, behaviour=lasting(1000))
    session = begun(world, "a", CHECK)
    world.ask(lambda work, parts: parts[Services].stop(work, session, "Test", WHY))
    world.run(1)
    assert session.status is SessionStatus.TERMINATED
    assert not world.plane.live.ledger
    world.ask(lambda work, parts: parts[Services].stop(work, session, "Test", WHY))


def test_services_count_in_no_quota_and_no_usage(worlds: MakeWorld) -> None:
    world = worlds(
        {"a": cpus(8)},
        gpus={"a": 4},
        behaviour=lasting(50),
        group=under(sequencer="fair_share"),
    )
    nobody = QuotaSpec.model_validate({"level": "domain", "name": "*", "limits": {"gpu": 1}})
    world.ask(lambda work, parts: parts[GroupRequests].put_quota(work, nobody))
    session = begun(world, "a", on_gpus(0, 1))

    assert session.status is SessionStatus.RUNNING
    state = world.cluster.groups["default"]
    for level in Level:
        usage = world.cluster.accounting.usage.of((level, level.of(SERVICE_OWNER)))
        assert (usage.sessions, usage.pending, usage.amounts) == (0, 0, {})
    assert (state.waiting, [*state.placed]) == (0, [])
    assert world.submit(job(gpus=1)).status is RUNNING
    assert world.submit(job(gpus=1)).status is PENDING  # by the quota alone
    world.run(60)
    assert list(world.store.ended_usage("default", 0.0))
    owners = {span.owner for span in world.store.ended_usage("default", 0.0)}
    assert owners == {ADA.owner}


def test_a_prefilled_kernel_never_follows_a_service(worlds: MakeWorld) -> None:
    """Work may ask for exactly what a service holds, and must not inherit its room."""
    world = worlds({"a": cpus(8)}, gpus={"a": 2}, behaviour=lasting(3))
    begun(world, "a", on_gpus(0, 1))
    short = world.submit(job(gpus=2, cpu=0, tasks=6))
    for _ in range(60):
        world.run(0.1, 0.1)
        running = [row for row in world.plane.live.ledger.values() if row.charged]
        assert sum(share.milli for row in running for share in row.shares) <= 2 * GPU_WHOLE
    world.run(10)
    assert short.status is SUCCEEDED


def test_nobody_can_hand_a_service_in() -> None:
    written = {"kernels": [{"command": ["x"]}], "service": {"name": "reboot"}}
    with pytest.raises(InvalidSpec, match="service: unknown key"):
        parse_spec(SessionSpec, written)


def test_only_administrators_see_services(worlds: MakeWorld) -> None:
    world = worlds({"a": cpus(8)}, behaviour=lasting(50))
    session = begun(world, "a", CHECK)
    same_name = Principal(Owner("default", "machines", "health"), Role.USER)
    with world.store.engine.connect() as connection:
        seen = {
            who.owner.user: [
                each.id for each in list_sessions(connection, who, Listing(), of_jobs=True).items
            ]
            for who in (ROOT, ADA, same_name)
        }
    assert seen == {"root": [session.id], "ada": [], "health": []}


def test_a_service_has_no_priority_and_is_cancelled_by_administrators_alone(
    worlds: MakeWorld,
) -> None:
    world = worlds({"a": cpus(8)}, behaviour=lasting(50))
    session = begun(world, "a", CHECK)

    def asked(method: str, who: Principal, *more: int) -> None:
        world.ask(
            lambda work, parts: (
                parts[SessionRequests].cancel(work, who, session.id)
                if method == "cancel"
                else parts[SessionRequests].reprioritise(work, who, session.id, *more)
            )
        )

    with pytest.raises(Conflict, match="is a service of a machine"):
        asked("reprioritise", ROOT, 7)
    with pytest.raises(NotFound):
        asked("cancel", ADA)
    asked("cancel", ROOT)
    assert session.status is SessionStatus.TERMINATING or not world.plane.live.sessions


def test_why_tells_of_a_service_as_of_any_session(worlds: MakeWorld) -> None:
    world = worlds({"a": cpus(8)}, behaviour=lasting(50))
    session = begun(world, "a", CHECK)
    told = explain_session(world.plane.live, world.cluster, session.id, world.clock.now())
    assert told.status is SessionStatus.RUNNING


def test_what_an_old_agent_runs_is_harmless(worlds: MakeWorld) -> None:
    """An agent that knows no services runs the command of the template."""
    starts: list[Start] = []

    def behaviour(start: Start) -> Run:
        starts.append(start)
        return Run()

    world = worlds({"a": cpus(8)}, behaviour=behaviour)
    begun(world, "a", Service(ServiceName.REBOOT))
    (start,) = starts
    shell, option, line = start.template.command
    assert (shell, option) == ("/bin/sh", "-c")
    assert line.endswith("exit 69")
    assert "reboot" not in line
