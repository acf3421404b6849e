"""The health ladder: the next step of a machine under suspicion. Pure functions.

healthy → suspect → checking → resetting | rebooting → verifying → healthy, or isolated for an
operator once its rounds are used up (design: Machine health).
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from muster.core.health.remedy import Remedy
from muster.core.health.verdict import CheckResult
from muster.core.states.health import HealthStatus


class Heal(IntEnum):
    """The means to heal a machine, from the mildest to the strongest."""

    RESET = 1  # the devices at fault
    REBOOT = 2  # the machine reboots itself
    HARD_REBOOT = 3  # its provider, or an operator's command, reboots it


_HEALED_BY = {Heal.RESET: "reset", Heal.REBOOT: "reboot", Heal.HARD_REBOOT: "hard reboot"}
_LEAST = {Remedy.CHECK: Heal.REBOOT, Remedy.RESET: Heal.RESET, Remedy.REBOOT: Heal.REBOOT}
"""The mildest means that helps, by the remedy; a fault of which nobody knows the remedy leads to a
reboot (source: ECS GPU Recovery)."""


def words(heal: Heal | None) -> str:
    """A heal, for people."""
    return "heal" if heal is None else _HEALED_BY[heal]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one machine's healing.

    Args:
        rounds: as often a machine is healed and verified before an operator has to look.
        unknowns: checks in a row that may find out nothing, before the machine counts as faulty.
    """

    rounds: int = 3
    unknowns: int = 3


@dataclass(frozen=True, slots=True)
class Progress:
    """The steps that an incident has taken.

    Args:
        rounds: heals that were tried.
        unknowns: checks in a row that found out nothing.
        last: the heal of the last round, None before the first.
        remedy: the strongest remedy that a finding of this incident named.
        healed: heals that were done, whatever came of them.
    """

    rounds: int = 0
    unknowns: int = 0
    last: Heal | None = None
    remedy: Remedy = Remedy.CHECK
    healed: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """The next step: the status, and by which means it is healed where it is one of healing."""

    status: HealthStatus
    heal: Heal | None = None


CHECK_AGAIN = Step(HealthStatus.SUSPECT)
_HEALING = {
    Heal.RESET: HealthStatus.RESETTING,
    Heal.REBOOT: HealthStatus.REBOOTING,
    Heal.HARD_REBOOT: HealthStatus.REBOOTING,
}


def after_check(
    result: CheckResult, progress: Progress, means: Collection[Heal], bounds: Bounds
) -> Step:
    """The step after a verdict, with ``progress`` as it is with that verdict counted.

    A machine that was healed and of which nothing can be found out is checked again like any other;
    one that stays unknown counts as faulty.
    """
    if result is CheckResult.HEALTHY:
        return Step(HealthStatus.HEALTHY)
    if result is CheckResult.UNKNOWN and progress.unknowns < bounds.unknowns:
        return CHECK_AGAIN
    return heal(progress, means, bounds)


def is_met(progress: Progress) -> bool:
    """Whether the remedy that findings named calls for no heal that was not tried yet."""
    if progress.remedy is Remedy.OPERATOR:
        return False
    if progress.remedy is Remedy.CHECK:
        return True
    return progress.last is not None and progress.last >= _LEAST[progress.remedy]


def is_unproven(progress: Progress, *, confirmed: bool) -> bool:
    """Whether nothing is known against a machine but that its checks found out nothing, and no heal
    of it was possible. An operator is not needed for that.

    Args:
        confirmed: whether a check or the hardware itself found a fault.
    """
    return not confirmed and progress.remedy is Remedy.CHECK and not progress.healed


def heal(progress: Progress, means: Collection[Heal], bounds: Bounds) -> Step:
    """The next heal of a machine that counts as faulty; ISOLATED where nothing is left to try."""
    if progress.remedy is Remedy.OPERATOR or progress.rounds >= bounds.rounds:
        return Step(HealthStatus.ISOLATED)
    wanted = _LEAST[progress.remedy]
    if progress.last is not None:
        wanted = max(wanted, Heal(min(progress.last + 1, Heal.HARD_REBOOT)))
    stronger = [each for each in sorted(means) if each >= wanted]
    if not stronger and progress.last in means:  # the strongest once more
        stronger = [progress.last] if progress.last is not None else []
    if not stronger:
        return Step(HealthStatus.ISOLATED)
    return Step(_HEALING[stronger[0]], stronger[0])


def after_failed_heal(progress: Progress, means: Collection[Heal], bounds: Bounds) -> Step:
    """The step after a heal that failed or did not end in time: a stronger one at once, else an
    operator's."""
    stronger = [each for each in sorted(means) if progress.last is None or each > progress.last]
    if not stronger or progress.rounds >= bounds.rounds:
        return Step(HealthStatus.ISOLATED)
    return Step(_HEALING[stronger[0]], stronger[0])


@dataclass(frozen=True, slots=True)
class Wish:
    """A machine that is to be taken out of work.

    Args:
        key: of its incident.
        confirmed: whether a check or the hardware itself found a fault.
        since: when the incident began.
    """

    key: str
    confirmed: bool
    since: float


def most_out(machines: int, share: float) -> int:
    """The machines of a group that may be out of work for their health at a time."""
    return max(1, int(share * machines))


def turns(wishes: Iterable[Wish], out: int, machines: int, share: float) -> Sequence[str]:
    """The incidents whose machines may be taken out of work now, so that no more than a share of a
    group is out, one at least: confirmed faults first, then the older ones.

    A wrong check must not take the cluster away. What is not among them takes work meanwhile, and
    waits for its turn. A machine's return needs no turn.

    Args:
        out: machines of the group that incidents keep out of work already.
        machines: of the group.
        share: of the group's machines, between 0 and 1.
    """
    room = most_out(machines, share) - out
    ranked = sorted(wishes, key=lambda wish: (not wish.confirmed, wish.since, wish.key))
    return [wish.key for wish in ranked[: max(0, room)]]


def many_unknown(unknown: int, machines: int) -> bool:
    """Whether so many machines of a group are unknown at once that the checks themselves, rather
    than the machines, are likely to be at fault: then nothing is rebooted for being unknown."""
    return unknown >= 2 and unknown * 5 > machines
