"""The hooks of each type of session."""

import pytest
from tests.scheduling.clusters import ask, group, policy, workload

from muster.core.errors import MusterError
from muster.core.ids import SessionId
from muster.core.specs import SessionType
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.hooks import (
    BatchHook,
    InferenceHook,
    InteractiveHook,
    KernelEnds,
    KernelPorts,
)


def test_each_type_of_session_has_its_hook_by_default() -> None:
    hooks = policy().hooks
    assert set(hooks) == set(SessionType)
    assert type(hooks[SessionType.BATCH]) is BatchHook
    assert type(hooks[SessionType.INTERACTIVE]) is InteractiveHook
    assert type(hooks[SessionType.INFERENCE]) is InferenceHook


def test_group_names_another_hook_for_a_type() -> None:
    hooks = policy(hooks={"interactive": "batch"}).hooks
    assert type(hooks[SessionType.INTERACTIVE]) is BatchHook


def test_unknown_hook_is_refused_with_the_known_ones() -> None:
    with pytest.raises(MusterError, match="no hook named 'x'; known: batch, inference, inter"):
        Policy.of(group(hooks={"batch": "x"}))


def test_batch_work_is_scheduled_as_it_was_handed_in() -> None:
    batch = workload(ask(1))
    assert BatchHook().on_schedule(batch) is batch
    assert BatchHook().before_start({"A": "1"}) == {"A": "1"}
    BatchHook().after_end(SessionId("ses-a"), succeeded=True)


def test_interactive_work_is_displaced_only_where_the_group_says_so() -> None:
    assert workload(ask(1)).preemptible
    assert not InteractiveHook().on_schedule(workload(ask(1))).preemptible
    options = {"interactive": {"preemptible": True}}
    allowed = policy(options=options).hooks[SessionType.INTERACTIVE]
    assert allowed.on_schedule(workload(ask(1))).preemptible
    assert not allowed.on_schedule(workload(ask(1), preemptible=False)).preemptible


def test_option_that_a_hook_does_not_have_is_refused_with_its_name() -> None:
    with pytest.raises(MusterError, match="hook 'batch' has no option 'speed'"):
        policy(options={"batch": {"speed": 9}})


@pytest.mark.parametrize(
    ("ended", "ended_well", "batch", "other"),
    [(0, 0, False, False), (1, 1, False, True), (1, 0, True, True), (3, 3, True, True)],
)
def test_session_is_over_as_its_type_has_it(
    ended: int, ended_well: int, batch: bool, other: bool
) -> None:
    ends = KernelEnds(3, ended, ended_well)
    assert BatchHook().is_over(ends) == batch
    assert InteractiveHook().is_over(ends) == other
    assert InferenceHook().is_over(ends) == other


def test_replica_is_told_the_port_of_its_requests_and_probes() -> None:
    hook = InferenceHook()
    assert hook.variables(KernelPorts((7001, 7002), None)) == {"PORT": "7001"}
    assert hook.variables(KernelPorts((7001,), 8080)) == {"PORT": "8080"}
    assert hook.variables(KernelPorts((), 8080)) == {"PORT": "8080"}
    assert hook.variables(KernelPorts((), None)) == {}
    assert BatchHook().variables(KernelPorts((7001,), None)) == {}
