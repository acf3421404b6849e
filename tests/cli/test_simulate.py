import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import Result
from tests.cli.fake_cluster import FakeCluster

OPENB = Path(
    os.environ.get("MUSTER_OPENB") or Path(__file__).parents[2].parent / "shared/data/openb"
)
needs_openb = pytest.mark.skipif(
    not (OPENB / "openb_pod_list_default.csv").exists(),
    reason="the openb trace is not here: MUSTER_OPENB names the directory that holds its CSV files",
)

TRACE = """\
name,submit_s,duration_s,gpu,owner
first,0,100,1,ann
big,1,10,2,bob
small,2,10,1,ann
huge,3,10,9,bob
"""
CLUSTER = "agents: [{name: a, cpu: 16, memory: 64GiB, gpus: 2, model: H100}]"


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trace.csv").write_text(TRACE)
    Path("cluster.yaml").write_text(CLUSTER)


def simulated(*words: str, trace: str = "trace.csv", cluster: str = "cluster.yaml") -> Result:
    return FakeCluster().run("simulate", trace, "--cluster", cluster, *words)


def rows(result: Result) -> dict[str, list[str]]:
    """The table, by the names of its rows."""
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    cells = [[each.strip() for each in line.split("  ") if each.strip()] for line in lines]
    return {each[0]: each[1:] for each in cells if len(each) > 1}


def test_policies_stand_side_by_side() -> None:
    found = rows(simulated("--policy", "strict", "--with", "best_effort"))
    assert found["sessions"] == ["4", "4"]
    assert found["never started"] == ["1", "1"]
    assert found["wait, longest"] == ["1m48s", "1m39s"]
    assert found["backfilled"] == ["0.0%", "33.3%"]


def test_clusters_stand_side_by_side() -> None:
    Path("large.yaml").write_text(CLUSTER.replace("gpus: 2", "gpus: 9"))
    result = simulated("--cluster", "large.yaml", "--policy", "strict", "--with", "best_effort")
    heading = " ".join(result.stdout.splitlines()[0].split())
    assert heading == (
        "strict on cluster best_effort on cluster strict on large best_effort on large"
    )
    assert rows(result)["never started"] == ["1", "1", "0", "0"]
    found = json.loads(simulated("--cluster", "large.yaml", "--json").stdout)
    assert [(each["cluster"], each["started"]) for each in found] == [("cluster", 3), ("large", 4)]


def test_clusters_of_one_name_are_told_apart_and_one_file_is_not_compared_with_itself() -> None:
    Path("other").mkdir()
    Path("other/cluster.yaml").write_text(CLUSTER)
    result = simulated("--cluster", "other/cluster.yaml", "--policy", "strict")
    heading = " ".join(result.stdout.splitlines()[0].split())
    assert heading == "strict on cluster.yaml strict on other/cluster.yaml"
    assert "names a file twice" in simulated("--cluster", "cluster.yaml").stderr


def test_sessions_that_never_start_are_shown_with_the_reason() -> None:
    result = simulated()
    assert "fifo+concentrated+backfill" in result.stdout.splitlines()[0]
    assert "huge" in result.stdout
    assert "9 gpu, even when empty" in result.stdout


def test_json_is_all_figures_and_nothing_else() -> None:
    result = simulated("--policy", "strict", "--json", "--limit", "3", "--speed-up", "2")
    (found,) = json.loads(result.stdout)
    assert found["policy"] == "strict"
    assert found["group"]["queue"] == "strict"
    assert (found["sessions"], found["started"], found["makespan_s"]) == (3, 3, 120)
    assert "timings" not in found


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_same_input_gives_the_same_output_byte_for_byte(form: tuple[str, ...]) -> None:
    one, other = (simulated("--policy", "drf", *form) for _ in range(2))
    assert one.exit_code == 0
    assert one.stdout == other.stdout


def test_time_of_the_scheduler_is_told_on_stderr_and_in_the_report_when_asked() -> None:
    result = simulated("--timings")
    assert "4 sessions replayed in" in result.stderr
    assert rows(result)["time a decision"][0].endswith("µs")


def test_group_file_with_quotas_is_a_policy() -> None:
    Path("research.yaml").write_text(
        "kind: group\nname: research\n---\nkind: quota\nname: '*/*/*'\nsessions: 0\n"
    )
    result = simulated("--policy", "research.yaml")
    assert result.exit_code == 1
    assert "none of the 4 sessions ever starts" in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--policy", "fifoo"), 2, "there is no policy 'fifoo'; did you mean 'fifo'? Known are"),
        (("--policy", "fifo+lifo"), 2, "two sequencers"),
        (("--policy", "none.yaml"), 1, "cannot read none.yaml: No such file"),
        (("--speed-up", "0"), 2, "expected a number above 0"),
        (("--limit", "0"), 2, "--limit"),
        (("--boot", "soon"), 2, "--boot is 'soon'"),
        (("--plot", "a.pdf"), 1, "expected a name that ends in .png or .svg"),
        (("--plot", "none/a.svg"), 1, "there is no directory none"),
    ],
)
def test_wrong_use_is_one_sentence_and_a_code(
    words: tuple[str, ...], code: int, message: str
) -> None:
    result = simulated(*words)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("trace.csv", "submit_s,duration_s\n1,ten\n", "trace.csv: line 2: duration_s is 'ten'"),
        ("trace.csv", "submit_s,duration_s,gpu\n1,2,9\n", "none of the 1 sessions ever starts"),
        ("cluster.yaml", "agents: [{name: a, cpu: x, memory: 1}]", "cluster.yaml: agents.0.cpu"),
    ],
)
def test_wrong_file_is_refused_with_the_place(file: str, text: str, message: str) -> None:
    Path(file).write_text(text)
    result = simulated()
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr


def pools(idle_timeout: str) -> str:
    pool = "kind: pool\ngroup: a\nprovider: local\nmax_slices: 9\nprice: 36\n"
    machine = "machine: {cpu: 8, memory: 8GiB, gpus: 2, gpu_model: H100}\n"
    rest = f"{machine}idle_timeout: {idle_timeout}\n"
    return f"kind: group\nname: a\n---\n{pool}{rest}name: p\n---\n{pool}{rest}name: q\n"


def test_policies_with_pools_need_no_cluster_and_show_what_they_cost() -> None:
    Path("hasty.yaml").write_text(pools("0"))
    Path("patient.yaml").write_text(pools("1000s"))
    words = ("simulate", "trace.csv", "--policy", "hasty.yaml", "--with", "patient.yaml")
    result = FakeCluster().run(*words, "--boot", "1m")
    found = rows(result)
    assert found["never started"] == ["1", "1"]
    assert found["slices, peak"] == ["2", "2"]
    # first and small share a machine from 0 to 160, big has one from 1 to 71; a second costs 0.01.
    assert found["cost"] == ["2.30", "22.30"]
    assert found["p"] == ["2", "2", "1.7", "2", "0.6", "22.30"]
    assert FakeCluster().run(*words, "--boot", "1m").stdout == result.stdout


def test_neither_cluster_nor_pools_is_refused() -> None:
    result = FakeCluster().run("simulate", "trace.csv")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "has no machines: name a cluster with --cluster" in result.stderr


def test_plot_is_drawn_beside_the_report() -> None:
    pytest.importorskip("matplotlib", reason="drawing needs the extra: plot")
    Path("pools.yaml").write_text(pools("0"))
    for words, has_slices in (((), False), (("--with", "strict", "--with", "pools.yaml"), True)):
        result = simulated("--plot", "course.svg", *words)
        assert result.exit_code == 0
        drawn = Path("course.svg").read_text()
        assert "</svg>" in drawn
        assert ("slices" in drawn) is has_slices


def test_plot_without_matplotlib_is_refused_before_the_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = simulated("--plot", "course.svg")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "muster: a plot needs matplotlib: pip install 'muster-scheduler[plot]', "
        "or leave out --plot\n"
    )


@needs_openb
def test_openb_trace_is_replayed_on_its_own_nodes() -> None:
    result = simulated(
        "--limit",
        "500",
        "--json",
        trace=str(OPENB / "openb_pod_list_default.csv"),
        cluster=str(OPENB / "openb_node_list_gpu_node.csv"),
    )
    (found,) = json.loads(result.stdout)
    assert (found["sessions"], found["started"], found["ended"]) == (500, 500, 500)
    assert found["waits"]["max_s"] == 0  # it never asks for all that there is
    assert 0 < found["fragmentation_percent"] < 100
