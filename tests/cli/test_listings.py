import io
import re
import threading
from typing import Any

import msgspec
import pytest
from rich.text import Text
from tests.cli.fake_cluster import IDS, NOW, FakeCluster, because, job
from tests.cli.rendered import narrow, shown, wide
from tests.cli.test_why import NEVER_FITS, TOO_BIG

from muster.cli import watching
from muster.cli.commands.history import history_table
from muster.cli.commands.ps import EXPLAINED
from muster.cli.screen import Column, table
from muster.cli.work_table import work_table
from muster.client import Unreachable
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_settings import SettingChanged
from muster.core.states import AgentStatus, JobState, TaskState
from muster.core.states.recovery import RecoveryStatus
from muster.core.views.base import OwnerView, ReasonView, ResourcesView
from muster.core.views.cluster import AgentView, DeviceView, GroupView
from muster.core.views.placement import WhyView
from muster.core.views.recoveries import RecoveryView
from muster.core.views.work import HistoryPage, HistoryView, JobDetail, JobView


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
        ["01kaee7m", "big", "waiting", "0/1"],
        ["01kaed7m", "sweep", "running", "120/200"],
        ["01kaec7m", "prep", "failed", "1/1"],
    ]
    assert lines[0].split()[4:7] == ["RUNNING", "WAITING", "FAILED"]
    assert lines[2].split()[4] == "80"
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

    waiting = [
        job(f"j{number}", JobState.PENDING, id=f"job-{number:016}")
        for number in range(EXPLAINED + 5)
    ]
    Counting(jobs_=waiting).run("ps")
    assert len(asked) == EXPLAINED


def test_ps_says_why_a_job_that_has_run_stands_still() -> None:
    """Its state stays running when its only task goes back to the queue."""
    cluster = FakeCluster(
        jobs_=[
            job("stands", counts={TaskState.PENDING: 1}, number=1),
            job("runs", counts={TaskState.PENDING: 1, TaskState.RUNNING: 1}, number=0),
        ],
        why_={IDS[1]: TOO_BIG, IDS[0]: TOO_BIG},
    )
    head, stands, runs = cluster.run("ps").stdout.splitlines()
    assert stands.endswith(NEVER_FITS.sentence)
    assert runs.endswith("default")
    assert stands.split()[2:4] == ["waiting", "0/1"]
    assert stands[head.index("RAN") :].split()[0] == "default", "nothing of it runs: no time counts"


def test_ps_says_what_an_ended_job_still_holds_and_who_ended_others() -> None:
    def ended(name: str, number: int, code: ReasonCode, **fields: Any) -> JobDetail:
        numbers = {"by": "ann"} if code is ReasonCode.CANCELLED else {"timeout_s": 1}
        why = because(code, **numbers)
        return job(name, JobState.KILLED, number=number, reason=why, **fields)

    cluster = FakeCluster(
        jobs_=[
            ended("stops", 3, ReasonCode.CANCELLED, kernels_left=2),
            ended("cancelled", 2, ReasonCode.CANCELLED),
            ended("late", 1, ReasonCode.TIMEOUT),
        ]
    )
    (line,) = cluster.run("ps").stdout.splitlines()[1:]
    assert line.split()[1:3] == ["stops", "stopping"]
    assert line.endswith("cancelled by ann; 2 kernels may still run")
    rows = [each.split() for each in cluster.run("ps", "-a").stdout.splitlines()[1:]]
    assert [row[1:3] for row in rows] == [
        ["stops", "stopping"],
        ["cancelled", "cancelled"],
        ["late", "timed"],
    ]
    assert {each["state"] for each in cluster.json("ps", "-a", "--json")} == {"KILLED"}


def test_ps_says_that_the_machine_of_what_runs_is_not_heard() -> None:
    numbers = {"agent": "agent-1", "silent_s": 40, "ends_in_s": 20}
    silence = because(ReasonCode.AGENT_UNREACHABLE, **numbers)
    (line,) = FakeCluster(jobs_=[job("runs", silence=silence)]).run("ps").stdout.splitlines()[1:]
    assert line.split()[1:3] == ["runs", "running"]
    assert "agent agent-1 has been silent for 40 s" in line


@pytest.mark.parametrize(
    ("states", "listed"),
    [
        ("waiting", ["again", "new"]),
        ("running", ["runs"]),
        ("pending", ["new"]),
        ("waiting,running", ["again", "new", "runs"]),
        ("timed-out, stopping", ["late", "stops"]),
        ("cancelled", []),
        ("killed", ["late", "stops"]),
        ("live", ["again", "new", "runs", "stops"]),
    ],
)
def test_ps_lists_the_states_that_people_see_and_those_of_the_api(
    states: str, listed: list[str]
) -> None:
    timeout = because(ReasonCode.TIMEOUT, timeout_s=1)
    cluster = FakeCluster(
        jobs_=[
            job("new", JobState.PENDING, number=0),
            job("again", counts={TaskState.PENDING: 1}, number=1),
            job("runs", number=2),
            job("late", JobState.KILLED, number=3, reason=timeout),
            job("stops", JobState.KILLED, number=4, reason=timeout, kernels_left=1),
        ],
    )
    found = cluster.json("ps", "--state", states, "--json")
    assert sorted(each["name"] for each in found) == listed


def test_ps_of_an_unknown_state_names_the_known_ones() -> None:
    result = FakeCluster().run("ps", "--state", "running,nope")
    assert result.exit_code == 2
    assert "'nope' is no state: expected one of live, ended, all, assigned" not in result.stderr
    assert "'nope' is no state: expected one of live, ended, all, cancelled" in result.stderr


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
    monkeypatch.setattr(watching, "REFRESH_S", 0.0)
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


def entry(entity: str, kind: str, before: str, after: str, **more: Any) -> HistoryView:
    fields: dict[str, Any] = {"phase": "Any", "result": "SUCCESS", **more}
    fields |= {"seq": 1, "first_at": NOW, "last_at": NOW, "from_status": before, "to_status": after}
    return HistoryView(entity=entity, kind=kind, **fields)


def test_history_shows_merged_entries_with_their_count() -> None:
    session, task, lamp = "ses-01kaec7mc2qv3x9p", f"{IDS[0]}/3", "lmp-01kaec7mc2qv3x9p"
    skipped = {"result": "SKIPPED", "reasons": (NEVER_FITS,), "times": 1200}
    gang = {"task_index": 0, "attempt": 1, "kernels": 4, "agent": "node-2"}
    page = HistoryPage(
        items=(
            entry(session, "session", "PENDING", "PENDING", **skipped),
            entry(task, "task", "RUNNING", "FAILED", result="GIVE_UP", happened="failed"),
            entry(session, "session", "CREATING", "RUNNING", happened="started", **gang),
            entry(lamp, "lamp", "OFF", "LIT"),
        )
    )
    lines = shown([history_table(wide(), page.items, NOW)])
    assert lines[1].split()[1:4] == ["session", "waits", "1,200"]
    assert lines[2].split()[1:] == ["task", "3", "failed"]
    assert "gang, attempt 1  started on node-2 (kernel 0)" in lines[3]
    assert lines[4].split()[1:] == ["lamp", "lit"], "a kind that has no words of its own"


def test_history_of_a_setting_tells_its_change_and_why() -> None:
    changed = SettingChanged(by="root", changes=(("limits.gpu", "8", "10"),))
    of_setting = entry("quota:default", "quota", "", "CHANGED", happened="changed")
    told = msgspec.structs.replace(of_setting, from_status=None, reasons=(ReasonView.of(changed),))
    (_, line) = shown([history_table(wide(), [told], NOW)])
    assert line.split()[1:3] == ["quota", "changed"]
    assert "by root: limits.gpu: 8 → 10" in line


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


def test_recoveries_are_listed_by_ids_that_suffice_and_none_is_said_to_be_none() -> None:
    recovery = RecoveryView(
        id=f"rec-{IDS[0].partition('-')[2]}",
        job=IDS[0],
        name="train",
        group="default",
        owner=OwnerView(domain="default", project="default", user="ada"),
        status=RecoveryStatus.RESTARTING,
        status_changed_at=NOW,
        created_at=NOW,
    )
    row = FakeCluster(recoveries_=[recovery]).run("recoveries").stdout.splitlines()[1]
    assert row.split()[:3] == ["rec-01kaec7m", "train", "restarting"]
    result = FakeCluster().run("recoveries")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "muster run --recovery" in result.stderr
    assert FakeCluster().json("recoveries", "--json") == []


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
