"""Reasons: why something does not start, why it ended (design: Typed reasons).

A reason is an instance of its code's class, in the module of its entity (``of_tasks``,
``of_pools``). Hot paths make and compare reasons; a sentence is formed only when somebody looks.
"""

from muster.core.reasons.codes import (
    DISPLACED,
    ENDED_WELL,
    NEEDS_AGENT,
    OF_SPECS,
    QUOTA_WAITS,
    WHO_ACTS,
    ReasonCode,
    ReasonKind,
)
from muster.core.reasons.reason import Reason

__all__ = [
    "DISPLACED",
    "ENDED_WELL",
    "NEEDS_AGENT",
    "OF_SPECS",
    "QUOTA_WAITS",
    "WHO_ACTS",
    "Reason",
    "ReasonCode",
    "ReasonKind",
]
