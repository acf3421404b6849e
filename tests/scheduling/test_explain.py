"""The explanation behind `muster why` agrees with placement's decisions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import (
    ANN,
    BOB,
    World,
    agent,
    ask,
    box,
    cluster,
    contents,
    context,
    occupy,
    places,
    policy,
    put,
    running,
    session,
)
from tests.scheduling.strategies import worlds

from muster.core.ids import SessionId
from muster.core.reasons import ReasonCode
from muster.core.resources import DeviceShare
from muster.core.specs import QuotaSpec
from muster.core.specs.group import QueuePolicy
from muster.core.views.base import ReasonView
from muster.scheduling.accounting.usage import Quotas, scopes
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.explaining.explain import MAX_REQUESTS, Explanation, explain
from muster.scheduling.explaining.shortfalls import MAX_GROUPS
from muster.scheduling.passes.placement import place
from muster.scheduling.passes.queue import Queue
from muster.scheduling.workload import RunningSession, SessionWorkload

GANG_CODES = {ReasonCode.GANG_NO_ROOM, ReasonCode.NO_ROOM}


def why(
    snapshot: Snapshot,
    asked: SessionWorkload,
    *queue: SessionWorkload,
    now: float = 10,
    holding: Sequence[RunningSession] = (),
    **parts: Any,
) -> Explanation:
    seen = context(snapshot, *holding, now=now)
    return explain(asked, Queue(queue), snapshot, policy(**parts), seen)


def told(explanation: Explanation) -> list[tuple[int, str, list[str]]]:
    """(agents, nearest, what it lacks) of each group of agents."""
    (request,) = explanation.requests
    return [
        (group.agents, group.nearest, [reason.sentence() for reason in group.shortfalls])
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


def test_request_that_no_agent_can_meet_is_told_with_the_shortfalls() -> None:
    snapshot = cluster(a=box(gpus=4), b=box(status="LOST"))
    found = why(snapshot, session("s", ask(2, gpu=8)))
    assert (found.reasons[0].code, found.reasons[0].kind) == ("NEVER_FITS", "request")
    assert found.requests[0].request.describe() == "2 cpu, 8 gpu"
    assert found.requests[0].groups[0].shortfalls


def test_winner_is_told_with_the_runners_up() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4), c=box(cpu=1))
    snapshot.take(agent("b"), ask(2))
    explanation = why(snapshot, session("s", ask(2)))
    (request,) = explanation.requests
    assert [name for name, _ in request.scores] == ["b", "a"]
    assert request.scores[0][1] > request.scores[1][1]
    assert places(explanation.placement) == ["b"]


def test_rules_of_placement_are_told_agent_by_agent() -> None:
    snapshot = cluster(a=box(), b=box(), c=box())
    for name, zone in [("a", "x"), ("b", "y"), ("c", "y")]:
        at = snapshot.facts(snapshot.slot(agent(name)))
        snapshot.upsert_agent(
            at.id, at.name, at.capacity, at.devices, True, at.status, {"zone": zone}
        )
    asked = session("s", ask(1), constraints=["zone=y", "nvlink"], agents=["a", "b"])
    groups = {group.nearest: group for group in why(snapshot, asked).requests[0].groups}
    assert {name: [r.sentence() for r in group.shortfalls] for name, group in groups.items()} == {
        "a": ["zone=y asked, zone is x", "nvlink asked, nvlink is not there"],
        "b": ["nvlink asked, nvlink is not there"],
        "c": ["nvlink asked, nvlink is not there", "it is not one of the designated agents"],
    }


def test_agent_without_the_attribute_of_together_is_told_so_to_one_kernel_too() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4, has={"rack": "x"}))
    snapshot.take(agent("b"), ask(3))
    asked = session("s", ask(2), together="rack")
    explanation = why(snapshot, asked)
    assert [reason.code for reason in explanation.reasons] == [ReasonCode.NO_ROOM]
    assert told(explanation) == [
        (1, "b", ["cpu: 2 asked, 1 of 4 free"]),
        (1, "a", ["rack asked, rack is not there"]),
    ]


def test_all_that_forbids_it_is_told_at_once() -> None:
    snapshot = cluster(a=box(cpu=4))
    snapshot.take(agent("a"), ask(4))
    spec = QuotaSpec(name="default/research/ann", sessions=0)
    asked = session("s", ask(2), not_before=99)
    limited = context(snapshot, quotas=Quotas([spec]))
    explanation = explain(asked, Queue([asked]), snapshot, policy(), limited)
    assert [str(reason.code) for reason in explanation.reasons] == [
        "QUOTA_IN_USE",
        "BEFORE_START_TIME",
        "NO_ROOM",
    ]


def test_strict_order_is_told_beside_the_lack_of_room() -> None:
    snapshot = cluster(a=box(cpu=4))
    snapshot.take(agent("a"), ask(2))
    head, asked = session("head", ask(4)), session("s", ask(3), at=1)
    explanation = why(snapshot, asked, head, asked, queue="strict")
    assert [str(reason.code) for reason in explanation.reasons] == ["NO_ROOM", "STRICT_ORDER"]
    fits = session("t", ask(1), at=1)
    assert [str(r.code) for r in why(snapshot, fits, head, fits, queue="strict").reasons] == [
        "STRICT_ORDER"
    ]


def test_head_is_told_when_it_starts_at_the_latest() -> None:
    snapshot = cluster(a=box(cpu=4))
    held = running("x", "a", kernels=[ask(3)], runs_s=100)
    occupy(snapshot, held)
    head, behind = session("head", ask(4)), session("s", ask(1), at=1)
    queue = Queue([head, behind])
    seen = context(snapshot, held)
    place(queue, snapshot, policy(), seen)

    explanation = explain(head, queue, snapshot, policy(), seen)
    assert explanation.reservation is not None
    assert explanation.reservation.expected_at == 100
    assert explanation.reservation.waits_for == ("ses-x",)
    other = explain(behind, queue, snapshot, policy(), seen)
    assert other.reservation is None
    assert [reason.sentence() for reason in other.reasons] == [
        "would delay the session ahead of it in group pool, which is to start in 1m30s"
    ]


def test_whom_it_would_displace_is_told() -> None:
    snapshot = cluster(a=box(cpu=4))
    low = running("low", "a", kernels=[ask(3)], priority=10)
    occupy(snapshot, low)
    asked = session("s", ask(2), priority=90)
    parts: dict[str, Any] = {"preemption": {"minimum_lease": 5}, "holding": [low]}
    explanation = why(snapshot, asked, asked, **parts)
    assert not explanation.starts
    assert explanation.displaces is not None
    assert [victim.id for victim in explanation.displaces.victims] == ["ses-low"]
    assert why(snapshot, asked, asked, now=4, **parts).displaces is None


def test_position_under_drf_counts_those_that_go_first_as_owners_take_turns() -> None:
    snapshot = cluster(a=box(cpu=16))
    queue = [session(f"ann{n}", ask(1), at=n) for n in range(3)]
    asked = session("bob", ask(1), at=9, owner=BOB)
    assert why(snapshot, asked, asked, *queue, sequencer="drf").position == 2
    assert why(snapshot, queue[2], asked, *queue, sequencer="drf").position == 4


@settings(max_examples=200, deadline=None)
@given(
    world=worlds(),
    index=st.integers(0, 7),
    queue=st.sampled_from(QueuePolicy),
    sequencer=st.sampled_from(["fifo", "lifo", "drf"]),
    starvation_s=st.sampled_from([1, 100]),
    sessions=st.sampled_from([None, 1, 3]),
    passes=st.booleans(),
    preempts=st.booleans(),
)
def test_explanation_agrees_with_the_decision_and_changes_nothing(
    world: World,
    index: int,
    queue: QueuePolicy,
    sequencer: str,
    starvation_s: float,
    sessions: int | None,
    passes: bool,
    preempts: bool,
) -> None:
    """A session that is said to start does, there; any other does not, for the reasons told."""
    waiting = sorted(world.state.queue, key=lambda each: each.id)
    asked = waiting[index] if index < len(waiting) else session("fresh", ask(1), at=3)
    if asked not in waiting:
        world.arrive(asked)
    by = policy(
        starvation_s,
        queue=queue,
        sequencer=sequencer,
        preemption={"minimum_lease": 0} if preempts else None,
    )
    world.state.use(by)
    limit = QuotaSpec(name="default/research/ann", sessions=sessions)
    world.state.accounting.quotas = Quotas([limit])
    if passes:  # so that something is remembered and kept
        world.pass_()
        world.now = 5.5
        world.end()
        if asked.id not in world.state.queue:
            asked = replace(asked, id=SessionId("ses-again"))
            world.arrive(asked)
    before = contents(world.state.snapshot), queue_contents(world.state.queue), usage_of(world)
    seen = world.context()
    explanation = explain(asked, world.state.queue, world.state.snapshot, by, seen)
    assert (
        contents(world.state.snapshot),
        queue_contents(world.state.queue),
        usage_of(world),
    ) == before

    result = place(world.state.queue, world.state.snapshot, by, seen)
    started = {each.id: kernels for each, kernels in result.placed}
    assert explanation.starts == (asked.id in started)
    assert explanation.placement == started.get(asked.id, ())
    members = world.state.queue.class_of(asked.id)
    refused = [each for each in members if each.id not in started]
    views = [ReasonView.of(reason) for reason in explanation.reasons]
    assert msgspec.json.decode(msgspec.json.encode(views), type=list[ReasonView]) == views
    if sequencer == "fifo" and refused[:1] == [asked]:  # its reasons are those of its class
        told_codes = {reason.code for reason in explanation.reasons}
        assert {reason.code for reason in result.refused[members]} <= told_codes
        displaced = {each.session: each for each in result.displaced}
        if explanation.displaces is None:
            assert asked.id not in displaced

    # The agents' lacks are found by other code than the placement: they must say the same.
    whole = explanation.kernels_fit == explanation.kernels
    short = {reason.code for reason in explanation.reasons} & GANG_CODES
    assert whole if explanation.starts else not (whole and short)
    for request in explanation.requests:
        room = sum(group.agents for group in request.groups if not group.shortfalls)
        if explanation.starts:
            assert room
        elif len(asked.workload.kernels) == 1:
            assert bool(room) == whole
        agents = sum(group.agents for group in request.groups) + request.other_agents
        assert agents == len(world.state.snapshot)


def queue_contents(queue: Queue) -> object:
    remembered = {each.workload: (each.reasons, each.lack) for each in queue.classes}
    return sorted(each.id for each in queue), remembered, dict(queue.rooms)


def usage_of(world: World) -> object:
    holdings = [
        world.state.accounting.usage.of(scope) for owner in (ANN, BOB) for scope in scopes(owner)
    ]
    return [(dict(each.amounts), each.sessions) for each in holdings]


@settings(max_examples=60, deadline=None)
@given(world=worlds(), queue=st.sampled_from(QueuePolicy))
def test_position_is_that_in_the_order_of_the_queue(world: World, queue: QueuePolicy) -> None:
    waiting = sorted(world.state.queue, key=lambda e: (-e.workload.priority, e.submitted_at, e.id))
    for position, asked in enumerate(waiting, 1):
        explanation = explain(
            asked, world.state.queue, world.state.snapshot, policy(queue=queue), world.context()
        )
        assert (explanation.position, explanation.queue) == (position, len(waiting))


@pytest.mark.parametrize("name", ["s", "t"])
def test_session_is_explained_whether_or_not_it_is_in_the_queue(name: str) -> None:
    queue = [session("s", ask(1))]
    explanation = why(cluster(a=box()), session(name, ask(1)), *queue)
    assert explanation.starts
    assert explanation.queue == len({name, "s"})


def test_only_the_most_demanding_of_many_requests_are_looked_at_agent_by_agent() -> None:
    requests = [ask(cpu) for cpu in range(1, MAX_REQUESTS + 6)]
    explanation = why(cluster(a=box(1)), session("s", *requests))
    assert [each.request for each in explanation.requests] == requests[:4:-1][:MAX_REQUESTS]
    assert explanation.other_requests == 5
