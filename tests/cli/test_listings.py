import io
import json
import re
import threading
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from rich.console import Console, RenderableType
from rich.text import Text
from tests.cli.fake_cluster import IDS, NOW, FakeCluster, because, job, kernel, lacks, session, task

from muster.cli.commands import ps
from muster.cli.commands.history import history_table
from muster.cli.commands.ps import EXPLAINED
from muster.cli.commands.show import job_parts
from muster.cli.commands.why import explanation
from muster.cli.screen import Column, table, write
from muster.cli.summary import summary_of
from muster.cli.words import moment
from muster.cli.work_table import work_table
from muster.client import Unreachable
from muster.core.reasons import ReasonCode
from muster.core.states import AgentStatus, JobState, KernelStatus, TaskState
from muster.core.views.base import OwnerView, ResourcesView
from muster.core.views.cluster import AgentView, DeviceView, GroupView
from muster.core.views.placement import HolderView, HoldingView, PlacementView, WhyView
from muster.core.views.work import HistoryPage, HistoryView, JobView

NEVER_FITS = because(ReasonCode.NEVER_FITS, agents=3, group="default", request="1 cpu, 9 gpu")
TOO_BIG = WhyView(
    subject=IDS[0],
    status="PENDING",
    verdict=f"big waits: {NEVER_FITS.sentence}",
    reasons=(NEVER_FITS,),
    placement=msgspec.convert(
        {
            "group": "default",
            "position": 2,
            "queue": 5,
            "agents": 1003,
            "kernels": 4,
            "kernels_fit": 1,
            "requests": [
                {
                    "asks": "1 cpu, 9 gpu",
                    "kernels": 4,
                    "other_agents": 3,
                    "groups": [
                        {
                            "agents": 1000,
                            "examples": ["agent-1", "agent-2"],
                            "nearest": "agent-1",
                            "lacks": [
                                lacks("gpu: 9 asked, the agent has 4"),
                                lacks("cpu: 1 asked, 0 of 8 free"),
                            ],
                        }
                    ],
                }
            ],
        },
        PlacementView,
    ),
)


def shown(parts: Sequence[RenderableType], width: int | None = None) -> list[str]:
    """The lines on a terminal of that width, without colours; without one when it is None."""
    stream = io.StringIO()
    terminal = width is not None
    console = Console(
        file=stream, width=width or 100_000, force_terminal=terminal, color_system=None
    )
    write(console, *parts)
    return stream.getvalue().splitlines()


def wide() -> Console:
    return Console(file=io.StringIO(), width=100_000)


def narrow(width: int) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=True)


def test_ps_lists_jobs_with_what_they_wait_for_or_ended_of() -> None:
    cluster = FakeCluster(
        jobs_=[
            job("big", JobState.PENDING, number=2),
            job("sweep", counts={TaskState.SUCCEEDED: 120, TaskState.RUNNING: 80}, number=1),
            job("prep", JobState.FAILED, reason=because(ReasonCode.AGENT_LOST, agent="a1")),
        ],
        why_={IDS[2]: TOO_BIG},
    )
    lines = cluster.run("ps", "--all").stdout.splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["ID", "NAME", "STATE", "TASKS"],
        ["01kaee7m", "big", "pending", "0/1"],
        ["01kaed7m", "sweep", "running", "120/200"],
        ["01kaec7m", "prep", "failed", "1/1"],
    ]
    assert lines[1].endswith(NEVER_FITS.sentence)
    assert lines[3].endswith("agent a1 was silent until the kernel's lease ran out")
    assert all(line == line.rstrip() and "\x1b" not in line for line in lines)


def test_ps_shows_live_jobs_unless_all_are_asked_for() -> None:
    cluster = FakeCluster(jobs_=[job("old", JobState.SUCCEEDED)])
    result = cluster.run("ps")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "muster ps -a" in result.stderr
    assert cluster.json("ps", "--json") == []


def test_ps_says_when_older_jobs_are_left_out() -> None:
    cluster = FakeCluster(jobs_=[job(f"j{number}", number=3 - number) for number in range(4)])
    result = cluster.run("ps", "--limit", "3")
    assert "j2" in result.stdout
    assert "j3" not in result.stdout
    assert "--limit 30" in result.stderr
    assert len(cluster.json("ps", "--json", "--limit", "3")) == 3


def test_ps_asks_why_of_a_few_waiting_jobs_only() -> None:
    asked: list[str] = []

    class Counting(FakeCluster):
        def why(self, ref: str) -> WhyView:
            asked.append(ref)
            return TOO_BIG

    waiting = [job(f"j{number}", JobState.PENDING) for number in range(EXPLAINED + 5)]
    Counting(jobs_=waiting).run("ps")
    assert len(asked) == EXPLAINED


def test_ps_watch_without_a_terminal_is_refused() -> None:
    result = FakeCluster().run("ps", "--watch")
    assert result.exit_code == 2
    assert "--watch" in result.stderr


def test_ps_watch_keeps_the_table_while_the_controller_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Leaving(FakeCluster):
        looks = 0

        def jobs(self, *_: Any, **__: Any) -> list[JobView]:
            self.looks += 1
            if self.looks == 1:
                return list(self.jobs_)
            self.heard[threading.get_ident()](False)
            raise Unreachable("no controller answers; `muster up` starts one")

    screen = narrow(100)
    monkeypatch.setattr("muster.cli.screen.stdout", lambda: screen)
    monkeypatch.setattr(ps, "REFRESH_S", 0.0)
    cluster = Leaving(jobs_=[job("train")])
    result = cluster.run("ps", "--watch")
    assert result.exit_code == 1
    assert "`muster up` starts one; nothing is lost" in result.stderr
    assert isinstance(screen.file, io.StringIO)
    *_, last = screen.file.getvalue().split("WHY")
    assert "train" in last
    assert f"no controller answers at {cluster.url}; still trying" in last


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
def test_ps_on_a_terminal_is_a_line_a_job_and_never_wider(width: int) -> None:
    jobs = [job("x" * 63, JobState.PENDING, number=1), job("short", number=2)]
    why = {IDS[1]: NEVER_FITS.sentence}
    lines = shown([work_table(narrow(width), jobs, why, NOW)], width)
    assert len(lines) == 3
    assert all(len(line) <= width for line in lines)
    if width >= 60:
        assert [line.split()[0] for line in lines] == ["ID", "01kaed7m", "01kaee7m"]
        assert "…" in lines[1]


def test_ps_shows_equally_old_jobs_by_ids_that_differ() -> None:
    twins = [msgspec.structs.replace(job("a"), id=f"job-01kaec7mc2qv3x9{end}") for end in "pq"]
    lines = shown([work_table(wide(), twins, {}, NOW)])
    assert [line.split()[0] for line in lines[1:]] == ["01kaec7mc2qv3x9p", "01kaec7mc2qv3x9q"]


def test_text_of_others_cannot_command_the_terminal() -> None:
    rows = [["\x1b[2J[red]evil\x07\nnext"]]
    lines = shown([table(wide(), [Column("NAME")], rows)])
    assert lines[1] == "\ufffd[2J[red]evil\ufffd next"


def test_columns_that_drop_make_room_for_the_flexible_one() -> None:
    columns = [Column("A"), Column("B", drops=1), Column("C", drops=2), Column("D", flexible=True)]
    rows: list[list[Text | str]] = [["a" * 10, "b" * 10, "c" * 10, "d" * 100]]
    assert shown([table(narrow(70), columns, rows)], 70)[0].split() == ["A", "B", "C", "D"]
    assert shown([table(narrow(60), columns, rows)], 60)[0].split() == ["A", "B", "D"]
    assert shown([table(narrow(40), columns, rows)], 40)[0].split() == ["A", "D"]


def test_why_says_verdict_then_kind_then_remedy_then_what_agents_lack() -> None:
    assert shown(explanation(wide(), TOO_BIG)) == [
        f"pending  big waits: {NEVER_FITS.sentence}",
        "  request: change what was asked for",
        "  Ask for less per kernel, or add a larger agent to the group.",
        "",
        "Place 2 of 5 in the queue of group default; once those ahead have started, 1 of 4 "
        "kernels would find room.",
        "",
        "1,003 agents looked at for 4 kernels asking for 1 cpu, 9 gpu each",
        "AGENTS  WHAT THEY LACK" + " " * 44 + "NEAREST  SUCH AS",
        " 1,000  gpu: 9 asked, the agent has 4; cpu: 1 asked, 0 of 8 free  agent-1  "
        "agent-1, agent-2",
        "and 3 agents that lack otherwise",
    ]
    assert TOO_BIG.placement is not None
    request = msgspec.structs.replace(TOO_BIG.placement.requests[0], other_agents=1)
    alone = msgspec.structs.replace(TOO_BIG.placement, requests=(request,))
    one = msgspec.structs.replace(TOO_BIG, placement=alone)
    assert shown(explanation(wide(), one))[-1] == "and 1 agent that lacks otherwise"


def test_why_shows_every_reason_that_the_verdict_does_not() -> None:
    backoff = because(ReasonCode.RETRY_BACKOFF, seconds=4)
    answer = msgspec.structs.replace(TOO_BIG, reasons=(NEVER_FITS, backoff), placement=None)
    assert shown(explanation(wide(), answer))[3:] == ["  the next try is in 4 s"]


def test_why_says_that_time_cures_it_only_where_nothing_else_is_to_be_done() -> None:
    backoff = because(ReasonCode.RETRY_BACKOFF, seconds=4)
    cures = "  waiting: nothing to do, time cures it"
    alone = msgspec.structs.replace(TOO_BIG, reasons=(backoff,), placement=None)
    assert cures in shown(explanation(wide(), alone))
    both = msgspec.structs.replace(TOO_BIG, reasons=(NEVER_FITS, backoff), placement=None)
    assert cures not in shown(explanation(wide(), both))


def test_show_words_what_was_asked_for_as_a_person_would_write_it() -> None:
    spec = {
        "command": ["x"],
        "timeout": 3600.0,
        "not_before": NOW,
        "coscheduled": True,
        "env": {"SECRET": "s"},
        "placement": {
            "constraints": [
                {"attribute": "zone", "values": ["a"]},
                {"attribute": "nvlink", "op": "EXISTS", "soft": True},
            ],
            "max_kernels_per_agent": 2,
            "agents": ["a1", "a2"],
        },
        "after": [{"on": "job-01kaec7mc2qv3x9p", "condition": "ended", "name": "prep"}],
    }
    asked = msgspec.structs.replace(job(state=JobState.PENDING), spec=spec)
    text = " ".join(" ".join(shown(job_parts(wide(), asked, [], NOW))).split())
    assert (
        f"timeout=1h00m; not_before={moment(NOW)}; coscheduled=true; env=SECRET; "
        "after=prep:ended; constraints=zone=a, nvlink (soft); max_kernels_per_agent=2; "
        "agents=a1, a2"
    ) in text


def test_why_says_once_what_is_to_be_done_about_two_quotas() -> None:
    quotas = tuple(
        because(
            ReasonCode.QUOTA_IN_USE,
            resource=resource,
            used=8,
            requested=4,
            limit=10,
            over=2,
            level="user",
            owner="default/default/ann",
        )
        for resource in ("cpu", "gpu")
    )
    answer = msgspec.structs.replace(TOO_BIG, reasons=quotas, placement=None)
    assert shown(explanation(wide(), answer))[1:] == [
        f"  {quotas[0].sentence}",
        f"  {quotas[1].sentence}",
        "  limit: your quota",
        f"  {quotas[0].remedy}",
    ]


def test_why_names_who_has_what_it_waits_for_and_counts_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)
    owner = OwnerView(domain="default", project="default", user="ann")
    named: dict[str, Any] = {"owner": owner, "since": NOW - 7200}
    holders = (
        HolderView(name="train-3", amount="6", sessions=1, yours=True, **named),
        HolderView(name="sweep", amount="1", sessions=2, **named),
        HolderView(amount="1", sessions=2),
    )
    room = HoldingView(resource="gpu", held="8", limit="8", agents=("node-1",), holders=holders)
    quota = HoldingView(resource="cpu", held="2", limit="2", quota="user default/default/ann")
    slots = HoldingView(resource="sessions", held="6", limit="6", holders=holders[:2])
    behind = HolderView(sessions=1)
    answer = msgspec.structs.replace(
        TOO_BIG, placement=None, held=(room, quota, slots), behind=behind
    )
    assert shown(explanation(wide(), answer))[-4:] == [
        "  8 of 8 gpu on node-1 held by train-3 (yours, 6, for 2h00m), "
        "sweep (ann, 2 sessions, 1, for 2h00m), 2 sessions of others (1)",
        "  2 of 2 cpu of user default/default/ann in use",
        "  6 of 6 sessions held by train-3 (yours, for 2h00m), sweep (ann, 2 sessions, for 2h00m)",
        "  ahead of it is a session of others",
    ]


def test_why_of_what_has_ended_waits_for_nothing() -> None:
    answer = WhyView(
        subject=IDS[0],
        status="KILLED",
        verdict="stopped before it started",
        reasons=(because(ReasonCode.CANCELLED, by="ann"),),
        ended=True,
    )
    assert shown(explanation(wide(), answer)) == [
        "killed  stopped before it started",
        "  cancelled by ann",
    ]


def test_why_of_a_job_that_runs_says_since_when_and_where() -> None:
    running = [
        task(index, TaskState.RUNNING, (kernel(index + 1, ended_at=None),)) for index in range(2)
    ]
    running_why = WhyView(subject=IDS[0], status="RUNNING", verdict="3 tasks: 2 running, 1 waiting")
    cluster = FakeCluster(
        jobs_=[job(counts={TaskState.RUNNING: 2, TaskState.PENDING: 1})],
        tasks_=running,
        why_={"train": running_why},
    )
    headline, runs, look = cluster.run("why", "train").stdout.splitlines()
    assert headline == "running  3 tasks: 2 running, 1 waiting"
    assert runs.startswith("  train runs since ")
    assert runs.endswith(" on agent-1 and agent-2")
    assert look == "  see `muster logs -f train`"


def test_why_of_a_job_that_ended_says_when_how_and_which_task_failed() -> None:
    killed = because(ReasonCode.SIGNALED, signal=9)
    counts = {TaskState.SUCCEEDED: 2, TaskState.FAILED: 1}
    cluster = FakeCluster(
        jobs_=[job("prep", JobState.FAILED, counts)],
        tasks_=[task(1, TaskState.FAILED, (kernel(1), kernel(2, signal=9)), reason=killed)],
        why_={
            "prep": WhyView(
                subject=IDS[0], status="FAILED", verdict="", reasons=(killed,), ended=True
            )
        },
    )
    assert cluster.run("why", "prep/1").stdout.splitlines() == [
        f"failed  prep ended at {moment(NOW - 12)} after 1m00s: 2 succeeded, 1 failed",
        "  task 1 failed on agent-2 in attempt 2 (SIGKILL): ended by signal 9",
        "  see `muster logs prep/1` and `muster history prep`",
    ]


def test_why_of_a_job_that_never_started_has_no_output_to_point_at() -> None:
    by_ann = because(ReasonCode.CANCELLED, by="ann")
    stopped = WhyView(subject=IDS[0], status="KILLED", verdict="", reasons=(by_ann,), ended=True)
    cluster = FakeCluster(
        jobs_=[job("prep", JobState.KILLED, started_at=None)], why_={"prep": stopped}
    )
    assert cluster.run("why", "prep").stdout.splitlines() == [
        f"killed  prep ended at {moment(NOW - 12)} without a start",
        "  cancelled by ann",
        "  see `muster history prep`",
    ]


@pytest.mark.parametrize(
    ("names", "named"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "a", "b"], "a and b"),
        (["a", "b", "c"], "a, b and c"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
    ],
)
def test_why_of_a_session_names_a_few_of_its_agents(names: list[str], named: str) -> None:
    kernels = tuple(kernel(agent=name) for name in names)
    alone = session(status="RUNNING", started_at=NOW, kernels=kernels)
    (runs,) = summary_of(FakeCluster(sessions_=[alone]).client(), alone.id).details
    assert runs.endswith(f" on {named}" if named else ")")


def test_why_on_a_narrow_terminal_wraps_and_cuts_nothing() -> None:
    text = " ".join(" ".join(shown(explanation(narrow(44), TOO_BIG), 44)).split())
    assert "gpu: 9 asked" in text
    assert "8 free" in text
    assert "…" not in text


def test_why_json_is_what_the_client_returned() -> None:
    cluster = FakeCluster(why_={"big": TOO_BIG})
    assert cluster.json("why", "big", "--json") == json.loads(msgspec.json.encode(TOO_BIG))


def test_show_tells_where_each_attempt_ran_and_how_it_ended() -> None:
    exited = because(ReasonCode.EXITED, exit_code=3)
    killed = because(ReasonCode.SIGNALED, signal=9)
    attempts = (kernel(1, exit_code=3, reason=exited), kernel(2, signal=9, reason=killed))
    cluster = FakeCluster(
        jobs_=[job("prep", JobState.FAILED, {TaskState.FAILED: 1, TaskState.PENDING: 1})],
        tasks_=[task(0, TaskState.FAILED, attempts, reason=killed), task(1, TaskState.PENDING)],
    )
    lines = cluster.run("show", "prep").stdout.splitlines()
    assert lines[0] == f"prep  failed  {IDS[0]}"
    assert "command    python train.py" in lines
    assert "each asks  2 cpu, 1 gpu" in lines
    rows = [line.split() for line in lines[-3:]]
    assert rows[0][:5] == ["0", "1", "failed", "agent-1", "1"]
    assert rows[0][-5:] == ["3", "exited", "with", "code", "3"]
    assert rows[1][:5] == ["0", "2", "failed", "agent-2", "2"]
    assert rows[1][-5:] == ["SIGKILL", "ended", "by", "signal", "9"]
    assert rows[2] == ["1", "-", "pending"]
    shown_tasks = cluster.json("show", "prep", "--json")["tasks"]
    codes = [[each["exit_code"] for each in shown["attempts"]] for shown in shown_tasks]
    assert codes == [[3, None], []]


def test_show_of_ten_thousand_tasks_sums_up_and_lists_what_went_wrong() -> None:
    counts = {TaskState.SUCCEEDED: 9_000, TaskState.FAILED: 3, TaskState.RUNNING: 997}
    tasks = [task(index, TaskState.SUCCEEDED) for index in range(300)]
    tasks += [task(index, TaskState.FAILED, exit_code=1) for index in (300, 301, 302)]
    tasks += [task(index, TaskState.RUNNING) for index in range(303, 400)]
    cluster = FakeCluster(jobs_=[job("sweep", counts=counts)], tasks_=tasks)
    lines = cluster.run("show", "sweep").stdout.splitlines()
    assert "tasks      10,000: 997 running, 9,000 succeeded, 3 failed" in lines
    assert [line.split()[0] for line in lines if line.split()[2:3] == ["failed"]] == [
        "300",
        "301",
        "302",
    ]
    assert lines[-1].startswith("10 of 10,000 tasks shown")
    listed = cluster.run("show", "sweep", "--tasks", "--limit", "20").stdout.splitlines()
    assert [line.split()[0] for line in listed[-21:-1]] == [str(index) for index in range(20)]
    assert listed[-1] == "20 of 10,000 tasks shown; --tasks --offset 20 lists the next"


def test_show_of_one_task_is_its_attempts() -> None:
    cluster = FakeCluster(tasks_=[task(7, TaskState.RUNNING, (kernel(ended_at=None),))])
    lines = cluster.run("show", "sweep/7").stdout.splitlines()
    assert lines[1].split()[:4] == ["7", "1", "running", "agent-1"]


def test_show_of_a_session_lists_its_kernels() -> None:
    notebook = session()
    lines = FakeCluster(sessions_=[notebook]).run("show", notebook.id).stdout.splitlines()
    assert lines[0] == "notebook  terminated  ses-01kaec7mc2qv3x9p"
    assert lines[-1].split()[:3] == ["0", "succeeded", "agent-1"]


def test_show_never_leaves_an_error_without_its_reason() -> None:
    lost = kernel(1, status=KernelStatus.ERROR)
    silent = kernel(2, status=KernelStatus.ERROR, reason=because(ReasonCode.AGENT_LOST, agent="a"))
    alone = session(kernels=(lost,))
    cluster = FakeCluster(
        jobs_=[job("prep", JobState.PENDING)],
        tasks_=[task(0, TaskState.PENDING, (lost, silent))],
        sessions_=[alone],
    )
    *_, first, last = cluster.run("show", "prep").stdout.splitlines()
    assert first.endswith("lost with its agent agent-1")
    assert last.endswith("agent a was silent until the kernel's lease ran out")
    assert cluster.run("show", alone.id).stdout.rstrip().endswith("lost with its agent agent-1")


def test_show_puts_no_line_break_into_a_command() -> None:
    words = [f"--option-{number}=value" for number in range(20)]
    long = job(spec={"command": ["python", "train.py", *words]})
    lines = shown(job_parts(narrow(60), long, [], NOW), 60)
    assert f"command    python train.py {' '.join(words)}" in lines
    script = job(spec={"command": ["/bin/sh", "-c", "cd /data\nmake"]})
    lines = shown(job_parts(narrow(60), script, [], NOW), 60)
    assert lines[2:4] == ["command    cd /data", "           make"]


def test_show_names_variables_and_never_their_values() -> None:
    hidden = job(spec={"command": ["true"], "env": {"TOKEN": "s3cret"}, "grace": 5})
    text = "\n".join(shown(job_parts(wide(), hidden, [], NOW)))
    assert "env=TOKEN; grace=5" in text
    assert "s3cret" not in text


def test_history_shows_merged_entries_with_their_count() -> None:
    page = HistoryPage(
        items=(
            HistoryView(
                seq=1,
                entity="ses-01kaec7mc2qv3x9p",
                kind="session",
                phase="ScheduleNewSessions",
                from_status="PENDING",
                to_status="PENDING",
                result="SKIPPED",
                reasons=(NEVER_FITS,),
                times=1200,
                first_at=NOW,
                last_at=NOW,
            ),
            HistoryView(
                seq=2,
                entity=f"{IDS[0]}/3",
                kind="task",
                phase="SettleTasks",
                from_status="RUNNING",
                to_status="FAILED",
                happened="failed",
                result="GIVE_UP",
                first_at=NOW,
                last_at=NOW,
            ),
            HistoryView(
                seq=3,
                entity="ses-01kaec7mc2qv3x9p",
                kind="session",
                phase="RunningSessions",
                from_status="CREATING",
                to_status="RUNNING",
                happened="started",
                result="SUCCESS",
                first_at=NOW,
                last_at=NOW,
                task_index=0,
                attempt=1,
                kernels=4,
                agent="node-2",
            ),
            HistoryView(
                seq=4,
                entity="lmp-01kaec7mc2qv3x9p",
                kind="lamp",
                phase="LightLamps",
                from_status="OFF",
                to_status="LIT",
                result="SUCCESS",
                first_at=NOW,
                last_at=NOW,
            ),
        )
    )
    lines = shown([history_table(wide(), page.items, NOW)])
    assert lines[1].split()[1:4] == ["session", "waits", "1,200"]
    assert lines[2].split()[1:] == ["task", "3", "failed"]
    assert "gang, attempt 1  started on node-2 (kernel 0)" in lines[3]
    assert lines[4].split()[1:] == ["lamp", "lit"], "a kind that has no words of its own"


def test_agents_show_what_is_free_of_what_there_is() -> None:
    gib = 2**30
    agent = AgentView(
        id="agt-1",
        name="agent-1",
        group="default",
        status=AgentStatus.UNREACHABLE,
        status_changed_at=NOW,
        version="1",
        host="box",
        capacity=ResourcesView(cpu_milli=8000, memory_bytes=32 * gib, gpu_milli=4000),
        free=ResourcesView(cpu_milli=500, memory_bytes=30 * gib, gpu_milli=1500),
        held=ResourcesView(),
        devices=tuple(DeviceView(index=index, model="H100") for index in range(4)),
        kernels=3,
        joined_at=NOW,
        seen_at=NOW,
    )
    cluster = FakeCluster(agents_=[agent])
    row = cluster.run("agents").stdout.splitlines()[1].split()
    assert row[:8] == [
        "agent-1", "unreachable", "default", "0.5/8", "30GiB/32GiB", "1.5/4", "H100", "3",
    ]  # fmt: skip
    assert cluster.json("agents", "--group", "other", "--json") == []
    stopped = msgspec.structs.replace(agent, status=AgentStatus.ALIVE, connected=False)
    assert "not connected" in FakeCluster(agents_=[stopped]).run("agents").stdout


def test_groups_show_their_queue_and_policy() -> None:
    spec = {"sequencer": "fifo", "selector": "concentrated", "queue": "backfill"}
    kind = {**spec, "queue": "strict", "preemption": {"mode": "reschedule", "scope": "project"}}
    found = [
        GroupView(name="default", spec=spec, agents=3, waiting=12),
        GroupView(name="kind", spec=kind),
    ]
    cluster = FakeCluster(groups_=found)
    rows = [re.split("  +", line) for line in cluster.run("groups").stdout.splitlines()[1:]]
    assert rows == [
        ["default", "3", "12", "fifo", "concentrated", "backfill", "-"],
        ["kind", "0", "0", "fifo", "concentrated", "strict", "reschedule, within the project"],
    ]
    assert cluster.json("groups", "--json")[0]["waiting"] == 12
