"""Reasons for work that no agent can hold: agents are too small, too few, barred or ruled out; and
their remedies."""

from typing import Any

import pytest
from tests.scheduling.clusters import agent, ask, box, cluster, context, passed, policy, session

from muster.core.reasons import Reason, ReasonCode
from muster.core.specs.group import QueuePolicy
from muster.core.states.health import ILL
from muster.scheduling.cluster.snapshot import OUT_OF_DISK, WITHHELD, Snapshot
from muster.scheduling.explaining.explain import explain
from muster.scheduling.passes.queue import Queue
from muster.scheduling.workload import SessionWorkload


def reason_of(snapshot: Snapshot, asked: SessionWorkload) -> Reason:
    ((why,),) = passed(snapshot, asked, queue=QueuePolicy.BEST_EFFORT).refused.values()
    return why


def racks(**sizes: int) -> Snapshot:
    """Agents of 4 cores in racks: ``racks(x=2)`` has x1 and x2 in rack x."""
    return cluster(
        **{
            f"{rack}{number + 1}": box(cpu=4, has={"rack": rack})
            for rack, size in sizes.items()
            for number in range(size)
        }
    )


# -- agents that take no new work ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("statuses", "told", "remedy"),
    [
        (
            ["cordoned", "cordoned", "lost"],
            "none of 3 agents in group pool takes new work: 2 cordoned, 1 lost",
            "Look at `muster agents`. `muster uncordon AGENT` has an agent take work again. Start "
            "those that are silent again.",
        ),
        (
            ["draining", "cordoned"],
            "none of 2 agents in group pool takes new work: 1 cordoned, 1 draining",
            "Look at `muster agents`. `muster uncordon AGENT` has an agent take work again.",
        ),
        (
            ["unreachable"],
            "none of 1 agent in group pool takes new work: 1 unreachable",
            "Look at `muster agents`. Start those that are silent again.",
        ),
        (
            [OUT_OF_DISK, "lost"],
            "none of 2 agents in group pool takes new work: 1 lost, 1 out of disk (DISK_FULL)",
            "Look at `muster agents`. Make room on the disks that are full. Start those that are "
            "silent again.",
        ),
        (
            ["draining: RMA #4711, ask J. Doe", f"{WITHHELD}: its slice is initializing"],
            "none of 2 agents in group pool takes new work: 1 draining: RMA #4711, ask J. Doe, 1 "
            "kept from work: its slice is initializing",
            "Look at `muster agents`. `muster uncordon AGENT` has an agent take work again. Those "
            "of slices take work once these are ready, or go with them.",
        ),
        (
            [*ILL.values(), "cordoned"],
            "none of 7 agents in group pool takes new work: 1 being checked, 1 being rebooted, 1 "
            "being reset, 1 being verified, 1 cordoned, 1 isolated, 1 under suspicion",
            "Look at `muster agents`. `muster uncordon AGENT` has an agent take work again. "
            "`muster agents return AGENT` has an isolated agent take work again. Those that are "
            "checked or healed come back by themselves.",
        ),
    ],
)
def test_group_in_which_nobody_takes_work_says_what_they_are(
    statuses: list[str], told: str, remedy: str
) -> None:
    snapshot = cluster(**{f"a{n}": box(status=each) for n, each in enumerate(statuses)})
    why = reason_of(snapshot, session("s", ask(1)))
    assert (why.code, why.sentence(), why.remedy()) == (
        ReasonCode.NO_ALIVE_AGENTS,
        told,
        remedy,
    )


def test_barred_agents_are_told_beside_full_ones() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4, status="cordoned"), c=box(cpu=4, status="lost"))
    snapshot.take(agent("a"), ask(3))
    again = (
        "`muster uncordon AGENT` has an agent take work again. Start those that are silent again."
    )
    one = reason_of(snapshot, session("s", ask(2)))
    assert one.sentence() == (
        "none of 3 agents in group pool has 2 cpu free now; no new work goes to 2 of them "
        "(1 cordoned, 1 lost)"
    )
    assert one.remedy() == f"Nothing: it starts when running work ends. {again}"
    gang = reason_of(snapshot, session("g", ask(1), ask(1)))
    assert gang.sentence() == (
        "1 of 2 kernels fit in group pool now; no new work goes to 2 of the agents (1 cordoned, "
        "1 lost); a gang starts whole or not at all"
    )
    assert gang.remedy() == f"Nothing: it starts when enough running work ends. {again}"


def test_only_those_count_that_meet_the_rules() -> None:
    snapshot = cluster(
        a=box(cpu=4, has={"zone": "x"}),
        b=box(cpu=4, has={"zone": "x"}, status="cordoned"),
        c=box(cpu=4, has={"zone": "y"}, status="cordoned"),
    )
    snapshot.take(agent("a"), ask(3))
    assert reason_of(snapshot, session("s", ask(2), constraints=["zone=x"])).sentence() == (
        "none of the 2 of 3 agents in group pool that meet zone=x has 2 cpu free now; no new work "
        "goes to 1 of them (1 cordoned)"
    )


def test_group_that_is_large_enough_with_a_barred_agent_says_so() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=8, status="draining"))
    why = reason_of(snapshot, session("s", ask(6)))
    assert why.sentence() == (
        "group pool could hold it only with agents that take no new work: 1 of 2 (1 draining)"
    )
    assert "muster uncordon" in why.remedy()
    assert "silent" not in why.remedy()


# -- rules that nobody meets ---------------------------------------------------------------------

MODELS = {"node1": "H100", "node2": "H100", "node3": "B200"}


def models() -> Snapshot:
    return cluster(
        **{
            name: box(cpu=4, gpus=2, model=model, has={"gpu_model": model})
            for name, model in MODELS.items()
        }
    )


@pytest.mark.parametrize(
    ("rules", "told", "nearest"),
    [
        (
            {"constraints": ["gpu_model=b200"]},
            "none of 3 agents in group pool meets gpu_model=b200",
            "gpu_model=B200",
        ),
        (
            {"constraints": ["gpu_model=H100", "hostname in x,y"]},
            "none of 3 agents in group pool meets hostname in x,y",
            None,
        ),
        (
            {"constraints": ["gpu_model=H100"], "agents": ["node3"]},
            "none of 3 agents in group pool meets all of gpu_model=H100, agents: [node3]",
            None,
        ),
        (
            {"constraints": ["gpu_model=A100"], "agents": ["node9"]},
            "none of 3 agents in group pool meets gpu_model=A100, agents: [node9]; there is no "
            "agent node9",
            "gpu_model=H100, node3",
        ),
    ],
)
@pytest.mark.parametrize("kernels", [1, 2])
def test_rules_that_no_agent_meets_are_named(
    rules: dict[str, Any], told: str, nearest: str | None, kernels: int
) -> None:
    why = reason_of(models(), session("s", *[ask(1)] * kernels, **rules))
    assert (why.code, why.sentence()) == (ReasonCode.NO_AGENT_MEETS, told)
    meant = f"Did you mean {nearest}? " if nearest else ""
    assert why.remedy() == f"{meant}Ask for what agents have, or leave it out."


def test_model_that_no_gpu_is_of_is_named() -> None:
    asked = session("s", ask(1, gpu=1, models=["A100", "L4"]))
    why = reason_of(models(), asked)
    assert why.sentence() == "none of 3 agents in group pool meets gpu_model: A100|L4"
    other = session("s", ask(1, gpu=1, models=["B200"]), constraints=["gpu_model=H100"])
    assert reason_of(models(), other).sentence() == (
        "none of 3 agents in group pool meets all of gpu_model=H100, gpu_model: B200"
    )


@pytest.mark.parametrize(
    ("named", "told", "meant"),
    [
        (["agent-9"], "agent-9", "agent-3"),
        (["elsewhere"], "elsewhere", None),
        ([f"x{n}" for n in range(8)], "x0, x1, x2, x3, x4 and 3 more", None),
    ],
)
def test_designated_agents_that_are_not_there_are_named(
    named: list[str], told: str, meant: str | None
) -> None:
    snapshot = cluster(**{f"agent-{number}": box() for number in (1, 2, 3)})
    why = reason_of(snapshot, session("s", ask(1), agents=named))
    assert why.sentence() == f"group pool has no agent {told}"
    guess = f"Did you mean {meant}? " if meant else ""
    assert why.remedy() == f"{guess}Name agents of the group, or leave `agents` out."


def test_agents_that_meet_the_rules_and_are_too_small_are_those_that_count() -> None:
    why = reason_of(models(), session("s", ask(1, gpu=3), constraints=["gpu_model=H100"]))
    assert why.sentence() == (
        "none of the 2 of 3 agents in group pool that meet gpu_model=H100 is large enough for "
        "1 cpu, 3 gpu, even when empty"
    )
    some = reason_of(models(), session("s", ask(9), agents=["node1", "node9"]))
    assert some.code is ReasonCode.NEVER_FITS
    assert some.sentence().endswith("even when empty; there is no agent node9")


# -- gangs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "placed", "why_not", "key"),
    [
        (
            {"mode": "single-node"},
            4,
            "with all of them on one agent (mode: single-node)",
            "mode: single-node",
        ),
        (
            {"together": "rack"},
            12,
            "with all of them where rack is the same (together: rack)",
            "together: rack",
        ),
        (
            {"max_kernels_per_agent": 2},
            10,
            "with at most 2 on an agent (max_kernels_per_agent: 2)",
            "max_kernels_per_agent: 2",
        ),
    ],
)
def test_rule_for_all_kernels_that_is_in_the_way_is_named(
    rules: dict[str, Any], placed: int, why_not: str, key: str
) -> None:
    snapshot = racks(y=2, x=3)
    why = reason_of(snapshot, session("g", *[ask(1)] * 13, **rules))
    assert why.sentence() == (
        f"only {placed} of 13 kernels would fit in group pool even if it were empty, {why_not}"
    )
    assert f", leave out {key}, or add" in why.remedy()
    larger = reason_of(snapshot, session("h", *[ask(1)] * 30, **rules))
    assert larger.sentence().startswith(f"only {placed} of 30 ")
    assert "leave out" not in larger.remedy()


def test_rule_for_all_kernels_is_told_of_the_room_that_is_there_now() -> None:
    snapshot = racks(y=2, x=3)
    for name in ("x1", "y1"):
        snapshot.take(agent(name), ask(1))
    asked = session("g", *[ask(1)] * 12, together="rack")
    told = "11 of 12 kernels fit in group pool now, with all of them where rack is the same"
    assert reason_of(snapshot, asked).sentence().startswith(told)
    seen = context(snapshot)
    assert explain(asked, Queue([asked]), snapshot, policy(), seen).kernels_fit == 11


def test_unlike_kernels_are_counted_where_most_of_them_find_room() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=7), c=box(cpu=6))
    gang = session("g", *[ask(3)] * 3, *[ask(1)] * 2, mode="single-node")
    assert reason_of(snapshot, gang).sentence().startswith("only 3 of 5 kernels would fit")


def test_limit_that_more_than_all_kernels_would_need_is_not_told() -> None:
    gang = session("g", *[ask(3)] * 3, max_kernels_per_agent=3)
    assert reason_of(racks(x=2), gang).sentence() == (
        "only 2 of 3 kernels would fit in group pool even if it were empty"
    )


# -- others that leave for it --------------------------------------------------------------------


def test_remedy_of_what_others_leave_for_is_to_wait_for_them() -> None:
    snapshot = cluster(a=box(cpu=4))
    snapshot.take(agent("a"), ask(4))
    asked = session("s", ask(2))
    seen = context(snapshot, displacing={asked.id: set()})
    (why,) = explain(asked, Queue([asked]), snapshot, policy(), seen).reasons
    assert why.code is ReasonCode.NO_ROOM
    assert why.remedy() == "Nothing: it starts when those that make room for it have left."
