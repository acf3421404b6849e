"""The explanation behind `muster why` and `muster plan`: why a session does not start, agent by
agent, and what would have to change. It is in ids and numbers; ``control.session.explaining`` shows
it to a person."""

from dataclasses import dataclass, replace

from muster.core.ids import SessionId
from muster.core.reasons import Reason
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.explaining.shortfalls import RequestExplanation, explain_request
from muster.scheduling.making_room.preemption import Preemption
from muster.scheduling.making_room.reservation import Reservation
from muster.scheduling.passes.pass_result import LACKS_ROOM, LacksRoom
from muster.scheduling.passes.placement import PlacementPass
from muster.scheduling.passes.queue import Queue
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.plugins import PassContext
from muster.scheduling.workload import KernelPlacement, SessionWorkload

MAX_REQUESTS = 20
"""Distinct requests of a session that are looked at agent by agent."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A placement pass's decision about a session at this moment, and its reasons.

    Args:
        reasons: all that keep it from starting; empty if it would start.
        position: the session's place in the order of the queue, from 1.
        queue: how many sessions wait.
        agents: how many agents the group has; all of them are looked at.
        kernels: how many kernels the session has.
        kernels_fit: how many kernels would find room together, once the sessions ahead have
            started.
        requests: the most demanding first, at most ``MAX_REQUESTS``, as seen after the sessions
            ahead have started.
        other_requests: how many requests are left out.
        placement: where its kernels would go, if it would start.
        reservation: the room kept for it, if it is the first that lacks room or others leave for
            it.
        displaces: the sessions that it would displace, if its group allows that.
    """

    session: SessionId
    group: str
    reasons: tuple[Reason, ...]
    position: int
    queue: int
    agents: int
    kernels: int
    kernels_fit: int
    requests: tuple[RequestExplanation, ...]
    placement: tuple[KernelPlacement, ...] = ()
    reservation: Reservation | None = None
    displaces: Preemption | None = None
    other_requests: int = 0

    @property
    def starts(self) -> bool:
        return not self.reasons


def explain(
    session: SessionWorkload,
    queue: Queue,
    snapshot: Snapshot,
    policy: Policy,
    context: PassContext,
) -> Explanation:
    """Explain the decision of ``place`` about ``session``, by running the same code.

    The sessions ahead of it are placed first, and everything is rolled back: snapshot and queue
    stay as they are.

    Args:
        queue: the group's queue; ``session`` counts as waiting even if it is not in the queue yet.

    Raises:
        MusterError: a plug-in answers nonsense.
    """
    workload = session.workload
    with Statement(snapshot, trial=True) as statement:
        trial = PlacementPass(queue, statement, policy, context)
        trial.run(before=session)
        kernels_fit = trial.most_placed(session)
        reasons, kernels = trial.judge(session)
        requests = tuple(
            explain_request(snapshot, policy.selector, workload, request, indexes, kernels)
            for request, indexes in workload.requests[:MAX_REQUESTS]
        )
        lacks_room = len(reasons) == 1 and reasons[0].code in LACKS_ROOM
        others_leave = session.id in context.displacing
        displaces = trial.victims_for(session) if lacks_room and not others_leave else None
    if others_leave or displaces is not None:
        reasons = tuple(map(_with_leaving, reasons))
    return Explanation(
        session=session.id,
        group=snapshot.group,
        reasons=reasons,
        position=1 + trial.ahead_of(session),
        queue=len(queue) + (session.id not in queue),
        agents=len(snapshot),
        kernels=len(workload.kernels),
        kernels_fit=kernels_fit,
        requests=requests,
        placement=() if reasons else kernels,
        reservation=_kept_for(session, queue),
        displaces=displaces,
        other_requests=len(workload.requests) - len(requests),
    )


def _with_leaving(why: Reason) -> Reason:
    """The reason for a lack of room, with the note that sessions are leaving to end that lack."""
    return replace(why, leaving=True) if isinstance(why, LacksRoom) else why


def _kept_for(session: SessionWorkload, queue: Queue) -> Reservation | None:
    kept = queue.rooms.get(session.id)
    return None if kept is None else kept.reservation
