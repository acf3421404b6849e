"""The next step of a recovery, as pure functions."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from muster.control.recovery.entity import RECOVERIES, load_open, load_rounds
from muster.control.recovery.rounds import (
    FAULTS,
    AgentResult,
    Round,
    RoundAgent,
    RoundTask,
)
from muster.control.recovery.rules import Turn, after_check, after_heal, after_restart
from muster.core.ids import AgentId
from muster.core.reasons.of_recovery import RecoveryHealed, RecoveryRestarts, RecoveryTaskFailed
from muster.core.reasons.stored import StoredReason
from muster.core.specs import RecoverySpec

A = AgentResult
SPEC = RecoverySpec()


def a_round(*results: AgentResult) -> Round:
    agents = tuple(
        RoundAgent(AgentId(f"agt-{number}"), f"m{number}", (0,), "inc-1", result)
        for number, result in enumerate(results)
    )
    why = RecoveryTaskFailed(index=0, how="exit code 1", agents=len(agents))
    return Round(1, StoredReason.of(why), (RoundTask(0, 1, True),), agents, 1000, 100.0)


results = st.sampled_from(AgentResult)
rounds = st.lists(results, min_size=1, max_size=5).map(lambda some: a_round(*some))
waits = st.floats(0.0, 10_000.0)


def test_first_fault_decides_though_other_checks_are_awaited() -> None:
    found = after_check(a_round(A.AWAITED, A.FAULTY), 0.0, "", SPEC, is_last=True)
    assert found is not None
    assert found.turn is Turn.HEAL
    assert found.why.sentence() == "agent m1 was found faulty, and is being healed"


def test_all_checks_are_awaited_before_machines_count_as_healthy() -> None:
    assert after_check(a_round(A.AWAITED, A.HEALTHY), 0.0, "", SPEC, is_last=True) is None
    found = after_check(a_round(A.HEALTHY, A.HEALTHY), 0.0, "", SPEC, is_last=False)
    assert found is not None
    assert found.turn is Turn.JUDGE


def test_sentences_tell_what_was_found() -> None:
    last = after_check(a_round(A.HEALTHY, A.AWAITED), 1800.0, "exit code 3", SPEC, is_last=True)
    assert last is not None
    assert last.why.sentence() == (
        "task 0 failed (exit code 3) with no retry left, and no fault was found on 2 agents, "
        "1 of which could not be checked"
    )
    used_up = after_heal(a_round(A.FAULTY, A.FAULTY), 0.0, 3, SPEC)
    assert used_up is not None
    assert used_up.turn is Turn.GIVE_UP
    assert used_up.why.sentence() == (
        "agent m0 and 1 more was found faulty, and it was restarted 3 times before, as often as "
        "it may"
    )


def test_restart_waits_for_all_machines() -> None:
    assert after_heal(a_round(A.HEALED, A.FAULTY), 0.0, 0, SPEC) is None
    found = after_heal(a_round(A.HEALED, A.HEALTHY), 0.0, 0, SPEC)
    assert found is not None
    assert found.turn is Turn.RESTART


def test_restart_of_work_that_had_to_leave_is_not_counted() -> None:
    left = replace(a_round(A.HEALED), tasks=(RoundTask(0, 1, had_to_leave=True),))
    mixed = replace(left, tasks=(*left.tasks, RoundTask(1, 1, charged=True)))
    turns = [after_heal(each, 0.0, SPEC.max_restarts, SPEC) for each in (left, mixed)]
    assert [each and each.turn for each in turns] == [Turn.RESTART, Turn.GIVE_UP]
    assert (left.leaves, mixed.leaves) == (1, 0)
    why = RecoveryRestarts(restart=0, most=3)
    assert why.sentence() == (
        "is being restarted after a fault of a machine, which costs none of at most 3 restarts"
    )


def test_gone_machine_is_not_waited_for() -> None:
    found = after_heal(a_round(A.HEALED, A.GONE), 0.0, 0, SPEC)
    assert found is not None
    assert found.turn is Turn.RESTART
    strict = RecoverySpec(replace=False)
    given_up = after_heal(a_round(A.HEALED, A.GONE), 0.0, 0, strict)
    assert given_up is not None
    assert given_up.turn is Turn.GIVE_UP


def test_isolated_machine_is_waited_for_where_no_other_is_taken() -> None:
    strict = RecoverySpec(replace=False)
    assert after_heal(a_round(A.ISOLATED), 1799.0, 0, strict) is None
    given_up = after_heal(a_round(A.ISOLATED), 1800.0, 0, strict)
    assert given_up is not None
    assert given_up.turn is Turn.GIVE_UP


@given(rounds, waits, st.booleans())
def test_check_always_has_an_end(round_: Round, waited_s: float, is_last: bool) -> None:
    found = after_check(round_, waited_s, "", SPEC, is_last=is_last)
    if waited_s >= SPEC.check_timeout:
        assert found is not None
    if found is not None and found.turn is Turn.HEAL:
        assert any(agent.result in FAULTS for agent in round_.agents)


@given(rounds, waits, st.integers(0, 10), st.booleans())
def test_wait_for_machines_always_has_an_end(
    round_: Round, waited_s: float, restarts: int, replace: bool
) -> None:
    spec = RecoverySpec(replace=replace)
    if not any(agent.result in FAULTS for agent in round_.agents):
        return
    found = after_heal(round_, waited_s, restarts, spec)
    if waited_s >= spec.return_timeout or restarts >= spec.max_restarts:
        assert found is not None
    if found is not None and found.turn is Turn.RESTART:
        assert restarts < spec.max_restarts


@given(rounds, waits, st.booleans(), st.booleans())
def test_restart_ends_unless_it_queues(
    round_: Round, waited_s: float, runs: bool, queues: bool
) -> None:
    found = after_restart(round_, waited_s, 0.0, SPEC, runs=runs, queues=queues, how="")
    ends = runs or (waited_s >= SPEC.restart_timeout and not queues)
    assert (found is not None) is ends


@given(st.lists(rounds, max_size=3))
def test_rounds_are_read_as_they_were_written(some: list[Round]) -> None:
    dump, dump_open = RECOVERIES.dumper("kept"), RECOVERIES.dumper("open")
    assert load_rounds(dump(some)) == tuple(some)
    for each in some:
        assert load_open(dump_open(each)) == each
        left = replace(each, tasks=(RoundTask(0, 1, had_to_leave=True),), leaves_before=2)
        assert load_open(dump_open(left)) == left
        over = each.closed(200.0, RecoveryHealed(agent="m0", others=0))
        assert load_open(dump_open(over)) == over


def test_cost_of_a_round_is_what_its_gpus_did_not_do() -> None:
    assert a_round(A.FAULTY).gpu_hours(100.0 + 3600.0) == 1.0
    assert a_round(A.FAULTY).closed(100.0 + 1800.0, None).gpu_hours(1e9) == 0.5
