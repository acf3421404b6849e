"""Domains, projects, users and tokens over HTTP: what an administrator manages, and what others see
of it."""

from collections.abc import Iterator

import httpx
import pytest
from tests.api.served import ADA, ADMIN, LARGE, ServedCluster

from muster.client import Client, Forbidden
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.session.cluster.user_uids import UserUids
from muster.core.errors import Conflict, InvalidSpec, NotFound
from muster.core.owner import Owner, Role

SLEEP = {"command": ["sleep", "1000"], "resources": {"cpu": "10m"}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    cluster = ServedCluster(tmp_path_factory.mktemp("accounts"), {"a1": LARGE})
    cluster.start()
    yield cluster
    cluster.stop()


def as_user(cluster: ServedCluster, root: Client, name: str, **fields: str) -> Client:
    """A client with a new token of the user's."""
    return Client(cluster.url, root.create_token(user=name, **fields).secret)


def test_administrator_adds_a_domain_with_projects_and_users(
    cluster: ServedCluster, root: Client
) -> None:
    root.add_domain("lab")
    for project in ("vision", "speech"):
        root.add_project(project, "lab")
    added = root.add_user("grace", ["vision", "speech"], "lab")
    assert (added.domain, added.name, added.projects) == ("lab", "grace", ("vision", "speech"))
    assert "lab" in [domain.name for domain in root.domains()]
    assert ("lab", "speech") in [(each.domain, each.name) for each in root.projects()]
    with as_user(cluster, root, "grace", domain="lab") as grace:
        me = grace.whoami()
        assert (me.domain, me.project, me.user, me.role) == ("lab", "vision", "grace", Role.USER)
        assert me.projects == ("vision", "speech")
        assert [user.name for user in grace.users()] == ["grace"], "others are not hers to see"
        assert [each.name for each in grace.projects()] == ["speech", "vision"]
        assert [each.name for each in grace.domains()] == ["lab"]
    with pytest.raises(Conflict, match="remove those first"):
        root.remove_domain("lab")


def test_users_are_told_with_their_uids_and_the_cluster_with_its_range(
    cluster: ServedCluster, root: Client
) -> None:
    assert root.add_user("ute").uid is None
    told = root.cluster()
    first, _, last = told.uids.partition("-")
    assert told.uids_left == int(last) - int(first) + 1 == 65_536

    def give(work: Work, parts: Parts) -> None:
        parts[UserUids].adopt(work, {"default/ute": int(first), "default/removed": 200_000})

    cluster.run(cluster.plane.request(give))
    assert {user.name: user.uid for user in root.users()}["ute"] == int(first)
    assert root.cluster().uids_left == 65_535, "those of another range are not of this one"
    with as_user(cluster, root, "ute") as ute:
        assert [(user.name, user.uid) for user in ute.users()] == [("ute", int(first))]


def test_administrator_gives_a_project_the_hosts_that_its_deployments_may_have(
    cluster: ServedCluster, root: Client
) -> None:
    added = root.add_project("shop", hosts=["Shop.example.org"])
    assert added.hosts == ("shop.example.org",)
    web = {"name": "web", "command": ["true"], "resources": {"cpu": "10m"}}
    root.add_user("sol", ["shop"])
    with as_user(cluster, root, "sol", project="shop") as sol:
        sol.deploy({**web, "host": "a.shop.example.org"})
        assert [each.hosts for each in sol.projects()] == [("shop.example.org",)]
        with pytest.raises(Forbidden):
            sol.set_hosts("shop", ["com"])

        changed = root.set_hosts("shop", ["new.example.org", "new.example.org"])
        assert changed.hosts == ("new.example.org",)
        assert changed.outside == ("a.shop.example.org",)

        sol.deploy({**web, "host": "a.shop.example.org", "replicas": 2})
        with pytest.raises(InvalidSpec, match=r"shop may use new\.example\.org, and"):
            sol.deploy({**web, "host": "b.shop.example.org"})
        sol.deploy({**web, "host": "b.new.example.org"})
        assert root.set_hosts("shop", ["example.org"]).outside == ()
        sol.cancel("web")
    assert ("shop", ("example.org",)) in [(each.name, each.hosts) for each in root.projects()]


@pytest.mark.parametrize("host", ["", ".", "*.example.org", "a..b", "10.0.0.1", "localhost", "a b"])
def test_hosts_of_a_project_are_names(root: Client, host: str) -> None:
    with pytest.raises(InvalidSpec, match="hosts"):
        root.set_hosts("default", [host])
    with pytest.raises(NotFound):
        root.set_hosts("nowhere", ["example.org"])


def test_tokens_for_discovery_are_made_by_administrators_alone(
    cluster: ServedCluster, root: Client
) -> None:
    made = root.create_token("prometheus", role="discovery").token
    assert (made.role, made.project) == (Role.DISCOVERY, None)
    with pytest.raises(InvalidSpec, match="reads the routes of the whole cluster"):
        root.create_token(role="discovery", project="default")
    root.add_user("ida")
    with as_user(cluster, root, "ida") as ida:
        with pytest.raises(InvalidSpec, match="expected at most your own, user"):
            ida.create_token(role="discovery")
        theirs = root.create_token("theirs", role="discovery", user="ida").token
        assert theirs.id not in [each.id for each in ida.tokens()]
        with pytest.raises(NotFound):
            ida.revoke_token(theirs.id)
    root.revoke_token(made.id)


def test_what_is_there_already_or_not_there_is_refused(root: Client) -> None:
    root.add_user("hal")
    with pytest.raises(Conflict, match="there is a user default/hal already"):
        root.add_user("hal")
    with pytest.raises(InvalidSpec, match="projects"):
        root.add_user("ian", ["nowhere"])
    with pytest.raises(InvalidSpec, match="domain"):
        root.add_project("vision", "nowhere")
    with pytest.raises(InvalidSpec, match="user"):
        root.create_token(user="ian")
    with pytest.raises(NotFound):
        root.remove_user("ian")
    with pytest.raises(InvalidSpec):
        root.add_user("../etc/passwd")
    with pytest.raises(InvalidSpec):
        root.add_user("a" * 64)


def test_work_counts_for_the_project_that_it_names(cluster: ServedCluster, root: Client) -> None:
    root.add_project("one")
    root.add_project("two")
    root.add_project("three")
    root.add_user("ivy", ["one", "two"])
    with as_user(cluster, root, "ivy") as ivy:
        first = ivy.jobs.submit(SLEEP)
        other = ivy.jobs.submit({**SLEEP, "project": "two"})
        assert (first.owner.project, other.owner.project) == ("one", "two")
        assert {job.id for job in ivy.jobs()} == {first.id, other.id}
        assert ivy.job(other.id).spec["project"] == "two"
        with pytest.raises(InvalidSpec, match="expected a project of yours"):
            ivy.submit({**SLEEP, "project": "three"})
        with pytest.raises(InvalidSpec, match="expected a project of yours"):
            ivy.plan({**SLEEP, "project": "three"})
    with as_user(cluster, root, "ivy", project="two") as bound:
        assert bound.jobs.submit(SLEEP).owner.project == "two"
        assert first.id not in {job.id for job in bound.jobs()}, "of the token's project only"
        with pytest.raises(NotFound):
            bound.cancel(first.id)
        with pytest.raises(InvalidSpec):
            bound.submit({**SLEEP, "project": "one"})
        assert bound.create_token().token.project == "two"
    root.remove_user("ivy", cancel=True)


def test_user_with_live_work_is_removed_only_with_it(cluster: ServedCluster, root: Client) -> None:
    root.add_user("jan")
    with as_user(cluster, root, "jan") as jan:
        job = jan.submit(SLEEP)
        session = jan.submit({"kind": "session", "kernels": [SLEEP]})
        deployment = jan.deploy({**SLEEP, "kind": "deployment", "name": "jans", "replicas": 2})
        cluster.call(cluster._settle)
        routes = [route.session for route in jan.routes()]
        assert len(routes) == 2
        with pytest.raises(Conflict, match=r"1 jobs, 1 deployments, 1 sessions .* --cancel"):
            root.remove_user("jan")
        assert jan.whoami().user == "jan"
        root.remove_user("jan", cancel=True)
    cluster.call(cluster._settle)
    assert root.job(job.id).ended
    assert root.session(session.id).ended
    assert root.deployments.show(deployment.id).finished_at is not None
    assert all(root.session(each or "").ended for each in routes)
    assert "jan" not in [user.name for user in root.users()]
    assert "jan" not in [token.user for token in root.tokens()]


def test_deployment_of_a_project_that_is_removed_is_taken_down(
    cluster: ServedCluster, root: Client
) -> None:
    root.add_project("short")
    root.add_user("mia", ["short", "default"])
    with as_user(cluster, root, "mia", project="short") as mia:
        deployment = mia.deploy({**SLEEP, "kind": "deployment", "name": "mias"})
        with pytest.raises(Conflict, match="0 jobs, 1 deployments, 0 sessions"):
            root.set_projects("mia", ["default"])
    root.set_projects("mia", ["default"], cancel=True)
    cluster.call(cluster._settle)
    assert root.deployments.show(deployment.id).finished_at is not None
    root.remove_user("mia")


def test_project_that_is_left_takes_its_tokens_with_it(
    cluster: ServedCluster, root: Client
) -> None:
    root.add_project("old")
    root.add_user("kim", ["old", "default"])
    bound = root.create_token(user="kim", project="old")
    free = root.create_token(user="kim")
    root.add_user("lea", ["old"])
    with pytest.raises(Conflict, match="only one of lea"):
        root.remove_project("old")
    root.set_projects("lea", ["default"])
    with Client(cluster.url, free.secret) as kim:
        kim.submit(SLEEP)
        with pytest.raises(Conflict, match="alive"):
            root.set_projects("kim", ["default"])
        root.remove_project("old", cancel=True)
        assert kim.whoami().projects == ("default",)
    assert bound.token.id not in [token.id for token in root.tokens()]


def test_secret_is_told_once(cluster: ServedCluster, root: Client) -> None:
    made = root.create_token("laptop", user="hal", expires="30d")
    listed = next(token for token in root.tokens() if token.id == made.token.id)
    assert listed == made.token
    assert listed.expires_at == pytest.approx(cluster.clock.now() + 30 * 86400)
    raw = httpx.get(
        f"{cluster.url}/v1/tokens",
        headers={"Authorization": f"Bearer {cluster.token(ADMIN, Role.ADMIN)}"},
    )
    assert made.secret not in raw.text


def test_users_look_after_tokens_of_their_own_alone(cluster: ServedCluster, root: Client) -> None:
    root.add_user("max")
    with as_user(cluster, root, "max") as max_:
        made = max_.create_token("ci", role="viewer")
        theirs = root.create_token("theirs", user="hal").token
        assert [token.user for token in max_.tokens()] == ["max", "max"]
        with pytest.raises(NotFound):
            max_.revoke_token(theirs.id)
        with pytest.raises(InvalidSpec, match="only an admin's token"):
            max_.create_token(user="hal")
        with pytest.raises(InvalidSpec, match="at most your own"):
            max_.create_token(role="admin")
        assert max_.revoke_token("ci").id == made.token.id
    with as_user(cluster, root, "max", role="viewer") as viewer:
        for ask in (viewer.tokens, viewer.create_token, lambda: viewer.revoke_token("x")):
            with pytest.raises(Forbidden):
                ask()


def test_owner_of_another_domain_is_somebody_else(cluster: ServedCluster, root: Client) -> None:
    """Equal names in two domains are two users."""
    root.add_domain("twin")
    root.add_project("default", "twin")
    root.add_user("ada", domain="twin")
    with (
        cluster.client(ADA) as ada,
        cluster.client(Owner("twin", "default", "ada")) as other,
    ):
        job = ada.submit(SLEEP)
        with pytest.raises(NotFound):
            other.job(job.id)
        assert other.jobs("all") == []
        ada.cancel(job.id)


def test_projects_of_others_are_not_told_by_the_groups_that_take_their_work(
    cluster: ServedCluster, root: Client
) -> None:
    root.put_group({"name": "gpu", "projects": ["default/default", "default/secret"]})
    with cluster.client(ADA) as ada:
        (gpu,) = [group for group in ada.groups() if group.name == "gpu"]
        assert gpu.spec["projects"] == ["default/default"]
    (gpu,) = [group for group in root.groups() if group.name == "gpu"]
    assert gpu.spec["projects"] == ["default/default", "default/secret"]


def test_requests_without_a_good_token_are_counted(cluster: ServedCluster, root: Client) -> None:
    before = root.cluster().unauthenticated
    for header in ({}, {"Authorization": "Bearer wrong"}):
        assert httpx.get(cluster.url + "/v1/jobs", headers=header).status_code == 401
    assert root.cluster().unauthenticated == before + 2
