"""The parts of an agent's machine, and the row of history that tells that they have changed."""

from collections.abc import Mapping
from typing import TypeAlias

from muster.control.engine.work import Work
from muster.core.reasons.of_agents import AgentOffersOther
from muster.core.resources import format_amount, format_bytes
from muster.core.results import SchedulingResult
from muster.core.settings import differences
from muster.store.records import Agent

AGAIN_S = 60.0
"""Seconds between two rows of one agent, which may say another thing with each of its Hellos."""

Offer: TypeAlias = Mapping[str, object]


def offered(agent: Agent) -> Offer:
    """The processors, memory, extra resources, GPUs and attributes of the machine, in words."""
    capacity = agent.capacity
    return {
        "cpu": format_amount("cpu", capacity.cpu_milli),
        "memory": format_bytes(capacity.memory_bytes),
        **{name: format_amount(name, amount) for name, amount in capacity.extra},
        **{f"GPU {each.index}": f"{each.model} {each.uuid}".strip() for each in agent.devices},
        **agent.attributes,
    }


def note_offer(work: Work, agent: Agent, before: Offer, phase: str) -> None:
    """Tell in history how the machine differs from ``before``. A change that comes soon after
    another is told with the agent's next Hello."""
    before = agent.offer_told or before
    changes = differences(before, offered(agent))
    agent.offer_told = None
    if not changes:
        return
    if work.now < agent.offer_told_at + AGAIN_S:
        agent.offer_told = before
        return
    agent.offer_told_at = work.now
    why = AgentOffersOther(changes=changes)
    work.unit.note(agent, phase, SchedulingResult.SUCCESS, why)
