"""Stopping kernels: SIGTERM, a grace, SIGKILL, and a bound on the wait for the report of the
death."""

import signal
from collections.abc import Callable

from muster.agent.supervisor import clock
from muster.agent.supervisor.backlog import Backlog
from muster.agent.supervisor.deadlines import Deadlines
from muster.agent.supervisor.kernel import EndReason, OwnKernel, Status
from muster.agent.supervisor.reaper import Reaper
from muster.agent.supervisor.starter import Starter

RECALLED = "recalled"
SHUT_DOWN = "all work on its agent was stopped"
"""The detail of the end of a kernel that was taken back while it was queued."""

_DEATH_TIMEOUT_S = 2.0  # from SIGKILL until the spawning process has told of the death
_ANSWER_TIMEOUT_S = 2.0  # from a recall until the process that holds a standby has answered

Withdraw = Callable[[OwnKernel, str], None]
"""Ends a kernel of which no process has run or will, with a detail."""


class Stops:
    """Stops kernels, and sees to it that they end."""

    def __init__(
        self, starter: Starter, reaper: Reaper, backlog: Backlog, withdraw: Withdraw
    ) -> None:
        self._starter = starter
        self._reaper = reaper
        self._backlog = backlog
        self._withdraw = withdraw
        self._deadlines = Deadlines()

    def stop(self, kernel: OwnKernel, grace_s: float, reason: EndReason, detail: str) -> None:
        """Stop a kernel within so many seconds. A stop of one that is being stopped can only
        bring its end nearer."""
        if kernel.status in (Status.QUEUED, Status.CREATED, Status.CREATE_FAILED):
            self._withdraw(kernel, detail or reason.value)
            return
        if kernel.status is Status.ENDED or (
            kernel.status is Status.RUNNING and kernel.wait_status is not None
        ):
            return  # its main process has ended; its other processes are being killed
        if kernel.status is Status.STANDBY:
            self._drop(kernel)
        deadline_s = clock.now_s() + grace_s
        starting = kernel.status in (Status.STANDBY, Status.STARTING)
        first = starting or kernel.status is Status.RUNNING
        if not first and (kernel.killed or deadline_s >= kernel.stop_deadline_s):
            return
        kernel.stop_deadline_s = deadline_s
        if first:
            kernel.status = Status.STOPPING
            kernel.stop_reason, kernel.stop_detail = reason, detail
        if not grace_s:
            self._kill(kernel)
            return
        self._deadlines.add(kernel)
        if first and not starting:  # a kernel is told when it is there, once
            self._reaper.signal(kernel, signal.SIGTERM)
            self._reaper.signal(kernel, signal.SIGCONT)  # a stopped process hears it only then

    def recall(self, kernel: OwnKernel) -> None:
        """Take a kernel back if it is still queued."""
        if kernel.status is Status.QUEUED:
            self._withdraw(kernel, RECALLED)
        elif kernel.status is Status.STANDBY:
            self._drop(kernel)
            kernel.stop_deadline_s = clock.now_s() + _ANSWER_TIMEOUT_S
            self._deadlines.add(kernel)

    def enforce_due(self, now_s: float) -> None:
        """Kill the kernels whose grace is over, and give up those whose end is not reported."""
        while (late := self._deadlines.pop_missed(now_s)) is not None:
            if late.status is Status.STANDBY:  # recalled; its user's process does not answer
                self._starter.give_up(late)
                continue
            if late.killed:
                self._starter.give_up(late)
            self._kill(late)  # again, if it is still there: it may take long to die

    def next_s(self) -> float:
        """The time at which ``enforce_due`` has something to do next."""
        return self._deadlines.next_s()

    def _drop(self, kernel: OwnKernel) -> None:
        """Have a kernel no longer stand by, unless it was spawned by now."""
        self._backlog.remove(kernel)
        self._starter.drop(kernel)

    def _kill(self, kernel: OwnKernel) -> None:
        kernel.killed = True
        if kernel.pid:  # before that, the process that is about to spawn it may be in its cgroup
            self._reaper.kill(kernel)
        kernel.stop_deadline_s = clock.now_s() + _DEATH_TIMEOUT_S
        self._deadlines.add(kernel)
