"""The reaper notes the end of the kernel whose main process was reaped, and of no other."""

from muster.agent.supervisor.kernel import OwnKernel
from muster.agent.supervisor.reaper import Reaper


def test_end_that_is_told_late_is_not_taken_for_that_of_the_next_owner_of_the_pid() -> None:
    reaper = Reaper(None)
    first, second = OwnKernel(("first", 1), pid=1), OwnKernel(("second", 1), pid=1)
    for kernel in (first, second):
        reaper.add_of_another(kernel)

    reaper.main_ended(first, 0)

    assert (first.wait_status, second.wait_status) == (0, None)
