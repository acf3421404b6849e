"""An explanation of ``scheduling.explain`` as a person may see it: agents by name, the work of
others as numbers only."""

from collections.abc import Callable, Iterable

from muster.core import sentences
from muster.core.ids import SessionId
from muster.core.owner import Owner
from muster.core.views.base import ReasonView
from muster.core.views.placement import (
    DisplacementView,
    KeptView,
    PlacementView,
    PlaceView,
    RequestView,
    ReservationView,
    ScoreView,
    ShortfallView,
    VictimView,
)
from muster.scheduling.explaining.explain import Explanation
from muster.scheduling.explaining.shortfalls import RequestExplanation
from muster.scheduling.making_room.preemption import Preemption
from muster.scheduling.making_room.reservation import Reservation
from muster.scheduling.workload import KernelPlacement
from muster.store.live import Live

MOST_WAITED_FOR = 20
"""Sessions that a reservation names, at most, of those on whose ends it counts."""

MaySee = Callable[[Owner], bool]
"""Whether the asker may see the work of this owner."""


def placement_view(found: Explanation, live: Live, may_see: MaySee, now: float) -> PlacementView:
    """The explanation as the asker may see it."""
    displaces, kept = found.displaces, found.reservation
    return PlacementView(
        sentence=sentences.queue_place(
            found.group, found.position, found.queue, found.kernels, found.kernels_fit
        ),
        session=found.session,
        group=found.group,
        starts=found.starts,
        reasons=tuple(map(ReasonView.of, found.reasons)),
        position=found.position,
        queue=found.queue,
        agents=found.agents,
        kernels=found.kernels,
        kernels_fit=found.kernels_fit,
        requests=tuple(_request(each, found.agents) for each in found.requests),
        other_requests=found.other_requests,
        placement=_places(found.placement, live),
        reservation=None if kept is None else _reservation(kept, live, may_see, now),
        displaces=None
        if displaces is None
        else DisplacementView(
            victims=victims_of(displaces, live, may_see),
            kernels=_places(displaces.kernels, live),
        ),
    )


def victims_of(found: Preemption, live: Live, may_see: MaySee) -> tuple[VictimView, ...]:
    """The displaced sessions: by name, if the asker may see them; the others counted by
    priority."""
    named: list[VictimView] = []
    others: dict[int, list[int]] = {}  # numbers of kernels, by priority
    for victim in found.victims:
        priority, kernels = victim.workload.priority, len(victim.kernels)
        name = name_of(live, victim.id, may_see)
        if name is None:
            others.setdefault(priority, []).append(kernels)
        else:
            named.append(VictimView(name=name, priority=priority, sessions=1, kernels=kernels))
    return *named, *(
        VictimView(priority=priority, sessions=len(counts), kernels=sum(counts))
        for priority, counts in sorted(others.items())
    )


def name_of(live: Live, id_: SessionId, may_see: MaySee) -> str | None:
    """The name by which a person knows a live session: its job's, if it has one; None if the asker
    may not see it."""
    session = live.sessions.get(id_)
    if session is None or not may_see(session.owner):
        return None
    if session.job is None:
        return session.name or session.id
    task = session.kernels[0].task_index
    gang = session.job.tasks_total == 1 or len(session.kernels) > 1
    return session.job.name if gang else f"{session.job.name}/{task}"


def _request(found: RequestExplanation, agents: int) -> RequestView:
    asks = found.request.describe()
    return RequestView(
        sentence=sentences.agents_looked_at(agents, found.kernels, asks, found.fit),
        request=found.request.as_dict(),
        asks=asks,
        kernels=found.kernels,
        fit=found.fit,
        groups=tuple(
            ShortfallView(
                agents=group.agents,
                examples=group.examples,
                nearest=group.nearest,
                shortfalls=tuple(map(ReasonView.of, group.shortfalls)),
            )
            for group in found.groups
        ),
        other_agents=found.other_agents,
        scores=tuple(ScoreView(agent=agent, score=score) for agent, score in found.scores),
    )


def _reservation(kept: Reservation, live: Live, may_see: MaySee, now: float) -> ReservationView:
    names = (name_of(live, id_, may_see) for id_ in kept.waits_for[:MOST_WAITED_FOR])
    places, start_at = _places(kept.kernels, live), kept.expected_at
    return ReservationView(
        sentence=sentences.reserved(
            None if start_at is None else start_at - now, [place.agent for place in places]
        ),
        session=kept.session,
        expected_at=kept.expected_at,
        kernels=places,
        holds=tuple(
            KeptView(
                agent=live.agents[room.agent_id].name,
                resources=room.resources.as_dict(),
                devices={share.index: share.milli for share in room.shares},
            )
            for room in kept.reserved
        ),
        waits_for=len(kept.waits_for),
        waits_for_some=tuple(name for name in names if name is not None),
    )


def _places(kernels: Iterable[KernelPlacement], live: Live) -> tuple[PlaceView, ...]:
    return tuple(
        PlaceView(
            agent=live.agents[kernel.agent_id].name,
            devices=tuple(share.index for share in kernel.shares),
        )
        for kernel in kernels
    )
