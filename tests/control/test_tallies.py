"""A tally of one kernel says what a tally of many would say of it."""

import sys

from hypothesis import given
from hypothesis import strategies as st
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld

from muster.core.reasons.of_kernels import WorkdirMissing
from muster.core.specs import JobSpec
from muster.core.states import KernelStatus
from muster.store.kernel_tallies import KernelTally, LoneTally, tally_of


def test_tally_of_one_kernel_says_what_one_of_many_would(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: Run(1000))
    world.submit(JobSpec(command=["x"]))
    session = world.only_session()
    (kernel,) = session.kernels
    lone, counted = LoneTally(kernel), KernelTally([kernel])
    failed = WorkdirMissing(agent="a", detail="")

    @given(st.sampled_from(KernelStatus), st.sampled_from([None, 0, 1]), st.booleans())
    def goes_on(status: KernelStatus, exit_code: int | None, fails: bool) -> None:
        before, kernel.status, kernel.exit_code = kernel.status, status, exit_code
        kernel.failure = failed if fails else None
        counted.ended_well = 0  # a kernel ends once, but for here
        for tally in (lone, counted):
            tally.moved(kernel, before)
            tally.note_failure(kernel)
        assert lone.ended_well == counted.ended_well
        assert dict(lone.failed) == counted.failed
        assert lone.grace_s == counted.grace_s
        assert [lone.among({each}) for each in KernelStatus] == [
            counted.among({each}) for each in KernelStatus
        ]
        assert list(lone.take_unjudged()) == list(counted.take_unjudged())[-1:] * fails

    goes_on()


def test_session_of_one_kernel_counts_it_in_few_bytes(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: Run(1000))
    world.submit(JobSpec(command=["x"]))
    session = world.only_session()
    assert isinstance(tally_of(session.kernels), LoneTally)
    assert sys.getsizeof(session.tally) <= 64
