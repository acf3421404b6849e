"""Jobs that fail in a row on a machine: what makes it suspicious, and what never does."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from muster.control.health.failing_jobs import (
    MAX_SUCCEEDED,
    FailingJobs,
    Failures,
    InARow,
    WorkEnd,
)
from muster.core.ids import AgentId

RULE = InARow()
BAD, GOOD, OTHER = AgentId("agt-bad"), AgentId("agt-good"), AgentId("agt-other")
ANN, BEN, CEM, DEE = (("default", name) for name in ("ann", "ben", "cem", "dee"))


LONG_S = RULE.at_once_s + 1.0


def end(
    agent: AgentId,
    user: tuple[str, str],
    job: str,
    *,
    failed: bool = True,
    at: float = 0.0,
    ran_s: float = LONG_S,
) -> WorkEnd:
    return WorkEnd(agent, user, job, failed, at, ran_s)


def found(ends: Sequence[WorkEnd]) -> list[Failures]:
    memory = FailingJobs()
    return [each for each in map(memory.ended, ends) if each is not None]


def test_jobs_of_three_users_that_fail_in_a_row_are_suspicious() -> None:
    ends = [end(BAD, ANN, "a"), end(BAD, BEN, "b"), end(BAD, CEM, "c")]
    assert found(ends) == [Failures(jobs=3, users=3)]
    assert found(ends[:2]) == []


def test_two_users_are_enough_where_there_are_no_more() -> None:
    ends = [end(BAD, ANN, "a"), end(BAD, BEN, "b"), end(BAD, ANN, "c")]
    assert found(ends) == [Failures(jobs=3, users=2)]
    third_works_elsewhere = end(GOOD, CEM, "c", failed=False)
    assert found([third_works_elsewhere, *ends]) == []


def test_success_between_clears_a_machine() -> None:
    ends = [
        end(BAD, ANN, "a"),
        end(BAD, BEN, "b"),
        end(BAD, CEM, "c", failed=False),
        end(BAD, CEM, "d"),
    ]
    assert found(ends) == []


def test_one_job_that_fails_again_and_again_counts_once() -> None:
    ends = [end(BAD, user, f"of {user[1]}") for user in (ANN, BEN) for _ in range(50)]
    assert found(ends) == []


def test_failures_of_long_ago_do_not_count() -> None:
    late = RULE.within_s + 1.0
    ends = [end(BAD, ANN, "a"), end(BAD, BEN, "b"), end(BAD, CEM, "c", at=late)]
    assert found(ends) == []


def test_user_whose_work_fails_elsewhere_too_does_not_count() -> None:
    ends = [end(GOOD, CEM, "x"), end(BAD, ANN, "a"), end(BAD, BEN, "b"), end(BAD, CEM, "c")]
    assert found(ends) == []
    assert found([*ends, end(BAD, DEE, "d")]) == [Failures(jobs=3, users=3)]


def test_jobs_of_the_only_user_count_if_they_succeed_elsewhere() -> None:
    ends = [
        end(BAD, ANN, "a"),
        end(GOOD, ANN, "a", failed=False),
        end(BAD, ANN, "b"),
        end(OTHER, ANN, "b", failed=False),
        end(BAD, ANN, "c"),
    ]
    assert found(ends) == [Failures(jobs=3, users=1)]
    assert found(ends[:3] + ends[4:]) == [], "one of them was proven only"


def test_machine_begins_anew_once_it_was_suspected() -> None:
    row = [end(BAD, ANN, "a"), end(BAD, BEN, "b"), end(BAD, CEM, "c")]
    assert found([*row, end(BAD, DEE, "d"), end(BAD, ANN, "e")]) == [Failures(3, 3)]


def at_once(agent: AgentId, user: tuple[str, str], jobs: str) -> list[WorkEnd]:
    """Jobs that fail as soon as they begin."""
    return [end(agent, user, job, ran_s=0.1) for job in jobs]


def test_different_jobs_of_one_user_that_fail_at_once_are_suspicious_though_nobody_else_tried() -> (
    None
):
    assert found(at_once(BAD, ANN, "abcde")) == [Failures(jobs=5, users=1, at_once=True)]
    assert found(at_once(BAD, ANN, "abcd")) == []
    assert found(at_once(BAD, ANN, "aaaaaaaaaa")) == [], "it is one job"
    works = end(GOOD, CEM, "x", failed=False)
    users = [works, *at_once(BAD, ANN, "abc"), *at_once(BAD, BEN, "de")]
    assert found(users) == [Failures(jobs=5, users=2, at_once=True)]


def test_jobs_that_fail_at_once_elsewhere_too_or_ran_for_a_while_are_not() -> None:
    assert found([*at_once(GOOD, ANN, "x"), *at_once(BAD, ANN, "abcde")]) == []
    assert found([*at_once(BAD, ANN, "abcd"), end(BAD, ANN, "e")]) == []
    succeeded = end(BAD, BEN, "x", failed=False)
    assert found([*at_once(BAD, ANN, "abc"), succeeded, *at_once(BAD, ANN, "de")]) == []


AGENTS = st.sampled_from([BAD, GOOD, OTHER])
MOMENTS = st.floats(0.0, 2 * RULE.within_s)
OTHERS_WELL = st.builds(
    WorkEnd,
    AGENTS,
    st.sampled_from([BEN, CEM, DEE]),
    st.sampled_from("xyz"),
    st.just(False),
    MOMENTS,
    st.just(LONG_S),
)
SWEEP = st.builds(
    WorkEnd,
    AGENTS,
    st.just(ANN),
    st.integers(0, 30).map(str),
    st.just(True),
    MOMENTS,
    st.just(LONG_S),
)


@given(st.lists(OTHERS_WELL | SWEEP, max_size=60))
def test_broken_sweep_of_one_user_never_makes_a_machine_suspicious(ends: list[WorkEnd]) -> None:
    assert found(sorted(ends, key=lambda each: each.at)) == []


@given(
    st.lists(
        st.builds(
            WorkEnd,
            st.integers(0, 40).map(lambda n: AgentId(f"agt-{n}")),
            st.integers(0, 40).map(lambda n: ("default", f"u{n}")),
            st.integers(0, 40).map(str),
            st.booleans(),
            MOMENTS,
            st.sampled_from([0.0, LONG_S]),
        ),
        max_size=200,
    )
)
def test_memory_is_bounded_whatever_ends(ends: list[WorkEnd]) -> None:
    memory = FailingJobs(max_users=5, max_agents=5)
    for each in ends:
        memory.ended(each)
        assert memory.size <= 5 * (1 + MAX_SUCCEEDED) + 5 * 2 * RULE.jobs * RULE.at_once
    memory.forget(4 * RULE.within_s)
    assert memory.size == 0
