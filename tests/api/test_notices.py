"""Channels over HTTP: what is refused, what is shown, and what a trial tells."""

import json
from collections.abc import Iterator

import httpx
import pytest
from proving.hollow.performers.notices import NO_FAULTS, Faults
from proving.hollow.supervisor import Run
from tests.api.served import BOB, LARGE, ServedCluster

from muster.client import Client
from muster.core.errors import InvalidSpec
from muster.core.specs import SessionSpec

TOKEN = "t0p-s3cr3t"
URL = f"https://hooks.example.org/{TOKEN}"
SHOWN = "https://hooks.example.org…"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    path = tmp_path_factory.mktemp("cluster")
    cluster = ServedCluster(path, {"a": LARGE}, behaviour=lambda start: Run(1.0))
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def client(cluster: ServedCluster) -> Iterator[Client]:
    cluster.channels.faults = NO_FAULTS
    with cluster.client() as client:
        yield client


def test_trial_tells_that_the_channel_took_it(client: Client) -> None:
    notice = client.try_channel(URL)
    assert (notice.status, notice.channel, notice.reason) == ("SENT", SHOWN, None)


def test_trial_is_made_once_and_tells_why_it_failed(cluster: ServedCluster, client: Client) -> None:
    cluster.channels.faults = Faults(refused=1.0)
    notice = client.try_channel(URL)
    assert notice.status == "FAILED"
    assert notice.reason is not None
    assert notice.reason.sentence == "the channel did not take the notice, it answered 503"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("syslog://", "expected a URL"),
        ("syslog://local", "syslog:// is not allowed on this cluster"),
        ("dbus://local", "dbus:// is not allowed"),
        ("https://169.254.169.254/" + TOKEN, "clouds tell a machine its secrets"),
        ("json://[fe80::1]/" + TOKEN, "no machine of the internet"),
        (SHOWN, "write the whole URL"),
    ],
)
def test_channel_to_which_nothing_is_sent_is_refused_before_anything_is_accepted(
    client: Client, url: str, why: str
) -> None:
    before = [each.id for each in client.jobs(state="all")]
    spec = {"command": ["x"], "notify": [{"url": url, "on": "failure"}]}
    session = {"kind": "session", "kernels": [{"command": ["x"]}], "notify": [url]}
    for hand_in in (
        lambda: client.submit(spec),
        lambda: client.submit(session),
        lambda: client.plan(spec),
        lambda: client.try_channel(url),
    ):
        with pytest.raises(InvalidSpec) as refused:
            hand_in()
        assert why in str(refused.value)
        assert TOKEN not in str(refused.value)
    assert [each.id for each in client.jobs(state="all")] == before


def test_without_the_library_a_channel_is_refused_with_the_command_that_installs_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.control.notice.requests.find_spec", lambda name: None)
    with pytest.raises(InvalidSpec, match=r"pip install 'muster-scheduler\[notices\]'"):
        client.submit(command=["x"], notify=[URL])
    assert client.submit(command=["x"]).id


def test_nobody_is_shown_a_channels_token_and_history_tells_of_the_notice(
    cluster: ServedCluster, client: Client
) -> None:
    job = client.submit(command=["x"], notify=[{"url": URL, "on": "success"}])
    session = client.submit(
        SessionSpec.model_validate({"kernels": [{"command": ["x"]}], "notify": URL})
    )
    cluster.pass_time(10.0)
    answers = []
    with httpx.Client(
        base_url=cluster.url, headers={"Authorization": f"Bearer {cluster.token()}"}
    ) as http:
        for path in (f"jobs/{job.id}", f"sessions/{session.id}"):
            detail = http.get(f"/v1/{path}")
            (channel,) = detail.json()["spec"]["notify"]
            assert channel["url"] == SHOWN
            answers.append(detail.text)
        for id_ in (job.id, session.id):
            history = http.get(f"/v1/history/{id_}")
            told = [
                (each["phase"], each["to_status"])
                for each in history.json()["items"]
                if each["entity"].startswith(f"{id_}/ntc-")
            ]
            assert told == [("TakeTurns", "SENDING"), ("SendNotices", "SENT")]
            answers.append(history.text)
    assert TOKEN not in json.dumps(answers)


def test_retry_of_a_job_tells_the_same_channel(cluster: ServedCluster, client: Client) -> None:
    with_exit = {"command": ["x"], "notify": URL, "timeout": 0.5, "name": "short"}
    first = client.submit(with_exit)
    cluster.pass_time(30.0)
    assert client.job(first.id).state == "KILLED"
    before = len(cluster.channels.sent)
    client.retry(first.id)
    cluster.pass_time(30.0)
    assert len(cluster.channels.sent) == before + 1


def test_retry_of_a_job_whose_channel_is_allowed_no_more_is_refused(
    cluster: ServedCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = client.submit({"command": ["x"], "notify": URL, "timeout": 0.5})
    cluster.pass_time(30.0)
    before = [each.id for each in client.jobs(state="all")]
    monkeypatch.setattr("muster.control.notice.requests.find_spec", lambda name: None)
    with pytest.raises(InvalidSpec, match="cannot send notices") as refused:
        client.retry(first.id)
    assert TOKEN not in str(refused.value)
    assert [each.id for each in client.jobs(state="all")] == before


def test_notices_are_listed_page_by_page_and_by_no_name_or_group(
    cluster: ServedCluster, client: Client
) -> None:
    made = [client.try_channel(URL).id for _ in range(3)]
    with httpx.Client(
        base_url=cluster.url, headers={"Authorization": f"Bearer {cluster.token()}"}
    ) as http:
        first = http.get("/v1/notices", params={"state": "all", "limit": 2}).json()
        assert [each["id"] for each in first["items"]] == made[:0:-1]
        rest = {"state": "sent", "limit": 1, "cursor": first["next"]}
        assert http.get("/v1/notices", params=rest).json()["items"][0]["id"] == made[0]
        for wrong in ("name", "group"):
            refused = http.get("/v1/notices", params={wrong: "x"})
            assert refused.status_code == 422
            assert f"a notice has no {wrong}" in refused.json()["error"]
    assert [each.id for each in client.notices("all", limit=3)] == made[::-1]


def test_events_of_a_notice_are_its_owners_alone(cluster: ServedCluster) -> None:
    with (
        cluster.client() as ada,
        cluster.client(BOB) as bob,
        cluster.events() as adas,
        cluster.events(BOB) as bobs,
    ):
        assert ada.try_channel(URL).status == "SENT"
        assert next(event for event in adas if event.kind == "notice").id.startswith("ntc-")
        own = bob.submit(command=["bobs"]).id
        assert next(event for event in bobs if event.kind in ("notice", "job")).id == own
