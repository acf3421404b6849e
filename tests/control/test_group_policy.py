"""Groups that are removed, and the time limits that they give work."""

from functools import partial

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld, cpus
from tests.control.test_quotas import put
from tests.control.world import ADA, ROOT, World

from muster.control.accounts import ensure_user
from muster.control.agent.joining import JoinRefused
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.group.requests import GroupRequests
from muster.control.identity.tokens import create_join_token, invitations
from muster.control.plan import plan_job
from muster.core.errors import Conflict, InvalidSpec, NotFound
from muster.core.specs import JobSpec, Level, ScalingGroup, SessionSpec, parse_spec
from muster.core.specs.account import JoinTokenSpec
from muster.core.states import JobState


def put_group(world: World, **keys: object) -> None:
    spec = ScalingGroup.model_validate(keys)
    world.ask(lambda work, parts: parts[GroupRequests].put_group(work, spec))


def remove(world: World, name: str) -> None:
    world.ask(lambda work, parts: parts[GroupRequests].remove_group(work, name))


def _invite(group: str | None, work: Work, parts: Parts) -> None:
    create_join_token(work, ROOT, JoinTokenSpec(group=group))


def job(**keys: object) -> JobSpec:
    return JobSpec.model_validate({"command": ["x"], **keys})


def test_empty_group_is_removed_with_the_invitations_to_it(group_world: MakeWorld) -> None:
    world = group_world({"a": 4})
    world.ask(lambda work, _: ensure_user(work, ROOT.owner))
    put_group(world, name="old")
    for group in ("old", None):
        world.ask(partial(_invite, group))
    remove(world, "old")
    assert "old" not in world.plane.live.groups
    assert "old" not in [each.group for each in invitations(world.plane.live.accounts)]
    assert any(each.made_by == "root" for each in invitations(world.plane.live.accounts))
    with pytest.raises(NotFound):
        world.submit(job(group="old"))
    with pytest.raises(NotFound):
        remove(world, "old")
    world.restart_controller()
    assert set(world.plane.live.groups) == {"default"}
    world.run(70)  # a sweep, too
    put_group(world, name="old", queue="strict")
    world.add_agent("b", cpus(2), group="old")
    of_new = world.submit(job(group="old"))
    world.run(5)
    assert of_new.status is JobState.SUCCEEDED


def test_group_with_machines_or_work_is_not_removed(group_world: MakeWorld) -> None:
    world = group_world({"a": 4}, lambda start: Run(20))
    put_group(world, name="old")
    world.add_agent("b", cpus(2), group="old")
    running = world.submit(job(group="old"))
    with pytest.raises(Conflict, match="it has 1 agent, 1 job, 1 session"):
        remove(world, "old")
    with pytest.raises(Conflict, match="it stays"):
        remove(world, "default")
    world.run(30)
    assert running.id not in world.plane.live.jobs
    with pytest.raises(Conflict, match="it has 1 agent"):
        remove(world, "old")


def test_agent_cannot_join_a_group_that_was_removed(group_world: MakeWorld) -> None:
    world = group_world({})
    put_group(world, name="old")
    remove(world, "old")
    with pytest.raises((JoinRefused, NotFound)):
        world.add_agent("b", cpus(2), group="old")


def test_quota_that_counts_in_a_removed_group_stays_and_does_no_harm(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 4}, lambda start: Run(5))
    put_group(world, name="old")
    put(world, Level.USER, "*/*/*", groups={"old": {"cpu": 1}}, sessions=1)
    remove(world, "old")
    first, second = world.submit(job()), world.submit(job())
    world.run(15)
    assert {first.status, second.status} == {JobState.SUCCEEDED}


def test_work_without_a_time_limit_gets_that_of_its_group(group_world: MakeWorld) -> None:
    world = group_world({"a": 4}, lambda start: Run(1000), max_timeout="1h", default_timeout="10m")
    ends = world.submit(job(name="ends"))
    longer = world.submit(job(timeout="30m"))
    session = world.submit_session(SessionSpec.model_validate({"kernels": [{"command": ["x"]}]}))
    assert (ends.spec.timeout, longer.spec.timeout) == (600.0, 1800.0)
    assert session.spec is not None
    assert session.spec.timeout == 600.0
    world.run(650)
    assert ends.status is JobState.KILLED
    assert longer.status is JobState.RUNNING
    put_group(world, name="default", max_timeout="1h")
    assert world.submit(job()).spec.timeout == 3600.0, "without a default it is the longest"
    put_group(world, name="default")
    assert world.submit(job()).spec.timeout is None


def test_longer_time_limit_than_the_group_allows_is_refused(group_world: MakeWorld) -> None:
    world = group_world({"a": 4}, max_timeout="1h")
    with pytest.raises(InvalidSpec) as refused:
        world.submit(job(timeout="2h"))
    assert str(refused.value) == "timeout is 2h00m: expected at most 1h00m in group default"
    with pytest.raises(InvalidSpec, match="at most 1h00m"):
        plan_job(world.plane.live, world.cluster, ADA, job(timeout="2h"), world.clock.now())
    wrong = {"name": "default", "max_timeout": "1h", "default_timeout": "2h"}
    with pytest.raises(InvalidSpec, match="default_timeout is 2h00m: expected at most"):
        parse_spec(ScalingGroup, wrong)


def test_job_that_is_run_again_is_bound_by_the_group_as_it_is(group_world: MakeWorld) -> None:
    world = group_world({"a": 4}, lambda start: Run(1, exit_code=1))
    failed = world.submit(job(timeout="2h"))
    world.run(5)
    put_group(world, name="default", max_timeout="1h")
    with pytest.raises(InvalidSpec, match="at most 1h00m"):
        world.submit(failed.spec)
