"""Texts of the reasons that the health of machines has: why a machine is looked at, and what comes
of it."""

from collections.abc import Mapping

from muster.core.reasons.codes import ReasonCode
from muster.core.reasons.definition import WAITING as _W
from muster.core.reasons.definition import Definition

OF_HEALTH: Mapping[ReasonCode, Definition] = {
    ReasonCode.HEALTH_WAITS_EMPTY: Definition(
        _W, "it would have to itself what {kernels:kernel} of agent {agent} still hold"
    ),
}
