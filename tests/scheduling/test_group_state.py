"""The state of a scaling group: what each verb takes, gives back and counts."""

from collections import Counter
from collections.abc import Iterator

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
    places,
    policy,
    put,
    session,
    where,
    workload,
)
from tests.scheduling.strategies import clusters, queues

from muster.core.ids import SessionId
from muster.core.resources import DeviceShare, Resources
from muster.scheduling.accounting.fairness import UsageSpan
from muster.scheduling.accounting.history import NoHistory
from muster.scheduling.accounting.usage import Scope, ScopeUsage, scopes
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.guard import PluginFault
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import KernelPlacement, SessionWorkload, WorkloadClass

A, B = SessionId("ses-a"), SessionId("ses-b")
ANNS = scopes(ANN)[0]


def usage(state: GroupState, scope: Scope = ANNS) -> ScopeUsage:
    return state.accounting.usage.of(scope)


def free_cpu(state: GroupState, name: str = "a") -> float:
    columns = state.snapshot.columns
    cpu = columns.free[state.snapshot.slot(agent(name)), columns.dimensions.index("cpu")]
    return float(cpu) / 1000


def started(state: GroupState, now: float = 0) -> None:
    for placed in state.run_pass(now).placed:
        state.start(placed, now)


def gang(cpu: float = 4) -> GroupState:
    """A gang of two kernels that holds its place on agent a."""
    state = GroupState(cluster(a=box(cpu=cpu, gpus=2)), policy())
    state.submit(session("a", ask(1, gpu=1), ask(1, gpu=1)))
    started(state)
    return state


def test_session_holds_room_from_the_pass_on_and_counts_from_its_start() -> None:
    state = GroupState(cluster(a=box(cpu=4)), policy())
    state.submit(session("a", ask(3)))
    result = state.run_pass(5)
    assert where(result) == {"a": ["a"]}
    assert (free_cpu(state), state.waiting, usage(state).pending) == (1, 1, 1)
    assert usage(state).sessions == 0
    state.start(result.placed[0], 5)
    assert (state.waiting, usage(state).pending, usage(state).sessions) == (0, 0, 1)
    state.end(A, 9)
    assert (free_cpu(state), usage(state).sessions, dict(state.placed)) == (4, 0, {})


def test_gang_counts_whole_until_its_last_kernel_has_left() -> None:
    state = gang()
    state.leave(A, 0, 7)
    assert (free_cpu(state), usage(state).amounts["cpu"]) == (3, 2000)
    assert len(state.context(7).running[A].workload.kernels) == 1
    state.leave(A, 1, 8)
    assert (free_cpu(state), usage(state).sessions) == (4, 0)


def test_kernel_that_moves_to_another_device_gives_the_first_one_back() -> None:
    state = GroupState(cluster(a=box(gpus=2)), policy())
    state.submit(session("a", ask(1, gpu=1)))
    started(state)
    before = places(state.context(0).running[A].kernels)
    state.move(A, 0, (DeviceShare(1, 1000),) if before == ["a:0"] else (DeviceShare(0, 1000),))
    after = places(state.context(0).running[A].kernels)
    assert {*before, *after} == {"a:0", "a:1"}
    state.submit(session("b", ask(1, gpu=1)))
    assert where(state.run_pass(1))["b"] == before


def test_adopted_session_holds_what_its_agent_says_even_where_it_is_too_much() -> None:
    state = GroupState(cluster(a=box(cpu=2)), policy())
    state.adopt(A, workload(ask(3)), {0: KernelPlacement(agent("a"))}, 5, since=1)
    assert (free_cpu(state), usage(state).sessions) == (-1, 1)
    state.end(A, 6)
    assert (free_cpu(state), usage(state).sessions) == (2, 0)


def test_session_that_is_aside_waits_and_is_not_placed() -> None:
    state = GroupState(cluster(a=box()), policy())
    state.submit(session("a", ask(1)), aside=True)
    state.submit(session("b", ask(1)))
    state.set_aside(B)
    assert not state.run_pass(0).placed
    assert (state.waiting, usage(state).pending) == (2, 2)
    state.readmit(A)
    assert where(state.run_pass(0)) == {"a": ["a"]}
    assert state.withdraw(B)
    assert not state.withdraw(B), "it waits no more"
    assert usage(state).pending == 1


def test_what_waits_enters_anew_whole_or_not_at_all() -> None:
    state = GroupState(cluster(a=box()), policy())
    for each in (session("a", ask(1), at=1), session("b", ask(2), at=2)):
        state.submit(each)
    state.set_aside(B)

    def fails(waiting: object) -> WorkloadClass:
        raise PluginFault("hook", "h", "broke") if state.aside else AssertionError

    with pytest.raises(PluginFault):
        state.requeue(fails)
    assert state.waits_as(A) == workload(ask(1))
    state.requeue(lambda waiting: workload(ask(1), priority=90))
    assert {state.waits_as(id_) for id_ in (A, B)} == {workload(ask(1), priority=90)}
    assert list(state.aside) == [B]


def test_group_is_due_after_whatever_may_change_a_decision() -> None:
    state = gang()

    def due() -> bool:
        was = state.due
        state.run_pass(1)
        return was

    due()
    assert not due()
    state.submit(session("b", ask(9)))
    assert due()
    state.leave(A, 0, 1)
    assert due()
    state.use(policy(queue="strict"))
    assert due()
    put(state.snapshot, "b", box())
    state.remove_agent(agent("b"))
    assert due()
    state.withdraw(B)
    assert due(), "those behind it may start"


def test_victims_that_are_leaving_are_looked_for_no_second_time() -> None:
    by = policy(preemption={"minimum_lease": 0})
    state = GroupState(cluster(a=box(cpu=1)), by)
    state.submit(session("a", ask(1), priority=10))
    started(state)
    state.submit(session("b", ask(1), priority=90))
    (found,) = state.run_pass(1).displaced
    state.displace(found)
    assert not state.run_pass(1).displaced
    state.end(A, 2)
    assert not state.displacing
    assert where(state.run_pass(2)) == {"b": ["a"]}


def test_sessions_of_which_kernels_have_left_are_seen_with_the_requests_of_those_that_stay() -> (
    None
):
    """Also those that may not be displaced: their classes are made for one look."""
    state = GroupState(cluster(a=box(cpu=100)), policy(preemption={"minimum_lease": 0}))
    for number in range(2, 10):
        state.submit(session(str(number), *[ask(1)] * number))
    started(state)
    for number in range(2, 10):
        state.leave(SessionId(f"ses-{number}"), 0, 1)
        state.progressed(SessionId(f"ses-{number}"), 1, 1, leaves_by=5)

    for each in state.context(2).running.values():
        assert len(each.workload.kernels) == len(each.kernels)


def test_start_times_are_those_seen_first() -> None:
    state = gang()
    state.progressed(A, 3, running_since=3, leaves_by=None)
    assert state.context(3).start_s == 3
    state.progressed(A, 3, running_since=3, leaves_by=9)
    assert state.context(3).running[A].ends_at == 9


class Known(NoHistory):
    """Ann held a processor for the last ten seconds."""

    def usage(self, seconds: float) -> Iterator[UsageSpan]:
        yield UsageSpan(ANN, {"cpu": 1000}, 0, 10)

    def requests(self) -> Iterator[tuple[Resources, int]]:
        yield ask(7), 3

    def live(self) -> Iterator[tuple[SessionId, WorkloadClass]]:
        yield A, workload(ask(1))


class Curious(Concentrated):
    """Learns, and fails to once it has heard of so many kernels."""

    def __init__(self, fails_at: int = 99) -> None:
        self.heard: list[tuple[Resources, int]] = []
        self._fails_at = fails_at

    def arrived(self, request: Resources, kernels: int) -> None:
        if len(self.heard) == self._fails_at:
            raise PluginFault("selector", "curious", "broke")
        self.heard.append((request, kernels))


def test_policy_that_asks_for_the_past_is_told_of_it() -> None:
    state = GroupState(cluster(a=box()), policy(), history=Known())
    state.submit(session("b", ask(2), owner=BOB))
    started(state, 10)
    state.use(policy(sequencer="fair_share"))
    assert state.fairness is not None
    used = [state.fairness.used(scopes(who)[0], 20.0)["cpu"] for who in (ANN, BOB)]
    assert used == pytest.approx([10_000, 20_000], rel=1e-3)
    curious = Curious()
    state.use(Policy(selector=curious))
    assert curious.heard == [(ask(7), 3), (ask(1), 1)]
    state.submit(session("a", ask(1)))
    assert len(curious.heard) == 2, "it was told of that session already"
    state.forget(A)
    state.withdraw(A)
    state.submit(session("a", ask(1)))
    assert len(curious.heard) == 3, "it is another one"


def test_session_of_which_a_selector_fails_to_learn_waits_all_the_same() -> None:
    state = GroupState(cluster(a=box()), Policy(selector=Curious(fails_at=0)))
    with pytest.raises(PluginFault):
        state.submit(session("a", ask(1)))
    state.use(policy())
    assert where(state.run_pass(0)) == {"a": ["a"]}


steps = st.lists(st.tuples(st.sampled_from(["pass", "leave", "end", "withdraw"]), st.integers(0)))


@settings(max_examples=80, deadline=None)
@given(snapshot=clusters(), coming=queues(), steps=steps)
def test_room_and_sums_are_those_of_the_sessions_that_hold_a_place(
    snapshot: Snapshot,
    coming: list[SessionWorkload],
    steps: list[tuple[str, int]],
) -> None:
    empty = contents(snapshot)
    world = World(snapshot, policy())
    state = world.state
    world.arrive(*coming)
    for kind, number in steps:
        held, waiting = list(state.placed), [each.id for each in state.queue]
        world.now += 1
        if kind == "pass":
            world.pass_()
        elif kind == "withdraw" and waiting:
            state.withdraw(waiting[number % len(waiting)])
        elif kind == "leave" and held:
            id_ = held[number % len(held)]
            kernels = list(state.placed[id_].kernels)
            state.leave(id_, kernels[number % len(kernels)], world.now)
        elif kind == "end" and held:
            state.end(held[number % len(held)], world.now)
        sessions: Counter[Scope] = Counter()
        pending: Counter[Scope] = Counter()
        for place in state.placed.values():
            sessions.update(scopes(place.workload.owner))
        for each in state.queue:
            pending.update(scopes(each.workload.owner))
        for owner in (ANN, BOB):
            for scope in scopes(owner):
                counted = usage(state, scope)
                assert (counted.sessions, counted.pending) == (sessions[scope], pending[scope])
    for id_ in list(state.placed):
        state.end(id_, world.now)
    after = contents(state.snapshot)
    for changed in ("version", "next_slot"):
        after.pop(changed), empty.pop(changed)
    assert after == empty


@given(snapshot=clusters(), coming=queues(), waiting=st.integers(0, 8))
def test_rehearsal_decides_as_a_pass_over_all_sessions_would_and_changes_nothing(
    snapshot: Snapshot, coming: list[SessionWorkload], waiting: int
) -> None:
    state = GroupState(snapshot, policy())
    for each in coming[:waiting]:
        state.submit(each)
    before, queued = contents(snapshot), list(state.queue)
    rehearsed = state.rehearse(coming[waiting:], state.policy, state.context(5.0))
    assert (contents(snapshot), list(state.queue)) == (before, queued)
    for each in coming[waiting:]:
        state.submit(each)
    decided = state.run_pass(5.0)
    assert where(rehearsed) == where(decided)
