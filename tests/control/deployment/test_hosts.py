"""The hosts that deployments may have: what an operator gave to their project, and their own name
below the domain of all."""

import socket
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster
from tests.control.world import ADA, BOB

from muster.control.deployment.entity import Deployment
from muster.control.deployment.publishing.settings import FILE, load_settings
from muster.control.deployment.requests import DeploymentRequests
from muster.core.errors import Conflict, InvalidSpec
from muster.core.owner import Owner, Principal, Role
from muster.core.serving.hosts import HostRule, is_covered
from muster.core.specs.deployment import DeploymentSpec

OTHER = Principal(Owner("default", "vision", "bob"), Role.USER)


@pytest.fixture
def cluster(worlds: MakeWorld) -> Cluster:
    return Cluster(worlds)


def deploy_as(cluster: Cluster, who: Principal, **keys: object) -> Deployment:
    spec = DeploymentSpec.model_validate({"name": "chat", "command": ["serve"]} | keys)
    made: Deployment = cluster.world.ask(
        lambda work, parts: parts[DeploymentRequests].apply(work, who, spec)
    )
    return made


def hosts(cluster: Cluster) -> dict[str, str | None]:
    live = cluster.world.plane.live.of(Deployment).values()
    return {each.name: each.host for each in live}


def with_domain(cluster: Cluster, domain: str) -> None:
    (cluster.world.path / FILE).write_text(f"domain: {domain}\n")
    cluster.world.restart_controller()


@pytest.mark.parametrize(
    "host", ["com", "grafana.example.org", "web", "chat", socket.gethostname().lower()]
)
def test_project_may_use_no_host_unless_an_operator_says_so(cluster: Cluster, host: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        cluster.deploy(host=host)
    (problem,) = refused.value.problems
    assert (problem.field, problem.value) == ("host", repr(host))
    assert problem.expected == (
        "project default/default may use no host. An administrator gives it names with "
        "`muster projects set default --host NAME`"
    )
    assert hosts(cluster) == {}


def test_project_uses_a_name_and_all_below_and_is_told_what_it_may_use(cluster: Cluster) -> None:
    cluster.give_hosts("team.example.org", "lab.example")
    cluster.deploy(name="one", host="team.example.org")
    cluster.deploy(name="two", host="a.b.Team.example.org")
    cluster.deploy(name="three", host="x.lab.example")
    for host in (
        "example.org",
        "steam.example.org",
        "team.example.org.evil.org",
        "eam.example.org",
    ):
        with pytest.raises(
            InvalidSpec,
            match=r"may use team\.example\.org, lab\.example, and names below\. An administrator",
        ):
            cluster.deploy(name="four", host=host)


def test_each_deployment_has_its_own_name_below_the_domain_of_all(cluster: Cluster) -> None:
    with_domain(cluster, "apps.example.org")
    cluster.deploy(name="Chat", host="chat.apps.example.org")
    for host in ("other.apps.example.org", "apps.example.org", "x.chat.apps.example.org"):
        with pytest.raises(InvalidSpec, match=r"may use web\.apps\.example\.org, its own\. An"):
            cluster.deploy(name="web", host=host)
    cluster.give_hosts("team.example.org")
    with pytest.raises(InvalidSpec, match=r"its own; team\.example\.org, and names below"):
        cluster.deploy(name="web", host="chat.apps.example.org")
    cluster.deploy(name="web", host="web.apps.example.org")


def test_one_projects_hosts_are_no_other_projects(cluster: Cluster) -> None:
    cluster.give_hosts("team.example.org")
    with pytest.raises(InvalidSpec, match="project default/vision may use no host"):
        deploy_as(cluster, OTHER, host="a.team.example.org")
    owner = Owner("lab", "vision", "bob")
    with pytest.raises(InvalidSpec, match="`muster projects set vision --domain lab --host NAME`"):
        deploy_as(cluster, replace(OTHER, owner=owner), host="a.team.example.org")


def test_host_that_another_project_has_is_refused_without_telling_whose_it_is(
    cluster: Cluster,
) -> None:
    cluster.give_hosts("example.org")
    cluster.give_hosts("example.org", owner=OTHER.owner)
    cluster.deploy(name="secret-plan", host="chat.example.org")

    with pytest.raises(Conflict) as refused:
        deploy_as(cluster, OTHER, name="mine", host="chat.example.org")
    assert str(refused.value) == "requests for chat.example.org reach another deployment already"


def test_who_may_not_use_a_host_does_not_learn_whether_somebody_has_it(cluster: Cluster) -> None:
    cluster.give_hosts("example.org")
    cluster.deploy(name="secret-plan", host="chat.example.org")

    said = []
    for host in ("chat.example.org", "free.example.org"):
        with pytest.raises(InvalidSpec) as refused:
            deploy_as(cluster, OTHER, name="mine", host=host)
        said.append(str(refused.value).replace(host, "HOST"))
    assert said[0] == said[1]


def test_deployment_keeps_the_host_that_it_has_when_the_rule_comes(cluster: Cluster) -> None:
    """As those do that stand when a cluster is brought up to this version."""
    cluster.give_hosts("example.org")
    cluster.deploy(host="chat.example.org")
    cluster.give_hosts()
    cluster.deploy(host="Chat.example.org", replicas=2, env={"NEW": "1"})
    cluster.run(5)
    cluster.ask("undo")
    cluster.world.restart_controller()
    cluster.deploy(host="chat.example.org", replicas=3)
    assert hosts(cluster) == {"chat": "chat.example.org"}

    with pytest.raises(InvalidSpec, match="may use no host"):
        cluster.deploy(host="talk.example.org")
    cluster.deploy()
    with pytest.raises(InvalidSpec, match="may use no host"):
        cluster.deploy(host="chat.example.org")


def test_rule_is_that_of_the_deployments_project_whoever_changes_it(cluster: Cluster) -> None:
    cluster.give_hosts("example.org", owner=OTHER.owner)
    cluster.deploy()
    admin = Principal(OTHER.owner, Role.ADMIN)
    with pytest.raises(InvalidSpec, match="project default/default may use no host"):
        deploy_as(cluster, admin, host="chat.example.org")
    deploy_as(cluster, admin, name="other", host="chat.example.org")


def test_name_of_the_controllers_machine_is_nobodys_even_where_a_project_may_use_it(
    cluster: Cluster,
) -> None:
    name = socket.gethostname().lower()
    cluster.give_hosts(name)
    with pytest.raises(Conflict, match="a name of Muster's own balancers"):
        cluster.deploy(host=name)
    cluster.deploy(host=f"chat.{name}")


def test_hosts_of_projects_outlive_the_controller(cluster: Cluster) -> None:
    cluster.give_hosts("team.example.org", "team.example.org")
    cluster.world.restart_controller()
    project = cluster.world.plane.live.accounts.projects["default", "default"]
    assert project.hosts == ("team.example.org",)
    cluster.deploy(host="a.team.example.org")
    with pytest.raises(InvalidSpec):
        deploy_as(cluster, BOB, name="b", host="a.example.org")
    deploy_as(cluster, BOB, name="b", host="b.team.example.org")
    assert ADA.owner.project == BOB.owner.project


def test_domain_that_is_an_address_is_refused(cluster: Cluster) -> None:
    for domain in ("127.0.0.1", "localhost", "a..b"):
        (cluster.world.path / FILE).write_text(f"domain: {domain}\n")
        with pytest.raises(InvalidSpec, match="domain"):
            load_settings(cluster.world.path)


LABEL = st.from_regex(r"[a-z]{1,3}", fullmatch=True)
NAMES = st.lists(LABEL, min_size=1, max_size=4)


@given(NAMES, st.lists(NAMES, max_size=3))
def test_host_is_covered_by_whole_labels_alone(host: list[str], given_: list[list[str]]) -> None:
    expected = any(host[-len(each) :] == each for each in given_)
    assert is_covered(".".join(host), [".".join(each) for each in given_]) is expected


def test_refusal_of_a_project_with_many_names_is_short() -> None:
    rule = HostRule.of("web", None, [f"n{number}.example.org" for number in range(100)])
    told = rule.refusal("com", "default", "default").expected
    assert "n7.example.org, …, and names below" in told
    assert len(told) < 300
