"""The answer of `muster why` about an agent: whether it takes new work, and why not."""

from dataclasses import dataclass

from sqlalchemy import Connection

from muster.control.session.cluster.guard import HELD_UP_S, ServicesGuard
from muster.control.session.explaining.machines import departure_of, silence_of
from muster.control.session.explaining.on_agent import kernels_on
from muster.core import sentences
from muster.core.ids import AgentId
from muster.core.machine_sentences import held_kernel, kernels_of_others
from muster.core.owner import Principal
from muster.core.reasons import Reason
from muster.core.reasons.of_agents import AgentBarred, AgentWithheld
from muster.core.reasons.of_kernels import DiskFull
from muster.core.states import AgentBar, AgentStatus
from muster.core.text import count
from muster.core.views.base import ReasonView
from muster.core.views.cluster import AgentView
from muster.core.views.placement import WhyView
from muster.store.live import Live
from muster.store.records import Agent, Allocation

MOST_KERNELS = 20
"""Kernels of an agent that are told by name."""
MOST_TOLD = 10
"""Services that are told because they hold up an agent."""


@dataclass(frozen=True, slots=True)
class AgentHealthAnswer:
    """The part of the answer that an agent's incident adds."""

    details: tuple[str, ...]
    reasons: tuple[Reason, ...]
    kept_until: float | None = None
    """Until when services may keep work on the machine, if that has a limit."""


def explain_agent(
    live: Live,
    guard: ServicesGuard,
    id_: AgentId,
    now: float,
    asker: Principal,
    health: AgentHealthAnswer | None = None,
    slice_until: float | None = None,
) -> WhyView:
    """Why a live agent is in its state, and takes work or takes none, and what it runs.

    Args:
        asker: whoever is told, who sees the names of no work of others.
        health: what is to be told of its incident, if it has one.
        slice_until: until when services may keep work on its slice, if that has a limit.
    """
    agent = live.agents[id_]
    reasons = _reasons(agent, now)
    takes_work = not reasons and not agent.ill and not agent.in_service
    if health is not None:
        reasons += health.reasons
    reasons += held_up_by(live, guard, now, agent, _kept_until(agent, health, slice_until))
    charged = sum(
        row.charged and not _is_of_service(live, row)
        for row in live.allocations_on.get(agent.id, {}).values()
    )
    return WhyView(
        subject=agent.id,
        status=agent.status,
        verdict=sentences.agent(
            agent.name, charged, takes_work=takes_work, connected=agent.connected
        ),
        details=(*(() if health is None else health.details), *_runs(live, agent, asker, now)),
        reasons=tuple(map(ReasonView.of, reasons)),
    )


def _runs(live: Live, agent: Agent, asker: Principal, now: float) -> tuple[str, ...]:
    """Sentences on the kernels of the agent."""
    found = kernels_on(live, agent.id, asker)
    told = [held_kernel(each, now) for each in found.seen[:MOST_KERNELS]]
    if more := len(found.seen) - len(told):
        told.append(f"and {count(more, 'more kernel')}")
    if found.others:
        told.append(kernels_of_others(found.others, found.other_gpu_milli))
    return tuple(told)


def explain_removed_agent(
    connection: Connection, principal: Principal, agent: AgentView, now: float
) -> WhyView:
    """Why an agent was removed."""
    return WhyView.of_ended(agent, sentences.agent_removed(agent.name))


def _is_of_service(live: Live, row: Allocation) -> bool:
    """Whether a check or another service of the machine holds it, which is nobody's work."""
    kernel = live.kernels.get(row.kernel_id)
    return kernel is not None and kernel.session.service is not None


def _kept_until(
    agent: Agent, health: AgentHealthAnswer | None, slice_until: float | None
) -> float | None:
    """Until when services may keep work on an agent that is to be left; None without a limit."""
    limits = [slice_until, None if health is None else health.kept_until]
    if agent.leave_by is not None:
        limits.append(agent.leave_by + HELD_UP_S)
    return min((each for each in limits if each is not None), default=None)


def held_up_by(
    live: Live, guard: ServicesGuard, now: float, agent: Agent, until: float | None
) -> list[Reason]:
    """Why work has not left an agent that is to be left: the services that have it stay.

    Args:
        until: the moment from which they may do so no more; None if there is none.
    """
    if agent.barred is not AgentBar.DRAINING and not agent.ill and not agent.withheld:
        return []
    left_s = None if until is None else max(until - now, 0.0)
    kernels = map(live.kernels.get, {id_ for id_, _ in live.allocations_on.get(agent.id, ())})
    found = (guard.why_stays(kernel.session.id, left_s) for kernel in kernels if kernel is not None)
    return [*dict.fromkeys(filter(None, found))][:MOST_TOLD]


def _reasons(agent: Agent, now: float) -> list[Reason]:
    """All reasons why an agent takes no new work; none of an agent that takes it."""
    found: list[Reason] = []
    if agent.status is AgentStatus.LOST and agent.reason is not None:
        found.append(agent.reason)
    elif not agent.connected:
        found.append(silence_of(agent, now))
    if agent.barred is not None:
        found.append(AgentBarred(bar=agent.barred, note=agent.bar_note, agent=agent.name))
    if agent.leave_by is not None:
        found.append(departure_of(agent, agent.leave_by, now))
    if agent.disk_full:
        found.append(full_disk_of(agent))
    if agent.withheld:
        found.append(AgentWithheld(why=agent.withheld))
    return found


def full_disk_of(agent: Agent) -> Reason:
    """The reason that an agent has no room on its disk."""
    waits = "it takes nothing new until there is room"
    return DiskFull(agent=agent.name, detail=waits)
