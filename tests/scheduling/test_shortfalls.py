"""The account of agents: the best ones in placement's own order, and the shortfalls of others."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import (
    agent,
    ask,
    box,
    cluster,
    context,
    places,
    policy,
    put,
    session,
)
from tests.scheduling.strategies import clusters, requests

from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.explaining.explain import Explanation, explain
from muster.scheduling.explaining.shortfalls import MAX_VALUES
from muster.scheduling.fitting.filling import Filling, best_first
from muster.scheduling.passes.queue import Queue
from muster.scheduling.workload import SessionWorkload

SOFT = {"attribute": "rack", "values": ["x"], "soft": True}


def why(snapshot: Snapshot, asked: SessionWorkload, **parts: Any) -> Explanation:
    return explain(asked, Queue([asked]), snapshot, policy(**parts), context(snapshot))


def best(explanation: Explanation) -> list[str]:
    return [name for name, _ in explanation.requests[0].scores]


def lacks(explanation: Explanation) -> list[tuple[int, str, str]]:
    """(agents, nearest, what it lacks) of each group of agents, for one request."""
    (request,) = explanation.requests
    return [
        (group.agents, group.nearest, "; ".join(each.sentence() for each in group.shortfalls))
        for group in request.groups
    ]


# -- best first ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "order"),
    [
        (session("s", ask(1)), "bac"),
        (session("s", ask(1), agents=["c"], agents_only=False), "cba"),
        (session("s", ask(1), constraints=[SOFT]), "acb"),
        (session("s", ask(1), failed="b"), "acb"),
        (session("s", ask(1), set="trial"), "acb"),
        (session("s", ask(1), set="trial", set_grouping="pack"), "bac"),
    ],
    ids=["score", "preferred agent", "soft constraint", "failed agent", "spread", "packed"],
)
def test_runners_up_are_in_the_order_of_all_that_decides(
    asked: SessionWorkload, order: str
) -> None:
    rack = {"rack": "x"}
    snapshot = cluster(a=box(cpu=4, has=rack), b=box(cpu=4), c=box(cpu=5, has=rack))
    snapshot.take(agent("b"), ask(2))
    snapshot.set_joined(agent("b"), (asked.workload.owner, "trial"), 1)
    explanation = why(snapshot, asked)
    assert "".join(best(explanation)) == order
    assert places(explanation.placement) == [order[0]]


def test_agents_without_gpus_come_first_for_what_asks_for_none() -> None:
    snapshot = cluster(a=box(cpu=4, gpus=2), b=box(cpu=4))
    snapshot.take(agent("a"), ask(2))
    assert best(why(snapshot, session("s", ask(1)))) == ["b", "a"]


def test_value_that_all_kernels_share_comes_before_the_score() -> None:
    snapshot = cluster(
        a=box(cpu=12, has={"rack": "x"}),
        b=box(cpu=2, has={"rack": "y"}),
        c=box(cpu=3, has={"rack": "y"}),
    )
    snapshot.take(agent("a"), ask(1))
    explanation = why(snapshot, session("g", *[ask(1)] * 2, together="rack"))
    assert places(explanation.placement) == ["b", "b"]
    assert best(explanation) == ["b", "c", "a"]


def test_kernels_of_a_gang_find_each_other_in_the_way() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=5))
    snapshot.take(agent("a"), ask(1))
    explanation = why(snapshot, session("g", ask(3), ask(1)))
    assert places(explanation.placement) == ["a", "b"]
    small = explanation.requests[1]
    assert [name for name, _ in small.scores] == ["b", "a"]


@settings(max_examples=200, deadline=None)
@given(
    snapshot=clusters(),
    request=requests,
    selector=st.sampled_from(["concentrated", "dispersed", "round_robin", "fragmentation"]),
    soft=st.booleans(),
    agents=st.sampled_from([None, ["c"], ["b", "d"]]),
    grouping=st.sampled_from([None, "spread", "pack"]),
    held=st.sampled_from("abc"),
    failed=st.sampled_from(["", "a", "cd"]),
)
def test_each_runner_up_is_where_it_would_go_if_the_better_ones_were_not_there(
    snapshot: Snapshot,
    request: Any,
    selector: str,
    soft: bool,
    agents: list[str] | None,
    grouping: str | None,
    held: str,
    failed: str,
) -> None:
    rules: dict[str, Any] = {"constraints": [SOFT]} if soft else {}
    if agents is not None:
        rules |= {"agents": agents, "agents_only": False}
    if grouping is not None:
        rules |= {"set": "trial", "set_grouping": grouping}
    workload = session("s", request, failed=failed, **rules).workload
    snapshot.set_joined(agent(held), (workload.owner, "trial"), 1)
    chooses = policy(selector=selector).selector
    fitting = snapshot.columns.fitting(request)
    if not fitting.size:
        return
    order = [slot for slot, _ in best_first(snapshot, chooses, workload, request, fitting, 5)]
    assert sorted(order) == fitting.tolist()
    left = np.ones(snapshot.columns.slots, np.bool_)
    for slot in order[: 1 if selector == "fragmentation" else 5]:  # it prefers one of its equals
        with Statement(snapshot, trial=True) as statement:
            (place,) = Filling(statement, chooses, workload, left).fill(request, 1)
        assert snapshot.slot(place.agent_id) == slot
        left[slot] = False


# -- what agents lack ----------------------------------------------------------------------------


def test_agents_with_unlike_values_are_told_apart() -> None:
    models = {"a": "H100", "b": "B200", "c": "H100", "d": None}
    snapshot = cluster(
        **{name: box(has={"gpu_model": model} if model else {}) for name, model in models.items()}
    )
    assert lacks(why(snapshot, session("s", ask(1), constraints=["gpu_model=b200"]))) == [
        (2, "a", "gpu_model=b200 asked, gpu_model is H100"),
        (1, "d", "gpu_model=b200 asked, gpu_model is not there"),
        (1, "b", "gpu_model=b200 asked, gpu_model is B200"),
    ]


def test_values_that_are_too_many_are_counted() -> None:
    snapshot = Snapshot("pool")
    for number in range(MAX_VALUES + 2):
        put(snapshot, f"n{number}", box(cpu=number, has={"hostname": f"h{number}"}))
    told = lacks(why(snapshot, session("s", ask(5), constraints=["hostname=other"])))
    others = "(4 other values on the others)"
    assert told == [
        (5, "n5", f"hostname=other asked, hostname is h5 {others}"),
        (5, "n4", f"hostname=other asked, hostname is h4 {others}; cpu: 5 asked, the agent has 4"),
    ]


def test_agent_that_meets_the_rule_is_not_among_those_that_do_not() -> None:
    snapshot = Snapshot("pool")
    for number in range(MAX_VALUES + 2):
        put(snapshot, f"n{number}", box(has={"hostname": f"h{number}"}))
    told = lacks(why(snapshot, session("s", ask(1), constraints=["hostname=h3"])))
    assert [(agents, workload) for agents, _, workload in told] == [
        (9, "hostname=h3 asked, hostname is h0 (8 other values on the others)"),
        (1, ""),
    ]


# -- gangs that have to be together --------------------------------------------------------------


def test_agents_lack_room_for_all_of_a_gang_that_has_to_be_on_one() -> None:
    snapshot = cluster(a=box(cpu=9, gpus=2), b=box(cpu=9, gpus=2), c=box(cpu=9))
    asked = session("s", *[ask(1, gpu=1)] * 3, mode="single-node")
    assert lacks(why(snapshot, asked)) == [
        (2, "a", "room for 2 of 3 kernels, which have to be on one agent"),
        (1, "c", "gpu: 1 asked, the agent has 0"),
    ]
    fits = session("s", *[ask(1, gpu=1)] * 2, mode="single-node")
    assert lacks(why(snapshot, fits))[0] == (2, "a", "")


def test_agents_lack_room_for_all_of_a_gang_that_has_to_share_a_value() -> None:
    x, y = {"rack": "x"}, {"rack": "y"}
    snapshot = cluster(
        a=box(cpu=1, has=x), b=box(cpu=1, has=x), c=box(cpu=1, has=y), d=box(cpu=1, has=y)
    )
    snapshot.take(agent("d"), ask(1))
    assert lacks(why(snapshot, session("s", ask(1), ask(1), together="rack"))) == [
        (2, "a", ""),
        (1, "c", "room for 1 of 2 kernels, which have to be on agents of one rack"),
        (1, "d", "cpu: 1 asked, 0 of 1 free"),
    ]
