"""Limits of priority: what users may ask for, where more is granted, and what fair share does."""

from collections import Counter

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster
from tests.control.test_quotas import put
from tests.control.world import ADA, BOB, ROOT, World

from muster.control.engine.work import Work
from muster.control.group.requests import GroupRequests
from muster.control.job.requests import JobRequests, Retried
from muster.control.plan import plan_job
from muster.core.errors import InvalidSpec
from muster.core.owner import Principal
from muster.core.resources import Resources
from muster.core.specs import JobSpec, Level, ScalingGroup, SessionSpec
from muster.core.states import JOB_TABLE
from muster.store.records import Job

pytestmark = pytest.mark.usefixtures("limits_of_priority")

FAIR = {"sequencer": "fair_share"}


def job(name: str, priority: int = 50, tasks: int = 1, **more: object) -> JobSpec:
    spec = {"name": name, "command": [name], "tasks": tasks, "priority": priority}
    return JobSpec.model_validate(spec | {"resources": {"cpu": 0, "gpu": 1}} | more)


def gpus(world: World) -> Counter[str]:
    """GPUs by the user that holds them."""
    return Counter(session.owner.user for session in world.cluster.placed.values())


def eight_gpus(group_world: MakeWorld, **policy: object) -> World:
    world = group_world({}, lambda start: Run(1000), **policy)
    for name in ("a", "b"):
        world.add_agent(name, Resources(cpu_milli=64_000, memory_bytes=2**36), gpus=4)
    return world


def reprioritise(world: World, by: Principal, job_: Job, priority: int) -> None:
    def change(work: Work, parts: object) -> int:
        return world.plane.parts[JobRequests].reprioritise(work, by, job_.id, priority)

    world.ask(change)


def test_user_cannot_take_a_fair_share_group_by_a_higher_priority(group_world: MakeWorld) -> None:
    world = eight_gpus(group_world, **FAIR, preemption={"minimum_lease": 0})
    world.submit(job("bob", tasks=8), BOB)
    with pytest.raises(InvalidSpec) as refused:
        world.submit(job("ada", 51, tasks=8))
    assert str(refused.value) == (
        "priority is 51: expected at most 50, the highest of user default/default/ada. An "
        "operator can raise `max_priority`"
    )
    assert gpus(world) == {"bob": 8}, "nobody was displaced"
    with pytest.raises(InvalidSpec, match="priority is 51"):
        plan_job(world.plane.live, world.cluster, ADA, job("ada", 51), world.clock.now())
    kernels = [{"command": ["x"]}]
    with pytest.raises(InvalidSpec, match="priority is 51"):
        world.submit_session(SessionSpec.model_validate({"kernels": kernels, "priority": 51}))


def test_users_of_one_priority_share_evenly(group_world: MakeWorld) -> None:
    world = eight_gpus(group_world, **FAIR)
    blocks = world.submit(job("block", tasks=8), ROOT)
    world.submit(job("ada", tasks=8))
    world.submit(job("bob", tasks=8), BOB)
    world.ask(lambda work, parts: parts[JobRequests].cancel(work, ROOT, blocks.id))
    world.run(20)
    assert gpus(world) == {"ada": 4, "bob": 4}


def test_higher_priority_that_was_granted_goes_before_any_share(group_world: MakeWorld) -> None:
    """Shares order the work of one priority. What is used at a higher one counts for all."""
    world = eight_gpus(group_world, **FAIR)
    put(world, Level.USER, str(ADA.owner), max_priority=60)
    blocks = world.submit(job("block", tasks=8), ROOT)
    for number in range(8):
        world.submit(job(f"bob-{number}"), BOB)
        world.submit(job(f"ada-{number}"))
    for number in range(6):
        world.submit(job(f"urgent-{number}", 60))
    world.ask(lambda work, parts: parts[JobRequests].cancel(work, ROOT, blocks.id))
    world.run(20)
    assert gpus(world) == {"ada": 6, "bob": 2}, "and the rest goes to who has less"


@pytest.mark.parametrize(
    ("level", "name", "highest"),
    [
        (Level.USER, "default/default/ada", 70),
        (Level.USER, "default/default/*", 70),
        (Level.PROJECT, "default/default", 50),  # a limit of all its users, and no grant
        (Level.DOMAIN, "*", 50),
    ],
)
def test_more_is_granted_by_the_quota_of_a_user(
    group_world: MakeWorld, level: Level, name: str, highest: int
) -> None:
    world = eight_gpus(group_world)
    put(world, level, name, max_priority=70)
    world.submit(job("highest", highest))
    with pytest.raises(InvalidSpec, match=f"expected at most {highest}"):
        world.submit(job("above", highest + 1))


def test_lowest_limit_counts(group_world: MakeWorld) -> None:
    world = eight_gpus(group_world)
    put(world, Level.USER, "*/*/*", max_priority=80)
    put(world, Level.DOMAIN, "default", max_priority=75)
    put(world, Level.PROJECT, "default/default", max_priority=60)
    with pytest.raises(InvalidSpec, match="at most 60, the highest of project default/default"):
        world.submit(job("x", 61))
    spec = ScalingGroup.model_validate({"name": "default", "max_priority": 30})
    world.ask(lambda work, parts: parts[GroupRequests].put_group(work, spec))
    with pytest.raises(InvalidSpec, match="expected at most 30, the highest of group default"):
        world.submit(job("x", 31))
    assert world.submit(job("x", 30)).spec.priority == 30


def test_administrator_gives_any_priority_also_to_others_work(group_world: MakeWorld) -> None:
    world = eight_gpus(group_world)
    mine, theirs = world.submit(job("mine", 90), ROOT), world.submit(job("theirs", 20))
    reprioritise(world, ROOT, theirs, 100)
    assert (mine.spec.priority, theirs.spec.priority) == (90, 100)
    reprioritise(world, ADA, theirs, 80)  # its owner may lower it, and not raise it again
    with pytest.raises(InvalidSpec, match="expected at most 50"):
        reprioritise(world, ADA, theirs, 81)
    reprioritise(world, ADA, theirs, 0)
    reprioritise(world, ADA, theirs, 50)
    assert theirs.spec.priority == 50


def test_work_of_before_goes_on_and_is_run_again_with_the_highest_that_is_allowed(
    group_world: MakeWorld,
) -> None:
    world = eight_gpus(group_world)
    put(world, Level.USER, "*/*/*", max_priority=80)
    first = world.submit(job("x", 80))
    put(world, Level.USER, "*/*/*", max_priority=40)
    assert first.spec.priority == 80
    world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, first.id))
    world.run_until(lambda: first.status in JOB_TABLE.terminal)
    retried = Retried(first.id, first.name, first.spec, None, failed=0)
    again = world.ask(lambda work, parts: parts[JobRequests].retry(work, ADA, retried))
    assert again.spec.priority == 40


def test_deployment_is_limited_and_keeps_the_priority_that_it_has(group_world: MakeWorld) -> None:
    def world(agents: object, **options: object) -> World:
        return group_world({"a": 8}, **options)

    cluster = Cluster(world)
    with pytest.raises(InvalidSpec, match="priority is 60"):
        cluster.deploy(priority=60)
    put(cluster.world, Level.USER, "*/*/*", max_priority=60)
    cluster.deploy(priority=60)
    cluster.run(5)
    put(cluster.world, Level.USER, "*/*/*", max_priority=10)
    cluster.deploy(priority=60, replicas=2)
    cluster.run(5)
    assert len(cluster.serving()) == 2, "its further replicas are not refused"
    with pytest.raises(InvalidSpec, match="priority is 61: expected at most 10"):
        cluster.deploy(priority=61)


def test_grant_alone_leaves_backlogs_as_they_are(group_world: MakeWorld) -> None:
    world = group_world({"a": 2}, lambda start: Run(0.1))
    put(world, Level.USER, "*/*/*", max_priority=60, weight=2.0)
    several = JobSpec.model_validate({"name": "x", "command": ["x"], "tasks": 200})
    world.submit(several)
    world.run(3, 0.1)
    assert any(not row.charged for row in world.plane.live.ledger.values()), "some are prefilled"
