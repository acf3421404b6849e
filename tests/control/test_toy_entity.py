"""A new entity is a folder: lamps, in `tests/control/lamp`, join a cluster that serves.

Their record, states, table, handlers, effect, performer, requests and endpoints are all in that
folder, and so is what client, command line and simulations know of them; nothing of the product
names them. A product of which they are a part has a few lines of theirs beside their files.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, assert_type

import httpx
import pytest
from click.testing import CliRunner
from proving.hollow.supervisor import Run
from sqlalchemy import update
from tests.api.served import ADMIN, BOB, LARGE, ServedCluster
from tests.control.lamp import spec
from tests.control.lamp.api import LAMPS
from tests.control.lamp.entity import LAMP, Lamp, lamps
from tests.control.lamp.joined_client import AsyncLampClient, LampClient
from tests.control.lamp.module import LampLighter, LampModule
from tests.control.lamp.product import FURTHER, LINES, ROOT, lay_out
from tests.control.lamp.views import LampView
from tests.databases import migrated_url, open_unsynced

import muster
from muster.cli import kinds
from muster.cli.cluster import Cluster
from muster.cli.program import app
from muster.client import Client, Conflict, InvalidSpec, NotFound
from muster.control.modules import cluster_audits, cluster_entities
from muster.core.owner import Role
from muster.core.specs import load
from muster.core.views.placement import PlanOutcome
from muster.store.audit.finding import stored_in
from muster.store.entity import Visible

CELLAR = "kind: lamp\nname: cellar\n"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    LampLighter.asked.clear()
    LampLighter.fails, LampLighter.is_away = 0, False
    engine = open_unsynced(migrated_url(tmp_path / "muster.db"))
    lamps.create(engine)
    engine.dispose()
    cluster = ServedCluster(
        tmp_path,
        {"a": LARGE},
        behaviour=lambda start: Run(1.0),
        more=[LampModule],
        more_resources=[LAMPS],
    )
    cluster.start()
    yield cluster
    cluster.stop()


class Http:
    """Requests of one user."""

    def __init__(self, cluster: ServedCluster, token: str) -> None:
        self._url = cluster.url
        self._headers = {"Authorization": f"Bearer {token}"}

    def post(self, path: str) -> Any:
        return self._ask("POST", path).raise_for_status().json()

    def get(self, path: str) -> Any:
        return self._ask("GET", path).raise_for_status().json()

    def status(self, path: str) -> int:
        return self._ask("GET", path).status_code

    def _ask(self, method: str, path: str) -> httpx.Response:
        return httpx.request(method, f"{self._url}/v1/{path}", headers=self._headers)


@pytest.fixture
def ada(cluster: ServedCluster) -> Http:
    return Http(cluster, cluster.token())


def test_lamp_is_lit_and_put_out_and_has_a_history_and_events(
    cluster: ServedCluster, ada: Http
) -> None:
    with cluster.events() as feed:
        lamp = ada.post("lamps/porch")
        cluster.until(lambda: lamp_of(cluster, lamp["id"]) == "LIT")
        told = next(event for event in feed if event.kind == "lamp" and event.status == "LIT")
        assert told.id == lamp["id"]
    assert ada.get("lamps/porch")["status"] == "LIT"
    assert ada.get("lamps/porch/why")["verdict"] == "tried 0 times"
    out = ada.post("lamps/porch/cancel")
    assert (out["status"], out["message"]) == ("OUT", "lamp porch is cancelled")
    assert ada.post(f"lamps/{lamp['id']}/cancel")["changed"] is False
    assert ada.get(f"lamps/{lamp['id']}/why")["reasons"][0]["code"] == "CANCELLED"
    assert ada.get("lamps")["items"] == [], "a listing is of those that have not ended"
    gone = ada.get(f"lamps/{lamp['id'][:-3]}")
    assert (gone["status"], gone["reason"]["sentence"]) == ("OUT", "cancelled by ada")
    moves = [(each["phase"], each["to_status"]) for each in ada.get("history/porch")["items"]]
    assert moves == [("LightLamps", "LIT"), ("Request", "OUT")]
    assert lamp_of(cluster, lamp["id"]) is None, "what has ended leaves the mirror"


def test_client_that_knows_lamps_finds_them_wherever_a_ref_is_asked_about(
    cluster: ServedCluster, ada: Http
) -> None:
    lamp = ada.post("lamps/porch")
    cluster.until(lambda: lamp_of(cluster, lamp["id"]) == "LIT")
    with LampClient(cluster.url, cluster.token()) as client:
        job = client.submit(command=["x"], name="hall")
        assert client.show("porch").id == client.why("porch").subject == lamp["id"]
        assert {entry.kind for entry in client.history("porch").items} == {"lamp"}
        assert client.cancel("porch").message == "lamp porch is cancelled"
        assert client.cancel("hall").id == job.id
        assert client.why(lamp["id"]).status == "OUT"
        with pytest.raises(
            NotFound,
            match="deployment, route, agent, pool, slice, incident or lamp 'shed'",
        ):
            client.why("shed")


def test_lamps_of_a_client_have_every_method_that_records_have(cluster: ServedCluster) -> None:
    with LampClient(cluster.url, cluster.token()) as client:
        told = client.lamps.events()
        assert next(told).kind == "reset"
        client.submit(command=["x"], name="porch")
        lamp = assert_type(client.lamps.submit(name="porch"), LampView)
        cluster.until(lambda: lamp_of(cluster, lamp.id) == "LIT")
        assert next(told).id == lamp.id, "events of jobs are left out"
        assert [each.name for each in client.lamps("live", name="po*", limit=5)] == ["porch"]
        assert assert_type(client.lamps.show("porch"), LampView).status == "LIT"
        assert client.lamps.why("porch").subject == lamp.id
        moves = client.lamps.history("porch").items
        assert [each.to_status for each in moves] == ["LIT"], "and not those of the job"
        assert client.lamps.cancel("porch").changed
        assert assert_type(client.lamps(), list[LampView]) == []
        assert [each.id for each in client.lamps("all")] == [lamp.id]
        with pytest.raises(InvalidSpec, match="a lamp has no group"):
            client.lamps(group="default")


async def test_lamps_of_an_asynchronous_client_are_awaited(cluster: ServedCluster) -> None:
    async with AsyncLampClient(cluster.url, cluster.token()) as client:
        lamp = assert_type(await client.lamps.submit({"name": "porch"}), LampView)
        listed = assert_type(await client.lamps(), list[LampView])
        assert [each.id for each in listed] == [lamp.id]
        assert (await client.lamps.show("porch")).name == "porch"
        assert (await anext(client.lamps.events())).kind == "reset"


def test_lamp_is_handed_in_as_work_is(cluster: ServedCluster, ada: Http) -> None:
    with LampClient(cluster.url, cluster.token()) as client:
        lamp = client.submit({"kind": "lamp", "name": "porch"})
        assert lamp.id.startswith("lmp-")
        with pytest.raises(InvalidSpec, match="watts: unknown key"):
            client.submit({"kind": "lamp", "name": "shed", "watts": 60})
    assert [each["name"] for each in ada.get("lamps")["items"]] == ["porch"]


def test_lamp_is_planned_and_changes_nothing(cluster: ServedCluster, ada: Http) -> None:
    with LampClient(cluster.url, cluster.token()) as client:
        plan = client.plan({"kind": "lamp", "name": "porch"})
    assert (plan.outcome, plan.verdict) == (
        PlanOutcome.STARTS,
        "it would start now in group default",
    )
    assert ada.get("lamps")["items"] == []


def test_channels_that_a_lamp_names_are_told_of_its_end(cluster: ServedCluster, ada: Http) -> None:
    with LampClient(cluster.url, cluster.token()) as client:
        with pytest.raises(InvalidSpec, match=r"notify\.0"):
            client.lamps.submit(name="porch", notify="nosuch://hooks.example.org/x")
        lamp = client.lamps.submit(name="porch", notify="https://hooks.example.org/x")
        client.cancel("porch")
        cluster.pass_time(5.0)
        (notice,) = client.notices("all")
    assert (notice.subject, notice.status) == (lamp.id, "SENT")


def test_history_of_a_lamp_has_that_of_the_session_beside_it(cluster: ServedCluster) -> None:
    with LampClient(cluster.url, cluster.token()) as client:
        session = client.submit({"kind": "session", "kernels": [{"command": ["x"]}]})
        client.lamps.submit(name="porch", session=session.id)
        cluster.pass_time(5.0)
        told = client.history("porch").items
    assert {entry.entity.partition("-")[0] for entry in told} == {"lmp", "ses"}


def test_lamps_go_out_with_their_owner(cluster: ServedCluster, ada: Http) -> None:
    lamp = ada.post("lamps/porch")
    with cluster.client(ADMIN, Role.ADMIN) as admin:
        with pytest.raises(Conflict, match="0 jobs, 0 deployments, 1 lamps, 0 sessions of"):
            admin.remove_user("ada")
        admin.remove_user("ada", cancel=True)
    assert lamp_of(cluster, lamp["id"]) is None


def test_lamp_without_a_reason_is_found_by_the_audit_of_its_module(
    cluster: ServedCluster, ada: Http
) -> None:
    lamp = ada.post("lamps/porch")
    ada.post("lamps/porch/cancel")

    def found() -> list[tuple[str, str]]:
        with cluster.engine.connect() as connection:
            stored = stored_in(connection, cluster_entities([LampModule]))
            (audit,) = (each for each in cluster_audits([LampModule]) if "lamp" in each.title)
            return [(each.subject, each.sentence) for each in audit.find(stored)]

    assert found() == []
    with cluster.engine.begin() as connection:
        connection.execute(update(lamps).values(reason=None))
    assert found() == [(lamp["id"], "is out, and has no reason")]


class Muster:
    """The command line, of which lamps are a kind."""

    def __init__(self, cluster: ServedCluster) -> None:
        url, token = cluster.url, cluster.token()
        self._target = Cluster(connector=lambda *_: LampClient(url, token))

    def __call__(self, *words: str, stdin: str = "", code: int = 0) -> str:
        result = CliRunner().invoke(app, list(words), input=stdin, obj=self._target)
        assert result.exit_code == code, result.output
        return result.output

    def completed(self, line: str) -> list[str]:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        environment = {"_MUSTER_COMPLETE": "bash_complete", **words}
        result = CliRunner(env=environment).invoke(app, obj=self._target)
        return [each.partition(",")[2] for each in result.stdout.split()]


@pytest.fixture
def muster_(cluster: ServedCluster, monkeypatch: pytest.MonkeyPatch) -> Muster:
    monkeypatch.setitem(kinds.KINDS, LAMP.prefix, "tests.control.lamp.cli")
    monkeypatch.setattr(kinds, "WORK", [*kinds.WORK, LAMP.prefix])
    modules = [*load._kinds(), LAMP.name]
    monkeypatch.setattr(load, "_kinds", lambda: modules)
    monkeypatch.setitem(sys.modules, "muster.core.specs.lamp", spec)
    return Muster(cluster)


def test_commands_know_lamps_by_their_declaration(cluster: ServedCluster, muster_: Muster) -> None:
    said = muster_("submit", "-", stdin="kind: lamp\nname: porch")
    name, id_ = said.removesuffix(")\n").split(" (")
    cluster.until(lambda: lamp_of(cluster, id_) == "LIT")
    assert name == "porch"
    assert muster_("show", "porch").splitlines() == [f"{id_}  lit", "name  porch"]
    assert muster_("why", id_).splitlines() == ["lit  tried 0 times"]
    assert "lit" in muster_("history", "porch")
    assert re.search(r"lmp-\w+ +porch +lit +60 W", muster_("ps", "--state", "lit"))
    assert json.loads(muster_("ps", "--json"))[0]["kind"] == "lamp"
    for command in ("show", "why", "history", "cancel"):
        assert muster_.completed(f"muster {command} po") == ["porch"]
        assert muster_.completed(f"muster {command} lmp-") == [id_]
    assert muster_.completed("muster logs po") == [], "it has no output"
    assert "a lamp has no output" in muster_("logs", "porch", code=2)
    assert "only jobs are retried" in muster_("retry", "porch", code=2)
    assert "did you mean porch?" in muster_("cancel", "proch", code=1)
    assert muster_("cancel", "porch") == "lamp porch is cancelled\n"
    assert muster_("ps", "--state", "lit") == "no lit job, session or lamp matches\n"
    assert muster_("submit", "-", "--no-wait", stdin="kind: lamp\nname: shed").startswith("shed (")


def test_command_waits_for_a_lamp(cluster: ServedCluster, muster_: Muster) -> None:
    LampLighter.fails = 100

    def give_up() -> None:
        cluster.until(lambda: bool(cluster.plane.live.of(Lamp)))
        cluster.pass_time(120.0)

    with ThreadPoolExecutor(1) as beside:
        given_up = beside.submit(give_up)
        said = muster_("submit", "-", "--wait", stdin=CELLAR, code=1)
        given_up.result()
    assert said.splitlines()[-1].startswith("cellar out: ")


def lamp_of(cluster: ServedCluster, id_: str) -> str | None:
    found = cluster.plane.live.of(Lamp).get(id_)
    return None if found is None else str(found.status)


def test_lamp_of_another_user_is_not_found(cluster: ServedCluster, ada: Http) -> None:
    ada.post("lamps/porch")
    bob = Http(cluster, cluster.token(BOB))
    assert bob.get("lamps")["items"] == []
    assert bob.status("lamps/porch") == bob.status("history/porch") == 404


@pytest.mark.parametrize("path", ["lamps/porch", "lamps/porch/why", "history/porch"])
def test_lamp_for_admins_is_found_by_admins_alone(
    cluster: ServedCluster, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(LAMP, "visible", Visible.TO_ADMINS)
    root = Http(cluster, cluster.token(ADMIN, Role.ADMIN))
    lamp = root.post("lamps/porch")
    bob = Http(cluster, cluster.token(BOB))
    for ref in ("porch", lamp["id"], lamp["id"][:-3]):
        asked = path.replace("porch", ref)
        assert (root.status(asked), bob.status(asked)) == (200, 404)
    assert [len(each.get("lamps")["items"]) for each in (root, bob)] == [1, 0]


def test_lamp_for_all_is_found_and_listed_by_everybody(
    cluster: ServedCluster, ada: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LAMP, "visible", Visible.TO_ALL)
    lamp = ada.post("lamps/porch")
    bob = Http(cluster, cluster.token(BOB))
    assert [each["id"] for each in bob.get("lamps")["items"]] == [lamp["id"]]
    assert bob.status("lamps/porch") == bob.status("history/porch") == 200


def test_lamp_that_does_not_light_is_tried_by_the_engines_own_count(
    cluster: ServedCluster, ada: Http
) -> None:
    LampLighter.fails = 2
    lamp = ada.post("lamps/porch")
    cluster.pass_time(60.0)
    assert lamp_of(cluster, lamp["id"]) == "LIT"
    assert [each.generation for each in LampLighter.asked] == [1, 2, 3]

    LampLighter.fails = 100
    broken = ada.post("lamps/cellar")
    cluster.pass_time(120.0)
    assert ada.get("lamps/cellar")["status"] == "OUT"
    assert len([each for each in LampLighter.asked if each.lamp == broken["id"]]) == 4


def test_what_is_wished_of_a_lamp_outlives_the_controller(
    cluster: ServedCluster, ada: Http
) -> None:
    LampLighter.is_away = True
    lamp = ada.post("lamps/porch")
    cluster.down()
    LampLighter.is_away = False
    cluster.up()
    cluster.until(lambda: lamp_of(cluster, lamp["id"]) == "LIT")
    assert [each.generation for each in LampLighter.asked] == [1, 2]


def test_work_runs_beside_lamps(cluster: ServedCluster, ada: Http) -> None:
    LampLighter.is_away = True
    ada.post("lamps/porch")
    with cluster.client() as client:
        job = submitted(client)
        cluster.pass_time(10.0)
        assert client.job(job).state == "SUCCEEDED"


def submitted(client: Client) -> str:
    return client.submit(command=["x"]).id


def test_nothing_of_the_product_names_the_entity() -> None:
    (root,) = muster.__path__
    sources = Path(root).rglob("*.py")
    named = re.compile(rf"\b{LAMP.name}s?\b", re.IGNORECASE)
    assert [source for source in sources if named.search(source.read_text())] == []


@pytest.mark.thorough
def test_product_has_lamps_by_their_files_and_at_most_eight_lines_elsewhere(
    tmp_path: Path,
) -> None:
    assert len(LINES) + len(FURTHER) <= 8
    lay_out(tmp_path)
    paths = map(str, (tmp_path / "src", tmp_path, ROOT))
    # What is compiled of the product itself is used, and nothing is added to it.
    environment = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    program = [sys.executable, "-m", "tests.control.lamp.story", str(tmp_path)]
    ended = subprocess.run(
        program, cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr


def test_page_on_a_new_entity_lists_the_lines_that_one_costs() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    _, _, section = page.partition("\nLines elsewhere")
    rows = section.partition("\n\n")[2].partition("\n\n")[0].splitlines()[2:]
    files = [re.findall(r"`([\w/.]+)`", row.split("|")[1]) for row in rows]
    told = {"src/muster/" + name for row in files for name in row}
    told = {name.replace("src/muster/pyproject", "pyproject") for name in told}
    assert told == {line.file for line in LINES} | FURTHER
