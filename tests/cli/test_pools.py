"""`muster pools`, `slices` and `autoscaler` against a cluster that serves."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace
from tests.api.served import ADA, ADMIN, ServedCluster
from tests.cli.fake_cluster import FakeCluster, because

from muster.autoscaling.standing import CreateOutcome
from muster.cli.cluster import Cluster
from muster.cli.program import app
from muster.core.owner import Role
from muster.core.reasons import ReasonCode
from muster.core.views.pools import PoolView

pytestmark = pytest.mark.usefixtures("many_cpus")

POOL = """\
kind: pool
name: cpu
provider: local
machine: {cpu: 4, memory: 1GiB}
max_slices: 2
price: 2
idle_timeout: 1m
"""


class Typed:
    """Commands that an administrator types."""

    def __init__(self, cluster: ServedCluster, path: Path) -> None:
        self.cluster = cluster
        self._path = path

    def run(self, *words: str, user: bool = False) -> Result:
        token = self.cluster.token(ADA) if user else self.cluster.token(ADMIN, Role.ADMIN)
        return CliRunner().invoke(app, list(words), obj=Cluster(self.cluster.url, token))

    def said(self, *words: str) -> str:
        done = self.run(*words)
        assert (done.exit_code, done.stderr) == (0, ""), done.output
        return done.stdout

    def apply(self, text: str = POOL, *options: str) -> Result:
        file = self._path / "pool.yaml"
        file.write_text(text)
        return self.run("pools", "apply", str(file), *options)

    def slice_id(self) -> str:
        (slice_,) = json.loads(self.said("slices", "--json"))
        return str(slice_["id"])


@pytest.fixture
def typed(tmp_path: Path) -> Iterator[Typed]:
    cluster = ServedCluster(tmp_path, {})
    cluster.farm.boot_s = 0.0
    cluster.start()
    yield Typed(cluster, tmp_path)
    cluster.stop()


def work(typed: Typed, tasks: int = 1, cpu: int = 4) -> str:
    with typed.cluster.client() as client:
        resources = {"cpu": cpu, "memory": "1MiB"}
        return client.submit(command=["x"], tasks=tasks, resources=resources).id


def test_pool_is_applied_listed_paused_resumed_and_deleted(typed: Typed) -> None:
    assert "muster pools apply FILE" in typed.run("pools").stderr
    applied = typed.apply()
    assert applied.stdout == "pool cpu applied\n", applied.stderr
    head, line = typed.said("pools").splitlines()
    assert head.split() == [
        *("NAME", "STATUS", "GROUP", "PROVIDER", "SLICES", "READY", "MACHINES", "PRICE/H", "NOTE")
    ]
    assert line.split() == ["cpu", "active", "default", "local", "0/2", "0", "0", "0.00"]
    said = typed.said("pools", "pause", "cpu")
    assert said == "pool cpu is paused: it makes nothing more\n"
    assert typed.said("pools", "list").splitlines()[1].endswith("pool cpu is paused")
    assert typed.said("pools", "resume", "cpu") == "pool cpu makes machines again\n"
    assert json.loads(typed.said("pools", "show", "cpu", "--json"))["status"] == "ACTIVE"
    assert "\nmachine   4 cpu, 1GiB memory\n" in typed.said("pools", "show", "cpu")
    said = typed.said("pools", "delete", "cpu")
    assert said == "pool cpu is being deleted; 0 slices to go\n"
    typed.cluster.pass_time(60)
    assert typed.said("pools", "list", "--json").strip() == "[]"
    assert json.loads(typed.said("pools", "list", "--all", "--json"))[0]["status"] == "DELETED"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (POOL + "min_slices: 3", "min_slices is 3: expected at most max_slices, which is 2"),
        (POOL + "slice_size: 0", "slice_size is 0: expected at least 1"),
        (POOL.replace("local", "locla"), "did you mean local?"),
        (POOL.replace("1GiB", "1024TiB"), "provider local says: bad request: a machine of 1024TiB"),
        ("kind: group\nname: x", "use `muster groups apply"),
    ],
)
def test_wrong_pool_is_refused_with_the_file_and_nothing_is_made(
    typed: Typed, text: str, told: str
) -> None:
    refused = typed.apply(text)
    assert refused.exit_code in (1, 2)
    assert told in refused.stderr
    assert "pool.yaml" in refused.stderr
    assert typed.said("pools", "--json").strip() == "[]"


def test_provider_is_not_asked_with_no_check(typed: Typed) -> None:
    applied = typed.apply(POOL.replace("1GiB", "1024TiB"), "--no-check", "--json")
    assert json.loads(applied.stdout)["name"] == "cpu"


def test_nobody_but_an_admin_changes_a_pool_and_everybody_sees_it(typed: Typed) -> None:
    typed.apply()
    refused = typed.run("pools", "pause", "cpu", user=True)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "only an admin's token may change pools" in refused.stderr
    assert typed.run("pools", user=True).stdout.count("cpu") == 1
    unknown = typed.run("pools", "pause", "cpuu")
    assert unknown.stderr == "muster: there is no pool 'cpuu'; did you mean cpu?\n"


def test_pool_is_shown_with_its_whole_spec_and_without_secrets(typed: Typed) -> None:
    typed.cluster.farm.refuses["cpu"] = CreateOutcome.QUOTA
    typed.apply(
        POOL.replace("local", "script")
        + """\
slice_size: 4
min_slices: 1
buffer_slices: 2
preemptible: true
attributes: {zone: a, net: ib}
priority: 7
quota_key: ours
settings:
  command: [/opt/lab, --api-token, hush1, --rack, r7]
  environment: {LAB_KEY: hush2}
""",
        "--no-check",
    )
    typed.cluster.pass_time(5)
    shown = typed.said("pools", "show", "cpu")
    for line in (
        'settings    command: ["/opt/lab", "--api-token", "…", "--rack", "r7"]',
        '            environment: {"LAB_KEY": "…"}',
        "machine     4 cpu, 1GiB memory, preemptible",
        "attributes  zone=a, net=ib",
        "price       2.00 a machine an hour",
        "priority    7 (the lowest is taken first)",
        "quota key   ours",
        "may take    5m00s to request, 15m00s to boot, 15m00s to join",
        "idle        deleted after 1m00s without work",
        "revision    1",
    ):
        assert f"\n{line}\n" in shown
    assert " of at most 2, at least 1, 2 kept idle; each of 4 machines\n" in shown
    assert "hush" not in shown
    assert "settings" not in typed.run("pools", "show", "cpu", user=True).stdout


def test_filter_that_names_nothing_is_told(typed: Typed) -> None:
    for words in (
        ("pools", "-g", "nix"),
        ("slices", "-g", "nix", "--json"),
        ("autoscaler", "-g", "nix"),
    ):
        unknown = typed.run(*words)
        assert (unknown.exit_code, unknown.stdout) == (1, ""), words
        assert unknown.stderr == "muster: there is no group 'nix'; groups are: default\n"
    typed.apply()
    assert "did you mean cpu?" in typed.run("slices", "--pool", "cpuu").stderr
    assert "no slices" in typed.run("slices", "--pool", "cpu").stderr
    assert "cpu" in typed.said("pools", "-g", "default")


def test_deletion_that_waits_for_a_list_says_why_in_the_listing() -> None:
    closed = because(ReasonCode.POOL_DELETING, pool="cpu")
    deleting = PoolView(
        id="pol-1",
        name="cpu",
        group="default",
        provider="script",
        status="DELETING",
        status_changed_at=0.0,
        created_at=0.0,
        revision=1,
        closed=closed,
    )
    cluster = FakeCluster(pools_=[deleting])
    assert cluster.run("pools").stdout.splitlines()[1].endswith("pool cpu is being deleted")
    cluster = FakeCluster(pools_=[replace(deleting, list_error="it says nothing")])
    told = cluster.run("pools").stdout.splitlines()[1]
    assert told.endswith("its machines cannot be listed: it says nothing")


def test_several_pools_are_changed_each_with_its_own_outcome(typed: Typed) -> None:
    typed.apply()
    typed.apply(POOL.replace("cpu\n", "large\n"))
    paused = typed.run("pools", "pause", "cpu", "larg", "large")
    assert paused.exit_code == 1
    assert paused.stdout.splitlines() == [
        "pool cpu is paused: it makes nothing more",
        "pool large is paused: it makes nothing more",
    ]
    assert paused.stderr == "muster: there is no pool 'larg'; did you mean large?\n"
    assert typed.said("pools", "resume", "cpu", "large").count("makes machines again") == 2
    assert typed.said("pools", "replace", "cpu", "large", "-n", "0").splitlines() == [
        "pool cpu has no outdated slices",
        "pool large has no outdated slices",
    ]
    assert typed.said("pools", "delete", "cpu", "large").count("is being deleted; 0 slices") == 2


def test_listing_that_leaves_some_out_says_so(typed: Typed) -> None:
    typed.apply(POOL + "min_slices: 2")
    typed.apply(POOL.replace("cpu\n", "large\n"))
    typed.cluster.pass_time(5)
    for kind in ("pools", "slices"):
        few = typed.run(kind, "--all", "--limit", "1")
        assert len(few.stdout.splitlines()) == 2, "the head and one line"
        assert few.stderr == "older ones are left out: --limit 10 shows more\n"
        few = typed.run(kind, "--limit", "1", "--json")
        assert len(json.loads(few.stdout)) == 1
        assert "left out" in few.stderr
        assert len(typed.said(kind, "list", "--limit", "2").splitlines()) == 3


def test_slice_is_listed_shown_held_released_drained_and_deleted(typed: Typed) -> None:
    assert "no slices" in typed.run("slices").stderr
    typed.apply()
    job = work(typed)
    typed.cluster.pass_time(10)
    head, line = typed.said("slices").splitlines()
    assert head.split()[:6] == ["ID", "POOL", "STATUS", "FOR", "MACHINES", "KERNELS"]
    id_ = typed.slice_id()
    short = line.split()[0]
    assert id_.startswith(short)
    assert line.split()[1:3] == ["cpu", "ready"]
    assert line.endswith("work runs on it")
    shown = typed.said("slices", "show", short)
    assert re.search(r"machines\s+cpu-\w{6}-0: m-1, joined", shown)
    assert "work runs on it" in shown
    assert typed.said("show", id_) == shown
    alive = typed.run("slices", "delete", "--gone", short)
    assert (alive.exit_code, "is alive: without --gone" in alive.stderr) == (1, True)
    assert (
        typed.said("slices", "hold", short) == f"slice {id_} stays until `muster slices release`\n"
    )
    typed.run("cancel", job)
    typed.cluster.pass_time(200)
    assert "root holds it" in typed.said("slices", "list", "--pool", "cpu")
    assert "root holds it" in typed.said("why", id_)
    assert typed.said("slices", "release", id_) == f"slice {id_} is held no more\n"
    typed.cluster.pass_time(20)
    assert "no slices" in typed.run("slices").stderr
    work(typed)
    typed.cluster.pass_time(10)
    drained = typed.said("slices", "drain", typed.slice_id(), "--deadline", "never")
    assert drained.endswith(
        "is being deleted and takes nothing new; it runs 1 kernel, to the end\n"
    )
    assert "ready, leaving" in typed.said("slices")
    assert "is being deleted" in typed.said("slices", "delete", typed.slice_id())
    ended = typed.said("slices", "list", "--all")
    assert "terminated" in ended
    assert "idle for" in typed.said("history", id_)
    refused = typed.run("slices", "delete", id_, "slc-zzzz")
    assert refused.exit_code == 1
    assert refused.stderr.count("there is no slice") == 2


def test_outdated_slices_are_told_and_replaced(typed: Typed) -> None:
    typed.apply(POOL + "min_slices: 1")
    typed.cluster.pass_time(5)
    old = typed.slice_id()
    applied = typed.apply(POOL.replace("cpu: 4", "cpu: 2") + "min_slices: 1")
    assert applied.stdout == (
        "pool cpu applied; 1 slice of former revisions stays as it is, "
        "`muster pools replace cpu` replaces it\n"
    )
    assert "ready, outdated" in typed.said("slices")
    assert typed.said("pools").splitlines()[1].endswith("1 slice outdated")
    said = typed.said("pools", "replace", "cpu", "--at-a-time", "2")
    assert said == "pool cpu replaces 1 outdated slice, 2 at a time\n"
    typed.cluster.pass_time(30)
    assert typed.slice_id() != old


def test_autoscaler_tells_pools_slices_decisions_and_cost(typed: Typed) -> None:
    assert "no pools" in typed.run("autoscaler").stderr
    typed.cluster.farm.boot_s = 1e6
    typed.apply()
    work(typed, tasks=3)
    work(typed, cpu=64)
    typed.cluster.pass_time(1)
    typed.cluster.pass_time(360)
    lines = typed.said("autoscaler").splitlines()
    assert lines[0] == "group default  2 slices (2 booting), 2 machines, 4.00 an hour"
    told = "\n".join(lines)
    assert re.search(r"slc-\w+\s+cpu\s+booting\s+\S+\s+0/1", told)
    assert re.search(
        r"2 sessions asking for 4 cpu, 1MiB memory: on slices that are coming of pool cpu \(slc-",
        told,
    )
    full = "1 session asking for 4 cpu, 1MiB memory: no pool may make more now"
    assert lines[lines.index(full) + 1] == "  pool cpu makes no more: it has 2 of at most 2 slices"
    large = "1 session asking for 64 cpu, 1MiB memory: no pool can"
    assert lines[lines.index(large) + 1] == "  cpu: 64 asked, a machine of pool cpu has 4"
    assert lines[-1] == "used so far: 0.20 machine-hours (0.40) by slices that are there"
    (group,) = json.loads(typed.said("autoscaler", "--group", "default", "--json"))
    assert group["live"]["slices"] == 2
    (pending,) = group["pending"]
    assert (pending["slices"], pending["entries"]) == (2, 2)
    whole = typed.said("autoscaler", "-v")
    assert re.search(r"pool cpu: 2 slices in flight for 2 sessions, .* left", whole)
    on = r"ses-\w+ \(job-\w+/0\): slc-\w+ of pool cpu: the slice is coming and has room for it"
    assert re.search(on, whole)
    assert typed.run("autoscaler", "--group", "other").exit_code == 1


def test_autoscaler_shows_the_decision_of_the_controller_before(typed: Typed) -> None:
    typed.cluster.farm.boot_s = 1e6
    typed.apply()
    work(typed, tasks=1)
    for _ in range(2):
        typed.cluster.pass_time(1)
    before = typed.said("autoscaler", "-v")
    assert "before this controller started" not in before
    typed.cluster.down()
    typed.cluster.paused = True  # the new controller answers, and has had no wake
    typed.cluster.up()
    after = typed.said("autoscaler", "-v").splitlines()
    assert sum("before this controller started" in line for line in after) == 1
    entries = [line for line in before.splitlines() if line.startswith("ses-")]
    assert entries
    assert {*entries} <= {*after}


def test_groups_tell_how_much_of_their_ceilings_is_used(typed: Typed) -> None:
    assert "MACHINES" not in typed.said("groups")
    assert "\nmachines            0\n" in typed.said("groups", "show", "default")
    (typed.cluster.path / "group.yaml").write_text(
        "kind: group\nname: default\nmax_machines: 3\nmax_gpus: 8\nmax_price: 20.5\n"
    )
    applied = typed.said("groups", "apply", str(typed.cluster.path / "group.yaml"))
    assert applied == "group default applied\n"
    gpus = "machine: {cpu: 4, memory: 1GiB, gpus: 2, gpu_model: H100}"
    typed.apply(POOL.replace("machine: {cpu: 4, memory: 1GiB}", gpus) + "min_slices: 2")
    typed.cluster.pass_time(5)
    head, line = typed.said("groups").splitlines()
    assert head.split()[3:6] == ["MACHINES", "GPUS", "PRICE/H"]
    assert line.split()[:6] == ["default", "2", "0", "2/3", "4/8", "4.00/20.50"]
    shown = typed.said("groups", "show", "default")
    assert shown.startswith("default\nmachines            2 (2 alive)\n")
    for name, told in (
        ("GPUs", "4, 4 free"),
        ("waiting", "0 sessions"),
        ("pools", "1"),
        ("their machines", "2 of at most 3"),
        ("their GPUs", "4 of at most 8"),
        ("their price", "4.00 of at most 20.50 an hour"),
        ("queue", "backfill"),
        ("starvation after", "5m00s"),
        ("kernels per agent", "1000"),
    ):
        assert f"\n{name:20}{told}\n" in shown
    assert json.loads(typed.said("groups", "show", "default", "--json"))["gpus"] == 4
    unknown = typed.run("groups", "show", "defualt")
    assert unknown.exit_code == 1
    assert unknown.stderr == "muster: there is no group 'defualt'; groups are: default\n"


def test_pool_that_is_refused_by_its_provider_says_so_everywhere(typed: Typed) -> None:
    typed.cluster.farm.refuses["cpu"] = CreateOutcome.QUOTA
    typed.apply(POOL + "min_slices: 1\nquota_key: ours")
    typed.cluster.pass_time(5)
    for words in (("pools",), ("pools", "show", "cpu"), ("why", "cpu"), ("autoscaler",)):
        assert "pools of quota ours ask again in" in typed.said(*words), words


def test_agents_tell_why_machines_of_slices_take_no_work(typed: Typed) -> None:
    typed.apply(POOL + "min_slices: 1")
    typed.cluster.pass_time(5)
    work(typed)
    typed.cluster.pass_time(1)
    typed.said("slices", "drain", typed.slice_id(), "--deadline", "never")
    assert "alive, its slice is being deleted" in typed.said("agents")
    (agent,) = json.loads(typed.said("agents", "--json"))
    assert "no: its slice is being deleted" in typed.said("show", agent["id"])
    assert "its slice is being deleted: it takes nothing new" in typed.said("why", agent["id"])
