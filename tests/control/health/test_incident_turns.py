"""No more than a share of a group is out of work for its health at a time."""

import pytest
from proving.hollow.supervisor import Run
from tests.control.health.conftest import MakeWard
from tests.control.health.ward import FAULTY, HANGS, UNKNOWN, WHY, Ward
from tests.control.world import ADA, state

from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.health.entity import name_of
from muster.control.health.lifecycle import IncidentLifecycle
from muster.control.health.limits import EMPTY_S, LAPSE_S
from muster.control.job.requests import JobRequests
from muster.core.health.remedy import Remedy
from muster.core.health.service import ServiceName
from muster.core.ids import JobId
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_health import HealthFaultSeen, HealthTaskFailed
from muster.core.specs import JobSpec
from muster.core.states import JobState
from muster.core.states.health import HealthStatus
from muster.store import schema
from muster.store.records import Job

_H = HealthStatus
CHECK, REBOOT = ServiceName.CHECK, ServiceName.REBOOT
FIVE = [*"abcde"]
ALL_GPUS = JobSpec.model_validate({"command": ["train"], "resources": {"cpu": 1, "gpu": 2}})


LONG = Run(5000.0)


def out(w: Ward) -> set[str]:
    """The machines that take no work."""
    return {agent.name for agent in w.world.plane.live.agents.values() if agent.ill}


def having_turns(w: Ward) -> set[str]:
    return {each.agent for each in w.incidents if each.has_turn}


def at_work(w: Ward) -> set[str]:
    """The machines on which work has room."""
    live = w.world.plane.live
    held = [live.kernels[row.kernel_id] for row in live.ledger.values()]
    agents = [each.agent_id for each in held if each.session.service is None]
    return {live.agents[each].name for each in agents if each is not None}


def work_on(w: Ward, *names: str, gpus: int = 2) -> dict[str, Job]:
    """Work that each of these machines has from now on."""
    jobs = {}
    for name in names:
        resources = {"cpu": 1, "gpu": gpus}
        placement = {"agents": [name], "agents_only": True}
        keys = {"command": ["train"], "resources": resources, "placement": placement}
        jobs[name] = w.world.submit(JobSpec.model_validate(keys))
    return jobs


def test_one_machine_of_five_is_emptied_at_a_time(ward: MakeWard) -> None:
    w = ward(FIVE, work=LONG, leave=5)
    work_on(w, *FIVE)
    for name in FIVE:
        w.suspect(name)
    assert out(w) == {"a"}
    w.run(12)
    assert out(w) == {"a"}
    assert at_work(w) == set("bcde")
    w.run(6)
    assert out(w) == {"b"}
    w.run(80)
    assert all(w.is_well(name) for name in FIVE)


def test_turn_that_further_machines_make_room_for_is_given_once_they_are_there(
    ward: MakeWard,
) -> None:
    w = ward(["a", "b"], work=LONG, max_unhealthy=0.5)
    work_on(w, "a", "b")
    w.suspect("a")
    w.suspect("b")
    assert len(having_turns(w)) == 1
    w.join("c")
    w.join("d")
    w.run(1)
    assert having_turns(w) == {"a", "b"}


def test_one_machine_may_be_emptied_however_small_the_share(ward: MakeWard) -> None:
    w = ward(["a"], work=LONG, max_unhealthy=0.0)
    work_on(w, "a")
    w.suspect()
    assert out(w) == {"a"}


def test_as_many_idle_machines_as_have_turns_are_checked_without_one(ward: MakeWard) -> None:
    w = ward(FIVE)
    for name in FIVE:
        w.suspect(name)
    assert len(out(w)) == 2
    w.run(35)
    assert all(w.is_well(name) for name in FIVE)
    assert all(w.done(name) == [CHECK] for name in FIVE)


def test_a_check_of_idle_devices_needs_no_turn(ward: MakeWard) -> None:
    w = ward(["a", "b"], work=LONG)
    jobs = work_on(w, "a", gpus=1) | work_on(w, "b")
    w.plan("b", CHECK, HANGS)
    w.suspect("b")
    (used,) = (
        share.index
        for row in w.world.plane.live.ledger.values()
        for share in row.shares[:1]
        if row.agent_id == w.world.agent("a").id
    )
    w.suspect("a", devices=[1 - used])
    w.run(11)
    assert w.done("a") == [CHECK]
    assert w.is_well("a")
    assert state(jobs["a"]) is JobState.RUNNING


def test_a_machine_is_checked_once_its_work_has_ended_though_no_turn_is_free(
    ward: MakeWard,
) -> None:
    w = ward(["a", "b"], work=Run(30.0))
    holds_the_turn(w, "b")
    jobs = work_on(w, "a")
    w.suspect("a")
    waiting = work_on(w, "a")
    w.run(28)
    assert w.done("a") == []
    w.run(5)
    assert state(jobs["a"]) is JobState.SUCCEEDED
    assert w.done("a") == [CHECK]
    assert state(waiting["a"]) is JobState.PENDING
    w.run(10)
    assert w.is_well("a")
    assert state(waiting["a"]) is JobState.RUNNING


def holds_the_turn(w: Ward, name: str) -> None:
    """Have the checks of a machine hang, for whose sake it keeps a turn."""
    w.plan(name, CHECK, *[HANGS] * 9)
    w.decide("check", name)
    assert having_turns(w) == {name}


def test_confirmed_faults_come_first(ward: MakeWard) -> None:
    w = ward(FIVE, work=LONG, leave=5)
    work_on(w, *FIVE)
    for name in "abc":
        w.suspect(name)
    w.suspect("d", confirmed=True)
    assert having_turns(w) == {"a"}
    w.run(18)
    assert having_turns(w) == {"d"}


def test_a_faulty_machine_that_waits_for_its_turn_takes_no_work_and_keeps_what_it_has(
    ward: MakeWard,
) -> None:
    w = ward(["a", "b"], work=LONG)
    holds_the_turn(w, "b")
    (running,) = work_on(w, "a", gpus=1).values()
    w.suspect("a", confirmed=True)
    assert out(w) == {"a", "b"}
    (waiting,) = work_on(w, "a", gpus=1).values()
    w.run(300)
    assert state(running) is JobState.RUNNING
    assert state(waiting) is JobState.PENDING
    w.world.restart_controller()
    w.run(5)
    assert out(w) == {"a", "b"}
    assert len(w.world.agent("a").running) == 1


def test_a_machine_that_counts_as_faulty_for_being_unknown_takes_no_work_either(
    ward: MakeWard,
) -> None:
    w = ward(FIVE, unknowns=1)
    holds_the_turn(w, "b")
    w.plan("a", CHECK, UNKNOWN)
    w.suspect("a")
    w.run(11)
    assert w.of("a").status is _H.SUSPECT
    assert not w.of("a").confirmed
    assert out(w) == {"a", "b"}


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
    w = ward(["a", "b"], work=LONG)
    holds_the_turn(w, "a")
    work_on(w, "b", gpus=1)
    waiting = w.suspect("b")
    assert waiting is not None
    assert not waiting.is_out
    (job,) = work_on(w, "b", gpus=1).values()
    w.run(10)
    assert state(job) is JobState.RUNNING
    assert w.done("b") == []
    c = schema.history.c
    rows = schema.history.select().where(
        c.entity == name_of(waiting.id, waiting.agent_id), c.result == "SKIPPED"
    )
    with w.world.store.engine.connect() as connection:
        told = [row.reasons for row in connection.execute(rows)]
    assert any(ReasonCode.HEALTH_WAITS_TURN in each for each in told)


def test_an_isolated_machine_has_no_turn(ward: MakeWard) -> None:
    w = ward(FIVE, work=LONG, leave=5)
    work_on(w, "b", "c")
    w.suspect("a", remedy=Remedy.OPERATOR, confirmed=True)
    w.decide("isolate", "b")
    assert w.of("a").status is _H.ISOLATED
    assert having_turns(w) == set()
    w.suspect("c")
    assert out(w) == {"a", "b", "c"}
    w.run(20)
    assert w.is_well("c")


def test_a_machine_is_healed_beside_isolated_ones(ward: MakeWard) -> None:
    w = ward([*"abcd"])
    w.decide("isolate", "d")
    w.plan("a", CHECK, FAULTY)
    w.suspect("a")
    w.run(200)
    assert w.done("a") == [CHECK, REBOOT, CHECK]
    assert w.is_well("a")


def test_an_alarm_on_all_machines_has_them_emptied_a_share_at_a_time(ward: MakeWard) -> None:
    w = ward(FIVE, work=LONG, leave=60)
    work_on(w, *FIVE)
    for name in FIVE:
        w.suspect(name, remedy=Remedy.OPERATOR, confirmed=True)
    assert out(w) == set(FIVE)
    w.run(59)
    assert at_work(w) == set(FIVE)
    assert w.of("a").status is _H.SUSPECT
    w.run(10)
    assert w.of("a").status is _H.ISOLATED
    assert at_work(w) == set("bcde")
    w.run(60)
    assert w.of("b").status is _H.ISOLATED
    assert at_work(w) == set("cde")


def test_a_machine_that_its_work_does_not_leave_is_isolated_in_the_end(ward: MakeWard) -> None:
    w = ward(["a"], work=HANGS, leave=60)
    work_on(w, "a")
    w.suspect("a", remedy=Remedy.OPERATOR, confirmed=True)
    w.run(60 + EMPTY_S - 10)
    assert w.of("a").status is _H.SUSPECT
    w.run(20)
    assert w.of("a").status is _H.ISOLATED


def test_a_larger_share_gives_turns_at_once_within_a_minute(ward: MakeWard) -> None:
    from muster.control.group.requests import GroupRequests

    w = ward(FIVE, work=LONG)
    work_on(w, *"abc")
    for name in "abc":
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
    assert having_turns(w) == healing
    assert out(w) == {"a", "b", "c"}
    assert all(w.of(name).confirmed for name in "abc")
    w.run(400)
    assert all(w.is_well(name) for name in FIVE)
    assert all(w.done(name) == [CHECK, REBOOT, CHECK] for name in "abc")


def test_a_job_that_wants_a_check_displaces_nobody_without_a_turn(ward: MakeWard) -> None:
    w = ward(["a", "b"], work=LONG, leave=60)
    holds_the_turn(w, "b")
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
    w = ward(["a", "b"], work=Run(2 * LAPSE_S), check_timeout=86_400)
    work_on(w, "b")
    holds_the_turn(w, "a")
    w.suspect("b")
    w.run(LAPSE_S + 120, 30.0)
    ended = w.last("b")
    assert ended is not None
    assert ended.status is _H.HEALTHY
    assert ended.reason is not None
    assert ended.reason.code is ReasonCode.HEALTH_LAPSED


def test_a_turn_outlives_a_check_that_found_out_nothing(ward: MakeWard) -> None:
    w = ward(["a", "b"], work=LONG, check_timeout=100, leave=5)
    work_on(w, "a", "b")
    w.plan("a", CHECK, HANGS)
    w.suspect("a")
    w.suspect("b")
    w.run(185)
    assert w.of("a").progress.unknowns == 1
    assert out(w) == {"a"}


def test_no_work_leaves_because_a_task_of_others_failed(ward: MakeWard) -> None:
    w = ward(["a"], work=Run(5000.0), leave=60)
    others = w.world.submit(ALL_GPUS)
    w.suspect("a", HealthTaskFailed(), job=JobId("job-1"))
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


@pytest.mark.parametrize(
    "why",
    [
        HealthTaskFailed(),
        HealthFaultSeen(what="Xid 79 on GPU 0; NVML has not confirmed it"),
    ],
    ids=["a task failed", "seen by an agent"],
)
def test_work_that_came_before_its_turn_does_not_leave_for_what_nothing_confirms(
    ward: MakeWard, why: Reason
) -> None:
    w = ward(["a", "b"], work=LONG, leave=60)
    holds_the_turn(w, "b")
    (others,) = work_on(w, "a").values()
    w.suspect("a", why)
    w.run(5)
    w.decide("return", "b")
    w.run(600)
    assert w.is_well("a")
    assert state(others) is JobState.RUNNING
    assert len(w.world.agent("a").starts) == 1


def test_an_operator_has_work_leave_though_only_a_task_failed(ward: MakeWard) -> None:
    w = ward(["a"], work=Run(5000.0), leave=60)
    w.world.submit(ALL_GPUS)
    w.suspect("a", HealthTaskFailed(), job=JobId("job-1"))
    w.decide("check", "a")
    w.run(120)
    assert w.done("a") == [CHECK]
