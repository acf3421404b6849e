"""Every kind of reference answers `show`, `why` and `history` in the same way."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from click.testing import CliRunner, Result
from proving.hollow.performers.notices import NO_FAULTS, Faults
from proving.hollow.supervisor import Run
from tests.api.served import ADA, BOB, LARGE, ServedCluster
from tests.cli.fake_cluster import because
from tests.cli.rendered import shown
from tests.control.lamp.views import LampView

from muster.api.app import RESOURCES
from muster.cli import kinds
from muster.cli.cluster import Cluster
from muster.cli.described.record import record_parts
from muster.cli.program import app
from muster.core.errors import nothing_named
from muster.core.owner import Owner, Role
from muster.core.reasons import ReasonCode
from muster.wire.messages import Start

COMMANDS = ("show", "why", "history")
KINDS = (
    *("job", "session", "notice", "recovery", "deployment", "route"),
    *("agent", "pool", "slice", "incident"),
)
"""The kinds of which there are records here."""
POOL = {"kind": "pool", "group": "mills", "provider": "local", "max_slices": 2}
WORK = {"resources": {"cpu": "10m"}}
URL = "https://hooks.example.org/t0p-s3cr3t"


def behaviour(start: Start) -> Run:
    return Run(1e9 if start.template.command[0] == "forever" else 0.5)


@dataclass
class Records:
    """A cluster with records of each kind; the ids are by kind."""

    cluster: ServedCluster
    live: dict[str, str] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    bobs: dict[str, str] = field(default_factory=dict)

    def run(self, *words: str) -> Result:
        """A command that Ada types."""
        cluster = Cluster(self.cluster.url, self.cluster.token())
        return CliRunner().invoke(app, list(words), obj=cluster)

    def submit(self, owner: Owner, command: str) -> dict[str, str]:
        """A job that tells its end, and a session."""
        with self.cluster.client(owner) as client:
            kernel = {"command": [command], **WORK}
            job = client.submit({**kernel, "notify": URL, "recovery": True})
            session = client.submit({"kind": "session", "kernels": [kernel]})
            (recovery,) = (each for each in client.recoveries("all") if each.job == job.id)
            return {"job": job.id, "session": session.id, "recovery": recovery.id}

    def notice_of(self, owner: Owner, job: str) -> str:
        with self.cluster.client(owner) as client:
            (found,) = (each for each in client.notices("all") if each.subject == job)
            return found.id

    def make_deployments(self) -> None:
        """A deployment that waits for its replica, and one that was taken down."""
        with self.cluster.client(ADA) as client:
            spec = {"kind": "deployment", "command": ["forever"], **WORK}
            self.ended["deployment"] = client.deploy({**spec, "name": "old"}).id
            self.cluster.pass_time(5.0)
            self.ended["route"] = client.routes()[0].id
            client.deployments.cancel("old")
            self.cluster.pass_time(60.0)
            new = {**spec, "name": "new", "group": "mills"}  # whose machine is isolated
            self.live["deployment"] = client.deploy(new).id
            self.cluster.pass_time(1.0)
            self.live["route"] = client.routes()[0].id

    def make_pools(self) -> None:
        """A pool with a slice, and one of each that is gone."""
        self.cluster.farm.boot_s = 0.0
        machine = {"cpu": 1, "memory": "1GiB"}
        with self.cluster.client(role=Role.ADMIN) as admin:
            health = {"replace_isolated": False}
            admin.put_group({"kind": "group", "name": "mills", "health": health})
            self.ended["pool"] = admin.apply_pool({**POOL, "name": "old", "machine": machine}).id
            admin.delete_pool("old")
            mill = {**POOL, "name": "mill", "machine": machine, "min_slices": 1}
            self.live["pool"] = admin.apply_pool(mill).id
            self.cluster.pass_time(5.0)
            (first,) = admin.slices()
            self.ended["slice"] = admin.delete_slice(first.id).id
            self.cluster.pass_time(10.0)
            (second,) = admin.slices()
            self.live["slice"] = second.id

    def make_incidents(self) -> None:
        """An incident of a machine that is well again, and one that is isolated; both of one that
        takes no part in anything else."""
        with self.cluster.client(role=Role.ADMIN) as admin:
            (agent,) = (each for each in admin.agents() if each.group == "mills")
            admin.isolate_agent(agent.name, note="loud fan")
            self.ended["incident"] = admin.return_agent(agent.name).id
            self.live["incident"] = admin.isolate_agent(agent.name).id


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Records]:
    agents = {"a1": LARGE, "a2": LARGE}
    path = tmp_path_factory.mktemp("references")
    cluster = ServedCluster(path, agents, behaviour=behaviour)
    cluster.start()
    records = Records(cluster)
    records.ended = records.submit(ADA, "short")
    cluster.pass_time(5.0)
    cluster.channels.faults = Faults(refused=1.0)
    failing = records.submit(ADA, "short")["job"]
    records.bobs = records.submit(BOB, "short")
    cluster.pass_time(5.0)
    records.live = records.submit(ADA, "forever")
    records.ended["notice"] = records.notice_of(ADA, records.ended["job"])
    records.live["notice"] = records.notice_of(ADA, failing)
    records.bobs["notice"] = records.notice_of(BOB, records.bobs["job"])
    with cluster.client(role=Role.ADMIN) as admin:
        (records.live["agent"], records.ended["agent"]) = (each.id for each in admin.agents())
        admin.bar_agent("a2", "draining", deadline=0)
        cluster.pass_time(5.0)
        admin.remove_agent("a2")
    records.make_pools()
    records.make_incidents()
    records.make_deployments()
    yield records
    cluster.channels.faults = NO_FAULTS
    cluster.stop()


def unknown(ref: str) -> str:
    named = [each.entity.name for each in RESOURCES]
    return f"muster: {nothing_named(ref, *named)}\n"


def id_in(answer: object) -> str:
    """The id that a command's JSON is about."""
    if isinstance(answer, list):
        (entity,) = {each["entity"].rpartition("/")[2] for each in answer[-1:]}
        return str(entity)
    assert isinstance(answer, dict)
    return str(answer.get("subject") if "verdict" in answer else answer["id"])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("state", ["live", "ended"])
def test_record_of_any_kind_is_told_by_its_id_with_and_without_its_kind_and_as_json(
    records: Records, command: str, kind: str, state: str
) -> None:
    id_ = getattr(records, state)[kind]
    for ref in (id_, id_.partition("-")[2], id_.upper()):
        told = records.run(command, ref)
        assert (told.exit_code, told.stderr) == (0, ""), ref
        assert told.stdout.strip()
    answer = json.loads(records.run(command, id_, "--json").stdout)
    if (command, kind) == ("history", "deployment"):
        assert id_ in {each["entity"] for each in answer}
        return
    if (command, kind) == ("history", "job"):
        assert answer  # its newest entry may be that of its session, or of its notice
    elif answer != []:  # nothing has happened to a recovery that is as new as its job
        assert id_in(answer) == id_


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "ref",
    [
        *("quux", "default", "job-zzzz", "ses-zzzz", "ntc-zzzz", "agt-zzzz", "krn-zzzz"),
        *("pol-zzzz", "slc-zzzz", "inc-zzzz", "zzzz", "x y", "%", "../jobs"),
    ],
)
def test_unknown_reference_is_refused_with_one_sentence(
    records: Records, command: str, ref: str
) -> None:
    told = records.run(command, ref)
    if (command, ref) == ("history", "default"):
        assert told.exit_code == 0, "a group has no record, but a history"
        return
    assert told.exit_code != 0
    if "/" not in ref:
        assert (told.stdout, told.stderr) == ("", unknown(ref))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["job", "session", "notice"])
def test_what_another_has_is_answered_as_what_nobody_has(
    records: Records, command: str, kind: str
) -> None:
    id_ = records.bobs[kind]
    for ref in (id_, id_.partition("-")[2]):
        told = records.run(command, ref)
        assert (told.stdout, told.stderr) == ("", unknown(ref))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", KINDS)
def test_prefix_of_several_is_refused_with_their_ids(
    records: Records, command: str, kind: str
) -> None:
    prefix = records.live[kind][:5]
    told = records.run(command, prefix)
    assert told.stdout == ""
    assert told.stderr.startswith(f"muster: {prefix!r} means several {kind}s: ")
    assert records.live[kind] in told.stderr
    assert not any(id_ in told.stderr for id_ in records.bobs.values())


@pytest.mark.parametrize("command", COMMANDS)
def test_name_of_several_kinds_is_looked_for_in_one_order(records: Records, command: str) -> None:
    with records.cluster.client() as client:
        session = client.submit(
            {"kind": "session", "name": "a1", "kernels": [{"command": ["forever"], **WORK}]}
        )
        records.cluster.pass_time(5.0)
        assert id_in(json.loads(records.run(command, "a1", "--json").stdout)) == session.id
        agent = records.live["agent"]
        assert id_in(json.loads(records.run(command, agent, "--json").stdout)) == agent
        client.cancel(session.id)
        records.cluster.pass_time(5.0)


@pytest.mark.parametrize("command", COMMANDS)
def test_task_is_told_by_its_index_and_refused_where_there_is_none(
    records: Records, command: str
) -> None:
    for job in (records.live["job"], records.ended["job"]):
        assert records.run(command, f"{job}/0").exit_code == 0
        missing = records.run(command, f"{job}/7")
        assert missing.exit_code != 0
        with records.cluster.client(ADA) as client:
            name = client.job(job).name
        assert f"job {name} has no task 7" in missing.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_name_is_answered_with_the_name_of_an_agent_like_it(
    records: Records, command: str
) -> None:
    told = records.run(command, "a11")
    assert told.exit_code == 1
    assert told.stderr.endswith(" 'a11'; did you mean a1?\n")


@pytest.mark.parametrize("command", ["show", "why"])
def test_index_is_refused_where_there_are_no_tasks(records: Records, command: str) -> None:
    told = records.run(command, f"{records.live['agent']}/0")
    assert told.exit_code == 1
    assert told.stderr == "muster: an agent has no task 0: leave out the number\n"


def test_output_is_refused_of_what_has_none(records: Records) -> None:
    for ref in (records.live["agent"], records.live["notice"].partition("-")[2]):
        told = records.run("logs", ref)
        assert told.exit_code == 2
        assert "has no output" in told.stderr


def test_only_jobs_are_retried(records: Records) -> None:
    told = records.run("retry", records.live["agent"])
    assert told.exit_code == 2
    assert f"{records.live['agent']!r} is an agent: only jobs are retried" in told.stderr


def test_kinds_are_declared_alike_in_the_api_the_client_and_the_commands(
    records: Records,
) -> None:
    with records.cluster.client() as client:
        of_client = client._resources()
    of_api = [(each.entity.name, each.entity.prefix, each.path) for each in RESOURCES]
    assert [(each.name, each.prefix, each.path) for each in of_client] == of_api
    of_commands = zip(kinds.every(), kinds.KINDS, strict=True)
    assert [(kind.name, prefix) for kind, prefix in of_commands] == [each[:2] for each in of_api]
    of_store = [each.name for each in records.cluster.plane.live.entities.referred()]
    assert [name for name, *_ in of_api] == of_store
    assert [each.is_handed_in for each in of_client] == [
        bool(each.submission) for each in RESOURCES
    ]
    cancelled = [each.cancel is not None for each in RESOURCES]
    assert [each.is_cancelled for each in of_client] == cancelled
    assert [kind.is_cancelled for kind in kinds.every()] == cancelled


def test_only_work_is_cancelled(records: Records) -> None:
    told = records.run("cancel", records.live["agent"])
    named = [each.entity.name for each in RESOURCES if each.cancel is not None]
    assert told.stderr == f"muster: {nothing_named(records.live['agent'], *named)}\n"


def test_why_tells_what_an_agent_and_a_notice_wait_for(records: Records) -> None:
    notice = records.run("why", records.live["notice"]).stdout
    assert re.search(r"waits for try [2-6] of 6", notice)
    assert "the channel did not take the notice, it answered 503" in notice
    assert "the next try is in" in notice
    assert "the channel took it" in records.run("why", records.ended["notice"]).stdout

    def why_of_agent() -> str:
        return records.run("why", records.live["agent"]).stdout

    with records.cluster.client(role=Role.ADMIN) as admin:
        admin.bar_agent("a1", "cordoned", note="loud fan")
        assert "agent a1 takes nothing new; it runs 2 kernels" in why_of_agent()
        assert "cordoned (loud fan): it takes nothing new" in why_of_agent()
        admin.bar_agent("a1", None)
    assert "agent a1 takes work; it runs 2 kernels" in why_of_agent()
    removed = records.run("why", records.ended["agent"]).stdout
    assert "agent a2 was removed" in removed
    assert "removed by" in removed


def test_show_tells_an_agent_and_a_notice(records: Records) -> None:
    agent = records.run("show", records.live["agent"]).stdout
    assert "4 cpu" in agent
    assert "2 kernels" in agent
    notice = records.run("show", records.live["notice"]).stdout
    assert "https://hooks.example.org…" in notice
    assert "t0p-s3cr3t" not in notice


def test_show_lists_the_plain_fields_of_a_kind_that_it_has_no_words_for() -> None:
    reason = because(ReasonCode.CANCELLED, by="ann")
    lamp = LampView(id="lmp-1", name="porch", status="OUT", reason=reason)
    assert shown(record_parts(lamp)) == [
        "lmp-1  out",
        "reason  cancelled by ann",
        "name    porch",
    ]


def test_notices_are_listed_with_what_they_wait_for(records: Records) -> None:
    waiting = records.run("notify", "list").stdout
    assert records.live["notice"] in waiting
    assert records.ended["notice"] not in waiting
    every = records.run("notify", "list", "--all").stdout
    assert records.ended["notice"] in every
    assert records.bobs["notice"] not in every
    listed = json.loads(records.run("notify", "list", "--json").stdout)
    assert [each["id"] for each in listed] == [records.live["notice"]]


def test_name_that_begins_as_ids_of_another_kind_is_a_name(records: Records) -> None:
    with records.cluster.client() as client:
        job = client.submit(command=["forever"], name="agt-zoo", **WORK)
        records.cluster.pass_time(5.0)
        assert json.loads(records.run("show", "agt-zoo", "--json").stdout)["id"] == job.id
        assert records.run("logs", "agt-zoo").exit_code == 0
        client.cancel(job.id)
        records.cluster.pass_time(5.0)
