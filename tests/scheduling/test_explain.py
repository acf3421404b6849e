"""What `muster why` is told, and that it agrees with what placement does."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import agent, ask, box, cluster, contents, policy, put, session
from tests.scheduling.strategies import clusters, queues

from muster.core.reasons import ReasonCode
from muster.core.resources import DeviceShare
from muster.scheduling.explain import MAX_GROUPS, Explanation, explain
from muster.scheduling.outcome import Placed
from muster.scheduling.placement import place
from muster.scheduling.snapshot import Snapshot
from muster.scheduling.workload import SessionWorkload

GANG_CODES = {ReasonCode.GANG_NO_ROOM, ReasonCode.NO_ROOM}


def why(
    snapshot: Snapshot, asked: SessionWorkload, *queue: SessionWorkload, now: float = 10
) -> Explanation:
    return explain(asked, snapshot, policy(), queue, now)


def told(explanation: Explanation) -> list[tuple[int, str, list[str]]]:
    """(agents, nearest, what it lacks) of each group of agents."""
    (request,) = explanation.requests
    return [
        (group.agents, group.nearest, [reason.sentence() for reason in group.lacks])
        for group in request.groups
    ]


def test_every_lack_of_every_agent_is_told_with_its_numbers() -> None:
    snapshot = cluster(
        a=box(cpu=4, gib=16, gpus=4),
        b=box(cpu=16, gib=64, gpus=8),
        c=box(cpu=16, gib=4),
        d=box(cpu=16, gib=64, gpus=8, status="UNREACHABLE"),
    )
    snapshot.take(agent("b"), ask(10, 8, 1), (DeviceShare(2, 1000),))

    explanation = why(snapshot, session("s", ask(8, 8, gpu=8)))
    assert (explanation.starts, explanation.agents) == (False, 4)
    assert sorted(told(explanation), key=lambda each: each[1]) == [
        (1, "a", ["cpu: 8 asked, the agent has 4", "gpu: 8 asked, the agent has 4"]),
        (1, "b", ["cpu: 8 asked, 6 of 16 free", "gpu: 8 asked, 7 of 8 free"]),
        (1, "c", ["memory: 8GiB asked, the agent has 4GiB", "gpu: 8 asked, the agent has 0"]),
        (1, "d", ["the agent is UNREACHABLE"]),
    ]


def test_nine_gpus_where_agents_have_four_is_a_matter_of_the_request() -> None:
    snapshot = cluster(a=box(gpus=4), b=box(gpus=4), c=box(gpus=4))
    explanation = why(snapshot, session("s", ask(1, gpu=9)))

    assert [reason.code for reason in explanation.reasons] == [ReasonCode.NEVER_FITS]
    assert explanation.reasons[0].remedy()
    assert told(explanation) == [(3, "a", ["gpu: 9 asked, the agent has 4"])]


def test_fraction_is_explained_by_the_freest_device() -> None:
    snapshot = cluster(a=box(gpus=2))
    for index, milli in enumerate((700, 600)):
        snapshot.take(agent("a"), ask(0, gpu=milli / 1000), (DeviceShare(index, milli),))
    assert told(why(snapshot, session("s", ask(1, gpu=0.5)))) == [
        (1, "a", ["gpu: 0.5 of one device asked, the freest device has 0.4"])
    ]


def test_overbooked_agent_is_told_although_nothing_of_it_was_asked() -> None:
    snapshot = cluster(a=box(cpu=4, gpus=1))
    snapshot.take(agent("a"), ask(5, gpu=2), (DeviceShare(0, 1000),) * 2, force=True)
    assert told(why(snapshot, session("s", ask(0, gib=1)))) == [
        (1, "a", ["cpu: 0 asked, -1 of 4 free", "gpu: 0 asked, -1 of 1 free"])
    ]


def test_unheard_of_resource_is_told_as_missing() -> None:
    assert told(why(cluster(a=box()), session("s", ask(1, licence=1)))) == [
        (1, "a", ["licence: 1 asked, the agent has 0"])
    ]


def test_many_agents_are_grouped_with_the_nearest_miss() -> None:
    snapshot = Snapshot("pool")
    for number in range(1000):
        put(snapshot, f"n{number}", box(cpu=number % 10))
    groups = why(snapshot, session("s", ask(20))).requests[0].groups

    assert [group.agents for group in groups] == [1000]
    assert groups[0].examples == ("n0", "n1", "n2")
    assert groups[0].nearest == "n9"


def test_answer_is_bounded_and_counts_the_agents_left_out() -> None:
    snapshot = Snapshot("pool")
    for number in range(2 * MAX_GROUPS):
        put(snapshot, f"n{number}", box(status=f"STATUS{number}"))
    (request,) = why(snapshot, session("s", ask(1))).requests
    assert (len(request.groups), request.other_agents) == (MAX_GROUPS, MAX_GROUPS)


def test_gang_is_told_how_many_of_its_kernels_fit() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4))
    explanation = why(snapshot, session("g", *[ask(2)] * 5, ask(1)))
    assert (explanation.kernels, explanation.kernels_fit, explanation.starts) == (6, 4, False)
    assert [(each.kernels, each.request) for each in explanation.requests] == [
        (5, ask(2)),
        (1, ask(1)),
    ]


def test_those_ahead_are_counted_and_placed_first() -> None:
    snapshot = cluster(a=box(cpu=4))
    ahead = [session("x", ask(3), at=1), session("y", ask(99), at=2)]
    asked = session("z", ask(2), at=3)
    explanation = why(snapshot, asked, asked, session("behind", ask(1), at=4), *ahead)

    assert (explanation.position, explanation.queue) == (3, 4)
    assert told(explanation) == [(1, "a", ["cpu: 2 asked, 1 of 4 free"])]
    assert why(snapshot, asked).starts


def test_session_behind_a_starving_one_is_told_so_although_it_would_fit() -> None:
    snapshot = cluster(a=box(cpu=4))
    snapshot.take(agent("a"), ask(1))
    starving, asked = session("old", ask(4), at=0), session("new", ask(1), at=1)
    explanation = why(snapshot, asked, starving, asked, now=301)

    assert not explanation.starts
    assert [reason.code for reason in explanation.reasons] == [ReasonCode.BEHIND_STARVING]
    assert explanation.kernels_fit == 1
    assert told(explanation) == [(1, "a", [])]


def test_group_without_agents_is_explained_without_any() -> None:
    explanation = why(cluster(), session("s", ask(1)))
    assert [reason.code for reason in explanation.reasons] == [ReasonCode.NO_AGENTS]
    assert (explanation.agents, told(explanation)) == (0, [])


def test_explanation_is_json() -> None:
    snapshot = cluster(a=box(gpus=4), b=box(status="LOST"))
    answer = json.loads(json.dumps(why(snapshot, session("s", ask(2, gpu=8))).as_dict()))

    assert answer["reasons"][0]["code"] == "NEVER_FITS"
    assert answer["reasons"][0]["kind"] == "request"
    assert answer["requests"][0]["asks"] == "2 cpu, 8 gpu"
    assert answer["requests"][0]["groups"][0]["lacks"][0]["sentence"]


@settings(max_examples=250, deadline=None)
@given(snapshot=clusters(), queue=queues(), now=st.integers(0, 9), index=st.integers(0, 7))
def test_explanation_agrees_with_the_decision_and_changes_nothing(
    snapshot: Snapshot, queue: list[SessionWorkload], now: int, index: int
) -> None:
    asked = queue[index] if index < len(queue) else session("fresh", ask(1), at=3)
    queue = queue if index < len(queue) else [*queue, asked]
    before = contents(snapshot)
    explanation = explain(asked, snapshot, policy(4), queue, now)
    assert contents(snapshot) == before

    outcomes = place(queue, snapshot, policy(4), now)
    (position,) = [n for n, each in enumerate(outcomes, 1) if each.session is asked]
    outcome = outcomes[position - 1]
    assert explanation.position == position
    assert explanation.starts == isinstance(outcome, Placed)
    assert explanation.reasons == (() if isinstance(outcome, Placed) else outcome.reasons)

    # The agents' lacks are found by other code than the placement: they must say the same.
    whole = explanation.kernels_fit == explanation.kernels
    short = {reason.code for reason in explanation.reasons} & GANG_CODES
    assert whole if explanation.starts else not (whole and short)
    for request in explanation.requests:
        room = sum(group.agents for group in request.groups if not group.lacks)
        if explanation.starts:
            assert room
        elif len(asked.kernels) == 1:
            assert bool(room) == whole
        assert sum(g.agents for g in request.groups) + request.other_agents == len(snapshot)


@pytest.mark.parametrize("name", ["s", "t"])
def test_session_is_explained_whether_or_not_it_is_in_the_queue(name: str) -> None:
    queue = [session("s", ask(1))]
    explanation = why(cluster(a=box()), session(name, ask(1)), *queue)
    assert explanation.starts
    assert explanation.queue == len({name, "s"})
