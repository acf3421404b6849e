"""The barrier of a gang: no kernel runs before all kernels are ready to run, because a gang runs
whole or not at all (design: Gang barrier).

Agents get a gang's kernels ready to run. Once all are ready the barrier opens, which is committed
before any agent is told. From then on some kernels may have run, so that a failure ends the
attempt, and the next attempt has another number.
"""

from muster.control.engine.handler import FollowingHandler
from muster.control.engine.work import Work
from muster.control.tell_agent import TellAgent
from muster.core.states import KernelStatus, SessionStatus
from muster.store.records import Kernel, Session
from muster.wire.messages import Go


class OpenBarriers(FollowingHandler[Session]):
    """Lets a gang run once all of its kernels are ready."""

    name = "OpenBarriers"
    entity = Session
    statuses = frozenset({SessionStatus.CREATING})

    def follow(self, record: Session, work: Work) -> None:
        ready = len(record.tally.ready)
        if not ready or not is_closed(record):
            return
        if ready + record.tally.among((KernelStatus.RUNNING,)) < len(record.kernels):
            return
        record.barrier_opened_at = work.now
        work.unit.touch(record)
        for kernel in record.tally.ready:
            say_go(kernel, work)


def is_closed(session: Session) -> bool:
    """Whether the session is a gang of which no kernel may run yet."""
    return len(session.kernels) > 1 and session.barrier_opened_at is None


def may_have_run(kernel: Kernel) -> bool:
    """Whether a kernel of a placed session may have run although no report says so: its agent was
    told to run it, and not only to get it ready. A session of one kernel without a job has no
    attempts, and may be placed again until its kernel is reported as running; a service is never
    placed again."""
    session = kernel.session
    if len(session.kernels) > 1:
        return session.barrier_opened_at is not None
    counts = session.job is not None or session.service is not None
    return counts and kernel.status in _TOLD_TO_RUN


def note_ready(kernel: Kernel, work: Work) -> None:
    """Take note that the agent has the kernel ready to run."""
    session = kernel.session
    if kernel.status is not KernelStatus.CREATING:
        return
    work.unit.fail(kernel, None)
    session.tally.note_ready(kernel, True)
    work.mark(session)
    if not is_closed(session):
        say_go(kernel, work)


def say_go(kernel: Kernel, work: Work) -> None:
    """Have the kernel's agent run it."""
    if kernel.agent_id is not None:
        work.emit(TellAgent(kernel.agent_id, Go(kernel.id, kernel.generation)))


_TOLD_TO_RUN = frozenset({KernelStatus.CREATING, KernelStatus.RUNNING})
