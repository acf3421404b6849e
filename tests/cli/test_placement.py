"""``plan``, ``why`` of what waits, quotas, bars, and the options that say where work may go."""

import io
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console, RenderableType
from tests.cli.fake_cluster import NOW, FakeCluster, because, job, lacks
from tests.cli.held_kernels import held

from muster.cli.commands import agents
from muster.cli.commands.plan import SHOWN, plan_shown
from muster.cli.explained import placement_shown
from muster.cli.screen import write
from muster.cli.words import sentence_of
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec, QuotaSpec, SessionSpec
from muster.core.states import AgentBar, AgentStatus
from muster.core.views.base import ResourcesView
from muster.core.views.cluster import AgentView, GroupView, HeldKernelPage, LimitView, QuotaView
from muster.core.views.placement import PlacementView, PlannedKernelView, PlanOutcome, PlanView
from muster.core.views.work import ShareView

NO_ROOM = because(ReasonCode.NO_ROOM, agents=2, group="default", request="2 gpu")
EARLY = because(ReasonCode.BEFORE_START_TIME, moment="2027-01-31T07:00:00+00:00")
FREE = {"agents": 2, "examples": ["a1", "a2"], "nearest": "a1", "shortfalls": []}
ZONE = {
    "agents": 1,
    "examples": ["a3"],
    "nearest": "a3",
    "shortfalls": [lacks("zone=a asked, zone is b"), lacks("gpu: 2 asked, 1 of 4 free")],
}


def placement(**parts: Any) -> PlacementView:
    request = {
        "sentence": "3 agents looked at.",
        "asks": "2 gpu",
        "kernels": 2,
        "fit": 1,
        "groups": [FREE, ZONE],
        "other_agents": 0,
        "scores": [{"agent": "a1", "score": 0.75}, {"agent": "a2", "score": -0.0}],
    }
    fields = {
        "sentence": "Place 3 of 7.",
        "group": "default",
        "position": 3,
        "queue": 7,
        "agents": 3,
        "kernels": 2,
        "kernels_fit": 1,
        "requests": [request],
        "reservation": None,
        "displaces": None,
        **parts,
    }
    return msgspec.convert(fields, PlacementView)


def plan(outcome: PlanOutcome = PlanOutcome.STARTS, **fields: Any) -> PlanView:
    kernel = PlannedKernelView(
        index=0, agent="a1", devices=(ShareView(index=1, share=1), ShareView(index=3, share=0.5))
    )
    starts = {"kernels": (kernel,), "starting": 1} if outcome is PlanOutcome.STARTS else {}
    return msgspec.convert(
        {
            "outcome": outcome,
            "verdict": "it would start now in group default",
            "group": "default",
            "sessions": 1,
            "starting": 0,
            "placement": placement(kernels_fit=2),
            **starts,
            **fields,
        },
        PlanView,
    )


def lines(parts: Sequence[RenderableType]) -> list[str]:
    stream = io.StringIO()
    write(Console(file=stream, width=100_000, color_system=None), *parts)
    return stream.getvalue().splitlines()


def wide() -> Console:
    return Console(file=io.StringIO(), width=100_000)


# -- plan ----------------------------------------------------------------------------------------


def test_plan_of_what_starts_shows_the_places_and_the_scores() -> None:
    assert lines(plan_shown(wide(), plan())) == [
        "starts  it would start now in group default",
        "",
        "KERNEL  AGENT  GPUS",
        "     0  a1     1,3(0.5)",
        "",
        "Place 3 of 7.",
        "",
        "3 agents looked at.",
        "  best first: a1 (score 0.75), a2 (score 0)",
        "AGENTS  WHAT THEY LACK                                      NEAREST  SUCH AS",
        "     2  nothing: there is room                                       a1, a2",
        "     1  zone=a asked, zone is b; gpu: 2 asked, 1 of 4 free  a3       a3",
    ]


def test_plan_of_what_waits_shows_every_reason_with_what_to_do() -> None:
    waits = plan(PlanOutcome.WAITS, verdict="it would wait", reasons=(NO_ROOM, EARLY))
    assert lines(plan_shown(wide(), waits))[:4] == [
        "waits  it would wait",
        f"  {NO_ROOM.sentence}",
        f"    {NO_ROOM.remedy}",
        f"  {sentence_of(EARLY)}",
    ]


def test_plan_of_tasks_of_which_some_start_says_why_the_others_wait() -> None:
    shown = lines(plan_shown(wide(), plan(reasons=(NO_ROOM,), sessions=2)))
    assert shown[1:3] == ["  the others wait:", f"  {NO_ROOM.sentence}"]


def test_plan_of_many_kernels_shows_some_and_counts_the_rest() -> None:
    kernels = tuple(PlannedKernelView(index=index, agent="a1") for index in range(SHOWN + 5))
    shown = lines(plan_shown(wide(), plan(kernels=kernels)))
    assert f"    {SHOWN - 1}  a1" in shown
    assert f"    {SHOWN}  a1" not in shown
    assert "and 5 more; --json names them" in shown


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (PlanOutcome.STARTS, 0),
        (PlanOutcome.DISPLACES, 0),
        (PlanOutcome.WAITS, 2),
        (PlanOutcome.CANCELLED, 1),
    ],
)
def test_plan_ends_with_what_would_become_of_it(
    tmp_path: Path, outcome: PlanOutcome, code: int
) -> None:
    (tmp_path / "job.yaml").write_text("command: [date]")
    cluster = FakeCluster(plan_=plan(outcome))
    for words in (("plan", str(tmp_path / "job.yaml")), ("plan", "-", "--json")):
        result = cluster.run(*words, stdin="kind: session\nkernels: [{command: [date]}]")
        assert result.exit_code == code, result.output
    assert [type(spec) for _, spec in cluster.asked] == [JobSpec, SessionSpec]
    assert msgspec.json.decode(result.stdout, type=PlanView) == cluster.plan_


def test_plan_of_a_group_is_refused_and_is_not_taken_for_work_that_waits() -> None:
    result = FakeCluster().run("plan", "-", stdin="kind: group\nname: g")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "this command takes a job or a session" in result.stderr


# -- what why and plan share ---------------------------------------------------------------------


def test_room_that_is_kept_is_told_in_the_words_of_the_answer() -> None:
    kept = {"sentence": "It starts in 40s at the latest.", "expected_at": NOW + 40}
    told = lines(placement_shown(wide(), placement(reservation=kept)))
    assert told[1:3] == ["Place 3 of 7.", kept["sentence"]]


def test_own_victims_are_named_and_those_of_others_counted() -> None:
    victims = [
        {"name": "mine/3", "priority": 10, "sessions": 1, "kernels": 4},
        {"name": None, "priority": 20, "sessions": 2, "kernels": 2},
    ]
    told = lines(placement_shown(wide(), placement(displaces={"victims": victims})))
    assert told[2:6] == [
        "",
        "MAKES ROOM FOR IT     PRIORITY  KERNELS",
        "mine/3                      10        4",
        "2 sessions of others        20        2",
    ]


# -- options -------------------------------------------------------------------------------------

OPTIONS = (
    "--constraint", "zone=a", "--constraint", "!spot", "--agent", "a1", "--single-node",
    "--after", "prep:ended", "--not-before", "2027-01-31T08:00:00+01:00",
)  # fmt: skip
KEYS: Mapping[str, Any] = {
    "placement": {"constraints": ["zone=a", "!spot"], "agents": ["a1"], "mode": "single-node"},
    "after": ["prep:ended"],
    "not_before": "2027-01-31T08:00:00+01:00",
}


def test_run_asks_for_the_place_that_the_options_say() -> None:
    cluster = FakeCluster(jobs_=[job()])
    result = cluster.run("run", "-d", "--gpu", "1", "--gpu-model", "H100", *OPTIONS, "date")
    assert result.exit_code == 0, result.output
    ((_, spec),) = cluster.asked
    assert {name: spec[name] for name in KEYS} == KEYS
    assert spec["resources"] == {"gpu": "1", "gpu_model": "H100"}
    assert JobSpec.model_validate(spec).after[0].on == "prep"


def test_run_without_them_asks_for_no_place() -> None:
    cluster = FakeCluster(jobs_=[job()])
    cluster.run("run", "-d", "date")
    ((_, spec),) = cluster.asked
    assert not KEYS.keys() & spec.keys()


@pytest.mark.parametrize(
    "text",
    [
        "command: [date]\nplacement: {constraints: [zone=b], together: rack}\nafter: [x]",
        "kind: session\nkernels: [{command: [date], replicas: 2}]\n"
        "placement: {constraints: [zone=b], together: rack}\nafter: [x]",
    ],
)
def test_submit_puts_the_options_in_place_of_what_the_file_says(text: str) -> None:
    cluster = FakeCluster(jobs_=[job()])
    result = cluster.run("submit", "-", *OPTIONS, stdin=text)
    assert result.exit_code == 0, result.output
    ((_, spec),) = cluster.asked
    assert isinstance(spec, JobSpec | SessionSpec)
    assert [str(each) for each in spec.placement.constraints] == ["zone=a", "!spot"]
    assert (spec.placement.agents, spec.placement.together) == (("a1",), "rack")
    assert [(each.on, each.condition) for each in spec.after] == [("prep", "ended")]
    assert spec.not_before == 1801378800


def test_submit_with_a_wrong_option_is_refused_with_its_name() -> None:
    cluster = FakeCluster(jobs_=[job()])
    result = cluster.run("submit", "-", "--not-before", "tomorrow", stdin="command: [date]")
    assert result.exit_code == 1
    assert "--not-before is 'tomorrow'" in result.stderr
    assert cluster.asked == []


# -- quotas, bars, plug-ins ----------------------------------------------------------------------


def test_quotas_are_listed_with_what_is_used() -> None:
    ann = QuotaView(
        level="user",
        name="*/*/*",
        of="default/research/ann",
        limits=(
            LimitView(resource="cpu", used=500, limit=8000),
            LimitView(resource="memory", used=2**30, limit=2**34),
        ),
        sessions=LimitView(resource="sessions", used=2, limit=10),
        largest={"cpu": 4000, "gpu": 1000},
        weight=2.0,
    )
    project = QuotaView(
        level="project",
        name="default/*",
        pending_sessions=LimitView(resource="pending_sessions", used=None, limit=1000),
    )
    empty = QuotaView(level="domain", name="default", of="default")
    cluster = FakeCluster(quotas_=[ann, project, empty])
    told = [line.split("  ") for line in cluster.run("quotas").stdout.splitlines()]
    assert [[cell.strip() for cell in line if cell] for line in told] == [
        ["LEVEL", "NAME", "LIMIT ON", "USED", "LIMIT", "LARGEST", "WEIGHT"],
        ["user", "default/research/ann (*/*/*)", "cpu", "0.5", "8", "4", "2"],
        ["user", "default/research/ann (*/*/*)", "memory", "1GiB", "16GiB", "2"],
        ["user", "default/research/ann (*/*/*)", "gpu", "1", "2"],
        ["user", "default/research/ann (*/*/*)", "sessions", "2", "10", "2"],
        ["project", "default/*", "sessions waiting", "1,000", "1"],
        ["domain", "default", "-", "1"],
    ]
    assert [each["level"] for each in cluster.json("quotas", "--json")] == [
        "user",
        "project",
        "domain",
    ]
    assert "muster quota set" in FakeCluster().run("quotas").stderr


def test_quota_is_set_from_a_file_and_removed() -> None:
    cluster = FakeCluster()
    text = "kind: quota\nlevel: project\nname: default/research\nlimits: {gpu: 8}"
    assert cluster.run("quota", "set", "-", stdin=text).stdout == (
        "quota of project default/research set\n"
    )
    cluster.quota_is_nobodys = True
    assert (
        "there is no project default/research yet"
        in cluster.run("quota", "set", "-", stdin=text).stderr
    )
    cluster.asked.pop()
    assert cluster.run("quota", "remove", "project", "default/research").exit_code == 0
    (_, spec), removed = cluster.asked
    assert isinstance(spec, QuotaSpec)
    assert removed == ("remove_quota", ("project", "default/research"))
    wrong = cluster.run("quota", "set", "-", stdin="command: [date]")
    assert wrong.exit_code == 1
    assert "kind: quota" in wrong.stderr


def agent(**fields: Any) -> AgentView:
    nothing = ResourcesView()
    return AgentView(
        **{
            "id": "agt-1",
            "name": "a1",
            "group": "default",
            "status": AgentStatus.ALIVE,
            "status_changed_at": NOW,
            "version": "0",
            "host": "h",
            "capacity": nothing,
            "free": nothing,
            "held": nothing,
            "joined_at": NOW,
            "seen_at": NOW,
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("command", "asked", "said"),
    [
        (
            ("cordon", "--reason", "disk"),
            (AgentBar.CORDONED, "disk", None),
            "agent a1 is cordoned and takes nothing new; it runs 1 ",
        ),
        (
            ("drain",),
            (AgentBar.DRAINING, None, "1h", "kept"),
            "agent a1 is draining and takes nothing new; it runs 1 ",
        ),
        (("drain", "--deadline", "never"), (AgentBar.DRAINING, None, None), "agent a1 is draining"),
        (("uncordon",), (None, None, None), "agent a1 takes work again"),
    ],
)
def test_agents_are_barred_and_taken_back(
    command: tuple[str, ...], asked: tuple[object, ...], said: str
) -> None:
    cluster = FakeCluster(agents_=[agent(kernels=1), agent(name="a2")])
    result = cluster.run(*command, "a1", "a2", "a1")
    assert result.stdout.startswith(said)
    assert cluster.asked == [("bar_agent", (name, *asked)) for name in ("a1", "a2")]


@pytest.mark.parametrize(("leave_by", "named"), [(NOW + 3600, True), (None, False)])
def test_drain_names_whom_it_will_stop(leave_by: float | None, named: bool) -> None:
    page = HeldKernelPage(items=(held("train/3", gpus=[1]), held("x", owner=None, service="check")))
    drained = agent(kernels=2, barred=AgentBar.DRAINING, leave_by=leave_by)
    result = FakeCluster(agents_=[drained], held_=page).run("drain", "a1")
    first, *rest = result.stdout.splitlines()
    assert first.startswith("agent a1 is draining and takes nothing new; it runs 2 kernels")
    assert len(rest) == named
    assert all(line.startswith("  train/3 (ann): 2 cpu, 1 gpu on GPU 1, for ") for line in rest)


def test_drain_names_twenty_at_most() -> None:
    page = HeldKernelPage(items=tuple(held(f"train/{index}") for index in range(22)))
    drained = agent(kernels=22, barred=AgentBar.DRAINING, leave_by=NOW)
    result = FakeCluster(agents_=[drained], held_=page).run("drain", "a1")
    lines = result.stdout.splitlines()
    assert len(lines) == 22
    assert lines[-1] == "  and 2 more kernels; `muster agents show` lists all"


def test_agent_that_may_still_run_something_is_not_removed_by_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agents, "REMOVED_WITHIN_S", 0.0)
    monkeypatch.setattr(agents, "LOOK_S", 0.0)
    stuck = FakeCluster(agents_=[agent(kernels=1), agent(name="a2")])
    result = stuck.run("agents", "remove", "--force", "a1", "a2")
    assert result.exit_code == 1
    assert "agent a1 may still run 1 kernel" in result.stderr
    bar = (AgentBar.DRAINING, "to be removed", 0)
    assert stuck.asked == [
        ("bar_agent", ("a1", *bar)),
        ("bar_agent", ("a2", *bar)),
        ("remove_agent", "a2"),
    ]


def test_agent_that_is_gone_for_good_is_removed_on_an_administrators_word() -> None:
    cluster = FakeCluster(agents_=[agent()])
    assert cluster.run("agents", "remove", "--lost", "a1").exit_code == 0
    assert cluster.asked == [("remove_agent", ("a1", "lost"))]
    both = cluster.run("agents", "remove", "--lost", "--force", "a1")
    assert (both.exit_code, len(cluster.asked)) == (2, 1)


@pytest.mark.parametrize("command", ["cordon", "drain", "uncordon"])
def test_unknown_agent_is_answered_with_those_like_it(command: str) -> None:
    cluster = FakeCluster(agents_=[agent(name="node-1"), agent(name="gpu-7")])
    result = cluster.run(command, "nod1", "gpu-7")
    assert result.exit_code == 1
    assert result.stderr == "muster: there is no agent 'nod1'; did you mean node-1?\n"
    assert cluster.asked[-1][1][0] == "gpu-7", "the others are told all the same"


def test_agents_show_who_takes_nothing_new_and_why() -> None:
    barred = agent(name="a2", barred=AgentBar.DRAINING, bar_note="new disk")
    told = FakeCluster(agents_=[agent(), barred]).run("agents").stdout.splitlines()
    assert told[1].split()[:2] == ["a1", "alive"]
    assert told[2].split()[:5] == ["a2", "alive,", "draining:", "new", "disk"]
    leaving = msgspec.structs.replace(barred, leave_by=time.time() + 60, kernels=1)
    assert "draining until " in FakeCluster(agents_=[leaving]).run("agents").stdout


def test_groups_show_which_plug_ins_do_not_serve() -> None:
    refused = because(
        ReasonCode.PLUGIN_REFUSED, plugin="selector", name="moody", group="g", why="raised E()"
    )
    cluster = FakeCluster(groups_=[GroupView(name="g", spec={}, refused=(refused,))])
    assert cluster.run("groups").stdout.splitlines()[-1] == (
        f"{refused.sentence}. {refused.remedy}"
    )


def test_quotas_tell_what_an_owner_has_in_the_database() -> None:
    quota = QuotaView(
        level="user",
        name="*/*/*",
        of="default/research/ann",
        open_work=LimitView(resource="open_work", used=1200, limit=100_000),
        open_specs=LimitView(resource="open_specs", used=3 * 2**20, limit=32 * 2**20),
        ended_specs=LimitView(resource="ended_specs", used=0, limit=16 * 2**20),
    )
    said = FakeCluster(quotas_=[quota]).run("quotas").stdout.splitlines()
    assert [line.split()[3:] for line in said[1:]] == [
        ["work", "not", "ended", "1,200", "100,000", "1"],
        ["its", "specs", "3MiB", "32MiB", "1"],
        ["specs", "of", "ended", "work", "0B", "16MiB", "1"],
    ]
