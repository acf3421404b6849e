"""Every endpoint, asked by everybody: who gets in, who may look, and who may change something."""

from collections.abc import Iterator

import httpx
import pytest
from tests.api.served import ADA, ADMIN, BOB, LARGE, ServedCluster

from muster.api.app import RESOURCES
from muster.core.owner import Role

Endpoint = tuple[str, str]

ADMINS_ONLY = {
    ("put", "/v1/groups/{name}"),
    ("delete", "/v1/groups/{name}"),
    ("get", "/v1/changes"),
    ("put", "/v1/quotas/{level}/{name}"),
    ("delete", "/v1/quotas/{level}/{name}"),
    ("post", "/v1/domains"),
    ("delete", "/v1/domains/{domain}"),
    ("post", "/v1/projects"),
    ("delete", "/v1/projects/{domain}/{project}"),
    ("put", "/v1/projects/{domain}/{project}/hosts"),
    ("post", "/v1/users"),
    ("put", "/v1/users/{domain}/{user}/projects"),
    ("delete", "/v1/users/{domain}/{user}"),
    ("get", "/v1/join-tokens"),
    ("post", "/v1/join-tokens"),
    ("delete", "/v1/join-tokens/{ref}"),
    ("post", "/v1/traffic/load"),
    ("post", "/v1/traffic/identify"),
}
"""Endpoints that answer all but administrators with a 403, whatever they name; beside those that
change records without an owner."""
OF_NOBODY = ("/v1/agents", "/v1/pools", "/v1/slices", "/v1/incidents")
"""The paths of records without an owner."""
CHANGES_NOTHING = {("post", "/v1/plan"), ("post", "/v1/wait")}
FOR_USERS = {("get", "/v1/tokens")}
"""Endpoints that change nothing and are not for viewers."""
OF_SOMEBODY = (
    *(f"{each.path}/{{ref}}" for each in RESOURCES if each.path not in OF_NOBODY),
    "/v1/history/{ref}",
    "/v1/tokens/{ref}",
)
"""Endpoints that answer "not found" to a user who is not the owner."""


def is_for_admins(endpoint: Endpoint) -> bool:
    method, path = endpoint
    return endpoint in ADMINS_ONLY or (method != "get" and path.startswith(OF_NOBODY))


def is_not_for_viewers(endpoint: Endpoint) -> bool:
    method, _ = endpoint
    return endpoint in FOR_USERS or (method != "get" and endpoint not in CHANGES_NOTHING)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    cluster = ServedCluster(tmp_path_factory.mktemp("matrix"), {"a1": LARGE})
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def endpoints(cluster: ServedCluster) -> list[Endpoint]:
    paths = cluster.app.openapi()["paths"]
    found = [(method, path) for path, methods in paths.items() for method in methods]
    assert len(found) > 35
    for named in ADMINS_ONLY | CHANGES_NOTHING | FOR_USERS:
        assert named in found, f"{named} is no endpoint"
    return [endpoint for endpoint in found if endpoint[1] not in ("/health", "/v1/events")]


def ask(cluster: ServedCluster, endpoint: Endpoint, token: str, ref: str = "nothing") -> int:
    """The status of an answer to a request that names ``ref``, with an empty body."""
    method, path = endpoint
    name_of = "a/b/c" if "{level}" in path else "no"
    values = {"index": "0", "level": "user", "name": name_of, "domain": "no", "project": "no"}
    for name, value in {**values, "user": "no", "ref": ref}.items():
        path = path.replace("{" + name + "}", value)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    body = b"{}" if method in ("post", "put") else None
    return httpx.request(method, cluster.url + path, headers=headers, content=body).status_code


def test_no_endpoint_lets_anybody_in_without_a_good_token(
    cluster: ServedCluster, endpoints: list[Endpoint]
) -> None:
    revoked_id, revoked = cluster.new_token()
    _, expired = cluster.new_token(expires=10)
    with cluster.client(ADMIN, Role.ADMIN) as admin:
        admin.revoke_token(revoked_id)
    cluster.call(lambda: cluster.clock.advance(11))
    for endpoint in endpoints:
        for token in ("", "wrong", revoked, expired):
            assert ask(cluster, endpoint, token) == 401, (endpoint, token)


def test_what_is_for_admins_is_forbidden_to_all_others(
    cluster: ServedCluster, endpoints: list[Endpoint]
) -> None:
    for endpoint in endpoints:
        for role in (Role.USER, Role.VIEWER):
            forbidden = ask(cluster, endpoint, cluster.token(ADA, role)) == 403
            is_viewer = role is Role.VIEWER
            expected = is_for_admins(endpoint) or (is_viewer and is_not_for_viewers(endpoint))
            assert forbidden == expected, (endpoint, role)


def test_token_for_discovery_reads_routes_and_nothing_else(
    cluster: ServedCluster, endpoints: list[Endpoint]
) -> None:
    token = cluster.token(ADMIN, Role.DISCOVERY)
    read = {endpoint for endpoint in endpoints if ask(cluster, endpoint, token) != 403}
    assert read == {("get", "/v1/traffic/prometheus"), ("get", "/v1/traffic/traefik")}
    headers = {"Authorization": f"Bearer {token}"}
    for path in ("/v1/traffic/prometheus", "/v1/traffic/traefik"):
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
            status = httpx.request(method, cluster.url + path, headers=headers).status_code
            assert status == (200 if method in ("GET", "HEAD") else 403), (method, path)
    for path in ("/v1/events", "/v1/nothing", "/openapi.json", "/", "/v1/traffic/prometheus/"):
        assert httpx.get(cluster.url + path, headers=headers).status_code == 403, path


def test_nothing_is_forbidden_to_admins(cluster: ServedCluster, endpoints: list[Endpoint]) -> None:
    token = cluster.token(ADMIN, Role.ADMIN)
    for endpoint in endpoints:
        assert ask(cluster, endpoint, token) not in (401, 403, 500), endpoint


def test_what_belongs_to_another_is_not_found_for_a_user_a_viewer_and_by_all_their_requests(
    cluster: ServedCluster, endpoints: list[Endpoint]
) -> None:
    work = {"command": ["sleep", "1000"], "resources": {"cpu": "10m"}}
    with cluster.client(ADA) as ada:
        job = ada.submit(work)
        session = ada.submit({"kind": "session", "kernels": [work]})
        token = ada.create_token().token
    strangers = [cluster.token(BOB), cluster.token(BOB, Role.VIEWER)]
    with cluster.client(ADMIN, Role.ADMIN) as admin:
        admin.add_project("elsewhere")
        admin.set_projects("ada", ["default", "elsewhere"])
        bound = admin.create_token(user="ada", project="elsewhere").secret
    asked = 0
    for endpoint in endpoints:
        if not endpoint[1].startswith(OF_SOMEBODY):
            continue
        for ref in (job.id, session.id, token.id):
            for stranger in [*strangers, bound]:
                status = ask(cluster, endpoint, stranger, ref)
                assert status in (403, 404, 422), (endpoint, ref)
                assert status != 403 or is_not_for_viewers(endpoint)
                asked += 1
    assert asked > 100
    with cluster.client(ADA) as ada:
        assert not ada.job(job.id).ended
        assert not ada.session(session.id).ended
        assert token.id in [each.id for each in ada.tokens()]
        ada.cancel(job.id)
        ada.cancel(session.id)
