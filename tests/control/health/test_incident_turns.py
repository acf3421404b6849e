"""No more than a share of a group is out of work for its health at a time."""

from tests.control.health.conftest import MakeWard
from tests.control.health.ward import FAULTY, HANGS, WHY, Ward
from tests.control.world import ADA, state

from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.health.entity import name_of
from muster.control.health.lifecycle import IncidentLifecycle
from muster.control.health.limits import LAPSE_S, NO_TURN_S
from muster.control.job.requests import JobRequests
from muster.core.health.remedy import Remedy
from muster.core.health.service import ServiceName
from muster.core.ids import JobId
from muster.core.reasons import ReasonCode, reason
from muster.core.specs import JobSpec
from muster.core.states import JobState
from muster.core.states.health import HealthStatus
from muster.simulate.hollow.supervisor import Run
from muster.store import schema
from muster.store.records import Job

_H = HealthStatus
CHECK, REBOOT = ServiceName.CHECK, ServiceName.REBOOT
FIVE = [*"abcde"]
ALL_GPUS = JobSpec.model_validate({"command": ["train"], "resources": {"cpu": 1, "gpu": 2}})


def out(w: Ward) -> set[str]:
    """The machines that take no work."""
    return {agent.name for agent in w.world.plane.live.agents.values() if agent.ill}


def test_one_machine_of_five_is_out_at_a_time(ward: MakeWard) -> None:
    w = ward(FIVE)
    for name in FIVE:
        w.suspect(name)
    assert out(w) == {"a"}
    w.run(15)
    assert out(w) == {"b"}
    w.run(60)
    assert all(w.is_well(name) for name in FIVE)


def test_one_machine_may_be_out_however_small_the_share(ward: MakeWard) -> None:
    w = ward(["a"], max_unhealthy=0.0)
    w.suspect()
    assert out(w) == {"a"}


def test_confirmed_faults_come_first(ward: MakeWard) -> None:
    w = ward(FIVE)
    for name in "abc":
        w.suspect(name)
    w.suspect("d", confirmed=True)
    w.run(15)
    assert out(w) == {"d"}


def test_nothing_is_placed_on_a_machine_in_the_wake_that_suspects_it(ward: MakeWard) -> None:
    w = ward(["a", "b"])
    agent = w.world.agent("a").id

    def suspect(work: Work, parts: Parts) -> None:
        parts[IncidentLifecycle].suspect(work, work.live.agents[agent], "Test", WHY)

    def submit(work: Work, parts: Parts) -> Job:
        return parts[JobRequests].submit(work, ADA, ALL_GPUS)

    w.world.ask_together(suspect, submit, submit)
    assert out(w) == {"a"}
    assert w.done("a") == [CHECK]  # which would wait for work


def test_a_machine_that_waits_for_its_turn_takes_work(ward: MakeWard) -> None:
    w = ward(["a", "b"])
    w.plan("a", CHECK, Run(100.0))
    w.suspect("a")
    waiting = w.suspect("b")
    assert waiting is not None
    assert not waiting.is_out
    job = w.world.submit(ALL_GPUS)
    w.run(10)
    assert state(job) is JobState.SUCCEEDED
    assert w.done("b") == []
    c = schema.history.c
    rows = schema.history.select().where(
        c.entity == name_of(waiting.id, waiting.agent_id), c.result == "SKIPPED"
    )
    with w.world.store.engine.connect() as connection:
        told = [row.reasons for row in connection.execute(rows)]
    assert any(ReasonCode.HEALTH_WAITS_TURN in each for each in told)


def test_an_isolated_machine_keeps_its_turn(ward: MakeWard) -> None:
    w = ward(FIVE)
    w.suspect("a", remedy=Remedy.OPERATOR, confirmed=True)
    w.suspect("b")
    w.run(600)
    assert out(w) == {"a"}
    w.decide("return", "a")
    assert out(w) == {"b"}


def test_a_larger_share_gives_turns_at_once_within_a_minute(ward: MakeWard) -> None:
    from muster.control.group.requests import GroupRequests

    w = ward(FIVE)
    for name in "abc":
        w.plan(name, CHECK, Run(500.0))
        w.suspect(name)
    assert out(w) == {"a"}
    group = w.world.plane.live.groups["default"]
    assert group.health is not None
    health = group.health.model_copy(update={"max_unhealthy": 0.4})
    spec = group.model_copy(update={"health": health})
    w.world.ask(lambda work, parts: parts[GroupRequests].put_group(work, spec))
    w.run(61)
    assert out(w) == {"a", "b"}


def test_a_check_that_a_job_wants_needs_no_turn_and_its_heal_does(ward: MakeWard) -> None:
    w = ward(FIVE)
    for name in "abc":
        w.plan(name, CHECK, FAULTY)
        w.suspect(name, job=JobId("job-1"))
    assert out(w) == {"a", "b", "c"}
    w.run(15)
    healing = {name for name in "abc" if w.of(name).status is _H.REBOOTING}
    assert len(healing) == 1
    assert out(w) == healing
    assert all(w.of(name).confirmed for name in "abc")
    w.run(400)
    assert all(w.is_well(name) for name in FIVE)
    assert all(w.done(name) == [CHECK, REBOOT, CHECK] for name in "abc")


def test_a_job_that_wants_a_check_displaces_nobody_without_a_turn(ward: MakeWard) -> None:
    w = ward(["a", "b"], work=Run(5000.0), leave=60)
    w.decide("isolate", "b")
    others = w.world.submit(ALL_GPUS)
    w.suspect("a", job=JobId("job-1"))
    assert w.ill("a")
    w.run(300)
    assert state(others) is JobState.RUNNING
    assert len(w.world.agent("a").starts) == 1
    assert not w.ill("a")  # it waits for its turn
    w.decide("return", "b")
    w.run(120)
    assert w.done("a") == [CHECK]


def test_a_suspicion_that_nothing_confirms_lapses(ward: MakeWard) -> None:
    w = ward(["a", "b"])
    w.decide("isolate", "a")
    w.suspect("b")
    w.run(LAPSE_S + 120, 30.0)
    ended = w.last("b")
    assert ended is not None
    assert ended.status is _H.HEALTHY
    assert ended.reason is not None
    assert ended.reason.code is ReasonCode.HEALTH_LAPSED


def test_a_confirmed_fault_is_isolated_if_isolated_machines_hold_all_turns_for_a_day(
    ward: MakeWard,
) -> None:
    w = ward(["a", "b", "c"])
    w.decide("isolate", "a")
    w.suspect("b", confirmed=True)
    w.suspect("c", confirmed=True)
    w.run(NO_TURN_S - 60, 30.0)
    assert out(w) == {"a"}
    w.run(120, 30.0)
    assert out(w) == {"a", "b"}
    told = w.of("b").reason
    assert told is not None
    assert told.code is ReasonCode.HEALTH_NO_TURN
    w.run(NO_TURN_S - 120, 30.0)
    assert out(w) == {"a", "b"}  # so a wrong check takes one machine a day
    w.run(120, 30.0)
    assert out(w) == {"a", "b", "c"}


def test_a_confirmed_fault_waits_for_a_turn_that_comes_free(ward: MakeWard) -> None:
    w = ward(["a", "b", "c"])
    w.plan("b", CHECK, *[HANGS] * 3)
    w.decide("isolate", "a")
    w.decide("check", "b")  # an operator's check has a turn too
    w.suspect("c", confirmed=True)
    blocked = w.incidents.in_group("default").blocked_since
    w.decide("return", "b")
    assert blocked is None
    assert w.incidents.in_group("default").blocked_since is not None


def test_a_turn_outlives_a_check_that_found_out_nothing(ward: MakeWard) -> None:
    w = ward(["a", "b"], check_timeout=100)
    w.plan("a", CHECK, HANGS)
    w.suspect("a")
    w.suspect("b")
    w.run(180)
    assert w.of("a").progress.unknowns == 1
    assert out(w) == {"a"}


def test_no_work_leaves_because_a_task_of_others_failed(ward: MakeWard) -> None:
    w = ward(["a"], work=Run(5000.0), leave=60)
    others = w.world.submit(ALL_GPUS)
    w.suspect("a", reason(ReasonCode.HEALTH_TASK_FAILED), job=JobId("job-1"))
    w.run(59)
    assert w.ill("a")
    w.run(600)
    assert w.is_well("a")
    ended = w.last("a")
    assert ended is not None
    assert ended.reason is not None
    assert ended.reason.code is ReasonCode.HEALTH_LET_BE
    assert state(others) is JobState.RUNNING
    assert len(w.world.agent("a").starts) == 1


def test_work_that_came_before_its_turn_does_not_leave_because_a_task_failed(
    ward: MakeWard,
) -> None:
    w = ward(["a", "b"], work=Run(5000.0), leave=60)
    w.decide("isolate", "b")
    w.suspect("a", reason(ReasonCode.HEALTH_TASK_FAILED))
    others = w.world.submit(ALL_GPUS)
    w.run(5)
    w.decide("return", "b")
    w.run(600)
    assert w.is_well("a")
    assert state(others) is JobState.RUNNING
    assert len(w.world.agent("a").starts) == 1


def test_an_operator_has_work_leave_though_only_a_task_failed(ward: MakeWard) -> None:
    w = ward(["a"], work=Run(5000.0), leave=60)
    w.world.submit(ALL_GPUS)
    w.suspect("a", reason(ReasonCode.HEALTH_TASK_FAILED), job=JobId("job-1"))
    w.decide("check", "a")
    w.run(120)
    assert w.done("a") == [CHECK]
