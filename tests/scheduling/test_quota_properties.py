"""Sessions come and go: quotas are kept, and none is refused without a cause."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import ask, workload
from tests.scheduling.test_validators import LIMITS, OWNERS, context, quota

from muster.core.owner import Owner
from muster.core.specs import QuotaSpec
from muster.scheduling.accounting.usage import Quotas, scopes
from muster.scheduling.policy.validators import (
    Concurrency,
    GroupResourceLimit,
    KeypairResourceLimit,
)
from muster.scheduling.workload import WorkloadClass

amounts = st.fixed_dictionaries(
    {"cpu": st.sampled_from([0, 1, 2, 4, 4.5, 9]), "gpu": st.sampled_from([0, 0.5, 1, 3])}
)
quotas = st.lists(
    st.builds(
        lambda name, limits, sessions: quota(name, limits=limits, sessions=sessions),
        st.sampled_from(
            ["*/*/*", "default/research/ann", "default/*/*", "*/*", "default/sales", "default", "*"]
        ),
        amounts,
        st.none() | st.integers(0, 4),
    ),
    max_size=4,
)
classes = st.builds(
    lambda owner, cpu, gpu, kernels: workload(*[ask(cpu=cpu, gpu=gpu)] * kernels, owner=owner),
    st.sampled_from(OWNERS),
    st.sampled_from([0, 0.5, 1, 2]),
    st.sampled_from([0, 0.25, 1]),
    st.integers(1, 3),
)


@settings(deadline=None)
@given(quotas, st.lists(classes, max_size=25), st.lists(st.integers(0, 30), max_size=10))
def test_quotas_are_never_exceeded_by_what_may_start(
    specs: list[QuotaSpec], queue: list[WorkloadClass], ends: list[int]
) -> None:
    """And what may not start would exceed one: what is refused is refused for cause."""
    running = context(*specs)
    placed: list[WorkloadClass] = []
    for step, each in enumerate(queue):
        if step in ends and placed:
            gone = placed.pop(0)
            running.usage.placed(gone.owner, gone.total, sessions=-1)
        refused = any(validator.validate(each, running) for validator in LIMITS)
        assert refused is _exceeds([*placed, each], running.quotas, of=each.owner)
        if not refused:
            running.usage.placed(each.owner, each.total)
            placed.append(each)
        for owner in OWNERS:
            assert not _exceeds(placed, running.quotas, of=owner)


def _exceeds(placed: list[WorkloadClass], quotas: Quotas, of: Owner) -> bool:
    """Whether what is placed, added up by hand, is more than a quota of the owner; of resources
    that the last one asks for none of, there is never more."""
    for position, scope in enumerate(scopes(of)):
        spec = quotas.of(scope)
        if spec is None:
            continue
        members = [each for each in placed if scopes(each.owner)[position] == scope]
        if spec.sessions is not None and len(members) > spec.sessions:
            return True
        for name, limit in spec.limits.amounts.items():
            if sum(each.total.get(name, 0) for each in members) > limit:
                return True
    return False


@settings(deadline=None)
@given(quotas, st.lists(classes, min_size=1, max_size=8), st.integers(0, 6))
def test_as_many_are_allowed_at_once_as_one_after_the_other(
    specs: list[QuotaSpec], queue: list[WorkloadClass], count: int
) -> None:
    *before, each = queue
    for validator in (KeypairResourceLimit(), GroupResourceLimit(), Concurrency()):
        running = context(*specs)
        for other in before:
            running.usage.placed(other.owner, other.total)
        allowed = validator.allows(each, running, count)
        one_by_one = 0
        while one_by_one < count and not validator.validate(each, running):
            running.usage.placed(each.owner, each.total)
            one_by_one += 1
        assert allowed == one_by_one
