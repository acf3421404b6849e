"""The holders of the resources that work waits for, as far as the asker may see them."""

import re

from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.world import ADA, BOB, World

from muster.control.group.requests import GroupRequests
from muster.control.job.explanation import explain_job
from muster.core.owner import Owner, Principal, Role
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec, QuotaSpec
from muster.core.states import AgentStatus, JobState
from muster.core.views.placement import WhyView
from muster.store.records import Job

ROOT = Principal(Owner("default", "default", "root"), Role.ADMIN)


def job(name: str, cpu: int = 1, **more: object) -> JobSpec:
    spec = {"name": name, "command": [name], "resources": {"cpu": cpu}}
    return JobSpec.model_validate(spec | more)


def why(world: World, job: Job, asker: Principal) -> WhyView:
    live, cluster, now = world.plane.live, world.cluster, world.clock.now()
    return explain_job(live, cluster, job.id, now, asker)


def test_room_is_held_by_those_whom_the_asker_may_see_and_by_a_number_of_others(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 8}, lambda start: Run(1000))
    began = world.clock.now()
    world.submit(job("train", 2, tasks=2), ADA)
    world.submit(job("eval", 1), ADA)
    world.submit(job("theirs", 1, tasks=3), BOB)
    waits = world.submit(job("waits", 2), ADA)
    (room,) = why(world, waits, ADA).held
    assert (room.held, room.limit, room.resource, room.agents) == ("8", "8", "cpu", ("a",))
    assert (room.held_amount, room.limit_amount) == (8000, 8000)
    train, mine, others = room.holders
    assert (train.name, train.amount, train.sessions, train.yours) == ("train", "4", 2, True)
    assert train.since is not None
    assert train.since >= began
    assert room.sentence.startswith("8 of 8 cpu on a held by train (yours, 2 sessions, 4, for ")
    assert room.sentence.endswith(", 3 sessions of others (3)")
    assert (mine.name, mine.amount) == ("eval", "1")
    assert [each.held_amount for each in room.holders] == [4000, 1000, 3000]
    assert (others.name, others.owner, others.amount, others.sessions) == (None, None, "3", 3)
    (seen,) = why(world, waits, ROOT).held
    assert [(each.name, each.yours) for each in seen.holders] == [
        ("train", False),
        ("theirs", False),
        ("eval", False),
    ]


def test_many_holders_are_counted_together_but_for_the_largest(group_world: MakeWorld) -> None:
    world = group_world({"a": 8}, lambda start: Run(1000))
    for index in range(8):
        world.submit(job(f"j{index}"), ADA)
    (room,) = why(world, world.submit(job("waits"), ADA), ADA).held
    assert [each.name for each in room.holders] == ["j0", "j1", "j2", "j3", "j4", None]
    assert (room.holders[-1].sessions, room.holders[-1].amount) == (3, "3")
    assert room.holders[-1].yours
    assert room.sentence.endswith(", 3 more sessions of yours (3)")


def test_holders_past_the_limit_are_counted_by_whose_they_are(group_world: MakeWorld) -> None:
    world = group_world({"a": 9}, lambda start: Run(1000))
    for index in range(7):
        world.submit(job(f"j{index}"), ADA)
    world.submit(job("theirs", 2), BOB)
    waits = world.submit(job("waits"), ADA)
    (room,) = why(world, waits, ADA).held
    assert room.sentence.endswith(", 2 more sessions of yours (2), a session of others (2)")
    (seen,) = why(world, waits, ROOT).held
    assert seen.holders[0].name == "theirs"
    assert seen.sentence.endswith(", 3 sessions of others (3)")


def test_work_in_another_project_of_the_asker_is_the_asker_s(group_world: MakeWorld) -> None:
    world = group_world({"a": 10}, lambda start: Run(1000))
    both = Principal(ADA.owner, Role.USER, projects=(ADA.owner.project, "vision"))
    for index in range(10):
        world.submit(job(f"vision-{index}"), both.within("vision"))
    (room,) = why(world, world.submit(job("waits"), both), both).held
    assert [each.name for each in room.holders] == [*(f"vision-{n}" for n in range(5)), None]
    assert {each.yours for each in room.holders} == {True}
    assert room.sentence.endswith(", 5 more sessions of yours (5)")


def test_session_ahead_of_it_is_named_to_those_who_may_see_it(group_world: MakeWorld) -> None:
    world = group_world({"a": 4}, lambda start: Run(1000))
    world.submit(job("first", 3, timeout=1000), ADA)
    world.submit(job("head", 4, priority=90), ADA)
    for who, name in ((ADA, "head"), (BOB, None)):
        answer = why(world, world.submit(job(f"of-{who.owner.user}"), who), who)
        assert answer.behind is not None
        assert answer.behind.name == name
        assert answer.behind.sentence.startswith(f"ahead of it is {name or 'a session of others'}")
        ids = [each.id for each in world.plane.live.sessions.values() if each.owner != who.owner]
        assert not any(value in ids for why in answer.reasons for value in why.numbers.values())


def test_quota_is_held_by_the_work_that_counts_in_it(group_world: MakeWorld) -> None:
    world = group_world({"a": 8}, lambda start: Run(1000))
    name = str(ADA.owner)
    spec = QuotaSpec.model_validate({"level": "user", "name": name, "limits": {"cpu": 2}})
    world.ask(lambda work, parts: parts[GroupRequests].put_quota(work, spec))
    world.submit(job("holds", 2), ADA)
    (quota,) = why(world, world.submit(job("waits"), ADA), ADA).held
    assert (quota.quota, quota.held, quota.limit) == (f"user {name}", "2", "2")
    assert (quota.held_amount, quota.limit_amount) == (2000, 2000)
    assert [each.name for each in quota.holders] == ["holds"]
    assert quota.sentence.startswith(f"2 of 2 cpu of user {name} held by holds (yours, 2, for ")


def test_running_work_whose_agent_cannot_be_reached_says_so_and_until_when_it_counts(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 8}, lambda start: Run(1000), kernel_lease=60, agent_silence=10)
    runs = world.submit(job("runs"), ADA)
    assert runs.status is JobState.RUNNING
    assert not why(world, runs, ADA).reasons
    agent = world.agent("a")
    world.disconnect(agent)
    world.run(4)
    (reason,) = why(world, runs, ADA).reasons
    assert reason.code == ReasonCode.AGENT_UNREACHABLE
    assert reason.sentence.startswith("agent a has been silent for 4 s")
    counted = re.search(r"count as running until their lease ends, in (\d+) s$", reason.sentence)
    assert counted is not None
    world.run(int(counted[1]) - 3)
    assert world.plane.live.agents[agent.id].status is AgentStatus.UNREACHABLE
    world.run(6)
    assert world.plane.live.agents[agent.id].status is AgentStatus.LOST
