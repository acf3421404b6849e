"""Incidents as the command line tells them."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic.fields import FieldInfo
from tests.cli.fake_cluster import NOW, FakeCluster
from tests.cli.held_kernels import held
from tests.cli.rendered import shown, wide

from muster.cli.described.agent import agent_parts
from muster.cli.described.group import group_parts
from muster.cli.described.incident import incident_parts, why
from muster.core.specs import ScalingGroup
from muster.core.states import AgentBar, AgentStatus, KernelStatus
from muster.core.states.health import HealthStatus
from muster.core.views.base import ReasonView, ResourcesView
from muster.core.views.cluster import AgentView, GroupView, HeldKernelPage
from muster.core.views.health import CheckView, IncidentView

XID = ReasonView(
    code="HEALTH_XID",
    kind="operator",
    sentence="Xid 79 on GPU 1: fallen off the bus",
    remedy="Nothing: it is rebooted.",
)


def incident(status: HealthStatus = HealthStatus.REBOOTING, **fields: Any) -> IncidentView:
    return IncidentView(
        **{
            "id": "inc-01kaec7mc2qv3x9p",
            "agent": "a1",
            "agent_id": "agt-01kaec7mc2qv3x9p",
            "group": "default",
            "status": status,
            "status_changed_at": NOW - 12,
            "why": XID,
            "devices": (1,),
            "confirmed": True,
            "is_out": True,
            "remedy": "reboot",
            "began_at": NOW - 60,
            **fields,
        }
    )


def agent(**fields: Any) -> AgentView:
    nothing = ResourcesView()
    return AgentView(
        **{
            "id": "agt-01kaec7mc2qv3x9p",
            "name": "a1",
            "group": "default",
            "status": AgentStatus.ALIVE,
            "status_changed_at": NOW - 100,
            "version": "1",
            "host": "box",
            "capacity": ResourcesView(cpu_milli=1000),
            "free": nothing,
            "held": nothing,
            "joined_at": NOW - 100,
            "seen_at": NOW,
            **fields,
        }
    )


def test_agent_of_which_all_is_held_tells_what_is_free_by_name() -> None:
    capacity = ResourcesView(cpu_milli=2000, memory_bytes=2**30)
    found = agent(capacity=capacity, free=ResourcesView(memory_bytes=2**29))
    lines = shown(agent_parts(wide(), found, (), NOW))
    assert any(line.split(maxsplit=1) == ["free", "0 cpu, 512MiB memory"] for line in lines)


def test_incident_tells_what_was_found_what_was_tried_and_for_how_long() -> None:
    found = incident(
        rounds=1,
        heal="reboot",
        job="train",
        checks=(CheckView(at=NOW - 30, result="faulty", sentence="faulty by dcgm", took_s=20.0),),
    )
    lines = shown(incident_parts(found, NOW))
    assert lines[0] == "inc-01kaec7mc2qv3x9p  rebooting"
    told = {line[:12].strip(): line[12:].strip() for line in lines[1:]}
    assert told["agent"] == "a1, of group default"
    assert told["why"] == "Xid 79 on GPU 1: fallen off the bus. Nothing: it is rebooted."
    assert told["about"] == "GPU 1"
    assert told["found by"] == "job train"
    assert told["takes work"] == "no"
    assert told["tried"] == "1 round, under way: reboot"
    assert told["checks"].endswith(", after 20s: faulty by dcgm")
    assert told["times"].endswith("rebooting for 12s")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"is_out": False}, "yes: it waits for its turn to be taken out of work"),
        ({"leave_by": NOW + 90}, "no; any work still there has to leave in 1m30s"),
        ({"leave_by": NOW - 90}, "no"),
    ],
)
def test_incident_tells_whether_its_machine_takes_work(fields: dict[str, Any], said: str) -> None:
    lines = shown(incident_parts(incident(HealthStatus.SUSPECT, **fields), NOW))
    assert f"takes work  {said}" in lines


def test_incident_that_has_ended_tells_how_long_it_took() -> None:
    ended = incident(HealthStatus.HEALTHY, finished_at=NOW - 10, rounds=2, heal="hard reboot")
    lines = shown(incident_parts(ended, NOW))
    assert not any(line.startswith("takes work") for line in lines)
    assert any("2 rounds, last: hard reboot" in e for e in lines)
    assert lines[-1].endswith(", ended 10s ago, 50s later")


def test_agent_tells_its_health_and_its_incidents() -> None:
    ended = incident(HealthStatus.HEALTHY, id="inc-01kaeb", finished_at=NOW - 30, devices=())
    ill = agent(ill="being rebooted", incident="inc-01kaec7mc2qv3x9p")
    lines = shown(agent_parts(wide(), ill, [incident(), ended], NOW))
    assert "takes work  no: being rebooted" in lines
    assert f"health      rebooting for 12s (GPU 1, {XID.sentence})" in lines
    assert [line.split()[:2] for line in lines[-2:]] == [
        ["inc-01kaec7mc2qv3x9p", "rebooting"],
        ["inc-01kaeb", "healthy"],
    ]
    well = shown(agent_parts(wide(), agent(), [ended], NOW))
    assert not any(line.startswith(("takes work", "health")) for line in well)
    assert not any("INCIDENT" in line for line in shown(agent_parts(wide(), agent(), [], NOW)))


def test_agent_names_its_kernels_with_their_owners_and_counts_those_of_others() -> None:
    page = HeldKernelPage(
        items=(
            held("train/3", gpus=[0, 1]),
            held("check", owner=None, service="check", status=KernelStatus.CREATING),
        ),
        others=2,
        other_gpu_milli=1500,
    )
    lines = shown(agent_parts(wide(), agent(), [], NOW, page))
    at = next(index for index, line in enumerate(lines) if line.startswith("RUNS"))
    assert [line.split() for line in lines[at:]] == [
        ["RUNS", "OWNER", "STATE", "GPUS", "ON", "GPU", "CPU", "MEMORY", "FOR"],
        ["train/3", "ann", "running", "2", "0,1", "2", "0B", "1m00s"],
        ["(check", "of", "the", "machine)", "-", "creating", "-", "-", "2", "0B", "1m00s"],
        [],
        ["2", "kernels", "of", "others,", "with", "1.5", "gpu"],
    ]


def test_agent_tells_which_of_its_gpus_may_hold_up_work() -> None:
    slow = agent(stragglers=("GPU 0: it draws 400 W, the others 600 W", "GPU 1: the same"))
    lines = shown(agent_parts(wide(), slow, [], NOW))
    said = "GPU 0: it draws 400 W, the others 600 W. GPU 1: the same"
    assert any(line.split() == ["may", "be", "slow", *said.split()] for line in lines)


def test_an_operators_bar_is_told_before_health() -> None:
    barred = agent(barred="cordoned", bar_note="loud fan", ill="being checked")
    assert "takes work  no: cordoned, loud fan" in shown(agent_parts(wide(), barred, [], NOW))


def test_words_of_a_driver_cannot_command_the_terminal() -> None:
    evil = ReasonView(code="X", kind="operator", sentence="\x1b[2Jgone\x07")
    check = CheckView(at=NOW, result="faulty", sentence="\x1b[31mred", took_s=1.0)
    lines = shown(incident_parts(incident(why=evil, checks=(check,)), NOW))
    assert not any("\x1b" in line or "\x07" in line for line in lines)


# -- lists ---------------------------------------------------------------------------------------


def test_agents_that_are_ill_are_told_in_a_word_and_counted() -> None:
    agents = [agent(ill="being rebooted"), agent(id="agt-2", name="a2"), agent(name="a3")]
    told = FakeCluster(agents_=agents).run("agents")
    assert "alive, being rebooted" in told.stdout
    assert told.stderr == "1 of 3 agents is ill; `muster incidents` tells why\n"
    assert FakeCluster(agents_=agents[1:]).run("agents").stderr == ""
    assert FakeCluster(agents_=agents).run("agents", "--json").stderr == ""


def test_incidents_are_listed_with_why_and_whether_their_machines_work() -> None:
    waits = incident(HealthStatus.SUSPECT, id="inc-01kaed7mc2qv3x9p", agent="a2", is_out=False)
    ended = incident(HealthStatus.HEALTHY, id="inc-01kaee7mc2qv3x9p", finished_at=NOW)
    cluster = FakeCluster(incidents_=[incident(), waits, ended])
    lines = cluster.run("incidents").stdout.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["inc-01kaec7m", "a1", "rebooting"],
        ["inc-01kaed7m", "a2", "suspect"],
    ]
    assert ["out" in line.split() for line in lines[1:]] == [True, False]
    assert all(XID.sentence in line for line in lines[1:])
    every = cluster.run("incidents", "--all").stdout
    assert "inc-01kaee7m" in every
    assert [each["id"] for each in cluster.json("incidents", "list", "--json")] == [
        "inc-01kaec7mc2qv3x9p",
        "inc-01kaed7mc2qv3x9p",
    ]
    one = cluster.run("incidents", "--limit", "1")
    assert "older ones are left out: --limit 10 shows more" in one.stderr


def test_no_incidents_are_told_with_how_to_ask_for_a_check() -> None:
    told = FakeCluster().run("incidents")
    assert (told.exit_code, told.stdout) == (0, "")
    assert "`muster agents check AGENT`" in told.stderr


# -- decisions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "status", "said"),
    [
        ("check", HealthStatus.CHECKING, "agent a1 is being checked; `muster why a1` tells more"),
        ("heal", HealthStatus.REBOOTING, "agent a1 is being rebooted; `muster why a1` tells more"),
        (
            "isolate",
            HealthStatus.ISOLATED,
            "agent a1 is isolated for an operator; `muster agents return a1` has it take work "
            "again",
        ),
    ],
)
def test_decision_goes_to_each_machine_with_its_note(
    decision: str, status: HealthStatus, said: str
) -> None:
    cluster = FakeCluster(incidents_=[incident(status), incident(status, agent="a2")])
    told = cluster.run("agents", decision, "a1", "a2", "a1", "--note", "loud fan")
    assert (told.exit_code, told.stderr) == (0, "")
    assert told.stdout.splitlines() == [said, said.replace("a1", "a2")]
    assert cluster.asked == [(decision, ("a1", "loud fan")), (decision, ("a2", "loud fan"))]


def test_machine_that_is_returned_is_told_as_healthy() -> None:
    cluster = FakeCluster(incidents_=[incident(HealthStatus.HEALTHY, finished_at=NOW)])
    assert cluster.run("agents", "return", "a1").stdout == "agent a1 is healthy again\n"
    assert cluster.asked == [("return", ("a1", ""))]


def test_unknown_machine_is_told_and_the_others_are_decided_about() -> None:
    agents = [agent()]
    cluster = FakeCluster(agents_=agents, incidents_=[incident(HealthStatus.ISOLATED)])
    told = cluster.run("agents", "isolate", "a9", "a1")
    assert told.exit_code == 1
    assert "there is no agent 'a9'" in told.stderr
    assert "agent a1 is isolated" in told.stdout


def test_decision_as_json_is_the_incident() -> None:
    cluster = FakeCluster(incidents_=[incident(HealthStatus.ISOLATED)])
    assert cluster.json("agents", "isolate", "a1", "--json")["status"] == "ISOLATED"


@pytest.mark.parametrize(("answer", "asked"), [("y", 1), ("n", 0)])
def test_person_is_asked_before_work_has_to_leave(
    answer: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("muster.cli.commands.healing.sys", terminal)
    agents = [agent(kernels=3), agent(id="agt-2", name="a2", kernels=5)]
    cluster = FakeCluster(agents_=agents, incidents_=[incident()])
    told = cluster.run("agents", "heal", "a1", stdin=f"{answer}\n")
    assert "3 kernels on a1 would have to leave. Heal 1 machine?" in told.stderr
    assert len(cluster.asked) == asked
    assert cluster.run("agents", "heal", "a1", "--yes").stderr == ""


def test_nobody_is_asked_where_no_work_has_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("muster.cli.commands.healing.sys", terminal)
    for machine in (agent(), agent(kernels=3, ill="being checked")):
        cluster = FakeCluster(agents_=[machine], incidents_=[incident()])
        assert cluster.run("agents", "isolate", "a1").exit_code == 0
        assert len(cluster.asked) == 1


# -- groups --------------------------------------------------------------------------------------

POLICY = {
    "checks": ["dcgm", "nvml"],
    "observe": ["clock"],
    "level": 3,
    "rounds": 2,
    "max_unhealthy": 0.1,
    "leave": 120.0,
    "check_timeout": 900.0,
    "reset_timeout": 120.0,
    "reboot_timeout": 1200.0,
    "passive": False,
    "replace_isolated": False,
}


def test_group_tells_its_health_policy_and_how_many_are_ill() -> None:
    group = GroupView(
        name="gpu",
        spec={"health": POLICY},
        agents=40,
        incidents={HealthStatus.CHECKING: 2, HealthStatus.ISOLATED: 1},
        out=3,
        may_be_out=4,
    )
    told = "\n".join(shown(group_parts(group)))
    assert "dcgm, nvml at level 3, clock only observed, 2 rounds of healing at most" in told
    assert "10% of the machines healed at a time, leave 2m00s, check_timeout 15m" in told
    assert "failing jobs raise no suspicion, isolated machines of pools stay" in told
    assert "3 out of work, 4 may be healed at a time (2 checking, 1 isolated)" in told


def test_group_counts_its_machines_whoever_made_them() -> None:
    group = GroupView(
        name="gpu",
        spec={"max_gpus": 16},
        agents=3,
        statuses={AgentStatus.ALIVE: 2, AgentStatus.UNREACHABLE: 1},
        devices=12,
        devices_free=9.5,
        pools=1,
        machines=1,
        gpus=4,
    )
    told = [" ".join(line.split()) for line in shown(group_parts(group))]
    assert told[1:7] == [
        "machines 3 (2 alive, 1 unreachable)",
        "GPUs 12, 9.5 free",
        "waiting 0 sessions",
        "pools 1",
        "their machines 1",
        "their GPUs 4 of at most 16",
    ]
    alone = "\n".join(shown(group_parts(GroupView(name="gpu", spec={}, agents=1))))
    assert "pools" not in alone


def test_group_whose_machines_nobody_heals_says_so() -> None:
    told = "\n".join(shown(group_parts(GroupView(name="gpu", spec={"health": None}))))
    assert "no machine is checked or healed unless an operator asks for it" in told
    assert "ill" not in told.split()


def test_agent_says_when_the_work_on_it_is_stopped() -> None:
    drained = agent(kernels=2, barred=AgentBar.DRAINING, leave_by=NOW + 3600)
    told = " ".join("\n".join(shown(agent_parts(wide(), drained, (), NOW))).split())
    assert re.search(r"its work is stopped 20\S+ \S+ \S+, in 1h00m ", told)
    empty = agent(barred=AgentBar.DRAINING, leave_by=NOW + 3600)
    assert "its work" not in "\n".join(shown(agent_parts(wide(), empty, (), NOW)))


def test_each_time_of_a_group_is_told_as_a_duration() -> None:
    spec = ScalingGroup(name="gpu").model_dump(mode="json")
    are_times = {name for name, field in ScalingGroup.model_fields.items() if _is_time(field)}
    assert {"max_timeout", "agent_silence", "backlog_window"} <= are_times
    spec |= dict.fromkeys(are_times, 7200.0)
    told = [" ".join(line.split()) for line in shown(group_parts(GroupView(name="g", spec=spec)))]
    for name in are_times:
        assert f"{name.replace('_', ' ')} 2h00m" in told


def _is_time(field: FieldInfo) -> bool:
    return "parse_duration" in repr((field.annotation, field.metadata))


def test_line_of_an_isolated_machine_tells_for_what_it_was_isolated() -> None:
    gave_up = ReasonView(code="HEALTH_GAVE_UP", kind="operator", sentence="nothing is left to try")
    ill = incident(HealthStatus.ISOLATED, reason=gave_up)
    assert why(ill) == "nothing is left to try"
    assert why(incident(HealthStatus.SUSPECT, reason=gave_up)) == ill.why.sentence
