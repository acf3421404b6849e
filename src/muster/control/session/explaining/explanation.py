"""The answer of `muster why` about a session: why it does not start, or what holds it up.

The code that also makes the decisions finds the answer in the live state, so it is never out of
date.
"""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from sqlalchemy import Connection

from muster.control.engine.retries import wait_for_next_try
from muster.control.session.cluster.state import ClusterState
from muster.control.session.explaining.holders import ahead_of, holdings
from muster.control.session.explaining.machines import departure_of, silence_of
from muster.control.session.explaining.placement_view import placement_view
from muster.control.session.handlers.barrier import is_closed
from muster.control.session.handlers.schedule import cleaning_up
from muster.control.session.handlers.start import without_address
from muster.core import sentences
from muster.core.errors import NotFound
from muster.core.ids import SessionId
from muster.core.owner import Principal, Role
from muster.core.reasons import NEEDS_AGENT, Reason, ReasonCode
from muster.core.reasons.of_dependencies import NoAddressYet
from muster.core.reasons.of_queue import BehindShape
from muster.core.reasons.of_sessions import AtBarrier, OthersRunOn
from muster.core.states import KERNEL_TABLE, PLACED_SESSION, SessionStatus
from muster.core.views.base import ReasonView
from muster.core.views.placement import AheadView, HoldingView, PlacementView, WhyView
from muster.core.views.work import SessionView, standing_of_session
from muster.scheduling.explaining.explain import explain
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.passes.pass_result import LACKS_ROOM
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.guard import PluginFault
from muster.scheduling.workload import SessionWorkload, WorkloadClass
from muster.store.live import Live
from muster.store.records import Kernel, Session

T = TypeVar("T")

OUT_OF_REACH = frozenset({ReasonCode.GANG_OUT_OF_REACH})
"""Reasons of pools that say whatever agents lack."""

LACKS_MACHINES = NEEDS_AGENT | {
    ReasonCode.NO_ALIVE_AGENTS,
    ReasonCode.NEEDS_ABSENT_AGENTS,
}
"""Reasons that machines which are coming cure."""


@dataclass(slots=True)
class Found:
    """The findings about one session: ``held`` are the holders of the resources for which it waits,
    ``behind`` is the session for which room is kept."""

    reasons: list[Reason] = field(default_factory=list)
    placement: PlacementView | None = None
    held: tuple[HoldingView, ...] = ()
    behind: AheadView | None = None

    def answer(
        self,
        subject: str,
        status: str,
        verdict: str,
        details: tuple[str, ...] = (),
        *,
        name: str,
        standing: str,
    ) -> WhyView:
        """The findings as the answer about live work of this id, which stands so; ``details`` tell
        where it runs, if it runs."""
        return WhyView(
            subject=subject,
            status=status,
            verdict=verdict,
            details=details,
            reasons=tuple(map(ReasonView.of, self.reasons)),
            name=name,
            output=name if details else None,
            placement=self.placement,
            held=self.held,
            behind=self.behind,
            standing=standing,
        )


def explain_session(
    live: Live, cluster: ClusterState, id_: SessionId, now: float, asker: Principal | None = None
) -> WhyView:
    """Why a live session is in its state.

    Args:
        asker: who asks; of others' work an answer names only what the asker may see. The
            session's owner if left out.

    Raises:
        NotFound: the session is not live.
    """
    session = live.sessions.get(id_)
    if session is None:
        raise NotFound(f"there is no live session {id_}")
    asker = asker or Principal(session.owner, Role.USER)
    found = findings(live, cluster, session, now, asker)
    verdict = sentences.waits(session.status, now - session.status_changed_at)
    details: tuple[str, ...] = ()
    if session.status is SessionStatus.RUNNING:
        for_s = None if session.started_at is None else now - session.started_at
        details = (sentences.runs("it", for_s, agents_of(live, session.kernels)),)
    standing = standing_of_session(session.status)
    return found.answer(
        session.id, session.status, verdict, details, name=session.id, standing=standing
    )


def explain_ended_session(
    connection: Connection, principal: Principal, session: SessionView, now: float
) -> WhyView:
    """Why an ended session has ended."""
    ended_at = session.finished_at or session.status_changed_at
    ran_s = None if session.started_at is None else ended_at - session.started_at
    verdict = sentences.ended("it", now - ended_at, ran_s)
    output = None if ran_s is None else session.id
    return WhyView.of_ended(session, verdict, name=session.id, output=output)


def agents_of(live: Live, kernels: Iterable[Kernel]) -> list[str]:
    """The names of the agents that have the kernels."""
    agents = (live.agents.get(kernel.agent_id) for kernel in kernels if kernel.agent_id)
    return [agent.name for agent in agents if agent is not None]


def session_needs_agent(cluster: ClusterState, session: Session) -> list[Reason]:
    """The reasons for which a session waits until another agent joins, as the last pass found; none
    where a pool has machines for it."""
    group = cluster.groups[session.group]
    members = group.queue.find(session.id)
    if members is None:
        return []
    found = [why for why in members.reasons if why.code in NEEDS_AGENT]
    if not found or group.outlook is None:
        return found
    of_pools = group.outlook.refusals(members.workload)
    if any(why.code in OUT_OF_REACH for why in of_pools):
        return [*of_pools]
    return [*_beside_pools(found), *of_pools] if of_pools else []


def _beside_pools(reasons: Iterable[Reason]) -> Iterable[Reason]:
    """The reasons that agents give where no pool could make others. That there is no agent is none:
    the pools' own reasons say why there is not."""
    return (why for why in reasons if why.code is not ReasonCode.NO_AGENTS)


def findings(
    live: Live, cluster: ClusterState, session: Session, now: float, asker: Principal
) -> Found:
    """The reasons why a live session is in its state, and its placement if it waits."""
    if session.status is SessionStatus.PENDING:
        return _pending(live, cluster, session, now, asker)
    reasons = [why for kernel in session.kernels if (why := delay_of(live, kernel, now))]
    if session.status is SessionStatus.CREATING and is_closed(session):
        reasons.append(_at_barrier(live, session))
    if (lacking := without_address(session, live, cluster, now)) is not None:
        reasons.append(NoAddressYet(on=lacking))
    reasons += others_run_on(session, now)
    reasons += wait_for_next_try(session, now)
    if session.reason is not None:
        reasons.append(session.reason)
    return Found(list(dict.fromkeys(reasons)))


def _pending(
    live: Live, cluster: ClusterState, session: Session, now: float, asker: Principal
) -> Found:
    group = cluster.groups[session.group]
    waiting = SessionWorkload(session.id, session.created_at, cluster.workload(session))
    context = group.context(now)
    found = with_policy(
        live,
        group,
        lambda policy: explain(waiting, group.queue, group.snapshot, policy, context),
    )
    remains = (k.id for k in session.kernels if k.id in live.allocations_of)
    if (first := next(remains, None)) is not None:
        why = cleaning_up(first, live)
        found = replace(found, reasons=(*found.reasons, why), placement=())
    reasons = with_outlook(group, session.id, waiting.workload, found.reasons, now)
    return Found(
        reasons if session.reason is None else [*reasons, session.reason],
        placement_view(found, live, asker.may_see, now),
        holdings(found, session, live, cluster, asker, now),
        ahead_of(found, live, asker, now),
    )


def with_outlook(
    group: GroupState,
    session: SessionId,
    workload: WorkloadClass,
    reasons: Iterable[Reason],
    now: float,
) -> list[Reason]:
    """The reasons for which a session waits, with the machines that come for it, or why none do.
    Where some come it needs no others, whatever the agents that are there lack. Where a pool makes
    none now, but could, its reasons lead, and nobody is told to ask for what agents have. Where a
    quota keeps machines from being made for it, the quota is what it waits for."""
    found, outlook = list(reasons), group.outlook
    if outlook is None:
        return found
    withheld = outlook.withheld(session, workload)
    if withheld:
        return list(dict.fromkeys([*withheld, *_without(found, LACKS_MACHINES | LACKS_ROOM)]))
    of_pools = outlook.of(session, workload, now)
    if not of_pools:
        return found
    cured = NEEDS_AGENT
    if any(why.code is ReasonCode.WAITS_FOR_SLICE for why in of_pools):
        cured = LACKS_MACHINES
    elif any(why.code not in OUT_OF_REACH for why in outlook.refusals(workload)):
        return [*_beside_pools(found), *of_pools]
    return [*of_pools, *_without(found, cured)]


def _without(reasons: Iterable[Reason], cured: Container[ReasonCode]) -> Iterable[Reason]:
    """The reasons that are not cured."""
    return (why for why in reasons if why.code not in cured)


def waits_for_slice(cluster: ClusterState, session: Session, now: float) -> bool:
    """Whether a pool makes machines for a waiting session."""
    group = cluster.groups[session.group]
    if group.outlook is None:
        return False
    members = group.queue.find(session.id)
    if members is None:
        return False
    told = group.outlook.of(session.id, members.workload, now)
    return any(why.code is ReasonCode.WAITS_FOR_SLICE for why in told)


def with_policy(live: Live, group: GroupState, look: Callable[[Policy], T]) -> T:
    """The result of ``look`` under the group's policy, without plug-ins that fail, as the next pass
    will do without them."""
    policy = group.policy
    while True:
        try:
            return look(policy)
        except PluginFault as fault:
            spec = live.groups[group.snapshot.group]
            refused = (*policy.refused, fault)
            policy = Policy.of(spec, refused, policy)  # each time with one plug-in less


def _at_barrier(live: Live, session: Session) -> Reason:
    """How many of a gang's kernels are ready to run, and which agents the others wait for."""
    ready = session.tally.ready
    missing = next((kernel for kernel in session.kernels if kernel not in ready), None)
    agent = live.agents.get(missing.agent_id) if missing and missing.agent_id else None
    return AtBarrier(
        ready=len(ready),
        kernels=len(session.kernels),
        agent=agent.name if agent else None,
    )


def others_run_on(session: Session, now: float) -> list[Reason]:
    """The reason for which a running gang is not over though a kernel of it has ended well."""
    ended_well = session.tally.ended_well
    if session.status is not SessionStatus.RUNNING or not ended_well:
        return []
    ended = [kernel for kernel in session.kernels if kernel.ended_well]
    first = min(ended, key=lambda kernel: (kernel.ended_at or now, kernel.index))
    return [
        OthersRunOn(
            ended=len(ended),
            kernels=len(session.kernels),
            index=first.index,
            since_s=now - (first.ended_at or now),
            left=len(session.kernels) - len(ended),
        )
    ]


def delay_of(live: Live, kernel: Kernel, now: float) -> Reason | None:
    """The reason for which a placed kernel does not run yet, or may not run on; None if there is
    none, as of a kernel that has ended."""
    if kernel.status in KERNEL_TABLE.terminal:
        return None
    agent = live.agents.get(kernel.agent_id) if kernel.agent_id else None
    if agent is None:
        return kernel.failure
    if not agent.connected:
        return silence_of(agent, now)
    if agent.leave_by is not None and kernel.session.status is SessionStatus.RUNNING:
        return departure_of(agent, agent.leave_by, now)
    allocation = live.ledger.get((kernel.id, kernel.generation))
    if (
        allocation is not None
        and not allocation.charged
        and kernel.session.status in PLACED_SESSION
    ):
        return BehindShape(agent=agent.name)
    return kernel.failure
