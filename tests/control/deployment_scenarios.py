"""Situations of deployments, by which tests reach all that their handlers declare."""

from typing import Any

from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import SERVES, Cluster
from tests.control.world import World

from muster.core.reasons import ReasonCode
from muster.core.results import SchedulingResult
from muster.core.specs import JobSpec

UPDATE = {"min_healthy_time": 1}


def _cluster(make: MakeWorld, behaviour: Run = SERVES, **policy: Any) -> Cluster:
    """A cluster of two machines, made by ``group_world``."""

    def world(agents: object, **options: Any) -> World:
        return make({"a": 8, "b": 8}, **options, **policy)

    return Cluster(world, behaviour=behaviour)


def deployment_that_comes_and_goes(make: MakeWorld) -> World:
    """It is scaled, updated, loses a replica, and is taken down."""
    cluster = _cluster(make)
    cluster.deploy(replicas=2, drain=1, update=UPDATE)
    cluster.run(8)
    cluster.ask("scale", 3)
    cluster.run(8)
    session = next(iter(cluster.world.plane.live.sessions))
    cluster.cancel_session(session)
    cluster.run(20)
    cluster.deploy(replicas=3, drain=1, update=UPDATE, command=["serve", "2"])
    cluster.run(60)
    cluster.ask("destroy")
    cluster.run(30)
    return cluster.world


def revision_that_is_given_up(make: MakeWorld) -> World:
    """Its replicas never get healthy; then the former ones get sick, and nobody is probed."""
    cluster = _cluster(make)
    probe = {"interval": 1, "timeout": 1, "evict_after": 5}
    cluster.deploy(replicas=2, probe=probe)
    cluster.run(8)
    cluster.bad = {2}
    cluster.deploy(replicas=2, probe=probe, command=["bad"], update={"progress_deadline": 10})
    cluster.run(30)
    cluster.sick.add(cluster.routes()[0].name)
    cluster.run(40)
    cluster.probes.blind = True
    cluster.run(60)
    return cluster.world


def replica_that_cannot_be_created(make: MakeWorld) -> World:
    """No session of it ever runs."""
    cluster = _cluster(make, Run(create_failure=ReasonCode.DISK_FULL))
    cluster.deploy(replicas=1)
    cluster.run(600)
    return cluster.world


def deployment_whose_routes_do_not_end(make: MakeWorld) -> World:
    """The machine of its replica falls silent while it is taken down."""
    cluster = _cluster(make, agent_silence=3000)
    cluster.deploy(replicas=1, drain=1)
    cluster.run(8)
    (kernel,) = cluster.world.only_session().kernels
    assert kernel.agent_id is not None
    cluster.world.disconnect(cluster.world.agents[kernel.agent_id])
    cluster.ask("destroy")
    cluster.run(400)
    return cluster.world


def deployment_whose_dependency_cannot_be_met(make: MakeWorld) -> World:
    """The job for which it waits fails."""
    cluster = _cluster(make, Run(2, exit_code=1))
    cluster.world.submit(JobSpec(name="load", command=["load"]))
    cluster.deploy(after=["load"])
    cluster.run(8)
    return cluster.world


SCENARIOS = {
    ("ProvisioningRoute", SchedulingResult.SUCCESS): deployment_that_comes_and_goes,
    ("ProvisioningRoute", SchedulingResult.FAILURE): replica_that_cannot_be_created,
    ("HealthCheckRoute", SchedulingResult.SUCCESS): deployment_that_comes_and_goes,
    ("HealthCheckRoute", SchedulingResult.FAILURE): revision_that_is_given_up,
    ("HealthCheckRoute", SchedulingResult.STALE): revision_that_is_given_up,
    ("RunningRoute", SchedulingResult.SUCCESS): deployment_that_comes_and_goes,
    ("RunningRoute", SchedulingResult.FAILURE): deployment_that_comes_and_goes,
    ("RouteEviction", SchedulingResult.SUCCESS): revision_that_is_given_up,
    ("TerminatingRoute", SchedulingResult.SUCCESS): deployment_that_comes_and_goes,
    ("ServiceDiscoverySync", SchedulingResult.SUCCESS): deployment_that_comes_and_goes,
    ("CheckPendingDeployment", SchedulingResult.SUCCESS): deployment_that_comes_and_goes,
    ("ScalingDeployment", SchedulingResult.SUCCESS): deployment_that_comes_and_goes,
    ("CheckReplicaDeployment", SchedulingResult.SUCCESS): deployment_that_comes_and_goes,
    ("ReconcileDeployment", SchedulingResult.SUCCESS): deployment_that_comes_and_goes,
    ("ReconcileDeployment", SchedulingResult.FAILURE): deployment_that_comes_and_goes,
    ("RolloutDeployment", SchedulingResult.SUCCESS): deployment_that_comes_and_goes,
    ("RolloutDeployment", SchedulingResult.FAILURE): revision_that_is_given_up,
    ("DestroyingDeployment", SchedulingResult.SUCCESS): deployment_that_comes_and_goes,
    ("DestroyingDeployment", SchedulingResult.FAILURE): deployment_whose_routes_do_not_end,
}
MOVING = [deployment_whose_dependency_cannot_be_met]
