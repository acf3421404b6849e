"""The sentences by which `muster why` tells the state of an incident: what is waited for, and until
when. As in ``core.sentences``, the controller forms them when it answers."""

from muster.core.states.health import HEALTH_TABLE, HealthStatus
from muster.core.text import count, duration


def incident(agent: str, status: HealthStatus, for_s: float) -> str:
    """An incident that has not ended.

    Args:
        for_s: how long it has had this status.
    """
    return f"agent {agent} {HEALTH_TABLE.words[status]}, for {duration(for_s)}"


def ended(agent: str, status: HealthStatus, lasted_s: float, rounds: int) -> str:
    """An incident that has ended."""
    if status is HealthStatus.GONE:
        return f"agent {agent} was removed, {duration(lasted_s)} after the incident began"
    healed = f" and {count(rounds, 'round')} of healing" if rounds else ""
    return f"agent {agent} is healthy again, after {duration(lasted_s)}{healed}"


def work_leaves(kernels: int, in_s: float | None) -> str:
    """The work that has to leave a machine before it is checked or healed.

    Args:
        in_s: the time until it is stopped; None where it may run to its end.
    """
    work = f"{count(kernels, 'kernel')} still {'holds' if kernels == 1 else 'hold'} room there"
    if in_s is None:
        return f"{work}, and may run to the end"
    return f"{work}, and may stay for {duration(in_s)}" if in_s > 0 else f"{work}, told to leave"


def soon(done: str) -> str:
    """A machine that is to be checked or healed.

    Args:
        done: "checked", "reset", "healed".
    """
    return f"it is {done} once nothing is in the way any more"


def tried_again(done: str, in_s: float) -> str:
    """A machine that is checked, or healed, after a wait; ``done`` is as for ``soon``."""
    return f"it is {done} in {duration(in_s)}"


def under_way(what: str, for_s: float, left_s: float) -> str:
    """A step of healing that has a limit.

    Args:
        what: "the check", "the reset".
        for_s: how long it has been under way.
        left_s: how long it may still take.
    """
    until = f"has failed unless it ends within {duration(left_s)}" if left_s > 0 else "is overdue"
    return f"{what} has taken {duration(for_s)}, and {until}"


def rebooting(for_s: float, left_s: float, *, hard: bool) -> str:
    """A machine that was told to reboot, or is rebooted from outside.

    Args:
        left_s: how long it may still take until it is back.
    """
    how = "a reboot from outside was asked for" if hard else "it was told to reboot"
    within = f"within {duration(left_s)}" if left_s > 0 else "any moment, or the reboot has failed"
    return f"{how} {duration(for_s)} ago: another boot of it has to join {within}"


def isolated() -> str:
    return "nothing is tried any more: it waits for an operator's decision"


def check_needs_turn() -> str:
    """A machine whose check needed no turn and found out nothing."""
    return "a check found out nothing, and the next one needs a turn unless nothing runs there"


def rounds(tried: int, most: int) -> str:
    was = "was" if tried == 1 else "were"
    return f"{count(tried, 'round')} of healing {was} tried, of at most {most:,}"


def unknowns(checks: int, most: int) -> str:
    """Checks that found out nothing; after ``most`` in a row the machine counts as faulty."""
    return (
        f"{count(checks, 'check')} in a row found out nothing; after {most:,} it counts as faulty"
    )


def last_check(ago_s: float, sentence: str) -> str:
    return f"the last check, {duration(ago_s)} ago: {sentence}"
