"""Lists of which the mirror alone tells that they are empty: no thread reads them from SQL."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from tests.api.served import ADMIN, LARGE, ServedCluster

from muster.api import listing
from muster.api.app import RESOURCES
from muster.api.reader import Reader
from muster.core.owner import Role

TRUE = {"command": ["true"], "resources": {"cpu": "10m"}}
EMPTY: dict[str, Any] = {"items": [], "next": None}
LISTED = [each.path for each in RESOURCES if each.list_of is not None]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """A cluster in which nothing was ever handed in."""
    served = ServedCluster(tmp_path_factory.mktemp("served"), {"a1": LARGE})
    served.start()
    yield served
    served.stop()


@pytest.fixture
def http(served: ServedCluster) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {served.token(ADMIN, Role.ADMIN)}"}
    with httpx.Client(base_url=served.url, headers=headers) as http:
        yield http


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the queries that are read from SQL."""
    found: list[str] = []
    read = Reader._read

    def noted(self: Reader, query: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        found.append(query.__name__)
        return read(self, query, *args, **kwargs)

    monkeypatch.setattr(Reader, "_read", noted)
    return found


@pytest.mark.parametrize("path", LISTED)
def test_list_in_an_idle_cluster_is_the_one_of_sql(
    http: httpx.Client, reads: list[str], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = [http.get(path, params={"state": state}).json() for state in ("live", "current")]
    assert reads == []
    monkeypatch.setattr(listing, "MAX_LOOKED_AT", -1)
    assert at_once == [http.get(path).json()] * 2
    assert len(reads) == 1


@pytest.mark.parametrize("path", LISTED)
@pytest.mark.parametrize("key", ["name", "owner", "group"])
def test_filter_that_a_kind_does_not_have_is_refused_all_the_same(
    http: httpx.Client, path: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = http.get(path, params={key: "x"})
    monkeypatch.setattr(listing, "MAX_LOOKED_AT", -1)
    of_sql = http.get(path, params={key: "x"})
    assert (at_once.status_code, at_once.json()) == (of_sql.status_code, of_sql.json())


@pytest.mark.parametrize("state", ["ended", "all", "running"])
def test_list_of_ended_records_is_read(http: httpx.Client, reads: list[str], state: str) -> None:
    assert http.get("/v1/jobs", params={"state": state}).status_code == 200
    assert len(reads) == (state != "running")


def test_list_that_may_find_a_live_record_is_read(
    http: httpx.Client, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = http.post("/v1/jobs", json=TRUE | {"name": "train-1"}).json()
    reads.clear()
    for name in ("train-2", "tra", "train-10", "x*"):
        assert http.get("/v1/jobs", params={"name": name}).json() == EMPTY
    assert reads == []
    for query in ({}, {"name": "train-1"}, {"name": "tr*"}, {"name": "*"}, {"limit": 1}):
        found = http.get("/v1/jobs", params=query).json()["items"]
        assert [each["id"] for each in found] == [job["id"]]
    assert len(reads) == 5
    monkeypatch.setattr(listing, "MAX_LOOKED_AT", 0)
    assert http.get("/v1/jobs", params={"name": "x"}).json() == EMPTY
    assert len(reads) == 6
    http.post(f"/v1/jobs/{job['id']}/cancel").raise_for_status()


def test_record_is_found_by_the_name_that_sql_has(http: httpx.Client) -> None:
    """A recovery has that of its job there."""
    spec = TRUE | {"name": "healed", "recovery": {"max_restarts": 1}}
    job = http.post("/v1/jobs", json=spec)
    job.raise_for_status()
    for name in ("healed", "heal*"):
        found = http.get("/v1/recoveries", params={"name": name}).json()["items"]
        assert [each["name"] for each in found] == ["healed"], name
    http.post(f"/v1/jobs/{job.json()['id']}/cancel").raise_for_status()


def test_sessions_without_a_name_are_not_found_by_one(http: httpx.Client) -> None:
    """Sessions of jobs have none."""
    job = http.post("/v1/jobs", json=TRUE | {"name": "nameless"})
    job.raise_for_status()
    assert http.get("/v1/sessions", params={"of_jobs": "true"}).json()["items"]
    for name in ("nameless", "n*", "*"):
        assert http.get("/v1/sessions", params={"name": name}).json() == EMPTY
    http.post(f"/v1/jobs/{job.json()['id']}/cancel").raise_for_status()


def test_replicas_of_a_deployment_that_there_is_not_are_not_found(http: httpx.Client) -> None:
    assert http.get("/v1/routes", params={"deployment": ""}).status_code == 404
