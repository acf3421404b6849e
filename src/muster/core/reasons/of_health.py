"""Texts of the reasons that incidents have: why a machine is under suspicion, what its checks
found, and what came of healing it. None names a job, because people see the incidents of machines
on which others' jobs ran."""

from collections.abc import Mapping

from muster.core.reasons.codes import ReasonCode
from muster.core.reasons.definition import OPERATOR as _O
from muster.core.reasons.definition import WAITING as _W
from muster.core.reasons.definition import Definition

_BACK = (
    "`muster agents heal {agent}` has it rebooted and checked, `muster agents return {agent}` has "
    "it take work again as it is."
)

OF_HEALTH: Mapping[ReasonCode, Definition] = {
    # Why it is under suspicion
    ReasonCode.HEALTH_TASK_FAILED: Definition(_W, "a task failed on it"),
    ReasonCode.HEALTH_SEEN: Definition(_W, "{what}"),
    ReasonCode.HEALTH_ASKED: Definition(_W, "{by} has it checked{note:? ({note})}"),
    ReasonCode.HEALTH_HEAL_ASKED: Definition(_W, "{by} has it healed{note:? ({note})}"),
    # What it waits for
    ReasonCode.HEALTH_WAITS_TURN: Definition(
        _W,
        "{faulty:?it is known to be faulty, takes no work, and waits for its turn to be healed}"
        "{faulty:!it takes work until it is its turn}: {out} of at most {most:machine} of group "
        "{group} are being emptied, checked or healed",
        "Its turn comes when another machine is back. An operator can raise "
        "`health.max_unhealthy` of the group.",
    ),
    ReasonCode.HEALTH_WAITS_EMPTY: Definition(
        _W, "it would have to itself what {kernels:kernel} of agent {agent} still hold"
    ),
    # What checks found
    ReasonCode.HEALTH_WELL: Definition(_W, "{verdict}"),
    ReasonCode.HEALTH_UNKNOWN: Definition(_W, "the check found out nothing: {verdict}"),
    ReasonCode.HEALTH_MANY_UNKNOWN: Definition(
        _O,
        "the check found out nothing: {verdict}; nothing is known of {unknown} of the "
        "{machines:machine} of group {group} at once, so the checks rather than the machines may "
        "be at fault, and no machine is healed for that",
        "Look at what the checks say: `muster agents show {agent}`.",
    ),
    ReasonCode.HEALTH_FAULTY: Definition(_W, "{verdict}"),
    # What came of healing
    ReasonCode.HEALTH_HEALS: Definition(
        _W, "agent {agent} has to be empty, because it is to be checked or healed"
    ),
    ReasonCode.HEALTH_HEALED: Definition(_W, "the {heal} is done"),
    ReasonCode.HEALTH_HEAL_FAILED: Definition(_W, "the {heal} failed: {how}"),
    ReasonCode.HEALTH_NOT_BACK: Definition(
        _W, "no other boot of it has joined within {timeout_s:~} of the {heal}"
    ),
    ReasonCode.HEALTH_NOT_EMPTY: Definition(
        _W, "work was still there {waited_s:~} after it had to leave"
    ),
    ReasonCode.HEALTH_SILENT: Definition(_W, "it could not be reached for {silent_s:~}"),
    ReasonCode.HEALTH_GAVE_UP: Definition(
        _O,
        "nothing is left to try after {rounds:round} of healing: {told}",
        _BACK,
    ),
    ReasonCode.HEALTH_NO_TURN: Definition(  # of incidents that earlier versions stored
        _O,
        "it is known to be faulty, and no turn to be healed came for {waited_s:~}, because "
        "{isolated:isolated machine} of group {group} held all turns",
        _BACK,
    ),
    ReasonCode.HEALTH_FOR_OPERATOR: Definition(_O, "this is for an operator: {told}", _BACK),
    # How an incident ended
    ReasonCode.HEALTH_ISOLATED_BY: Definition(_O, "isolated by {by}{note:? ({note})}", _BACK),
    ReasonCode.HEALTH_RETURNED_BY: Definition(
        _W, "{by} has it take work again as it is{note:? ({note})}"
    ),
    ReasonCode.HEALTH_LAPSED: Definition(
        _W, "its turn to be checked did not come for {waited_s:~}, in which nothing else was found"
    ),
    ReasonCode.HEALTH_LET_BE: Definition(
        _W,
        "work goes on on it after {waited_s:~}, and none has to leave for what nothing confirms",
    ),
    ReasonCode.HEALTH_UNPROVEN: Definition(
        _O,
        "it takes work again though nothing could be found out about it: {told}; nothing tells of "
        "a fault, it cannot be healed, and for {pause_s:~} a fault alone has it checked again",
        "Have its checks work, or leave them out: `health.checks` of the group. "
        "`muster agents check {agent}` tries again at once.",
    ),
    ReasonCode.HEALTH_UNCHECKED: Definition(
        _O,
        "it takes work again unchecked, as it has none of the checks of group {group}: {told}; "
        "for {pause_s:~} a fault alone has it checked again",
        "Install the checks there, or name others in `health.checks` of the group. "
        "`muster agents check {agent}` tries again at once.",
    ),
    ReasonCode.HEALTH_NO_CHECK: Definition(
        _O,
        "check {check} of group {group} is missing on {agents:connected agent}, such as {agent}; "
        "the others decide there",
        "Install it there, or leave it out of `health.checks` of the group.",
    ),
    ReasonCode.HEALTH_REMOVED: Definition(_W, "the agent was removed"),
    # Of the gang that runs on it, told to those who see the gang
    ReasonCode.STRAGGLER: Definition(
        _W,
        "{member} may hold up its gang: GPU {device} of agent {agent} is unlike the others, {what}",
        "Nothing happens by itself. An operator can have the machine checked, for which its work "
        "leaves: `muster agents check {agent}`.",
    ),
    ReasonCode.HEALTH_REPLACED: Definition(
        _W, "machine {machine} is isolated, because healing it did not help"
    ),
}
