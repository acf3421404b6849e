from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulate.worlds import (
    ANN,
    BOB,
    codes,
    comes,
    fate,
    machine,
    policy,
    replayed,
    starts,
)

from muster.core.errors import MusterError
from muster.simulate.cluster_file import ClusterAgent
from muster.simulate.policy_file import NamedPolicy
from muster.simulate.report import report
from muster.simulate.trace import TraceSession

TWO = (machine(gpus=2),)


def test_sessions_run_one_after_the_other_where_there_is_room_for_one() -> None:
    found = replayed(comes("a", runs=10), comes("b", at=1, runs=5), comes("c", at=2, runs=5))
    assert starts(found) == {"a": 0, "b": 10, "c": 15}
    assert [fate.ended_at for fate in found.fates] == [10, 15, 20]


def test_time_begins_with_the_first_session_whatever_the_order_of_the_trace() -> None:
    found = replayed(comes("b", at=1007), comes("a", at=1000, runs=5))
    assert starts(found) == {"a": 0, "b": 7}


def test_speed_up_has_sessions_come_faster_and_run_as_long() -> None:
    found = replayed(comes("a", runs=10), comes("b", at=8), speed_up=4)
    assert [(each.submitted_at, each.started_at, each.ended_at) for each in found.fates] == [
        (0, 0, 10),
        (2, 10, 20),
    ]


def test_room_of_a_session_that_ends_goes_to_one_that_comes_at_that_moment() -> None:
    assert starts(replayed(comes("a", runs=10), comes("b", at=10))) == {"a": 0, "b": 10}


def test_session_of_no_duration_runs_and_ends_at_once() -> None:
    found = replayed(comes("a", runs=0), comes("b", runs=0))
    assert [fate.ended_at for fate in found.fates] == [0, 0]


def test_gang_starts_whole_when_all_its_kernels_have_room() -> None:
    found = replayed(
        comes("a", runs=10), comes("gang", at=1, kernels=2), on=(machine("a"), machine("b"))
    )
    assert starts(found) == {"a": 0, "gang": 10}


@pytest.mark.parametrize(
    ("queue", "ends_known", "small", "backfilled"),
    [
        ("strict", True, 110, False),  # after the big one
        ("best_effort", False, 2, True),
        ("backfill", True, 2, True),  # it will have left before the big one can start
    ],
)
def test_queue_policy_says_whether_a_small_session_overtakes(
    queue: str, ends_known: bool, small: float, backfilled: bool
) -> None:
    found = replayed(
        comes("first", runs=100),
        comes("big", at=1, gpu=2, runs=10),
        comes("small", at=2, runs=10),
        on=TWO,
        under=policy(queue=queue),
        ends_known=ends_known,
    )
    assert starts(found) == {"first": 0, "big": 100, "small": small}
    assert fate(found, "small").backfilled is backfilled


def test_backfill_does_not_delay_the_first_that_waits() -> None:
    found = replayed(
        comes("first", runs=100),
        comes("big", at=1, gpu=2, runs=10),
        comes("long", at=2, runs=1000),
        on=TWO,
        ends_known=True,
    )
    assert starts(found) == {"first": 0, "big": 100, "long": 110}


def test_limits_of_the_trace_are_what_the_scheduler_knows_of_ends() -> None:
    found = replayed(
        comes("first", runs=50, limit_s=100),
        comes("big", at=1, gpu=2, runs=10, limit_s=20),
        comes("small", at=2, runs=10, limit_s=90),
        comes("long", at=3, runs=10, limit_s=110),
        on=TWO,
    )
    assert starts(found) == {"first": 0, "big": 50, "small": 2, "long": 60}


def test_priority_goes_first() -> None:
    found = replayed(comes("a", runs=10), comes("b", at=1), comes("c", at=2, priority=60))
    assert starts(found) == {"a": 0, "c": 10, "b": 20}


def test_drf_lets_an_owner_with_nothing_go_before_one_who_holds_much() -> None:
    trace = [*(comes(f"ann-{n}", runs=10 + n) for n in range(4)), comes("bob", at=1, owner=BOB)]
    fifo = replayed(*trace, on=TWO)
    drf = replayed(*trace, on=TWO, under=policy(sequencer="drf"))
    assert fate(fifo, "bob").started_at == 22
    assert fate(drf, "bob").started_at == 10


def test_fair_share_remembers_who_has_had_more() -> None:
    found = replayed(
        comes("ann-1", runs=100),
        comes("ann-2", at=1),
        comes("bob", at=2, owner=BOB),
        under=policy(sequencer="fair_share", options={"fair_share": {"half_life": "1h"}}),
    )
    assert starts(found) == {"ann-1": 0, "bob": 100, "ann-2": 110}


def test_start_time_ahead_is_waited_for_and_lets_others_go() -> None:
    found = replayed(comes("later", at=100, not_before_s=150), comes("now", at=101))
    assert starts(found) == {"later": 50, "now": 1}
    assert not fate(found, "now").backfilled


# -- preemption ----------------------------------------------------------------------------------


def test_displaced_session_waits_anew_and_runs_from_the_beginning() -> None:
    found = replayed(
        comes("victim", runs=100, priority=10),
        comes("urgent", at=70, runs=10, priority=90),
        under=policy(preemption={"minimum_lease": 60}),
    )
    assert starts(found) == {"victim": 0, "urgent": 70}
    victim = fate(found, "victim")
    assert (victim.preempted, victim.ended_at) == (1, 180)
    assert (found.preemptions, found.lost_gpu_milli_s) == (1, 70_000)


def test_victim_keeps_its_minimum_lease_and_leaves_the_moment_it_is_over() -> None:
    found = replayed(
        comes("victim", runs=1000, priority=10),
        comes("urgent", at=10, runs=10, priority=90),
        under=policy(preemption={"minimum_lease": 60}),
    )
    assert starts(found) == {"victim": 0, "urgent": 60}


def test_displaced_session_waits_from_then_on_for_the_timeout_and_for_its_turn() -> None:
    found = replayed(
        comes("victim", runs=100, priority=10),
        comes("patient", at=30, runs=20, priority=10),
        comes("urgent", at=40, runs=15, priority=90),
        comes("longer", at=56, runs=100, priority=90),
        under=policy(pending_timeout=50, preemption={"minimum_lease": 40}),
    )
    assert starts(found) == {"victim": 0, "patient": 55, "urgent": 40, "longer": 75}
    assert codes(found, "victim") == ["SCHEDULING_TIMEOUT"]
    assert (
        next(moment.at for moment in found.moments if moment.at >= 40 and not moment.waiting) == 90
    )


def test_displaced_session_is_gone_where_the_group_ends_its_victims() -> None:
    found = replayed(
        comes("victim", runs=100, priority=10),
        comes("urgent", at=70, priority=90),
        under=policy(preemption={"mode": "terminate"}),
    )
    assert fate(found, "victim").ended_at is None
    assert codes(found, "victim") == ["PREEMPTED_FOR_GOOD"]


# -- what never starts ---------------------------------------------------------------------------


def test_session_that_never_fits_is_refused_and_holds_up_nobody() -> None:
    found = replayed(comes("huge", gpu=2), comes("a"), under=policy(queue="strict"))
    assert starts(found) == {"huge": None, "a": 0}
    assert codes(found, "huge") == ["NEVER_FITS"]


def test_model_that_no_agent_has_is_never_found() -> None:
    other = comes("other")
    other = replace(other, kernels=(replace(other.kernels[0], gpu_models=("B200",)),))
    found = replayed(other, comes("a"))
    assert codes(found, "other") == ["NO_AGENT_MEETS"]


def test_quota_in_use_is_waited_for_and_one_too_small_refuses() -> None:
    quota = {"kind": "quota", "name": "default/research/ann", "limits": {"gpu": 1}}
    found = replayed(
        comes("a", runs=10),
        comes("b"),
        comes("c", gpu=2),
        comes("bob", owner=BOB),
        on=TWO,
        under=policy(quotas=[quota]),
    )
    assert starts(found) == {"a": 0, "b": 10, "c": None, "bob": 0}
    assert codes(found, "c") == ["ABOVE_QUOTA"]
    assert not fate(found, "bob").backfilled  # nobody before lacked room


def test_too_many_that_wait_are_refused_when_they_come() -> None:
    quota = {"kind": "quota", "name": "*/*/*", "pending_sessions": 1}
    trace = [comes("a"), comes("b", at=1), comes("c", at=2), comes("d", at=11)]
    found = replayed(*trace, under=policy(quotas=[quota]))
    assert starts(found) == {"a": 0, "b": 10, "c": None, "d": 20}
    assert codes(found, "c") == ["TOO_MANY_PENDING"]


def test_group_that_is_not_for_the_project_refuses_it() -> None:
    other = replace(ANN, project="sales")
    under = policy(projects=["default/research"])
    found = replayed(comes("a", owner=other), comes("b"), under=under)
    assert codes(found, "a") == ["NO_GROUP_ACCESS"]


def test_session_that_waits_too_long_is_given_up() -> None:
    found = replayed(comes("a", runs=100), comes("b", at=1), under=policy(pending_timeout=20))
    assert codes(found, "b") == ["SCHEDULING_TIMEOUT"]
    assert [moment.waiting for moment in found.moments if moment.at == 21] == [0]


def test_session_that_still_waits_at_the_end_says_why() -> None:
    quota = {"kind": "quota", "name": "default/research/bob", "sessions": 0}
    found = replayed(comes("a"), comes("bob", owner=BOB), under=policy(quotas=[quota]))
    assert codes(found, "bob") == ["QUOTA_IN_USE"]


def test_cluster_too_small_for_everything_is_refused_with_the_reason() -> None:
    with pytest.raises(MusterError, match=r"none of the 2 sessions ever starts.*even when empty"):
        replayed(comes("a", gpu=2), comes("b", gpu=4))


def test_unknown_part_of_a_policy_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(MusterError, match=r"no selector named 'best'; known: .*concentrated"):
        replayed(comes("a"), under=policy(selector="best"))


def test_empty_trace_is_refused() -> None:
    with pytest.raises(MusterError, match="no sessions"):
        replayed()


# -- what must never happen ----------------------------------------------------------------------

SESSIONS = st.builds(
    comes,
    st.just("session"),
    at=st.integers(0, 30),
    runs=st.integers(0, 20),
    gpu=st.sampled_from([0, 0.3, 0.5, 1, 2, 5]),
    cpu=st.integers(0, 8),
    kernels=st.integers(1, 3),
    owner=st.sampled_from([ANN, BOB]),
    priority=st.sampled_from([40, 50, 60]),
)
POLICIES = st.builds(
    policy,
    queue=st.sampled_from(["strict", "best_effort", "backfill"]),
    sequencer=st.sampled_from(["fifo", "lifo", "drf", "fair_share"]),
    preemption=st.sampled_from([None, {"minimum_lease": 0}]),
    starvation_after=st.sampled_from([0, 5, 300]),
)
AGENTS: tuple[ClusterAgent, ...] = (machine("a", 2, 8), machine("b", 1, 16), machine("c", 0, 4))


@settings(max_examples=60, deadline=None)
@given(st.lists(SESSIONS, max_size=25), POLICIES, st.booleans())
def test_every_session_that_can_start_runs_to_its_end_within_capacity(
    trace: list[TraceSession], under: NamedPolicy, ends_known: bool
) -> None:
    fits = comes("fits")
    found = replayed(*trace, fits, on=AGENTS, under=under, ends_known=ends_known)
    assert len(found.fates) == len(trace) + 1
    for each in found.fates:
        never = {str(reason.code) for reason in each.reasons}
        assert never <= {"NEVER_FITS", "GANG_NEVER_FITS"}
        assert (each.started_at is None) == (each.ended_at is None) == bool(never)
    for moment in found.moments:
        assert 0 <= moment.gpu_milli <= 3000
        assert 0 <= moment.cpu_milli <= 28_000
    last = found.moments[-1]
    assert (last.gpu_milli, last.cpu_milli, last.waiting) == (0, 0, 0)


@settings(max_examples=15, deadline=None)
@given(st.lists(SESSIONS, max_size=25), POLICIES)
def test_equal_input_gives_equal_reports(trace: list[TraceSession], under: NamedPolicy) -> None:
    one, other = (
        report(replayed(*trace, comes("fits"), on=AGENTS, under=under)).as_dict() for _ in range(2)
    )
    assert one == other
