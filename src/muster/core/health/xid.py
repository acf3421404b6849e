"""The action that follows an Xid: what the catalogue, the driver and the same GPU's last day say
(source: Xid Catalog).

Everything here is a function of events and of the seconds between them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from muster.core.health.kernel_log import ErrorKind, XidEvent
from muster.core.health.xid_catalogue import CATALOGUE, XidAction

ACTION_CHANGED = 154
"""The Xid by which the driver names the action for the Xids before it."""
BURST_S = 60.0
"""Seconds within which the Xids of one GPU are parts of one mishap."""
DAY_S = 86_400.0
"""Seconds within which a mishap of one GPU that comes again is escalated."""
MAX_REMEMBERED = 64
"""Events of one GPU that are remembered, at most."""

_CLEAN_UP = 45
_RESET_AT_ONCE = frozenset({48})
_ESCALATED: Mapping[XidAction, XidAction] = {
    XidAction.APPLICATION: XidAction.CHECK,
    XidAction.CHECK: XidAction.RESET,
    XidAction.RESET: XidAction.REBOOT,
    XidAction.REBOOT: XidAction.OPERATOR,
}
"""The next step for an action that did not last; the others stay as they are."""

_NAMED: Mapping[int, XidAction] = {
    0: XidAction.IGNORE,
    1: XidAction.RESET,
    2: XidAction.REBOOT,
    3: XidAction.CHECK,  # ends peer-to-peer traffic: the agent takes no work, and is looked at
    4: XidAction.RESET,  # after the same
    5: XidAction.OPERATOR,  # of a domain of several machines
    6: XidAction.RESET,  # of the bus
    7: XidAction.REBOOT,
}
"""The actions by NVML's numbers of them, which Xid 154 tells too."""
_CHANGED = re.compile(r"changed from 0x[0-9a-fA-F]{1,8} \([^()]{0,64}\) to 0x([0-9a-fA-F]{1,8})")
_WORDS = 1000


@dataclass(frozen=True, slots=True)
class XidDecision:
    """The action that follows an event, and a sentence that says why. ``WORKFLOW`` is none of
    them: it is resolved here."""

    action: XidAction
    why: str


def named_action(number: int) -> XidAction:
    """The action for a number of NVML's recovery actions; a check for one that is not known."""
    return _NAMED.get(number, XidAction.CHECK)


def action_in(event: XidEvent) -> XidAction | None:
    """The action that an event with number ``ACTION_CHANGED`` names; None for any other event. It
    is told by its number, because drivers word it differently."""
    if event.number != ACTION_CHANGED:
        return None
    found = _CHANGED.search(event.detail[:_WORDS])
    return XidAction.CHECK if found is None else named_action(int(found[1], 16))


def decide(
    event: XidEvent, recent: Sequence[XidEvent] = (), told: XidAction | None = None
) -> XidDecision:
    """The action that follows an event. All times are of one clock: events that are kept over a
    reboot have to be put on one that goes on.

    Args:
        recent: the other events of the same GPU, as ``remembered`` keeps them; those of more than
            a day before, or after the event's burst, do not matter.
        told: the action that NVML names for the GPU now, if it was asked.
    """
    if event.kind is not ErrorKind.XID:
        return _beside_catalogue(event)
    recent = recent[-MAX_REMEMBERED:]
    near = [each for each in recent if abs(each.at_s - event.at_s) <= BURST_S]
    decision = _by_driver(event, near, told) or _by_catalogue(event, near)
    if decision.action not in _ESCALATED or event.number not in CATALOGUE:
        return decision
    before = [
        each for each in recent if BURST_S < event.at_s - each.at_s <= DAY_S and each is not event
    ]
    if not any(_own_action(each, before) is decision.action for each in before):
        return decision
    action = _ESCALATED[decision.action]
    return XidDecision(
        action,
        f"{decision.why}; {decision.action} was due on this GPU within the last day already, so it "
        f"is {action} now",
    )


def remembered(recent: Iterable[XidEvent], event: XidEvent) -> tuple[XidEvent, ...]:
    """The events of a GPU to be kept for later decisions, ``event`` among them: those of the last
    day, the newest ``MAX_REMEMBERED`` of them."""
    kept = [each for each in (*recent, event) if event.at_s - each.at_s <= DAY_S]
    return tuple(kept[-MAX_REMEMBERED:])


def _by_driver(
    event: XidEvent, near: Sequence[XidEvent], told: XidAction | None
) -> XidDecision | None:
    """The action that the driver names, in an event or when it is asked; that nothing is to be
    done takes nothing back."""
    own = action_in(event)
    if own is not None:
        return XidDecision(own, f"Xid {ACTION_CHANGED}: the driver asks for {own}")
    if told is not None and told is not XidAction.IGNORE:
        return XidDecision(told, f"Xid {event.number}: NVML names {told} for this GPU")
    changes = [each for each in near if each.number == ACTION_CHANGED and each.at_s >= event.at_s]
    last = action_in(max(changes, key=lambda each: each.at_s)) if changes else None
    if last is not None and last is not XidAction.IGNORE:
        return XidDecision(last, f"Xid {event.number}: Xid {ACTION_CHANGED} after it names {last}")
    return None


def _beside_catalogue(event: XidEvent) -> XidDecision:
    """The action that follows an error which is no Xid. NVML confirms none of these."""
    said = described(event)
    if event.kind is ErrorKind.NOT_STARTED:
        return XidDecision(XidAction.CHECK, f"{said}: the driver could not start the GPU")
    if not event.fatal:
        return XidDecision(XidAction.IGNORE, f"{said}: the driver says that it is not fatal")
    why = "the driver calls it fatal, so GPUs may not reach each other"
    return XidDecision(XidAction.CHECK, f"{said}: {why}")


def described(event: XidEvent) -> str:
    """An error in words: its number, and what it means."""
    if event.kind is ErrorKind.NOT_STARTED:
        return event.detail
    if event.kind is ErrorKind.SXID:
        detail = f", {event.detail}" if event.detail else ""
        return f"SXid {event.number} of NVSwitch {event.switch}{detail}"
    known = CATALOGUE.get(event.number)
    return f"Xid {event.number}" + (f", {known.description}" if known is not None else "")


def _by_catalogue(event: XidEvent, near: Sequence[XidEvent]) -> XidDecision:
    known = CATALOGUE.get(event.number)
    if known is None:
        return XidDecision(
            XidAction.CHECK,
            f"Xid {event.number} is not in NVIDIA's catalogue, so the GPU is checked",
        )
    said = described(event)
    if known.action is not XidAction.WORKFLOW:
        by = known.bucket or "no action"
        return XidDecision(known.action, f"{said}: NVIDIA's catalogue gives {by}")
    if event.number in _RESET_AT_ONCE:
        return XidDecision(XidAction.RESET, f"{said}: the error stays until the GPU is reset")
    if event.number == _CLEAN_UP and any(each.number != _CLEAN_UP for each in near):
        return XidDecision(XidAction.IGNORE, f"{said}: that other error counts")
    return XidDecision(XidAction.CHECK, f"{said}: what it asks for depends on the GPU's state")


def _own_action(event: XidEvent, others: Sequence[XidEvent]) -> XidAction:
    """The action that followed an event at its time, without its escalation."""
    near = [each for each in others if abs(each.at_s - event.at_s) <= BURST_S]
    return (_by_driver(event, near, None) or _by_catalogue(event, near)).action
