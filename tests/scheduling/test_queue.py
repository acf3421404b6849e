"""The queue of a group: classes of equals, and what passes remember of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import (
    AWAY,
    agent,
    ask,
    box,
    cluster,
    context,
    kept,
    name_of,
    occupy,
    policy,
    reservation,
    running,
    session,
    where,
)

from muster.core.errors import MusterError, NotFound
from muster.core.ids import SessionId
from muster.core.resources import Resources
from muster.scheduling.cluster.columns import Floats, Ints
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.passes.pass_result import PassResult
from muster.scheduling.passes.placement import place
from muster.scheduling.passes.queue import KEPT_S, Queue, QueueClass
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import SessionWorkload


def names(members: QueueClass) -> list[str]:
    return [name_of(each) for each in members]


# Classes of equals


def test_sessions_that_differ_in_age_alone_are_one_class() -> None:
    queue = Queue([session("a", ask(1), at=1), session("b", ask(1), at=2), session("c", ask(2))])
    assert [names(members) for members in queue.classes] == [["a", "b"], ["c"]]
    assert (len(queue), SessionId("ses-a") in queue) == (3, True)


@pytest.mark.parametrize(
    "other",
    [
        session("b", ask(1), priority=60),
        session("b", ask(1), ask(1)),
        session("b", ask(1), failed=["x"]),
        session("b", ask(1), runs_s=9),
        session("b", ask(1), constraints=["zone=a"]),
        session("b", ask(1), not_before=9),
        session("b", ask(1), preemptible=False),
    ],
    ids=["priority", "kernels", "failed", "duration", "placement", "start", "preemptible"],
)
def test_whatever_a_decision_may_hang_on_makes_another_class(other: SessionWorkload) -> None:
    assert len(list(Queue([session("a", ask(1)), other]).classes)) == 2


def test_class_is_in_the_order_of_age_then_identifier_whenever_its_sessions_came() -> None:
    queue = Queue([session(name, ask(1), at=at) for name, at in [("c", 3), ("b", 1), ("a", 3)]])
    (members,) = queue.classes
    assert names(members) == ["b", "a", "c"]
    assert [name_of(each) for each in reversed(members)] == ["c", "a", "b"]
    assert (name_of(members.oldest), name_of(members.newest)) == ("b", "c")


def test_session_that_comes_back_takes_its_old_place() -> None:
    sessions = [session(name, ask(1), at=at) for at, name in enumerate("abcd")]
    queue = Queue(sessions)
    queue.remove(sessions[1].id)
    queue.remove(sessions[0].id)
    queue.add(sessions[1])
    assert names(queue.class_of(sessions[1].id)) == ["b", "c", "d"]


def test_session_that_is_added_again_waits_once_as_it_is_now() -> None:
    queue = Queue([session("a", ask(1))])
    queue.add(session("a", ask(2)))
    (members,) = queue.classes
    assert (len(queue), members.workload.kernels) == (1, (ask(2),))


def test_class_without_sessions_is_gone() -> None:
    queue = Queue([session("a", ask(1))])
    queue.remove(SessionId("ses-a"))
    queue.remove(SessionId("ses-unheard"))
    assert (len(queue), list(queue.classes), list(queue)) == (0, [], [])
    with pytest.raises(NotFound, match="ses-a does not wait"):
        queue.class_of(SessionId("ses-a"))


@settings(max_examples=100, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.booleans(), st.integers(0, 12), st.integers(0, 3), st.integers(0, 2)),
        max_size=80,
    )
)
def test_queue_is_what_was_added_and_not_removed(steps: list[tuple[bool, int, int, int]]) -> None:
    queue, model = Queue(), dict[SessionId, SessionWorkload]()
    known = dict[tuple[int, int, int], SessionWorkload]()  # what comes back is the same object
    for enters, number, at, cpu in steps:
        fresh = session(f"{number:02}", ask(cpu), at=at)
        each = known.setdefault((number, at, cpu), fresh)
        if enters:
            queue.add(each)
            model[each.id] = each
        else:
            queue.remove(each.id)
            model.pop(each.id, None)
    assert {each.id: each for each in queue} == model
    for members in queue.classes:
        mine = [each for each in model.values() if each.workload is members.workload]
        mine.sort(key=lambda each: (each.submitted_at, each.id))
        assert (list(members), list(reversed(members)), len(members)) == (
            mine,
            mine[::-1],
            len(mine),
        )
        assert (members.oldest, members.newest) == (mine[0], mine[-1])


# What passes remember


class Counting(Concentrated):
    """Concentrated, slow and plain, with a count of how often it was asked."""

    ranking = None
    fullest_device = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        self.asked += 1
        return super().score(request, snapshot, candidates)


def test_class_is_refused_with_all_its_sessions_together() -> None:
    queue = Queue([session(str(n), ask(2), at=n) for n in range(5)])
    result = place(queue, snapshot := cluster(a=box(cpu=5)), policy(), context(snapshot))
    (members,) = queue.classes
    assert list(result.refused) == [members]
    assert where(result) == {"0": ["a"], "1": ["a"], **{str(n): ["NO_ROOM"] for n in (2, 3, 4)}}


def settled(queue: Queue, snapshot: Snapshot, by: Policy) -> PassResult:
    """A pass whose outcome is committed."""
    result = place(queue, snapshot, by, context(snapshot))
    for each, _ in result.placed:
        queue.remove(each.id)
    return result


def test_refusal_is_remembered_while_nothing_is_given_back() -> None:
    snapshot = cluster(a=box(cpu=4))
    snapshot.take(agent("a"), ask(3))
    queue, by = Queue([session("a", ask(2)), session("b", ask(3))]), policy()
    first = settled(queue, snapshot, by)
    remembered = {members.workload: members.lack for members in queue.classes}
    assert None not in remembered.values()

    snapshot.take(agent("a"), ask(0.5))
    again = settled(queue, snapshot, by)
    assert again.refused == first.refused
    assert all(again.refused[members] is first.refused[members] for members in queue.classes)
    assert {members.workload: members.lack for members in queue.classes} == remembered


def test_lack_of_room_is_told_again_once_the_session_ahead_has_left() -> None:
    snapshot = cluster(a=box(cpu=4))
    snapshot.take(agent("a"), ask(3))
    queue, by = Queue([session("b", ask(2))]), policy(queue="strict")
    settled(queue, snapshot, by)
    queue.add(session("a", ask(3), priority=90))
    settled(queue, snapshot, by)
    assert codes(queue, "b") == ["STRICT_ORDER"]
    queue.remove(SessionId("ses-a"))
    settled(queue, snapshot, by)
    assert codes(queue, "b") == ["NO_ROOM"]


def test_session_behind_kept_room_names_the_one_for_which_it_is_kept_now() -> None:
    snapshot = cluster(a=box(cpu=4))
    queue, by = Queue([session("c", ask(2), at=3)]), policy()
    held = running("r", "a", kernels=[ask(2)], runs_s=100)
    occupy(snapshot, held)
    for first in "ab":
        queue.add(session(first, ask(4), priority=90))
        place(queue, snapshot, by, context(snapshot, held))
        (why,) = queue.class_of(SessionId("ses-c")).reasons
        assert why.numbers()["session"] == f"ses-{first}"
        queue.remove(SessionId(f"ses-{first}"))


def codes(queue: Queue, name: str) -> list[str]:
    return [why.code for why in queue.class_of(SessionId(f"ses-{name}")).reasons]


def test_remembered_refusal_asks_the_selector_nothing() -> None:
    snapshot, selector = cluster(a=box(cpu=4), b=box(cpu=4)), Counting()
    by = Policy(selector=selector)
    queue = Queue([session(f"{cpu}-{n}", ask(cpu), at=n) for cpu in (2, 3) for n in range(9)])
    settled(queue, snapshot, by)
    asked = selector.asked
    assert asked
    assert not settled(queue, snapshot, by).placed
    assert selector.asked == asked


def test_room_given_back_is_tried_at_once_by_those_refused_before() -> None:
    snapshot = cluster(a=box(cpu=4))
    snapshot.take(agent("a"), ask(3))
    queue = Queue([session("a", ask(2))])
    assert where(settled(queue, snapshot, policy())) == {"a": ["NO_ROOM"]}
    snapshot.give_back(agent("a"), ask(1))
    assert where(settled(queue, snapshot, policy())) == {"a": ["a"]}


def test_newcomer_of_a_refused_class_is_refused_as_its_equals_were() -> None:
    snapshot = cluster(a=box(cpu=4))
    snapshot.take(agent("a"), ask(3))
    queue, by = Queue([session("old", ask(2))]), policy()
    settled(queue, snapshot, by)
    queue.add(session("older", ask(2), at=-5))
    assert where(settled(queue, snapshot, by)) == {"older": ["NO_ROOM"], "old": ["NO_ROOM"]}


def test_agent_that_joins_cures_what_could_never_fit() -> None:
    snapshot = cluster(a=box(cpu=4))
    queue, by = Queue([session("a", ask(8))]), policy()
    assert where(settled(queue, snapshot, by)) == {"a": ["NEVER_FITS"]}
    snapshot.upsert_agent(agent("b"), "b", ask(8, 16), (), True, "ALIVE")
    assert where(settled(queue, snapshot, by)) == {"a": ["b"]}


def test_refused_pass_is_forgotten_when_a_plugin_fails() -> None:
    """The next pass starts from what the last whole one knew."""

    class Fails(Concentrated):
        ranking = None

        def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
            raise RuntimeError("no")

    snapshot = cluster(a=box(cpu=4))
    queue = Queue([session("big", ask(5)), session("small", ask(1))])
    with pytest.raises(MusterError, match="selector Fails failed"):
        place(queue, snapshot, Policy(selector=Fails()), context(snapshot))
    assert [members.lack for members in queue.classes] == [None, None]
    assert kept(queue) is None
    assert where(settled(queue, snapshot, policy()))["small"] == ["a"]


# What is kept for the head


def kept_world() -> tuple[Snapshot, Queue, SessionWorkload]:
    """``head`` waits for ``first`` to end at 100, beside ``other``, which ends at 200."""
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4))
    return snapshot, Queue(), session("head", ask(4))


def test_reservation_is_kept_while_room_comes_back_elsewhere() -> None:
    snapshot, queue, head = kept_world()
    first = running("first", "a", kernels=[ask(4)], runs_s=100)
    other = running("other", "b", kernels=[ask(1)], runs_s=200)
    more = running("more", "b", kernels=[ask(1)], runs_s=200)
    occupy(snapshot, first, other, more)
    queue.add(head)
    place(queue, snapshot, policy(), context(snapshot, first, other, more))
    first_kept = kept(queue)
    assert first_kept is not None
    assert first_kept.reservation is not None
    assert (first_kept.session, first_kept.reservation.expected_at) == (head.id, 100)

    snapshot.give_back(agent("b"), ask(1))
    place(queue, snapshot, policy(), context(snapshot, first, other, now=10 + KEPT_S / 2))
    assert kept(queue) is first_kept
    place(queue, snapshot, policy(), context(snapshot, first, other, now=10 + KEPT_S))
    assert kept(queue) is not first_kept
    found = reservation(queue)
    assert found is not None
    assert found.expected_at == 100


def test_room_that_would_do_once_agents_are_back_is_kept_as_soon_as_it_comes_free() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4), c=box(cpu=4, status=AWAY))
    first = running("first", "a", kernels=[ask(4)], runs_s=100)
    other = running("other", "b", kernels=[ask(4)], runs_s=200)
    occupy(snapshot, first, other)
    queue = Queue([session("head", ask(4), ask(4)), session("low", ask(4), at=1)])
    place(queue, snapshot, policy(), context(snapshot, first, other))
    found = reservation(queue)
    assert found is not None
    assert found.expected_at == 100

    snapshot.give_back(agent("b"), ask(4))
    now = 10 + KEPT_S / 2
    result = place(queue, snapshot, policy(), context(snapshot, first, now=now))
    assert not result.placed
    found = reservation(queue)
    assert found is not None
    assert found.expected_at == now


def test_reservation_is_made_anew_when_one_that_it_counts_on_ends() -> None:
    snapshot, queue, head = kept_world()
    first = running("first", "a", kernels=[ask(2)], runs_s=100)
    second = running("second", "a", kernels=[ask(2)], runs_s=50)
    other = running("other", "b", kernels=[ask(1)], runs_s=200)
    occupy(snapshot, first, second, other)
    queue.add(head)
    place(queue, snapshot, policy(), context(snapshot, first, second, other))
    first_kept = kept(queue)
    assert first_kept is not None
    assert first_kept.reservation is not None
    assert set(first_kept.reservation.waits_for) == {first.id, second.id}
    assert not first_kept.reservation.reserved

    snapshot.give_back(agent("a"), ask(2))
    place(queue, snapshot, policy(), context(snapshot, first, other))
    assert kept(queue) is not first_kept
    found = reservation(queue)
    assert found is not None
    (reserved,) = found.reserved
    assert (reserved.agent_id, reserved.resources) == (agent("a"), ask(2))


def test_reservation_on_an_agent_that_left_is_made_anew() -> None:
    snapshot, queue, head = kept_world()
    first = running("first", "a", kernels=[ask(3)], runs_s=100)
    other = running("other", "b", kernels=[ask(3)], runs_s=200)
    occupy(snapshot, first, other)
    queue.add(head)
    place(queue, snapshot, policy(), context(snapshot, first, other))
    found = reservation(queue)
    assert found is not None
    assert found.kernels[0].agent_id == agent("a")

    snapshot.remove_agent(agent("a"))
    queue.add(session("small", ask(1), at=1))
    result = place(queue, snapshot, policy(), context(snapshot, first, other))
    assert where(result) == {"head": ["NO_ROOM"], "small": ["BEHIND_RESERVATION"]}
    found = reservation(queue)
    assert found is not None
    assert found.kernels[0].agent_id == agent("b")


def test_nothing_is_kept_when_the_head_has_started() -> None:
    snapshot, queue, head = kept_world()
    first = running("first", "a", kernels=[ask(3)], runs_s=100)
    other = running("other", "b", kernels=[ask(3)], runs_s=200)
    occupy(snapshot, first, other)
    queue.add(head)
    place(queue, snapshot, policy(), context(snapshot, first, other))
    snapshot.give_back(agent("a"), ask(3))
    assert where(place(queue, snapshot, policy(), context(snapshot, other))) == {"head": ["a"]}
    assert kept(queue) is None
