"""`muster plan` tells the outcome of a submission and of the passes after it; nothing changes."""

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import func, select
from tests.control.conftest import MakeWorld, under
from tests.control.world import ADA, BOB, World

from muster.control.group.requests import GroupRequests
from muster.control.plan import plan_job, plan_session
from muster.control.session.admission import NONE_ENDED, Ended
from muster.core.errors import Conflict, InvalidSpec, MusterError
from muster.core.owner import Principal
from muster.core.resources import Resources
from muster.core.specs import JobSpec, Level, QuotaSpec, SessionSpec, load_spec
from muster.core.states import JobState, SessionStatus
from muster.core.views.placement import PlanOutcome, PlanView
from muster.scheduling.workload import DependencyProgress, DependencyState
from muster.store import schema

BOX = Resources(cpu_milli=4000, memory_bytes=2**33)
LONG = Run(seconds=3600.0)


@pytest.fixture
def make_world(worlds: MakeWorld) -> MakeWorld:
    return lambda **group: worlds(
        {"a1": BOX, "a2": BOX},
        gpus={"a1": 2, "a2": 2},
        group=under(**group),
        behaviour=lambda start: LONG,
    )


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world()


def job(**fields: Any) -> JobSpec:
    return JobSpec.model_validate({"command": ["x"], **fields})


def plan(
    world: World,
    spec: JobSpec | SessionSpec,
    principal: Principal = ADA,
    ended: Ended = NONE_ENDED,
) -> PlanView:
    live, cluster, now = world.plane.live, world.cluster, world.clock.now()
    if isinstance(spec, JobSpec):
        return plan_job(live, cluster, principal, spec, now, ended)
    return plan_session(live, cluster, principal, spec, now, ended)


def places(found: PlanView) -> list[tuple[str, list[int]]]:
    return [(each.agent, [share.index for share in each.devices]) for each in found.kernels]


def contents(world: World) -> object:
    """All that a plan could have touched."""
    live, cluster = world.plane.live, world.cluster
    groups = {
        name: (
            group.snapshot.version,
            group.snapshot.columns.free.tolist(),
            group.snapshot.columns.device_free.tolist(),
            [each.id for each in group.queue],
            dict(group.queue.rooms),
            group.policy,
            group.due,
        )
        for name, group in cluster.groups.items()
    }
    usage = [
        cluster.accounting.usage.of((Level.USER, Level.USER.of(each.owner))) for each in (ADA, BOB)
    ]
    tables = (schema.jobs, schema.sessions, schema.history, schema.allocations)
    with world.store.engine.connect() as connection:
        rows = [connection.execute(select(func.count()).select_from(t)).scalar() for t in tables]
    return groups, [repr(each) for each in usage], rows, list(live.jobs), list(live.ledger)


def test_work_that_fits_is_told_where_each_kernel_goes_and_nothing_is_changed(
    world: World,
) -> None:
    before = contents(world)
    gang = job(tasks=3, coscheduled=True, resources={"cpu": 1, "gpu": 1})
    found = plan(world, gang)
    assert contents(world) == before
    assert (found.outcome, found.sessions, found.starting) == (PlanOutcome.STARTS, 1, 1)
    assert found.reasons == ()

    submitted = world.submit(gang)
    session = world.only_session()
    assert session.job is submitted
    placed = [
        (world.plane.live.agents[kernel.agent_id].name, [s.index for s in kernel.shares])
        for kernel in session.kernels
        if kernel.agent_id
    ]
    assert places(found) == placed


def test_tasks_that_start_are_counted_and_the_others_wait(world: World) -> None:
    found = plan(world, job(tasks=10, resources={"gpu": 1, "cpu": 0}))
    assert (found.outcome, found.sessions, found.starting) == (PlanOutcome.STARTS, 10, 4)
    assert sorted(places(found)) == [("a1", [0]), ("a1", [1]), ("a2", [0]), ("a2", [1])]
    assert found.verdict == "4 of 10 tasks would start now in group default"
    assert [reason.code for reason in found.reasons] == ["NO_ROOM"]  # of the fifth


def test_session_with_different_kernels_is_planned_kernel_by_kernel(world: World) -> None:
    text = "kind: session\nkernels: [{command: [x], resources: {gpu: 2}}, "
    spec = load_spec(text + "{command: [x], replicas: 2, resources: {cpu: 3}}]")
    assert isinstance(spec, SessionSpec)
    found = plan(world, spec)
    assert found.outcome is PlanOutcome.STARTS
    assert [each.index for each in found.kernels] == [0, 1, 2]
    assert [len(each.devices) for each in found.kernels] == [2, 0, 0]


def test_work_without_room_is_told_when_it_would_start_at_the_latest(world: World) -> None:
    world.submit(job(tasks=2, resources={"cpu": 4}, timeout="100s"))
    world.run(10)
    found = plan(world, job(resources={"cpu": 2}))
    assert (found.outcome, found.kernels) == (PlanOutcome.WAITS, ())
    assert [reason.code for reason in found.reasons] == ["NO_ROOM"]
    assert found.expected_at == pytest.approx(world.clock.now() + 90, abs=1)
    (request,) = found.placement.requests
    (lacking,) = request.groups
    assert lacking.agents == 2
    assert lacking.shortfalls[0].sentence == "cpu: 2 asked, 0 of 4 free"


def test_all_reasons_are_told_at_once(world: World) -> None:
    quota = QuotaSpec.model_validate({"name": "default/default/ada", "limits": {"cpu": 4}})
    world.ask(lambda work, parts: parts[GroupRequests].put_quota(work, quota))
    world.submit(job(resources={"cpu": 3}))
    world.submit(job(tasks=2, resources={"cpu": 2}), BOB)
    world.submit(job(resources={"cpu": 2}), BOB)
    found = plan(world, job(resources={"cpu": 2}, not_before=world.clock.now() + 60))
    assert {reason.code for reason in found.reasons} >= {"QUOTA_IN_USE", "BEFORE_START_TIME"}
    told = next(reason for reason in found.reasons if reason.code == "QUOTA_IN_USE")
    assert "used 3 + requested 2 > limit 4, over by 1" in told.sentence


def test_own_work_that_would_make_room_is_named_and_that_of_others_counted(
    make_world: MakeWorld,
) -> None:
    world = make_world(preemption={"minimum_lease": 0})
    world.submit(job(name="mine", resources={"cpu": 4}, priority=10))
    world.submit(job(name="secret", tasks=2, resources={"cpu": 2}, priority=20), BOB)
    found = plan(world, job(tasks=2, coscheduled=True, resources={"cpu": 4}, priority=90))
    assert found.outcome is PlanOutcome.DISPLACES
    told = [(v.name, v.priority, v.sessions, v.kernels) for v in found.displaces]
    assert told == [("mine", 10, 1, 1), (None, 20, 2, 2)]
    assert sorted(agent for agent, _ in places(found)) == ["a1", "a2"]
    text = msgspec.json.encode(found).decode()
    assert "secret" not in text
    assert "bob" not in text
    assert all(id_ not in text for id_ in world.plane.live.sessions)


@pytest.mark.parametrize(
    ("free", "verdict"),
    [
        (0, "1 of 2 tasks would displace .* the others would follow"),
        (1, "1 of 2 tasks would start now .* one more would displace work of lower priority"),
    ],
)
def test_plan_of_several_tasks_says_how_many_start_and_whom_the_next_displaces(
    make_world: MakeWorld, free: int, verdict: str
) -> None:
    world = make_world(preemption={"minimum_lease": 0})
    world.submit(job(name="low", tasks=2 - free, resources={"cpu": 4}, priority=10))
    found = plan(world, job(tasks=2, resources={"cpu": 4}, priority=90))
    assert re.search(verdict, found.verdict)
    assert found.starting == free
    assert [victim.sessions for victim in found.displaces] == [1]


@pytest.mark.parametrize(
    ("fields", "error", "told"),
    [
        ({"name": "taken"}, Conflict, "is taken by job"),
        ({"after": ["nothing"]}, InvalidSpec, "after.0.on is 'nothing'"),
        ({"workdir": "/elsewhere"}, InvalidSpec, "inside a workspace"),
        ({"resources": {"cpu": 9}}, Conflict, "requested 9 > limit 8, over by 1"),
        ({"placement": {"constraints": ["zoen=a"]}}, InvalidSpec, "expected an attribute"),
    ],
)
def test_what_submission_refuses_is_refused_in_the_same_words(
    make_world: MakeWorld, fields: Mapping[str, Any], error: type[MusterError], told: str
) -> None:
    world = make_world(workspaces=["/home"])
    quota = QuotaSpec.model_validate({"name": "*/*/*", "limits": {"cpu": 8}})
    world.ask(lambda work, parts: parts[GroupRequests].put_quota(work, quota))
    world.submit(job(name="taken"))
    with pytest.raises(error, match=told) as planned:
        plan(world, job(**fields))
    with pytest.raises(error) as submitted:
        world.submit(job(**fields))
    assert str(planned.value) == str(submitted.value)


def test_work_after_other_work_waits_for_it_without_being_followed(world: World) -> None:
    world.submit(job(name="first"))
    before = contents(world)
    found = plan(world, job(after=["first"]))
    assert [reason.code for reason in found.reasons] == ["DEPENDENCY_NOT_MET"]
    assert "it is running" in found.reasons[0].sentence
    assert plan(world, job(after=["first:running"])).outcome is PlanOutcome.STARTS
    assert contents(world) == before


@pytest.mark.parametrize(
    ("state", "after"),
    [(DependencyState.SUCCEEDED, "old"), (DependencyState.ENDED_OTHERWISE, "old:ended")],
)
def test_work_after_what_has_ended_as_it_should_starts(
    world: World, state: DependencyState, after: str
) -> None:
    ended = {"old": ("job-old", DependencyProgress(state, 1.0))}
    assert plan(world, job(after=[after]), ended=ended).outcome is PlanOutcome.STARTS


def test_work_after_what_has_failed_is_refused_as_at_submission(world: World) -> None:
    ended = {"old": ("job-old", DependencyProgress(DependencyState.ENDED_OTHERWISE, 1.0))}
    with pytest.raises(InvalidSpec, match="ended without success"):
        plan(world, job(after=["old"]), ended=ended)


@pytest.mark.usefixtures("installed")
def test_plug_in_that_fails_under_a_plan_goes_on_serving_until_a_pass_finds_it_so(
    make_world: MakeWorld,
) -> None:
    world = make_world(selector="moody")
    policy = world.cluster.groups["default"].policy
    found = plan(world, job(resources={"gpu": 1}))
    assert found.outcome is PlanOutcome.STARTS
    assert world.cluster.groups["default"].policy is policy
    world.submit(job(resources={"gpu": 1}))
    (fault,) = world.cluster.groups["default"].policy.refused
    assert (fault.kind, fault.name) == ("selector", "moody")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with a selector that always raises, as an installer leaves it."""
    site = tmp_path / "site"
    metadata = site / "moody-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "moody_parts.py").write_text(
        "class Moody:\n"
        "    packs = False\n"
        "    def score(self, request, snapshot, candidates):\n"
        "        raise ValueError('not today')\n"
        "    def devices(self, request, snapshot, slot):\n"
        "        raise ValueError('not today')\n"
    )
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: moody\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[muster.selectors]\nmoody = moody_parts:Moody\n")
    monkeypatch.syspath_prepend(site)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("queue", ["backfill", "strict", "best_effort"])
def test_plan_agrees_with_what_then_happens(make_world: MakeWorld, queue: str, seed: int) -> None:
    """On a busy cluster, one piece of work after the other: planned, then handed in."""
    chance = random.Random(seed)
    world = make_world(queue=queue, sequencer=chance.choice(["fifo", "drf", "fair_share"]))
    for _ in range(10):
        who = chance.choice([ADA, BOB])
        spec = job(
            tasks=chance.choice([1, 1, 2, 3]),
            coscheduled=chance.random() < 0.5,
            priority=chance.choice([40, 50, 60]),
            resources={"cpu": chance.choice([1, 2, 3]), "gpu": chance.choice([0, 0, 0.5, 1, 2])},
            timeout=chance.choice([None, "60s", "300s"]),
        )
        before = contents(world)
        found = plan(world, spec, who)
        assert contents(world) == before
        submitted = world.submit(spec, who)
        sessions = [s for s in world.plane.live.sessions.values() if s.job is submitted]
        started = [s for s in sessions if s.status is not SessionStatus.PENDING]
        assert (found.outcome is PlanOutcome.STARTS) == bool(started) == bool(found.starting)
        assert len(started) == found.starting
        agents = [k.agent_id for s in started for k in s.kernels]
        names = [world.plane.live.agents[agent].name for agent in agents if agent is not None]
        assert [agent for agent, _ in places(found)] == names
        assert (submitted.status is JobState.PENDING) == (not started)
        world.run(chance.choice([0.5, 40]), step_s=20)
