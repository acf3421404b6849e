"""Replicas that are to leave their machines: their deployment's budget says how many at a time."""

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster
from tests.control.test_draining import drain
from tests.control.world import ADA, ROOT, World

from muster.control.agent.explanation import explain_agent
from muster.control.agent.requests import AgentRequests
from muster.control.deployment.entity import Route
from muster.control.deployment.standing import session_of
from muster.control.group.requests import GroupRequests
from muster.control.session.cluster.guard import HELD_UP_S
from muster.control.session.cluster.state import ClusterState
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec, ScalingGroup
from muster.core.states import SessionStatus
from muster.core.states.deployment import RouteStatus

FULL = {"resources": {"cpu": 4}, "drain": 0}
"""Each replica has a machine to itself."""


@pytest.fixture
def cluster(worlds: MakeWorld) -> Cluster:
    """Four machines."""
    return Cluster(worlds)


@pytest.fixture
def roomy(worlds: MakeWorld) -> Cluster:
    """Six machines."""
    return Cluster(worlds, agents=6)


def homes(cluster: Cluster) -> list[str]:
    """The names of the agents that have healthy replicas."""
    live = cluster.world.plane.live
    sessions = [session_of(each, live) for each in cluster.routes(RouteStatus.HEALTHY)]
    ids = [None if each is None else each.kernels[0].agent_id for each in sessions]
    return [live.agents[id_].name for id_ in ids if id_ is not None]


def end_drain(world: World, name: str) -> None:
    id_ = world.agent(name).id
    world.ask(lambda work, parts: parts[AgentRequests].bar(work, ADA, id_, None, "", None))


def session_status(cluster: Cluster, route: Route) -> SessionStatus | None:
    session = session_of(route, cluster.world.plane.live)
    return None if session is None else session.status


def test_drains_take_no_more_replicas_than_may_be_missing(cluster: Cluster) -> None:
    cluster.deploy(replicas=4, disruption="25%", **FULL)
    cluster.run(10)
    for name in ("m0", "m1", "m2"):
        drain(cluster.world, name, 0.0)
    seen: list[int] = []
    cluster.run(HELD_UP_S - 20, lambda: seen.append(len(cluster.serving())))
    assert set(seen) == {3}
    world = cluster.world
    codes = []
    for name in ("m0", "m1", "m2"):
        guard = world.plane.parts[ClusterState].guard
        told = explain_agent(world.plane.live, guard, world.agent(name).id, world.clock.now(), ROOT)
        codes += [each.code for each in told.reasons]
    assert codes.count(ReasonCode.DISRUPTION_EXHAUSTED) == 2

    cluster.run(30)
    assert len(cluster.serving()) == 1, "an operator waits for so long and no longer"


def test_replicas_on_drained_machines_are_replaced_one_after_the_other(roomy: Cluster) -> None:
    roomy.deploy(replicas=4, disruption=1, **FULL)
    roomy.run(10)
    leaving = homes(roomy)[:3]
    for name in leaving:
        drain(roomy.world, name, 0.0)
    seen: list[int] = []
    roomy.run(120, lambda: seen.append(len(roomy.serving())))
    assert min(seen) == 3
    assert len(roomy.routes(RouteStatus.HEALTHY)) == 3, "of six machines three are left"
    assert not set(homes(roomy)) & set(leaving)


def test_deployment_that_may_miss_nothing_is_replaced_first(roomy: Cluster) -> None:
    roomy.deploy(replicas=4, disruption=0, **FULL)
    roomy.run(10)
    leaving = homes(roomy)[:2]
    for name in leaving:
        drain(roomy.world, name, 0.0)
    seen: list[int] = []
    roomy.run(120, lambda: seen.append(len(roomy.serving())))
    assert min(seen) == 4
    assert not set(homes(roomy)) & set(leaving)


def test_replica_that_has_to_leave_is_withdrawn_and_drained_first(cluster: Cluster) -> None:
    cluster.deploy(replicas=4, resources={"cpu": 4}, drain=20)
    cluster.run(10)
    (first, *_), before = cluster.routes(), homes(cluster)[0]
    drain(cluster.world, before, 0.0)
    cluster.run(2)
    assert len(cluster.serving()) == 3
    assert first.status is RouteStatus.TERMINATING
    assert session_status(cluster, first) is SessionStatus.RUNNING, "requests under way may end"
    cluster.run(25)
    assert session_status(cluster, first) is None
    assert cluster.deployment.failed_starts == 0, "it did not fail"


def test_replicas_that_do_not_serve_may_be_disturbed_at_any_time(cluster: Cluster) -> None:
    cluster.bad = {1}
    cluster.deploy(replicas=4, disruption=1, **FULL)
    cluster.run(10)
    for name in ("m0", "m1", "m2", "m3"):
        drain(cluster.world, name, 0.0)
    cluster.run(30)
    live = cluster.world.plane.live
    assert not [k for k in live.kernels.values() if k.agent_id is not None]


def test_unhealthy_replicas_are_replaced_no_more_at_a_time_than_may_be_missing(
    cluster: Cluster,
) -> None:
    probe = {"interval": 1, "timeout": 1, "evict_after": 10}
    update = {"min_healthy_time": 20}
    cluster.deploy(replicas=4, disruption=1, probe=probe, update=update, **FULL)
    cluster.run(60)
    cluster.sick = {each.name for each in cluster.routes()}
    left: list[int] = []

    def count() -> None:
        sick = [each for each in cluster.routes() if each.name in cluster.sick]
        left.append(sum(each.status is RouteStatus.UNHEALTHY for each in sick))

    cluster.run(30)
    cluster.run(150, count)
    assert left[-1] == 0
    steps = [left.index(number) for number in range(max(left) - 1, -1, -1)]
    assert len(steps) >= 3
    assert all(later - one >= 20 for one, later in pairwise(steps))


def test_preemption_takes_no_more_replicas_than_may_be_missing(cluster: Cluster) -> None:
    group = {"name": "default", "preemption": {"mode": "terminate", "minimum_lease": 0}}
    spec = ScalingGroup.model_validate(group)
    cluster.world.ask(lambda work, parts: parts[GroupRequests].put_group(work, spec))
    cluster.deploy(replicas=4, disruption=1, priority=1, **FULL)
    cluster.run(10)
    jobs = [
        cluster.world.submit(JobSpec(command=["work"], priority=100, resources={"cpu": 4}))
        for _ in range(3)
    ]
    seen: list[int] = []
    cluster.run(100, lambda: seen.append(len(cluster.serving())))
    assert min(seen) == 3
    assert sorted(job.status for job in jobs) == ["PENDING", "PENDING", "RUNNING"]


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    plan=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["drain", "end"]), st.integers(1, 30)),
        min_size=3,
        max_size=8,
    )
)
def test_no_order_of_drains_has_more_missing(
    worlds: MakeWorld, plan: list[tuple[int, str, int]]
) -> None:
    cluster = Cluster(worlds, agents=6)
    cluster.deploy(replicas=4, disruption=1, **FULL)
    cluster.run(10)
    seen: list[int] = [4]
    for number, what, wait_s in plan:
        if what == "drain":
            drain(cluster.world, f"m{number}", 0.0)
        else:
            end_drain(cluster.world, f"m{number}")
        cluster.run(wait_s, lambda: seen.append(len(cluster.serving())))
    assert min(seen) >= 3
    cluster.world.close()
