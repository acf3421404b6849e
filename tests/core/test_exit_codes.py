from typing import Any

import pytest
from tests.cli.fake_cluster import because, kernel, session, task

from muster.core.exit_codes import of_task
from muster.core.reasons import ReasonCode
from muster.core.states import KernelStatus, SessionStatus, TaskState


def test_code_of_a_task_is_that_of_its_process_its_signal_or_why_there_was_none() -> None:
    failed = TaskState.FAILED
    assert of_task(task(exit_code=1)) == 0, "it succeeded: what its process said is its business"
    assert of_task(task(state=failed, exit_code=7)) == 7
    assert of_task(task(state=failed, attempts=(kernel(signal=9),))) == 137
    assert of_task(task(state=failed, exit_code=0)) == 1, "never 0"
    not_found = because(ReasonCode.COMMAND_NOT_FOUND, command="x")
    assert of_task(task(state=failed, reason=not_found)) == 127


@pytest.mark.parametrize(
    ("kernels", "code"),
    [
        ([{"exit_code": 0}, {"exit_code": 0}], 0),
        ([{"exit_code": 0}, {"exit_code": 3}, {"exit_code": 4}], 3),
        ([{"signal": 15}], 143),
        ([{"status": KernelStatus.ERROR, "exit_code": None}], 1),
    ],
)
def test_code_of_a_session_is_that_of_its_first_kernel_that_did_not_end_well(
    kernels: list[dict[str, Any]], code: int
) -> None:
    ended = session(kernels=tuple(kernel(**each) for each in kernels))
    assert ended.exit_code == code
    cancelled = because(ReasonCode.CANCELLED, by="ann")
    assert session(kernels=ended.kernels, reason=cancelled).exit_code == 130
    assert session(status=SessionStatus.RUNNING).exit_code is None
