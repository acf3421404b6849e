"""The order in which a pass tries the waiting sessions, and the quotas that it keeps on its way."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import (
    ANN,
    BOB,
    ask,
    box,
    cluster,
    context,
    name_of,
    passed,
    policy,
    sentences,
    session,
    where,
)

from muster.core.owner import Owner
from muster.core.specs import QuotaSpec
from muster.core.specs.group import QueuePolicy
from muster.scheduling.accounting.usage import Quotas, Usage, scopes
from muster.scheduling.passes.pass_result import PassResult
from muster.scheduling.passes.placement import place
from muster.scheduling.passes.queue import Queue

CAT = Owner("default", "research", "cat")


def order(result: PassResult) -> list[str]:
    return [name_of(placed) for placed, _ in result.placed]


# The order


def test_priority_goes_before_age_and_age_before_identifier() -> None:
    sessions = [
        session("d", ask(1), at=2),
        session("c", ask(1), at=1),
        session("b", ask(1), at=1),
        session("a", ask(1), at=9, priority=60),
    ]
    assert order(passed(cluster(x=box(cpu=4)), *sessions)) == ["a", "b", "c", "d"]


def test_classes_are_interleaved_by_the_age_of_each_session() -> None:
    sessions = [session(str(at), ask(1 + at % 2), at=at) for at in range(6)]
    assert order(passed(cluster(x=box(cpu=16)), *sessions)) == ["0", "1", "2", "3", "4", "5"]


def test_lifo_starts_the_youngest_first_inside_a_band() -> None:
    sessions = [
        session("old", ask(1), at=1),
        session("urgent", ask(1), at=2, priority=60),
        session("middle", ask(1), at=3),
        session("other", ask(2), at=4),
        session("young", ask(1), at=5),
    ]
    result = passed(cluster(x=box(cpu=5)), *sessions, sequencer="lifo")
    assert where(result) == {
        "urgent": ["x"],
        "young": ["x"],
        "other": ["x"],
        "middle": ["x"],
        "old": ["NO_ROOM"],
    }


def test_lifo_starts_sessions_of_one_age_by_their_ids() -> None:
    sessions = [session(name, ask(1), at=at) for name, at in [("a", 1), ("b", 1), ("c", 0)]]
    assert order(passed(cluster(x=box(cpu=4)), *sessions, sequencer="lifo")) == ["a", "b", "c"]


def test_drf_lets_owners_take_turns_as_the_pass_places() -> None:
    sessions = [session(f"ann{n}", ask(1), at=n) for n in range(4)]
    sessions += [session(f"bob{n}", ask(1), at=9, owner=BOB) for n in range(2)]
    sessions += [session("cat0", ask(2), at=9.5, owner=CAT)]
    result = passed(cluster(x=box(cpu=8)), *sessions, sequencer="drf")
    assert order(result) == ["ann0", "bob0", "cat0", "ann1", "bob1", "ann2", "ann3"]


def test_drf_counts_what_owners_hold_already() -> None:
    usage = Usage()
    usage.placed(ANN, {"cpu": 3000})
    snapshot = cluster(x=box(cpu=8))
    queue = Queue(
        [session(f"ann{n}", ask(1), at=0) for n in range(2)]
        + [session(f"bob{n}", ask(1), at=9, owner=BOB) for n in range(5)]
    )
    result = place(queue, snapshot, policy(sequencer="drf"), context(snapshot, usage=usage))
    assert order(result) == ["bob0", "bob1", "bob2", "ann0", "bob3", "ann1", "bob4"]
    assert usage.of(scopes(ANN)[0]).amounts == {"cpu": 3000}


def test_priority_goes_before_fairness() -> None:
    sessions = [session(f"ann{n}", ask(1), priority=60) for n in range(2)]
    sessions += [session("bob", ask(1), owner=BOB)]
    result = passed(cluster(x=box(cpu=4)), *sessions, sequencer="drf")
    assert order(result) == ["ann0", "ann1", "bob"]


@settings(max_examples=60, deadline=None)
@given(
    shapes=st.lists(
        st.tuples(
            st.sampled_from([ANN, BOB, CAT]),
            st.integers(1, 3),
            st.sampled_from([50, 60]),
            st.integers(0, 3),
        ),
        max_size=14,
    ),
    sequencer=st.sampled_from(["fifo", "lifo", "drf", "fair_share"]),
)
def test_pass_places_in_the_order_of_one_that_looks_at_all_after_each(
    shapes: list[tuple[Owner, int, int, int]], sequencer: str
) -> None:
    """Against the plain way: place the first of all that wait, count it, sort all anew."""
    sessions = [
        session(f"{n:02}", ask(cpu), owner=owner, priority=priority, at=at)
        for n, (owner, cpu, priority, at) in enumerate(shapes)
    ]
    snapshot = cluster(x=box(cpu=100))
    by, usage = policy(sequencer=sequencer), Usage()
    expected, left = [], list(sessions)
    now = context(snapshot, usage=usage)
    while left:
        left.sort(
            key=lambda each: (
                -each.workload.priority,
                *by.sequencer.key(each, now),
                each.submitted_at,
                each.id,
            )
        )
        each = left.pop(0)
        usage.placed(each.workload.owner, each.workload.total)
        expected.append(name_of(each))
    assert order(passed(snapshot, *sessions, sequencer=sequencer)) == expected


# Quotas within a pass


def quotas(**fields: object) -> Quotas:
    spec = {"level": "user", "name": "default/research/ann"} | fields
    return Quotas([QuotaSpec.model_validate(spec)])


def test_quota_counts_what_the_pass_placed_before() -> None:
    snapshot = cluster(x=box(cpu=16))
    queue = Queue([session(str(n), ask(2), at=n) for n in range(4)])
    queue.add(session("other", ask(1), at=5))
    queue.add(session("bob", ask(2), at=6, owner=BOB))
    usage = Usage()
    usage.placed(ANN, {"cpu": 1000})
    limited = context(snapshot, quotas=quotas(limits={"cpu": 6}), usage=usage)
    result = place(queue, snapshot, policy(), limited)
    assert where(result) == {
        "0": ["x"],
        "1": ["x"],
        "other": ["x"],
        "bob": ["x"],
        "2": ["QUOTA_IN_USE"],
        "3": ["QUOTA_IN_USE"],
    }
    assert sentences(result)[0].startswith("cpu: used 5 + requested 2 > limit 6, over by 1")


def test_limit_on_sessions_counts_gangs_once_each() -> None:
    snapshot = cluster(x=box(cpu=16))
    queue = Queue(session(str(n), ask(1), ask(1), at=n) for n in range(3))
    result = place(queue, snapshot, policy(), context(snapshot, quotas=quotas(sessions=2)))
    assert where(result) == {"0": ["x", "x"], "1": ["x", "x"], "2": ["QUOTA_IN_USE"]}


@pytest.mark.parametrize("queue", QueuePolicy)
def test_session_that_a_quota_stops_holds_up_nobody(queue: QueuePolicy) -> None:
    snapshot = cluster(x=box(cpu=4))
    sessions = Queue([session("ann", ask(4), at=1), session("bob", ask(4), at=2, owner=BOB)])
    limited = context(snapshot, quotas=quotas(sessions=0))
    result = place(sessions, snapshot, policy(queue=queue), limited)
    assert where(result) == {"bob": ["x"], "ann": ["QUOTA_IN_USE"]}


@settings(max_examples=60, deadline=None)
@given(
    limit=st.integers(0, 12),
    most=st.integers(0, 8),
    asked=st.lists(st.tuples(st.sampled_from([ANN, BOB]), st.integers(1, 4)), max_size=12),
    sequencer=st.sampled_from(["fifo", "drf"]),
)
def test_no_pass_places_more_than_quotas_allow(
    limit: int, most: int, asked: list[tuple[Owner, int]], sequencer: str
) -> None:
    snapshot = cluster(x=box(cpu=100))
    sessions = [session(f"{n:02}", ask(cpu), owner=owner) for n, (owner, cpu) in enumerate(asked)]
    limited = context(snapshot, quotas=quotas(limits={"cpu": limit}, sessions=most))
    result = place(Queue(sessions), snapshot, policy(sequencer=sequencer), limited)
    anns = [
        each.workload.kernels[0].cpu_milli
        for each, _ in result.placed
        if each.workload.owner == ANN
    ]
    assert sum(anns) <= limit * 1000
    assert len(anns) <= most
    for members in result.refused:
        assert members.workload.owner == ANN
        cpu = members.workload.kernels[0].cpu_milli
        assert sum(anns) + cpu > limit * 1000 or len(anns) == most
