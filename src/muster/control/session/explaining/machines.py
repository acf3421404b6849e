"""Reasons about the machine on which work runs."""

import math
from typing import Any

from muster.core.reasons import Reason, ReasonCode, reason
from muster.store.records import Agent


def silence_of(agent: Agent, now: float) -> Reason:
    """The reason that an agent is silent, and for how long its kernels count as running."""
    numbers: dict[str, Any] = {"agent": agent.name, "silent_s": round(now - agent.seen_at)}
    if math.isfinite(agent.lost_at):
        numbers["ends_in_s"] = max(round(agent.lost_at - now), 1)
    elif agent.lost_at > now:
        numbers["endless"] = 1
    return reason(ReasonCode.AGENT_UNREACHABLE, **numbers)


def departure_of(agent: Agent, leave_by: float, now: float) -> Reason:
    """The reason that the kernels of an agent have to leave it at ``leave_by``."""
    in_s = max(round(leave_by - now), 0)
    return reason(ReasonCode.TO_LEAVE, agent=agent.name, note=agent.bar_note, in_s=in_s)
