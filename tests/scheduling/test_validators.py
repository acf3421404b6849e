"""Validators forbid a session to start: the arithmetic, and whether time can cure it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.scheduling.clusters import (
    ANN,
    BOB,
    GIB,
    ask,
    box,
    cluster,
    group,
    passed,
    policy,
    session,
    where,
    workload,
)

from muster.core.owner import Owner
from muster.core.reasons import Reason, ReasonKind
from muster.core.reasons.of_tasks import JobHeld
from muster.core.specs import Dependency, DependencyCondition, Level, QuotaSpec
from muster.scheduling.accounting.usage import Quotas, Usage
from muster.scheduling.explaining.explain import explain
from muster.scheduling.passes.queue import Queue
from muster.scheduling.policy.plugins import PassContext, SessionValidator
from muster.scheduling.policy.validators import (
    NEVER,
    Concurrency,
    Dependencies,
    DomainResourceLimit,
    GroupResourceLimit,
    Holds,
    KeypairResourceLimit,
    StartTime,
    access_refusal,
    next_moment,
    refusals_at_submission,
)
from muster.scheduling.workload import DependencyState

CAT = Owner("default", "sales", "cat")
OWNERS = (ANN, BOB, CAT)


def quota(name: str, **fields: object) -> QuotaSpec:
    """``name`` tells the level by its depth."""
    level = (Level.DOMAIN, Level.PROJECT, Level.USER)[name.count("/")]
    return QuotaSpec.model_validate({"level": level, "name": name, **fields})


def context(
    *quotas: QuotaSpec,
    held: Mapping[Owner, Mapping[str, int]] | None = None,
    now: float = 0,
    targets: Mapping[str, DependencyState] | None = None,
) -> PassContext:
    """A pass in which each owner of ``held`` has one session with so much."""
    usage = Usage()
    for owner, amounts in (held or {}).items():
        usage.placed(owner, amounts)
    return PassContext(
        cluster(),
        now,
        usage=usage,
        quotas=Quotas(quotas),
        dependency_state=lambda owner, dependency: (targets or {}).get(
            dependency.on, DependencyState.MISSING
        ),
    )


def told(reasons: Sequence[Reason]) -> list[str]:
    return [each.sentence() for each in reasons]


def codes(reasons: Sequence[Reason]) -> list[str]:
    return [str(each.code) for each in reasons]


LIMITS: Sequence[SessionValidator] = (
    KeypairResourceLimit(),
    GroupResourceLimit(),
    DomainResourceLimit(),
    Concurrency(),
)


@pytest.mark.parametrize("validator", [*LIMITS, Dependencies(), StartTime()])
def test_nothing_is_forbidden_where_nothing_is_limited(validator: SessionValidator) -> None:
    held = context(held={ANN: {"cpu": 10**9}})
    assert not validator.validate(workload(ask(cpu=1000)), held)


# Quotas


@pytest.mark.parametrize(
    ("validator", "whose"),
    [
        (KeypairResourceLimit(), "default/research/ann"),
        (GroupResourceLimit(), "default/research"),
        (DomainResourceLimit(), "default"),
    ],
)
def test_quota_in_use_is_told_with_its_arithmetic_and_whose_it_is(
    validator: SessionValidator, whose: str
) -> None:
    spec = quota(whose, limits={"cpu": 10})
    (reason,) = validator.validate(workload(ask(cpu=4)), context(spec, held={ANN: {"cpu": 7000}}))
    assert reason.sentence() == (
        f"cpu: used 7 + requested 4 > limit 10, over by 1 (quota of {spec.level} {whose})"
    )
    assert reason.kind is ReasonKind.LIMIT
    assert reason.code not in NEVER


def test_quota_may_be_used_to_the_last() -> None:
    spec = quota("default/research/ann", limits={"cpu": 10, "gpu": 1})
    seven = context(spec, held={ANN: {"cpu": 7000, "gpu": 500}})
    assert not KeypairResourceLimit().validate(workload(ask(cpu=3, gpu=0.5)), seven)
    assert not KeypairResourceLimit().validate(workload(ask(cpu=10, gpu=1)), context(spec))


def test_more_than_the_quota_itself_is_told_apart() -> None:
    spec = quota("default/research/ann", limits={"cpu": 10})
    (reason,) = KeypairResourceLimit().validate(
        workload(*[ask(cpu=4)] * 3), context(spec, held={ANN: {"cpu": 7000}})
    )
    assert reason.sentence() == (
        "cpu: requested 12 > limit 10, over by 2 (quota of user default/research/ann)"
    )
    assert reason.code in NEVER


def test_every_resource_that_is_over_is_told_not_the_first() -> None:
    spec = quota(
        "default/research",
        limits={"cpu": 10, "memory": "64GiB", "gpu": 2, "extra": {"licence": 1}},
    )
    busy = context(spec, held={BOB: {"cpu": 9000, "memory": 63 * GIB, "gpu": 1000}})
    asked = workload(ask(cpu=1, gib=1.5, gpu=0.5, licence=1), ask(cpu=1, gpu=1, licence=1))
    assert told(GroupResourceLimit().validate(asked, busy)) == [
        "cpu: used 9 + requested 2 > limit 10, over by 1 (quota of project default/research)",
        "memory: used 63GiB + requested 1.5GiB > limit 64GiB, over by 512MiB"
        " (quota of project default/research)",
        "gpu: used 1 + requested 1.5 > limit 2, over by 0.5 (quota of project default/research)",
        "licence: requested 2 > limit 1, over by 1 (quota of project default/research)",
    ]


def test_owner_over_a_lowered_quota_may_start_what_asks_for_none_of_it() -> None:
    spec = quota("default/research/ann", limits={"gpu": 1})
    over = context(spec, held={ANN: {"gpu": 3000}})
    assert not KeypairResourceLimit().validate(workload(ask(cpu=4)), over)
    assert codes(KeypairResourceLimit().validate(workload(ask(gpu=0.5)), over)) == ["QUOTA_IN_USE"]


def test_limit_of_nothing_can_never_be_kept() -> None:
    spec = quota("default", limits={"gpu": 0})
    assert codes(DomainResourceLimit().validate(workload(ask(gpu=1)), context(spec))) == [
        "ABOVE_QUOTA"
    ]


def test_what_others_hold_counts_where_the_quota_is_shared() -> None:
    specs = [quota("default/research/*", limits={"cpu": 4}), quota("default", limits={"cpu": 8})]
    busy = context(*specs, held={BOB: {"cpu": 4000}, CAT: {"cpu": 3000}})
    assert not KeypairResourceLimit().validate(workload(ask(cpu=2), owner=ANN), busy)
    assert codes(DomainResourceLimit().validate(workload(ask(cpu=2), owner=ANN), busy)) == [
        "QUOTA_IN_USE"
    ]


def test_what_was_placed_earlier_in_the_pass_counts() -> None:
    running = context(quota("default/research/ann", limits={"cpu": 4}))
    two = workload(ask(cpu=2))
    answers = []
    for _ in range(3):
        answers.append(codes(KeypairResourceLimit().validate(two, running)))
        running.usage.placed(two.owner, two.total)
    assert answers == [[], [], ["QUOTA_IN_USE"]]


# Concurrency


def test_concurrency_is_counted_for_user_project_and_domain() -> None:
    specs = [
        quota("default/research/ann", sessions=1),
        quota("default/research", sessions=2),
        quota("default", sessions=4),
    ]
    busy = context(*specs, held={ANN: {}, BOB: {}, CAT: {}})
    assert told(Concurrency().validate(workload(ask(1)), busy)) == [
        "sessions: used 1 + requested 1 > limit 1, over by 1 (quota of user default/research/ann)",
        "sessions: used 2 + requested 1 > limit 2, over by 1 (quota of project default/research)",
    ]


def test_gang_is_one_session() -> None:
    two = context(quota("default/research/ann", sessions=2), held={ANN: {}})
    assert not Concurrency().validate(workload(*[ask(1)] * 64), two)


def test_concurrency_of_zero_is_a_pause_not_an_end() -> None:
    paused = context(quota("default/research/ann", sessions=0))
    (reason,) = Concurrency().validate(workload(ask(1)), paused)
    assert reason.code not in NEVER
    assert refusals_at_submission(workload(ask(1)), paused.quotas, paused.usage) == []


# Dependencies

_C, _T = DependencyCondition, DependencyState


@pytest.mark.parametrize(
    ("condition", "state", "code"),
    [
        (_C.RUNNING, _T.MISSING, "DEPENDENCY_MISSING"),
        (_C.RUNNING, _T.WAITING, "DEPENDENCY_NOT_MET"),
        (_C.RUNNING, _T.RUNNING, None),
        (_C.RUNNING, _T.SUCCEEDED, None),
        (_C.RUNNING, _T.ENDED_OTHERWISE, "DEPENDENCY_FAILED"),
        (_C.SUCCEEDED, _T.MISSING, "DEPENDENCY_MISSING"),
        (_C.SUCCEEDED, _T.WAITING, "DEPENDENCY_NOT_MET"),
        (_C.SUCCEEDED, _T.RUNNING, "DEPENDENCY_NOT_MET"),
        (_C.SUCCEEDED, _T.SUCCEEDED, None),
        (_C.SUCCEEDED, _T.ENDED_OTHERWISE, "DEPENDENCY_FAILED"),
        (_C.ENDED, _T.MISSING, "DEPENDENCY_MISSING"),
        (_C.ENDED, _T.WAITING, "DEPENDENCY_NOT_MET"),
        (_C.ENDED, _T.RUNNING, "DEPENDENCY_NOT_MET"),
        (_C.ENDED, _T.SUCCEEDED, None),
        (_C.ENDED, _T.ENDED_OTHERWISE, None),
        (_C.FAILED, _T.MISSING, "DEPENDENCY_MISSING"),
        (_C.FAILED, _T.WAITING, "DEPENDENCY_NOT_MET"),
        (_C.FAILED, _T.RUNNING, "DEPENDENCY_NOT_MET"),
        (_C.FAILED, _T.SUCCEEDED, "DEPENDENCY_SUCCEEDED"),
        (_C.FAILED, _T.ENDED_OTHERWISE, None),
    ],
)
def test_dependency_is_met_waited_for_or_hopeless(
    condition: DependencyCondition, state: DependencyState, code: str | None
) -> None:
    dependent = workload(ask(1), after=[Dependency(on="train", condition=condition)])
    reasons = Dependencies().validate(dependent, context(targets={"train": state}))
    assert codes(reasons) == ([] if code is None else [code])
    assert all((each.code in NEVER) is (code != "DEPENDENCY_NOT_MET") for each in reasons)
    kind = ReasonKind.WAITING if code == "DEPENDENCY_NOT_MET" else ReasonKind.REQUEST
    assert all(each.kind is kind for each in reasons)


def test_every_unmet_dependency_is_told_with_what_to_do() -> None:
    dependent = workload(
        ask(1),
        after=[
            Dependency(on="sidecar", condition=_C.RUNNING),
            Dependency(on="data"),
            Dependency(on="done"),
            Dependency(on="train"),
            Dependency(on="lost", condition=_C.ENDED),
        ],
    )
    targets = {
        "sidecar": _T.WAITING,
        "data": _T.RUNNING,
        "done": _T.SUCCEEDED,
        "train": _T.ENDED_OTHERWISE,
    }
    reasons = Dependencies().validate(dependent, context(targets=targets))
    assert told(reasons) == [
        "waits until sidecar is running; it is waiting",
        "waits until data has succeeded; it is running",
        "waits until train has succeeded, which can no longer be: it ended without success",
        "waits until lost has ended, and there is no such job or session",
    ]
    assert [each.remedy() for each in reasons[2:]] == [
        "Run train again and hand this in anew, or make it depend on train:ended.",
        "Check the name in `after`, or hand in lost first.",
    ]


def test_dependency_is_looked_for_among_what_the_owner_has() -> None:
    asked = []

    def dependency_state(owner: Owner, dependency: Dependency) -> DependencyState:
        asked.append((owner, dependency.on))
        return DependencyState.SUCCEEDED

    dependent = workload(ask(1), owner=BOB, after=[Dependency(on="train")])
    Dependencies().validate(dependent, replace(context(), dependency_state=dependency_state))
    assert asked == [(BOB, "train")]


# Start times


def test_session_starts_not_before_its_time_and_says_when_that_is() -> None:
    later = workload(ask(1), not_before=1_800_000_000)
    (reason,) = StartTime().validate(later, context(now=1_799_999_999.5))
    assert reason.sentence() == "starts not before 2027-01-15T08:00:00+00:00"
    assert (reason.kind, reason.code in NEVER) == (ReasonKind.WAITING, False)
    assert next_moment(later, 1_799_999_999.5) == 1_800_000_000


def test_session_starts_at_its_time_to_the_second() -> None:
    later = workload(ask(1), not_before=1_800_000_000)
    assert not StartTime().validate(later, context(now=1_800_000_000))
    assert next_moment(later, 1_800_000_000) is None
    assert next_moment(workload(ask(1)), 0) is None


def test_start_time_that_no_calendar_has_is_told_in_seconds() -> None:
    (reason,) = StartTime().validate(workload(ask(1), not_before=2.0**40), context())
    assert reason.sentence() == "starts not before 1099511627776 s after 1970"


# At submission


def test_all_that_a_quota_refuses_is_told_at_submission() -> None:
    specs = [
        quota("default/research/ann", limits={"cpu": 10}, pending_sessions=3),
        quota("default/research", largest={"cpu": 8, "gpu": 2}, pending_sessions=5),
        quota("default", limits={"cpu": 100}, largest={"gpu": 8}),
    ]
    usage = Usage()
    usage.waits(ANN, 3)
    reasons = refusals_at_submission(workload(*[ask(cpu=4, gpu=1)] * 3), Quotas(specs), usage)
    assert told(reasons) == [
        "cpu: requested 12 > limit 10, over by 2 (quota of user default/research/ann)",
        "sessions waiting: 3 + requested 1 > limit 3, over by 1"
        " (quota of user default/research/ann)",
        "cpu: requested 12 > limit 8 of one session, over by 4 (quota of project default/research)",
        "gpu: requested 3 > limit 2 of one session, over by 1 (quota of project default/research)",
    ]
    assert [each.code in NEVER for each in reasons] == [True, False, True, True]


def test_what_is_held_already_refuses_nothing_at_submission() -> None:
    full = context(quota("default/research/ann", limits={"cpu": 4}), held={ANN: {"cpu": 4000}})
    assert refusals_at_submission(workload(ask(cpu=4)), full.quotas, full.usage) == []


def test_sessions_handed_in_together_are_counted_together() -> None:
    quotas = Quotas([quota("default/*", pending_sessions=10)])
    usage = Usage()
    usage.waits(BOB, 4)
    assert refusals_at_submission(workload(ask(1)), quotas, usage, sessions=6) == []
    assert codes(refusals_at_submission(workload(ask(1)), quotas, usage, sessions=7)) == [
        "TOO_MANY_PENDING"
    ]


def test_group_takes_the_work_of_its_projects_only() -> None:
    closed = group(projects=["default/research"])
    assert access_refusal(ANN, closed) is None
    refusal = access_refusal(CAT, closed)
    assert refusal is not None
    assert refusal.sentence() == "group pool takes no work of project default/sales"
    assert refusal.code in NEVER


def test_group_that_names_no_projects_takes_everybodys_work() -> None:
    assert access_refusal(CAT, group()) is None


def test_each_pass_asks_whose_work_the_group_takes_whatever_its_validators_are() -> None:
    snapshot = cluster(a=box(cpu=9))
    waiting = [session("ann", ask(1)), session("cat", ask(1), owner=CAT)]
    closed: dict[str, Any] = {"validators": [], "projects": ["default/research"]}
    assert where(passed(snapshot, *waiting, **closed)) == {"ann": ["a"], "cat": ["NO_GROUP_ACCESS"]}
    asked = session("cat", ask(1), owner=CAT)
    told = explain(asked, Queue(), snapshot, policy(**closed), PassContext(snapshot, 10))
    assert codes(told.reasons) == ["NO_GROUP_ACCESS"]
    (alone,) = policy(validators=[]).validators
    assert isinstance(alone, Holds), "a group for everybody asks nothing about access"


def test_session_of_a_held_job_waits_whatever_validators_the_group_has() -> None:
    why = JobHeld(by="ann", moment="2027-01-31T08:00:00+00:00")
    held = replace(workload(ask(1)), held=why)
    assert Holds().validate(held, context()) == (why,)
    assert Holds().allows(held, context(), 7) == 0
    assert Holds().allows(workload(ask(1)), context(), 7) == 7
    assert Holds().validate(workload(ask(1)), context()) == ()


def test_all_sessions_of_a_class_may_start_or_none_by_time_and_dependencies() -> None:
    ready = context(now=5, targets={"train": _T.SUCCEEDED})
    after, missing = [Dependency(on="train")], [Dependency(on="other")]
    assert Dependencies().allows(workload(ask(1), after=after), ready, 7) == 7
    assert Dependencies().allows(workload(ask(1), after=missing), ready, 7) == 0
    assert StartTime().allows(workload(ask(1), not_before=5), ready, 7) == 7
    assert StartTime().allows(workload(ask(1), not_before=6), ready, 7) == 0
