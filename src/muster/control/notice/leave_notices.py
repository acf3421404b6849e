"""Notices of work that has to leave a machine, made in the commit that decides it.

The notice says when the work is stopped, so that its owner can save what it has done. Replicas of
deployments are left out: their deployment replaces them, and informs of an outage.
"""

from collections.abc import Iterator

from muster.control.engine.handler import FollowingHandler, Stage
from muster.control.engine.work import Work
from muster.control.notice.ends import Writer
from muster.control.notice.message import departure_message
from muster.control.session.must_leave import departures
from muster.core.ids import AgentId
from muster.core.states import AGENT_TABLE, KERNEL_TABLE
from muster.store.live import Live
from muster.store.records import Agent, Job, Kernel, Session


class TellDepartures(FollowingHandler[Agent]):
    """Makes a notice for each channel of each job and session of which kernels have to leave a
    machine, or need not leave it any more. A channel that is told of success alone gets none."""

    name = "TellDepartures"
    stage = Stage.TELL
    entity = Agent
    statuses = frozenset(AGENT_TABLE.live)

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def follow(self, record: Agent, work: Work) -> None:
        departure = work.once(departures).pop(record.id, None)
        if departure is None:
            return
        for whole, kernels in _work_on(work.live, record.id).items():
            spec = whole.spec
            channels = () if spec is None else spec.notify
            asked = [channel for channel in channels if channel.wants_departures]
            if not asked:
                continue
            message = departure_message(whole, kernels, record, departure, work.now)
            for channel in asked:
                self._writer.write(work, channel, message, whole.owner, whole.id)


def _work_on(live: Live, agent: AgentId) -> dict[Job | Session, list[Kernel]]:
    """The live jobs, and sessions without a job, that have kernels on a machine, with these."""
    found: dict[Job | Session, list[Kernel]] = {}
    for kernel in _kernels_on(live, agent):
        session = kernel.session
        if session.service is not None:
            continue
        whole = session if session.job is None else session.job
        found.setdefault(whole, []).append(kernel)
    return found


def _kernels_on(live: Live, agent: AgentId) -> Iterator[Kernel]:
    for row in live.allocations_on.get(agent, {}).values():
        kernel = live.kernels.get(row.kernel_id)
        if kernel is None or kernel.generation != row.generation or not row.charged:
            continue
        if kernel.status in KERNEL_TABLE.live:
            yield kernel
