"""The share of one owner in the database: open work, its specs, and specs of what has ended."""

import json
from typing import Any

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import select
from tests.control.conftest import MakeWorld
from tests.control.world import ADA, BOB, World
from tests.databases import ON_BOTH

from muster.control.deployment.requests import DeploymentRequests
from muster.control.group.requests import GroupRequests
from muster.control.job.requests import JobRequests
from muster.control.session.requests import SessionRequests
from muster.core.errors import Conflict
from muster.core.owner import Principal
from muster.core.specs import DeploymentSpec, JobSpec, Level, QuotaSpec, SessionSpec
from muster.store import schema
from muster.store.load import load_job
from muster.store.records import Job, Session

pytestmark = ON_BOTH

LARGE = 100_000
"""Characters of a spec's one long variable."""


@pytest.fixture
def world(group_world: MakeWorld) -> World:
    return group_world({}, lambda start: Run(1))


def large_job(**more: object) -> JobSpec:
    return JobSpec.model_validate({"command": ["x"], "env": {"A": "a" * LARGE}, **more})


def large_session() -> SessionSpec:
    kernel = {"command": ["x"], "env": {"A": "a" * LARGE}}
    return SessionSpec.model_validate({"kernels": [kernel]})


def limit(world: World, name: str = "default/default/ada", **limits: object) -> None:
    spec = QuotaSpec.model_validate({"level": Level.USER, "name": name, **limits})
    world.ask(lambda work, parts: parts[GroupRequests].put_quota(work, spec))


def deploy(world: World, name: str, principal: Principal = ADA) -> Any:
    said = {"name": name, "command": ["x"], "env": {"A": "a" * LARGE}}
    spec = DeploymentSpec.model_validate(said)
    return world.ask(lambda work, parts: parts[DeploymentRequests].apply(work, principal, spec))


def cancel(world: World, work_: Job | Session) -> None:
    if isinstance(work_, Job):
        world.ask(lambda work, parts: parts[JobRequests].cancel(work, ADA, work_.id))
    else:
        world.ask(lambda work, parts: parts[SessionRequests].cancel(work, ADA, work_.id))
    world.settle()


def stored(world: World, table: Any = schema.jobs) -> dict[str, Any]:
    """The rows of a table by their ids."""
    with world.store.engine.connect() as connection:
        return {row.id: row for row in connection.execute(select(table))}


def whole(world: World) -> list[str]:
    """The jobs whose specs are stored whole, the oldest first."""
    return sorted(id_ for id_, row in stored(world).items() if len(row.spec) > LARGE)


def test_number_of_work_that_has_not_ended_is_limited_over_all_kinds(world: World) -> None:
    limit(world, open_work=3)
    job = world.submit(JobSpec(command=["x"]))
    world.submit_session(large_session())
    deploy(world, "model")
    with pytest.raises(Conflict, match=r"not ended: 3 \+ requested 1 > limit 3, over by 1"):
        world.submit(JobSpec(command=["x"]))
    with pytest.raises(Conflict, match="open_work"):
        deploy(world, "other")
    world.submit(JobSpec(command=["x"]), BOB)  # who has a limit of his own
    cancel(world, job)
    world.submit(JobSpec(command=["x"]))


def test_bytes_of_open_specs_are_limited_over_all_kinds(world: World) -> None:
    limit(world, open_specs=f"{3 * LARGE}B")
    world.submit(large_job())
    world.submit_session(large_session())
    refused = r"specs of work that has not ended: 195\.\dKiB \+ "
    with pytest.raises(Conflict, match=refused):
        world.submit(large_job())
    with pytest.raises(Conflict, match=refused):
        world.submit_session(large_session())
    with pytest.raises(Conflict, match=refused):
        deploy(world, "model")
    world.submit(JobSpec(command=["x"]))


def test_without_a_quota_a_user_has_a_limit(world: World) -> None:
    held = [world.submit(large_job(name=f"j{n}")) for n in range(3)]
    holdings, scope = world.plane.live.holdings, (Level.USER, "default/default/ada")
    assert holdings.of(scope).work == len(held)
    holdings.set_open("another", ADA.owner, 24 * 2**20 - 3 * LARGE)
    with pytest.raises(Conflict, match="limit 24MiB"):
        world.submit(large_job())


def test_limits_hold_over_a_restart(world: World) -> None:
    limit(world, open_specs=f"{2 * LARGE}B")
    job = world.submit(large_job())
    world.settle()
    world.restart_controller()
    with pytest.raises(Conflict, match="open_specs"):
        world.submit(large_job())
    again = world.plane.live.jobs[job.id]
    cancel(world, again)
    world.submit(large_job())


def test_oldest_specs_of_ended_work_above_the_share_are_cut(world: World) -> None:
    limit(world, ended_specs=f"{2 * LARGE + 10_000}B")
    jobs = [world.submit(large_job(name=f"j{n}")) for n in range(4)]
    for job in jobs:
        cancel(world, job)
    world.run(130)
    assert whole(world) == [jobs[2].id, jobs[3].id]
    row = stored(world)[jobs[0].id]
    told = json.loads(row.spec_cut)
    assert (told["limit"], row.large_bytes) == (2 * LARGE + 10_000, None)
    assert LARGE < told["size"] < LARGE + 1000
    assert load_job(row).spec == JobSpec(command=["x"], name="j0")
    assert stored(world)[jobs[3].id].spec_cut is None


def test_specs_of_live_work_and_of_other_owners_are_left_whole(world: World) -> None:
    limit(world, ended_specs=0)
    live = world.submit(large_job(name="live"))
    others = world.submit(large_job(), BOB)
    world.ask(lambda work, parts: parts[JobRequests].cancel(work, BOB, others.id))
    cancel(world, world.submit(large_job()))
    world.run(130)
    assert whole(world) == sorted([live.id, others.id])


def test_submission_pays_for_as_much_as_it_brings(world: World) -> None:
    limit(world, ended_specs=f"{2 * LARGE + 10_000}B")
    for _ in range(20):  # without a sweep between them
        cancel(world, world.submit(large_job()))
        assert len(whole(world)) <= 4


def test_share_is_known_over_a_restart(world: World) -> None:
    jobs = [world.submit(large_job(name=f"j{n}")) for n in range(3)]
    for job in jobs:
        cancel(world, job)
    world.restart_controller()
    assert world.plane.live.holdings.ended_bytes(ADA.owner) > 3 * LARGE
    limit(world, ended_specs=f"{LARGE + 10_000}B")
    world.run(130)
    assert whole(world) == [jobs[2].id]


def test_cut_spec_of_a_session_keeps_what_its_kernels_ask_for(world: World) -> None:
    limit(world, ended_specs=0)
    session = world.submit_session(large_session())
    cancel(world, session)
    world.run(130)
    spec = json.loads(stored(world, schema.sessions)[session.id].spec)
    assert spec["kernels"] == [{"command": ["x"]}]
