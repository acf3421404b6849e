"""Work that depends on deployments, and deployments that depend on other work."""

from typing import Any

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import SERVES, Cluster
from tests.control.world import ADA, BOB

from muster.control.deployment.entity import Deployment
from muster.control.deployment.requests import DeploymentRequests
from muster.control.job.explanation import explain_job
from muster.control.job.requests import JobRequests
from muster.core.errors import InvalidSpec
from muster.core.owner import Principal
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec, SessionSpec
from muster.core.specs.deployment import DeploymentSpec
from muster.core.states import JobState
from muster.core.states.deployment import EndpointLifecycle
from muster.store.records import Job
from muster.wire.messages import Start


class Programs:
    """Programs by name, and the environments of those that were started, in their order."""

    def __init__(self, **runs: Run) -> None:
        self._runs = runs
        self.started: list[str] = []
        self.environments: dict[str, dict[str, str]] = {}

    def __call__(self, start: Start) -> Run:
        name = start.template.command[0]
        self.started.append(name)
        self.environments[name] = {**start.template.env, **start.env}
        return self._runs.get(name, Run(1))


def served(worlds: MakeWorld, agents: int = 4, **runs: Run) -> tuple[Cluster, Programs]:
    """A cluster and its programs; ``serve`` is a service, and all others take a second."""
    programs = Programs(serve=SERVES, **runs)
    return Cluster(worlds, agents, programs), programs


def job(name: str, *after: str, **more: Any) -> JobSpec:
    return JobSpec.model_validate({"name": name, "command": [name], "after": after, **more})


def deploy(cluster: Cluster, name: str, by: Principal = ADA, **keys: Any) -> Deployment:
    """Have a deployment handed in whose program is ``serve``."""
    spec = DeploymentSpec.model_validate(
        {"name": name, "command": ["serve"], "probe": {"interval": 1, "timeout": 1}} | keys
    )
    made: Deployment = cluster.world.ask(
        lambda work, parts: parts[DeploymentRequests].apply(work, by, spec)
    )
    return made


def why(cluster: Cluster, waiting: Job) -> list[str]:
    world = cluster.world
    told = explain_job(world.plane.live, world.cluster, waiting.id, world.clock.now(), ADA)
    return [f"{each.sentence}. {each.remedy}" for each in told.reasons]


# -- work that waits until a deployment is healthy -----------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
def test_work_that_depends_on_a_deployment_starts_once_all_its_replicas_are_healthy(
    worlds: MakeWorld, restart: bool
) -> None:
    cluster, programs = served(worlds)
    deploy(cluster, "chat", replicas=2)
    asks = cluster.world.submit(job("ask", "chat:healthy"))
    kernels = [{"command": ["look"]}]
    spec = SessionSpec.model_validate({"kernels": kernels, "after": ["chat:healthy"]})
    cluster.world.submit_session(spec)
    cluster.world.run(1)
    assert why(cluster, asks) == [
        "deployment chat is not healthy yet: 0 of 2 replicas. Nothing: it starts after that. "
        "`muster why chat` tells what chat lacks."
    ]
    if restart:
        cluster.world.restart_controller()
    assert programs.started == ["serve", "serve"]
    cluster.run(4)
    assert programs.started == ["serve", "serve", "ask", "look"]


def test_healthy_is_a_condition_of_the_start_alone(worlds: MakeWorld) -> None:
    cluster, programs = served(worlds, agents=2, fetch=Run(3))
    deploy(cluster, "chat")
    cluster.run(4)
    fetches = cluster.world.submit(
        job("fetch", "chat:healthy", tasks=8, resources={"cpu": 3}, max_retries_failure=1)
    )
    cluster.world.run(1)
    assert programs.started.count("fetch") == 2
    cluster.sick = {route.name for route in cluster.routes()}
    cluster.run(10)
    later = cluster.world.submit(job("later", "chat:healthy"))
    cluster.run(10)
    assert programs.started.count("fetch") == 8
    assert fetches.status is JobState.SUCCEEDED
    assert "later" not in programs.started
    assert later.status is JobState.PENDING


@pytest.mark.parametrize("restart", [False, True])
def test_tasks_of_work_that_has_begun_go_on_without_the_deployment(
    worlds: MakeWorld, restart: bool
) -> None:
    cluster, programs = served(worlds, agents=2, fetch=Run(3))
    made = deploy(cluster, "chat", drain=0)
    cluster.run(4)
    fetches = cluster.world.submit(job("fetch", "chat:healthy", tasks=6, resources={"cpu": 3}))
    cluster.world.run(1)
    cluster.ask("destroy")
    cluster.run(1)
    if restart:
        cluster.world.restart_controller()
        fetches = cluster.world.plane.live.jobs[fetches.id]
    cluster.run(25)
    assert made.id not in cluster.world.plane.live.of(Deployment)
    assert fetches.status is JobState.SUCCEEDED
    assert programs.started.count("fetch") == 6


def test_work_ends_when_the_deployment_that_it_waits_for_is_taken_down(
    worlds: MakeWorld,
) -> None:
    cluster, programs = served(worlds)
    cluster.bad = {1}
    deploy(cluster, "chat")
    asks = cluster.world.submit(job("ask", "chat:healthy"))
    cluster.run(3)
    cluster.ask("destroy")
    cluster.run(2)
    assert asks.status is JobState.UNSCHEDULABLE
    assert asks.reason is not None
    assert asks.reason.code is ReasonCode.DEPENDENCY_TAKEN_DOWN
    assert programs.started == ["serve"]


@pytest.mark.parametrize(
    ("after", "refusal"),
    [
        ("search:healthy", "there is no such deployment"),
        ("bobs:healthy", "this deployment takes no requests of yours"),
        ("gone:healthy", "this deployment is being taken down"),
        ("chat", "this is a deployment: expected chat:healthy"),
        ("chat:running", "this is a deployment: expected chat:healthy"),
        ("prep:healthy", "this is no deployment: expected prep:running or prep:succeeded or"),
    ],
)
def test_dependency_that_names_nothing_of_its_kind_is_refused(
    worlds: MakeWorld, after: str, refusal: str
) -> None:
    cluster, _ = served(worlds, prep=Run(100))
    deploy(cluster, "gone")
    cluster.run(1)
    cluster.ask("destroy")
    deploy(cluster, "chat")
    deploy(cluster, "bobs", BOB)
    cluster.world.submit(job("prep"))
    with pytest.raises(InvalidSpec, match=rf"after\.0\.on is '{after.split(':')[0]}': {refusal}"):
        cluster.world.submit(job("ask", after))


@pytest.mark.parametrize("access", ["public", {"users": ["ada"]}, {"projects": ["default"]}])
def test_deployment_of_somebody_else_that_takes_requests_may_be_waited_for(
    worlds: MakeWorld, access: object
) -> None:
    cluster, programs = served(worlds)
    made = deploy(cluster, "bobs", BOB, access=access)
    cluster.world.submit(job("ask", f"{made.id}:healthy"))
    cluster.run(4)
    assert programs.started == ["serve", "ask"]


def test_one_name_may_be_that_of_a_job_and_of_a_deployment(worlds: MakeWorld) -> None:
    cluster, programs = served(worlds, chat=Run(5))
    deploy(cluster, "chat")
    cluster.world.submit(job("chat"))
    cluster.world.submit(job("ask", "chat:succeeded", "chat:healthy"))
    cluster.run(4)
    assert programs.started == ["serve", "chat"]
    cluster.run(3)
    assert programs.started == ["serve", "chat", "ask"]


def test_work_that_is_handed_in_again_means_the_deployment_that_has_the_name_now(
    worlds: MakeWorld,
) -> None:
    cluster, programs = served(worlds)
    deploy(cluster, "chat", drain=0)
    first = cluster.world.submit(job("ask", "chat:healthy"))
    cluster.run(6)
    cluster.ask("destroy")
    cluster.run(20)
    deploy(cluster, "chat")
    cluster.world.submit(first.spec.model_copy(update={"name": "again"}))
    cluster.run(4)
    assert programs.started == ["serve", "ask", "serve", "ask"]


@pytest.mark.parametrize(
    ("keys", "starts"),
    [
        ({"replicas": 0}, False),
        ({"scale": {"min": 0, "max": 2}}, True),
        ({"scale": {"min": 1, "max": 2}, "replicas": 2}, True),
    ],
    ids=["none is wished", "requests are held", "the least of those that follow load"],
)
def test_healthy_is_as_many_replicas_as_it_takes(
    worlds: MakeWorld, keys: dict[str, Any], starts: bool
) -> None:
    cluster, programs = served(worlds)
    deploy(cluster, "chat", **keys)
    if keys.get("replicas") == 2:
        cluster.world.run(1)
        cluster.sick = {cluster.routes()[1].name}
    cluster.world.submit(job("ask", "chat:healthy"))
    cluster.run(4)
    assert ("ask" in programs.started) is starts


# -- deployments that wait -----------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
def test_deployment_starts_after_the_work_on_which_it_depends(
    worlds: MakeWorld, restart: bool
) -> None:
    cluster, programs = served(worlds, load=Run(2), warm=Run(6))
    loads = cluster.world.submit(job("load"))
    cluster.world.submit(job("warm"))
    made = deploy(cluster, "chat", after=["load", "warm:ended"])
    cluster.run(4)
    assert loads.status is JobState.SUCCEEDED
    if restart:
        cluster.world.restart_controller()
        made = cluster.deployment
    assert made.status is EndpointLifecycle.PENDING
    assert [each.sentence for each in cluster.why().reasons] == [
        "waits until warm has ended; it is running"
    ]
    cluster.run(8)
    assert programs.started == ["load", "warm", "serve"]


def test_deployment_starts_once_another_one_is_healthy(worlds: MakeWorld) -> None:
    cluster, programs = served(worlds, web=SERVES)
    deploy(cluster, "db")
    deploy(cluster, "web", command=["web"], after=["db:healthy"])
    cluster.world.run(2)
    assert programs.started == ["serve"]
    cluster.run(6)
    assert programs.started == ["serve", "web"]


def test_deployment_is_taken_down_if_what_it_waits_for_fails(worlds: MakeWorld) -> None:
    cluster, programs = served(worlds, load=Run(2, exit_code=1))
    cluster.world.submit(job("load"))
    made = deploy(cluster, "chat", after=["load"])
    cluster.run(5)
    assert made.status is EndpointLifecycle.DESTROYED
    assert made.reason is not None
    assert made.reason.code is ReasonCode.DEPENDENCY_FAILED
    assert programs.started == ["load"]


def test_deployment_that_waits_may_be_changed_not_to(worlds: MakeWorld) -> None:
    cluster, programs = served(worlds, load=Run(100))
    cluster.world.submit(job("load"))
    deploy(cluster, "chat", after=["load"])
    cluster.run(2)
    deploy(cluster, "chat")
    cluster.run(2)
    assert programs.started == ["load", "serve"]


def test_deployment_that_has_begun_waits_for_nothing_whatever_it_names(
    worlds: MakeWorld,
) -> None:
    cluster, programs = served(worlds)
    cluster.world.submit(job("load"))
    deploy(cluster, "chat", after=["load"])
    cluster.run(5)
    again = deploy(cluster, "chat", after=["load"])
    assert (again.revision, again.rollout) == (1, None)
    deploy(cluster, "chat", after=["no-such-work"], env={"A": "b"})
    cluster.run(20)
    assert programs.started == ["load", "serve", "serve"]


def test_deployment_does_not_wait_for_itself(worlds: MakeWorld) -> None:
    cluster, _ = served(worlds)
    with pytest.raises(InvalidSpec, match="a deployment does not wait for itself"):
        deploy(cluster, "chat", after=["chat:healthy"])
    made = deploy(cluster, "chat")
    cluster.run(4)
    assert made.status is EndpointLifecycle.READY
    for itself in ("chat", made.id):
        with pytest.raises(InvalidSpec, match="a deployment does not wait for itself"):
            deploy(cluster, "chat", after=[f"{itself}:healthy"])


def test_deployments_do_not_wait_for_each_other(worlds: MakeWorld) -> None:
    cluster, _ = served(worlds)
    cluster.world.submit(job("load"))
    deploy(cluster, "a", after=["load"])
    deploy(cluster, "b", after=["a:healthy"])
    deploy(cluster, "c", after=["b:healthy"])
    with pytest.raises(InvalidSpec, match="this one waits for the deployment already"):
        deploy(cluster, "a", after=["c:healthy"])


def test_job_that_is_retried_waits_for_no_deployment_that_it_began_with(
    worlds: MakeWorld,
) -> None:
    cluster, programs = served(worlds, fetch=Run(2, exit_code=1))
    deploy(cluster, "chat")
    cluster.run(4)
    fetches = cluster.world.submit(job("fetch", "chat:healthy", max_retries_failure=2))
    cluster.world.run(1)
    cluster.sick = {route.name for route in cluster.routes()}
    cluster.run(12)
    assert programs.started.count("fetch") == 3
    assert fetches.status is JobState.FAILED
    with pytest.raises(InvalidSpec, match="takes no requests of yours"):
        cluster.world.ask(
            lambda work, parts: parts[JobRequests].submit(work, BOB, job("b", "chat:healthy"))
        )
