"""The catalogue of reasons: why something does not start, why it ended (design: Typed reasons).

A reason is a code with its numbers. Hot paths make and compare them; a sentence is formed only when
somebody looks.
"""

from muster.core.reasons.catalogue import CATALOGUE
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
from muster.core.reasons.definition import Definition
from muster.core.reasons.sentences import PRICE, Reason, reason

__all__ = [
    "CATALOGUE",
    "DISPLACED",
    "ENDED_WELL",
    "NEEDS_AGENT",
    "OF_SPECS",
    "PRICE",
    "QUOTA_WAITS",
    "WHO_ACTS",
    "Definition",
    "Reason",
    "ReasonCode",
    "ReasonKind",
    "reason",
]
