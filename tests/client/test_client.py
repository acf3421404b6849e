"""The client against a real server: what a script or a command line sees."""

import inspect
import subprocess
import sys
import time
from typing import Any, assert_type

import pytest
from tests.api.served import BOB, ServedCluster

from muster.client import Client, Forbidden, Unauthenticated, Unreachable
from muster.client.patience import PATIENCE_S
from muster.core.errors import Ambiguous, Conflict, InvalidSpec, NotFound
from muster.core.specs import JobSpec, QuotaSpec, SessionSpec
from muster.core.states import AgentBar, JobState, SessionStatus, TaskState
from muster.core.views.placement import PlanOutcome
from muster.core.views.work import JobDetail, JobView, SessionView

SMALL: dict[str, Any] = {"command": ["true"], "resources": {"cpu": "10m"}}


def test_job_is_submitted_as_keys_as_a_mapping_and_as_a_spec(client: Client) -> None:
    jobs = [
        client.submit(command=["true"], tasks=2, resources={"cpu": "10m"}),
        client.submit({**SMALL, "tasks": 2}),
        client.submit(JobSpec.model_validate({**SMALL, "tasks": 2})),
    ]
    for job in jobs:
        assert isinstance(job, JobView)
        assert (job.tasks_total, job.owner.user, job.ended) == (2, "ada", False)
        assert client.job(job.id).spec["tasks"] == 2
    assert client.submit({**SMALL, "kind": "job"}).id


def test_spec_arrives_as_it_was_written(client: Client) -> None:
    spec = JobSpec.model_validate(
        {
            "command": ["true"],
            "resources": {"cpu": "500m", "memory": "1GiB", "gpu": 0.5, "extra": {"licence": 2}},
            "timeout": "1h",
            "environment": "clean",
        }
    )
    assert JobSpec.model_validate(client.job(client.submit(spec).id).spec) == spec


def test_session_is_submitted_as_a_mapping_and_as_a_spec(client: Client) -> None:
    for spec in (
        {"kind": "session", "kernels": [SMALL]},
        SessionSpec.model_validate({"kernels": [SMALL]}),
    ):
        session = client.submit(spec)
        assert isinstance(session, SessionView)
        assert [kernel.status for kernel in client.session(session.id).kernels] == ["RUNNING"]
        assert session.id in [found.id for found in client.sessions()]
        assert client.cancel(session.id).changed
        assert client.session(session.id).status is SessionStatus.TERMINATED


def test_records_of_a_kind_tell_a_notebook_how_they_are_listed(client: Client) -> None:
    assert (
        str(inspect.signature(client.agents)) == "(group: 'str | None' = None) -> 'list[AgentView]'"
    )
    known = list(inspect.signature(client.sessions).parameters)
    assert known[:4] == ["state", "of_jobs", "of_deployments", "name"]
    assert (client.jobs.__doc__ or "").startswith("Jobs, newest first")
    assert repr(client.jobs) == f"<jobs of {client.url}; call this to list them>"
    with pytest.raises(TypeError, match="nmae"):
        client.jobs(nmae="train")  # type: ignore[call-arg]


def test_records_of_a_kind_are_handed_in_and_found_among_themselves(client: Client) -> None:
    job = client.jobs.submit(**SMALL, name="twins")
    session = client.sessions.submit({"name": "twins", "kernels": [SMALL]})
    assert_type(job, JobView)
    assert_type(session, SessionView)
    assert_type(client.sessions(of_jobs=True), list[SessionView])
    assert_type(client.jobs.show("twins"), JobDetail)
    assert client.show("twins").id == client.jobs.show("twins").id == job.id
    assert client.sessions.show("twins").id == client.sessions.why("twins").subject == session.id
    assert {entry.kind for entry in client.sessions.history("twins").items} == {"session"}
    assert client.sessions.cancel("twins").id == session.id
    assert client.jobs.cancel("twins").id == job.id
    assert client.jobs.show("twins").exit_code == 130
    with pytest.raises(NotFound, match="there is no job"):
        client.jobs.show(session.id)


def test_submit_without_a_spec_is_a_mistake_of_the_caller(client: Client) -> None:
    with pytest.raises(TypeError):
        client.submit()


def test_wrong_spec_is_told_problem_by_problem(client: Client) -> None:
    with pytest.raises(InvalidSpec) as told:
        client.submit(command=["true"], tasks=0, grup="x")
    assert {problem.field for problem in told.value.problems} == {"tasks", "grup"}
    assert "did you mean group?" in str(told.value)


def test_jobs_beyond_one_page_are_all_listed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [client.submit(**SMALL).id for _ in range(5)]
    monkeypatch.setattr("muster.client.work.PAGE", 2)
    assert [job.id for job in client.jobs(limit=5)] == ids[::-1]
    assert [job.id for job in client.jobs(limit=3)] == ids[:1:-1]
    assert {job.id for job in client.jobs("all", limit=1000)} >= set(ids)


def test_tasks_and_their_attempts_are_shown(client: Client) -> None:
    job = client.submit(**SMALL, tasks=3)
    page = client.tasks(job.name, offset=1)
    assert ([task.index for task in page.items], page.total) == ([1, 2], 3)
    assert client.tasks(job.id, "SUCCEEDED").items == ()
    task = client.task(job.id, 2)
    assert (task.state, [attempt.agent for attempt in task.attempts]) == (TaskState.RUNNING, ["a1"])


def test_wait_tells_of_the_job_at_first_and_at_its_end(client: Client) -> None:
    job = client.submit(**SMALL)
    seen: list[JobState] = []

    def changed(view: JobView) -> None:
        seen.append(view.state)
        if len(seen) == 1:
            client.cancel(job.id)

    ended = client.wait(job.id, 20, on_change=changed)
    assert seen == [JobState.RUNNING, JobState.KILLED]
    assert (ended.state, ended.ended) == (JobState.KILLED, True)
    assert client.wait(job.name).state is JobState.KILLED


def test_wait_that_runs_out_answers_with_a_job_that_has_not_ended(client: Client) -> None:
    job = client.submit(**SMALL)
    assert not client.wait(job.id, 0.05).ended
    seen: list[JobView] = []
    assert not client.wait(job.id, 0, on_change=seen.append).ended
    assert len(seen) == 1


def test_cancel_and_why_take_jobs_and_sessions_alike(client: Client) -> None:
    job = client.submit(command=["true"], resources={"cpu": 999})
    session = client.submit(
        {
            "kind": "session",
            "name": "waits",
            "kernels": [{"command": ["true"], "resources": {"cpu": 999}}],
        }
    )
    assert client.why(job.name).reasons[0].code == "NEVER_FITS"
    assert client.why(session.id).subject == session.id
    assert client.why("waits").subject == session.id
    assert client.cancel("waits").changed
    assert client.cancel(job.id).changed
    assert not client.cancel(job.id).changed
    with pytest.raises(NotFound, match=r"there is no job.* or .* 'nothing'"):
        client.cancel("nothing")


def test_refusals_are_typed_with_the_sentence_of_the_server(
    cluster: ServedCluster, client: Client
) -> None:
    job = client.submit(**SMALL, name="taken")
    with pytest.raises(Conflict, match=f"taken by job {job.id}"):
        client.submit(**SMALL, name="taken")
    client.submit(**SMALL)
    with pytest.raises(Ambiguous, match="means several jobs"):
        client.job("job-0" if job.id.startswith("job-0") else job.id[:5])
    with pytest.raises(NotFound), cluster.client(BOB) as other:
        other.job(job.id)
    with pytest.raises(Forbidden, match="only an admin"):
        client.put_group({"name": "g"})
    with pytest.raises(Unauthenticated), Client(cluster.url, "wrong") as stranger:
        stranger.jobs()


@pytest.mark.parametrize("ref", ["", "a/b", "../health", "x?y=1", "%2e", "ä" * 100])
def test_odd_names_are_not_found_and_reach_nothing_else(client: Client, ref: str) -> None:
    for ask in (client.job, client.session, client.why, client.cancel, client.wait):
        with pytest.raises(NotFound):
            ask(ref)


def test_cluster_agents_and_groups_are_shown(client: Client, admin: Client) -> None:
    assert client.health().status == "ok"
    assert sum(client.cluster().agents.values()) == 2
    assert [agent.name for agent in client.agents()] == ["a1", "a2"]
    with pytest.raises(NotFound, match="no group 'none'; groups are: default"):
        client.agents("none")
    assert admin.put_group({"name": "second", "max_tries": 9}).spec["max_tries"] == 9
    assert client.agents("second") == []
    assert [group.name for group in client.groups()] == ["default", "second"]
    with pytest.raises(Conflict, match="is alive"):
        admin.remove_agent("a1")


def test_history_is_of_a_job_or_one_task(client: Client) -> None:
    job = client.submit(**SMALL)
    assert client.history(job.id).items
    assert not client.history(f"{job.id}/0", limit=1000).left_out


def test_events_begin_with_a_reset(client: Client) -> None:
    events = client.events()
    assert next(events).kind == "reset"
    job = client.submit(**SMALL)
    while (event := next(events)).id != job.id:
        pass
    assert event.kind == "job"
    events.close()  # type: ignore[attr-defined]


def test_nothing_that_answers_is_told_soon_with_what_to_do() -> None:
    began_s = time.monotonic()
    with Client("http://127.0.0.1:9", "t") as client, pytest.raises(Unreachable) as told:
        client.jobs()
    assert "no controller answers at http://127.0.0.1:9" in str(told.value)
    assert "`muster up`" in str(told.value)
    assert time.monotonic() - began_s < PATIENCE_S / 2


def test_blocking_client_imports_neither_httpx_nor_pydantic() -> None:
    script = """
import sys
import muster.client
client = muster.client.Client("http://127.0.0.1:9", "t")
try:
    client.jobs()
except muster.client.Unreachable:
    pass
heavy = {"httpx", "pydantic", "rich", "click", "yaml", "sqlalchemy", "fastapi", "asyncio"}
assert not set(sys.modules) & heavy, set(sys.modules) & heavy
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_plan_takes_what_submit_takes_and_hands_nothing_in(client: Client) -> None:
    before = len(client.jobs("all", limit=1000)), len(client.sessions("all", limit=1000))
    session = SessionSpec.model_validate({"kernels": [{**SMALL, "replicas": 2}]})
    assert len(client.plan(session).kernels) == 2
    assert client.plan({"kind": "session", "kernels": [SMALL]}).outcome is PlanOutcome.STARTS
    assert client.plan(JobSpec.model_validate(SMALL)).outcome is PlanOutcome.STARTS
    assert client.plan(**SMALL).sessions == 1
    waits = client.plan(command=["true"], resources={"cpu": 99})
    assert (waits.outcome, waits.reasons[0].code) == (PlanOutcome.WAITS, "NEVER_FITS")
    with pytest.raises(InvalidSpec):
        client.plan(command=["true"], tasks=0)
    with pytest.raises(TypeError):
        client.plan()
    after = len(client.jobs("all", limit=1000)), len(client.sessions("all", limit=1000))
    assert after == before


def test_admin_sets_and_removes_quotas_and_bars_agents(client: Client, admin: Client) -> None:
    spec = {"name": "default/default/*", "limits": {"cpu": 100}}
    assert admin.put_quota(QuotaSpec.model_validate(spec)).of is None
    assert admin.put_quota(spec).name == "default/default/*"
    (own,) = client.quotas()
    assert (own.of, own.limits[0].limit) == ("default/default/ada", 100_000)
    admin.remove_quota("user", "default/default/*")
    (default,) = client.quotas()  # what everybody has without a quota
    assert (default.name, default.limits, default.sessions) == ("*/*/*", (), None)
    assert default.open_specs is not None
    assert default.open_specs.limit == 24 * 2**20
    with pytest.raises(NotFound):
        admin.remove_quota("user", "default/default/*")
    with pytest.raises(Forbidden):
        client.put_quota(spec)

    assert admin.bar_agent("a1", AgentBar.CORDONED).barred is AgentBar.CORDONED
    assert {agent.name: agent.barred for agent in client.agents()}["a1"] is AgentBar.CORDONED
    assert admin.bar_agent("a1", None).barred is None
