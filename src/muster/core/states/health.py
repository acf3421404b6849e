"""States of an incident: one stretch of a machine's ill health, from the first suspicion to its
verified return (design: Machine health)."""

from collections.abc import Mapping
from enum import StrEnum

from muster.core.states.table import StateTable


class HealthStatus(StrEnum):
    """A machine without an incident is healthy. While it has one it takes no work, whatever its
    connection, unless a mere suspicion waits for its turn; the incident goes on whatever becomes of
    the job that found it."""

    SUSPECT = "SUSPECT"  # something speaks against it; its work leaves, or ends by itself
    CHECKING = "CHECKING"
    RESETTING = "RESETTING"  # the devices at fault are being reset
    REBOOTING = "REBOOTING"  # until another boot of it has joined
    VERIFYING = "VERIFYING"  # it was reset or rebooted, and is checked again
    ISOLATED = "ISOLATED"  # an operator has to look; nothing is tried any more
    HEALTHY = "HEALTHY"
    GONE = "GONE"  # the machine was removed, or deleted with its slice


_H = HealthStatus

HEALTH_TABLE: StateTable[HealthStatus] = StateTable(
    "incident",
    initial=_H.SUSPECT,
    terminal=frozenset({_H.HEALTHY, _H.GONE}),
    allowed={
        (_H.SUSPECT, _H.CHECKING): "its devices are free",
        (_H.SUSPECT, _H.RESETTING): "what was seen calls for a reset",
        (_H.SUSPECT, _H.REBOOTING): "what was seen calls for a reboot",
        (_H.SUSPECT, _H.ISOLATED): "for an operator, or one says so",
        (_H.SUSPECT, _H.HEALTHY): "an operator returns it, or nothing came of it",
        (_H.CHECKING, _H.HEALTHY): "found healthy, or nothing can be found out or done",
        (_H.CHECKING, _H.SUSPECT): "the check found out nothing, or a heal waits for its turn",
        (_H.CHECKING, _H.RESETTING): "faulty: reset",
        (_H.CHECKING, _H.REBOOTING): "faulty: reboot",
        (_H.CHECKING, _H.ISOLATED): "faulty: for an operator",
        (_H.RESETTING, _H.VERIFYING): "reset",
        (_H.RESETTING, _H.REBOOTING): "the reset failed",
        (_H.RESETTING, _H.HEALTHY): "an operator returns it, or it failed without a known fault",
        (_H.RESETTING, _H.ISOLATED): "an operator says so",
        (_H.REBOOTING, _H.VERIFYING): "another boot of it has joined",
        (_H.REBOOTING, _H.HEALTHY): "an operator returns it, or it failed without a known fault",
        (_H.REBOOTING, _H.ISOLATED): "it did not return",
        (_H.VERIFYING, _H.HEALTHY): "found healthy",
        (_H.VERIFYING, _H.RESETTING): "still faulty: reset",
        (_H.VERIFYING, _H.REBOOTING): "still faulty: reboot",
        (_H.VERIFYING, _H.ISOLATED): "still faulty after the last round",
        (_H.ISOLATED, _H.SUSPECT): "an operator has it checked",
        (_H.ISOLATED, _H.REBOOTING): "an operator has it rebooted",
        (_H.ISOLATED, _H.HEALTHY): "an operator returns it",
    }
    | {
        (state, _H.GONE): "removed"
        for state in (
            _H.SUSPECT,
            _H.CHECKING,
            _H.RESETTING,
            _H.REBOOTING,
            _H.VERIFYING,
            _H.ISOLATED,
        )
    },
    words={
        _H.SUSPECT: "is under suspicion",
        _H.CHECKING: "is being checked",
        _H.RESETTING: "has its devices reset",
        _H.REBOOTING: "is being rebooted",
        _H.VERIFYING: "is checked once more",
        _H.ISOLATED: "is isolated for an operator",
        _H.HEALTHY: "is healthy again",
        _H.GONE: "is gone",
    },
)

ILL: Mapping[HealthStatus, str] = {
    _H.SUSPECT: "under suspicion",
    _H.CHECKING: "being checked",
    _H.RESETTING: "being reset",
    _H.REBOOTING: "being rebooted",
    _H.VERIFYING: "being verified",
    _H.ISOLATED: "isolated",
}
"""Why a machine takes no work, by the status of its incident: ``Agent.ill``, and a machine's status
where people are told how many take none."""
