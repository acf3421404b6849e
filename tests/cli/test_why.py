"""`muster why` says why work is in its state."""

import json

import msgspec
from tests.cli.fake_cluster import IDS, FakeCluster, because, job, lacks
from tests.cli.rendered import narrow, shown, wide

from muster.cli.commands.why import explanation
from muster.core.reasons import ReasonCode
from muster.core.resources import AmountUnit
from muster.core.views.placement import AheadView, HoldingView, PlacementView, WhyView

NEVER_FITS = because(ReasonCode.NEVER_FITS, agents=3, group="default", request="1 cpu, 9 gpu")
TOO_BIG = WhyView(
    subject=IDS[0],
    status="PENDING",
    verdict=f"big waits: {NEVER_FITS.sentence}",
    reasons=(NEVER_FITS,),
    placement=msgspec.convert(
        {
            "sentence": "Place 2 of 5.",
            "group": "default",
            "position": 2,
            "queue": 5,
            "agents": 1003,
            "kernels": 4,
            "kernels_fit": 1,
            "requests": [
                {
                    "sentence": "1,003 agents looked at.",
                    "asks": "1 cpu, 9 gpu",
                    "kernels": 4,
                    "other_agents": 3,
                    "groups": [
                        {
                            "agents": 1000,
                            "examples": ["agent-1", "agent-2"],
                            "nearest": "agent-1",
                            "shortfalls": [
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


def test_why_says_verdict_then_kind_then_remedy_then_what_agents_lack() -> None:
    assert shown(explanation(wide(), TOO_BIG)) == [
        f"pending  big waits: {NEVER_FITS.sentence}",
        "  request: change what was asked for",
        "  Ask for less per kernel, or add a larger agent to the group.",
        "",
        "Place 2 of 5.",
        "",
        "1,003 agents looked at.",
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


def test_why_says_once_what_is_to_be_done_about_two_quotas() -> None:
    quotas = tuple(
        because(
            ReasonCode.QUOTA_IN_USE,
            resource=resource,
            unit=AmountUnit.MILLI,
            used=8000,
            requested=4000,
            limit=10_000,
            over=2000,
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


def test_why_tells_who_holds_what_it_waits_for_and_who_is_ahead_in_the_words_of_the_answer() -> (
    None
):
    room = HoldingView(sentence="8 of 8 gpu held by train", resource="gpu", held="8", limit="8")
    behind = AheadView(sentence="ahead of it is train", sessions=1)
    answer = msgspec.structs.replace(TOO_BIG, placement=None, held=(room,), behind=behind)
    assert shown(explanation(wide(), answer))[-2:] == [
        f"  {room.sentence}",
        f"  {behind.sentence}",
    ]


def test_why_of_a_task_asks_about_the_task() -> None:
    waits = WhyView(subject=IDS[0], status="PENDING", verdict="pending for 5s")
    cluster = FakeCluster(jobs_=[job()], why_={f"{IDS[0]}/1": waits})
    assert cluster.run("why", "train/1").stdout == "pending  pending for 5s\n"


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


def test_why_prints_what_it_is_told_of_running_work_and_how_to_see_its_output() -> None:
    running = WhyView(
        subject=IDS[0],
        status="RUNNING",
        verdict="3 tasks: 2 running, 1 waiting",
        details=("train has run for 5s on agent-1 and agent-2",),
        name="train",
        output="train",
    )
    assert FakeCluster(why_={"train": running}).run("why", "train").stdout.splitlines() == [
        "running  3 tasks: 2 running, 1 waiting",
        "  train has run for 5s on agent-1 and agent-2",
        "  see `muster logs -f train`",
    ]


def test_why_says_once_what_ended_work_and_where_more_is_told() -> None:
    killed = because(ReasonCode.SIGNALED, signal=9)
    detail = f"task 1 failed on agent-2 in attempt 2 (SIGKILL): {killed.sentence}"
    prep = WhyView(
        subject=IDS[0],
        status="FAILED",
        verdict="prep ended 12s ago after 1m00s: 2 succeeded, 1 failed",
        details=(detail,),
        reasons=(killed,),
        name="prep",
        output="prep/1",
        ended=True,
    )
    assert FakeCluster(why_={"prep": prep}).run("why", "prep").stdout.splitlines() == [
        f"failed  {prep.verdict}",
        f"  {detail}",
        "  see `muster logs prep/1` and `muster history prep`",
    ]


def test_why_of_work_that_never_started_has_no_output_to_point_at() -> None:
    by_ann = because(ReasonCode.CANCELLED, by="ann")
    stopped = WhyView(
        subject=IDS[0],
        status="KILLED",
        verdict="prep ended 12s ago without a start",
        reasons=(by_ann,),
        name="prep",
        ended=True,
    )
    assert FakeCluster(why_={"prep": stopped}).run("why", "prep").stdout.splitlines() == [
        "killed  prep ended 12s ago without a start",
        "  cancelled by ann",
        "  see `muster history prep`",
    ]


def test_why_on_a_narrow_terminal_wraps_and_cuts_nothing() -> None:
    text = " ".join(" ".join(shown(explanation(narrow(44), TOO_BIG), 44)).split())
    assert "gpu: 9 asked" in text
    assert "8 free" in text
    assert "…" not in text


def test_why_json_is_what_the_client_returned() -> None:
    cluster = FakeCluster(why_={"big": TOO_BIG})
    assert cluster.json("why", "big", "--json") == json.loads(msgspec.json.encode(TOO_BIG))
