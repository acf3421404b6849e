"""Incidents and operators' decisions over HTTP: who may decide, what is refused, and what everybody
is told of it."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.api.served import ADA, ADMIN, BOB, LARGE, ServedCluster

from muster.client import Client
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.health.lifecycle import IncidentLifecycle
from muster.core.errors import Conflict, InvalidSpec, NotFound
from muster.core.ids import JobId
from muster.core.owner import Owner, Role
from muster.core.reasons.of_health import HealthTaskFailed
from muster.core.states.health import HealthStatus
from muster.core.views.health import IncidentView

WORK = {"command": ["forever"], "resources": {"cpu": "10m"}}
ELSEWHERE = Owner("elsewhere", "default", "ann")


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    cluster = ServedCluster(tmp_path_factory.mktemp("health"), {"a1": LARGE, "a2": LARGE})
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def admin(cluster: ServedCluster) -> Iterator[Client]:
    with cluster.client(ADMIN, Role.ADMIN) as admin:
        yield admin


def suspect(cluster: ServedCluster, name: str, job: str | None = None) -> str:
    """Put a machine under suspicion as a job's failure does; the id of its incident."""

    def begin(work: Work, parts: Parts) -> str:
        (agent,) = (each for each in work.live.agents.values() if each.name == name)
        why = HealthTaskFailed(exit_code=1)
        incident = parts[IncidentLifecycle].suspect(
            work, agent, "Test", why, job=None if job is None else JobId(job)
        )
        assert incident is not None
        return incident.id

    return cluster.run(cluster.plane.request(begin))


def decide(cluster: ServedCluster, body: bytes, role: Role = Role.ADMIN) -> httpx.Response:
    headers = {"Authorization": f"Bearer {cluster.token(ADMIN, role)}"}
    return httpx.post(f"{cluster.url}/v1/agents/a1/health", content=body, headers=headers)


# -- decisions -----------------------------------------------------------------------------------


def test_isolated_machine_takes_no_work_until_it_is_returned(
    cluster: ServedCluster, admin: Client
) -> None:
    isolated = admin.isolate_agent("a1", note="smells of smoke")
    assert (isolated.agent, isolated.status) == ("a1", HealthStatus.ISOLATED)
    ill = admin.agents.show("a1")
    assert (ill.ill, ill.incident) == ("isolated", isolated.id)
    assert admin.agents.show("a2").ill == ""
    with cluster.client(ADA) as ada:
        job = ada.submit(placement={"agents": ["a1"]}, **WORK)
        cluster.pass_time(5.0)
        (why,) = ada.why(job.id).reasons
        assert "(1 isolated)" in why.sentence
        assert "`muster agents return AGENT`" in why.remedy

        returned = admin.return_agent("a1")
        assert (returned.id, returned.status) == (isolated.id, HealthStatus.HEALTHY)
        cluster.pass_time(5.0)
        assert ada.job(job.id).state == "RUNNING"
    well = admin.agents.show("a1")
    assert (well.ill, well.incident) == ("", None)


def test_decisions_are_kept_in_history_with_who_made_them_and_why(
    cluster: ServedCluster, admin: Client
) -> None:
    isolated = admin.isolate_agent("a1", note="smells of smoke")
    admin.return_agent("a1", note="it was the toaster")
    for history in (admin.incidents.history(isolated.id), admin.agents.history("a1")):
        told = [reason.sentence for entry in history.items for reason in entry.reasons]
        assert "isolated by root (smells of smoke)" in told
        assert "root has it take work again as it is (it was the toaster)" in told


def test_machine_that_is_to_be_checked_has_an_incident_at_once(
    cluster: ServedCluster, admin: Client
) -> None:
    asked = admin.check_agent("a1")
    assert asked.status in (HealthStatus.SUSPECT, HealthStatus.CHECKING)
    assert [each.id for each in admin.incidents()] == [asked.id]
    assert admin.check_agent("a1").id == asked.id, "one incident at a time"


def test_return_of_a_healthy_machine_is_refused(admin: Client) -> None:
    with pytest.raises(Conflict, match="agent a1 has no incident"):
        admin.return_agent("a1")


def test_decision_about_an_unknown_machine_is_refused(admin: Client) -> None:
    decisions = (admin.check_agent, admin.heal_agent, admin.isolate_agent, admin.return_agent)
    for decide_about in decisions:
        with pytest.raises(NotFound, match="there is no agent 'a9'"):
            decide_about("a9")
    assert admin.incidents("all") == []


def test_decision_about_a_removed_machine_is_refused(cluster: ServedCluster, admin: Client) -> None:
    gone = admin.agents.show("a2").id
    admin.bar_agent("a2", "draining", deadline=0)
    cluster.pass_time(5.0)
    admin.remove_agent("a2")
    with pytest.raises(NotFound, match="was removed"):
        admin.isolate_agent(gone)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{}", 422),
        (b'{"decision": "explode"}', 422),
        (b'{"decision": null}', 422),
        (b'{"decision": ["heal"]}', 422),
        (b'{"decision": "isolate", "force": true}', 422),
        (b'{"decision": "isolate", "note": 7}', 422),
        (b'{"decision": "isolate", "note": "' + b"x" * 201 + b'"}', 422),
        (b'{"decision": "isolate", "note": "' + b"x" * 2**20 + b'"}', 422),
        (b'{"decision": "isolate", "note": "' + b"x" * 2**24 + b'"}', 413),
        (b'{"decision": "isolate", "note": "red \\u001b[31m"}', 422),
        (b'{"decision": "isolate", "note": "two\\nlines"}', 422),
        (b'{"decision": "isolate", "note": "\\u0000"}', 422),
        (b'{"decision": "isolate", "note": "\\ud800"}', 422),
        (b'{"decision": "isolate", "note": "\\u202eright to left"}', 422),
        (b"\xff\xfe", 422),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_odd_decision_is_refused_whole(
    cluster: ServedCluster, admin: Client, body: bytes, status: int
) -> None:
    answer = decide(cluster, body)
    assert answer.status_code == status
    assert len(answer.content) < 4096
    assert admin.incidents("all") == []


def test_decisions_are_for_admins(cluster: ServedCluster) -> None:
    for role in (Role.USER, Role.VIEWER):
        answer = decide(cluster, b'{"decision": "isolate"}', role)
        assert answer.status_code == 403
        assert "decide about the health of machines" in answer.json()["error"]


# -- what people are told ------------------------------------------------------------------------


def test_job_that_found_it_is_named_only_to_who_may_see_that_job(
    cluster: ServedCluster, admin: Client
) -> None:
    with cluster.client(ADA) as ada:
        job = ada.submit(name="secret-project", **WORK)
        found = suspect(cluster, "a1", job.id)
        assert ada.incidents.show(found).job == "secret-project"
    assert admin.incidents.show(found).job == "secret-project"
    for stranger in (BOB, ELSEWHERE):
        token = cluster.token(stranger)
        headers = {"Authorization": f"Bearer {token}"}
        for path in (
            f"/v1/incidents/{found}",
            f"/v1/incidents/{found}/why",
            "/v1/incidents",
            f"/v1/history/{found}",
            "/v1/agents/a1/why",
            "/v1/agents/a1",
        ):
            told = httpx.get(cluster.url + path, headers=headers)
            assert told.status_code == 200, path
            assert "secret-project" not in told.text, path
            assert job.id not in told.text, path


def test_incidents_are_listed_by_state_machine_and_group(
    cluster: ServedCluster, admin: Client
) -> None:
    former = admin.isolate_agent("a1").id
    admin.return_agent("a1")
    first, second = admin.isolate_agent("a1"), admin.isolate_agent("a2")

    def ids(found: list[IncidentView]) -> list[str]:
        return [each.id for each in found]

    assert ids(admin.incidents()) == [second.id, first.id]
    assert ids(admin.incidents("ended")) == [former]
    assert ids(admin.incidents("all", agent="a1")) == [first.id, former]
    assert ids(admin.incidents("all", agent=admin.agents.show("a2").id)) == [second.id]
    assert ids(admin.incidents("isolated", group="default")) == [second.id, first.id]
    assert ids(admin.incidents("all", group="nowhere")) == []
    assert ids(admin.incidents("all", limit=2)) == [second.id, first.id]
    with pytest.raises(InvalidSpec, match="ISOLATED"):
        admin.incidents("broken")


def test_why_tells_of_a_machine_what_its_incident_waits_for(
    cluster: ServedCluster, admin: Client
) -> None:
    incident = admin.isolate_agent("a1", note="smells of smoke")
    about = admin.why("a1")
    assert about.verdict.startswith("agent a1 takes nothing new")
    assert about.details[0].startswith("agent a1 is isolated for an operator, for ")
    assert about.details[1] == "nothing is tried any more: it waits for an operator's decision"
    assert about.reasons[0].sentence == "isolated by root (smells of smoke)"
    assert "`muster agents return a1`" in about.reasons[0].remedy
    live = admin.why(incident.id)
    assert (live.subject, live.status, live.ended) == (incident.id, "ISOLATED", False)
    admin.return_agent("a1")
    ended = admin.why(incident.id)
    assert (ended.status, ended.ended) == ("HEALTHY", True)
    assert ended.verdict.startswith("agent a1 is healthy again, after ")
    assert admin.why("a1").verdict.startswith("agent a1 takes work")


def test_group_counts_its_machines_that_are_ill(admin: Client) -> None:
    (before,) = admin.groups()
    assert (before.incidents, before.out, before.may_be_out) == ({}, 0, 1)
    admin.isolate_agent("a1")
    (group,) = admin.groups()
    assert group.incidents == {HealthStatus.ISOLATED: 1}
    assert group.out == 1


def test_incidents_are_told_as_events(cluster: ServedCluster, admin: Client) -> None:
    events = admin.incidents.events()
    assert next(events).kind == "reset"
    incident = admin.isolate_agent("a1")
    told: Any = next(events)
    assert (told.kind, told.id) == ("incident", f"{incident.agent_id}/{incident.id}")


def test_controller_that_starts_again_knows_who_is_ill(
    cluster: ServedCluster, admin: Client
) -> None:
    incident = admin.isolate_agent("a1")
    cluster.down()
    cluster.up()
    again = admin.agents.show("a1")
    assert (again.ill, again.incident) == ("isolated", incident.id)
