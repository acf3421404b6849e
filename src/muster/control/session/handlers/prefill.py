"""The prefilling of agents' backlogs (design: Prefill): which sessions may wait there, which
prefilled kernels get room of their own, and which are recalled for other work.

An ended kernel hands its room to a prefilled kernel, and no pass sees that room. So no session is
prefilled once one before it in the queue lacks room and cannot be prefilled itself; and a prefilled
kernel gives way to a later session of higher priority that could use the room: the kernel is
recalled in the wake that finds that session without room. Kernels that begin before their agent
hears of the recall are a window's work at most.
"""

from collections.abc import Collection, Sequence

from muster.control.engine.work import Work
from muster.control.session.cluster.state import ClusterState
from muster.control.session.handlers.start import send_starts
from muster.core.ids import AgentId, JobId
from muster.core.reasons import Reason
from muster.scheduling.fitting.backlog_depth import highest_in_need
from muster.scheduling.fitting.fit import devices_at
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.passes.pass_result import WAITS_FOR_ROOM
from muster.scheduling.workload import WorkloadClass
from muster.store.records import Allocation, Job, Kernel, Session


class BacklogRoom:
    """How many more kernels the backlog of each agent may take. The numbers are those of one pass,
    in which they only fall."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._ended = False
        self._room: dict[JobId, list[AgentId]] = {}

    def take(self, session: Session, reasons: Sequence[Reason], work: Work) -> bool:
        """Put the session into the backlog of some agent, if it is short work and an agent has a
        place; the answer is whether it is in a backlog now.

        To be called for every refused session, in the order of the queue.
        """
        if self._ended or not lacks_room(reasons):
            return False
        kernel, job = session.kernels[0], session.job
        may = len(reasons) == 1 and self._cluster.may_prefill(session)
        room = self._room_of(job, kernel, work.now) if may and job is not None else None
        if not room:
            self._ended = True
            return False
        kernel.agent_id = _take(room, session.failed_agents)
        work.unit.allocate(kernel, work.live.agents[kernel.agent_id], (), charged=False)
        return True

    def _room_of(self, job: Job, kernel: Kernel, now: float) -> list[AgentId]:
        """The ids of agents, each once for every kernel that may yet be prefilled there.

        Jobs of one shape share these places. A job does not see the places that another took
        earlier in the same pass, so too many kernels may be prefilled, by a window's work at most.
        """
        room = self._room.get(job.id)
        if room is None:
            room = [
                agent
                for agent, count in self._cluster.shapes.prefill_room(job, kernel.resources, now)
                for _ in range(count)
            ]
            room = self._room[job.id] = room[::-1]
        return room


def _take(room: list[AgentId], failed: Collection[AgentId]) -> AgentId:
    """Take the last of these agents on which the session has not failed, else the last."""
    for place in reversed(range(len(room)) if failed else ()):
        if room[place] not in failed:
            return room.pop(place)
    return room.pop()


def grant_prefilled(group: GroupState, work: Work, cluster: ClusterState) -> None:
    """Charge prefilled kernels for which their agent now has room, unless a session of higher
    priority waits.

    A kernel may end before the kernels meant to follow it have reached its agent; then only the
    controller can give them its room.
    """
    shapes, snapshot = cluster.shapes, group.snapshot
    if shapes.lowest_prefilled(snapshot.group) is None:
        return
    waiting = [
        members.workload.priority
        for members in group.queue.classes
        if not members.reasons or lacks_room(members.reasons)  # new, or waiting for room alone
    ]
    highest = max(waiting, default=0)
    for agents in list(shapes.of_group(snapshot.group).values()):
        for agent_id, shape in list(agents.items()):
            agent = work.live.agents[agent_id]
            if agent.barred is not None or agent.ill:
                continue  # the agent takes no new work
            for allocation in list(shape.prefilled.values()):
                shares = devices_at(snapshot, group.policy.selector, allocation.resources, agent_id)
                kernel = _kernel_of(allocation, work)
                if shares is None or kernel is None:
                    break
                if kernel.recalled or kernel.stop_sent_at is not None:
                    continue  # it is about to leave
                if shapes.priority_of(allocation) < highest:
                    continue
                work.unit.grant(allocation, shares)
                kernel.shares = shares
                work.unit.touch(kernel)
                work.mark(kernel.session)
                send_starts(kernel.session, [kernel], work, cluster)


def outranked(
    group: GroupState, lacking: Sequence[WorkloadClass], work: Work, cluster: ClusterState
) -> list[Kernel]:
    """The prefilled kernels on agents whose room one of ``lacking``, the classes that lack room,
    could use at a higher priority."""
    snapshot, shapes = group.snapshot, cluster.shapes
    lowest = shapes.lowest_prefilled(snapshot.group)
    above = [workload for workload in lacking if lowest is not None and workload.priority > lowest]
    if not above:
        return []
    highest = highest_in_need(above, snapshot)
    found = []
    for agents in shapes.of_group(snapshot.group).values():
        for agent_id, shape in agents.items():
            priority = int(highest[snapshot.slot(agent_id)])
            for allocation in shape.prefilled.values():
                kernel = _kernel_of(allocation, work)
                if kernel is not None and shapes.priority_of(allocation) < priority:
                    found.append(kernel)
    return found


def lacks_room(reasons: Sequence[Reason]) -> bool:
    """Whether these reasons say that a session waits for room."""
    return not WAITS_FOR_ROOM.isdisjoint(each.code for each in reasons)


def _kernel_of(allocation: Allocation, work: Work) -> Kernel | None:
    """The kernel of an allocation; None if the allocation is of an older generation."""
    kernel = work.live.kernels.get(allocation.kernel_id)
    return kernel if kernel is not None and kernel.generation == allocation.generation else None
