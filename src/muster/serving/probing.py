"""The meaning of probes for a replica's health (design: Deployments and routes)."""

from dataclasses import dataclass
from enum import StrEnum
from math import floor

from muster.core.specs.serving import ProbeSide, ProbeSpec
from muster.core.states.deployment import RouteStatus
from muster.serving.why import Why, why


class HealthVerdict(StrEnum):
    """The verdict on a replica that is probed."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    STALE = "stale"  # nothing is known any more
    FAILED_TO_START = "failed to start"
    NOTHING = "nothing"  # its status stays


class HealthCode(StrEnum):
    """The whys of verdicts, with their numbers."""

    GOOD = "good"  # streak, threshold
    BAD = "bad"  # streak, threshold
    NEVER_PROBED = "never probed"
    STALE = "stale"  # limit_s
    IN_INITIAL_DELAY = "in initial delay"  # limit_s
    STARTING = "starting"  # limit_s
    NEVER_GOOD = "never good"  # limit_s


@dataclass(frozen=True, slots=True)
class LastProbe:
    """The last completed probe of a replica.

    Args:
        good: whether it was good.
        streak: probes in a row, this one included, that were as good or bad.
        age_s: seconds since its completion.
    """

    good: bool
    streak: int
    age_s: float


class Weight(StrEnum):
    """The weight of a probe from the controller's side."""

    COUNTS = "counts"
    IGNORED = "ignored"  # what the agent finds counts
    ASKS_AGENT = "asks agent"  # it is ignored, and the agent is to probe from now on
    ENDS_ASKING = "ends asking"  # it counts, and the agent is to probe no more


@dataclass(frozen=True, slots=True)
class Asked:
    """An agent that is asked to probe a replica on its machine.

    Args:
        for_s: since when, in seconds.
        answered: whether it ever told of a probe.
    """

    for_s: float
    answered: bool


def weigh(
    probe: ProbeSpec, *, good: bool, reached: bool, asked: Asked | None, may_ask: bool
) -> Weight:
    """The weight of a probe from the controller's side.

    One that does not reach the replica's machine tells of the way, not of the replica. So the agent
    is asked, and once it answers it counts until a probe from this side is good again; one that
    does not answer is not waited for longer than knowledge stays fresh.

    Args:
        reached: whether the probe reached the replica's machine.
        asked: the agent, if it is asked already.
        may_ask: whether there is one that may be asked.
    """
    if probe.side is not ProbeSide.AUTO:
        return Weight.COUNTS if probe.side is ProbeSide.CONTROLLER else Weight.IGNORED
    if asked is None:
        return Weight.ASKS_AGENT if may_ask and not reached else Weight.COUNTS
    if good:
        return Weight.ENDS_ASKING
    if asked.answered:
        return Weight.IGNORED
    return Weight.COUNTS if reached or asked.for_s > probe.stale_after_s() else Weight.IGNORED


@dataclass(frozen=True, slots=True)
class Health:
    """A verdict and why."""

    verdict: HealthVerdict
    why: Why[HealthCode]


def judge(
    probe: ProbeSpec,
    status: RouteStatus,
    last: LastProbe | None,
    started_s: float,
    was_good: bool,
    unheard_s: float,
) -> Health:
    """The verdict on a replica whose session runs. Only fresh probes say anything of it, and before
    the first good one bad ones say only, in the end, that it failed to start.

    Args:
        last: None if none was completed.
        started_s: how long ago its session began to run.
        was_good: whether it was ever healthy.
        unheard_s: for how long this controller has had it probed; one that has just begun keeps
            what the former one found.
    """
    if last is None and (status is RouteStatus.DEGRADED or unheard_s < probe.stale_after_s()):
        return Health(HealthVerdict.NOTHING, why(HealthCode.NEVER_PROBED))
    if last is None or last.age_s > probe.stale_after_s():
        verdict = HealthVerdict.NOTHING if status is RouteStatus.DEGRADED else HealthVerdict.STALE
        return Health(verdict, why(HealthCode.STALE, limit_s=probe.stale_after_s()))
    if last.good:
        enough = last.streak >= probe.healthy_threshold and status is not RouteStatus.HEALTHY
        return Health(
            HealthVerdict.HEALTHY if enough else HealthVerdict.NOTHING,
            why(HealthCode.GOOD, streak=last.streak, threshold=probe.healthy_threshold),
        )
    if not was_good:
        if started_s >= max(probe.start_timeout, probe.initial_delay):
            limit = probe.start_timeout
            return Health(HealthVerdict.FAILED_TO_START, why(HealthCode.NEVER_GOOD, limit_s=limit))
        return Health(HealthVerdict.NOTHING, why(HealthCode.STARTING, limit_s=probe.start_timeout))
    bad = _counted(probe, last, started_s)
    if not bad:
        limit = probe.initial_delay
        return Health(HealthVerdict.NOTHING, why(HealthCode.IN_INITIAL_DELAY, limit_s=limit))
    enough = bad >= probe.unhealthy_threshold and status is not RouteStatus.UNHEALTHY
    return Health(
        HealthVerdict.UNHEALTHY if enough else HealthVerdict.NOTHING,
        why(HealthCode.BAD, streak=bad, threshold=probe.unhealthy_threshold),
    )


def evicts(probe: ProbeSpec, unhealthy_s: float, fresh: bool) -> bool:
    """Whether a replica that has been UNHEALTHY for so long is replaced; not while nothing new is
    known of it.

    Args:
        fresh: whether its last completed probe is young enough to be judged by.
    """
    return fresh and unhealthy_s >= probe.evict_after


def is_fresh(probe: ProbeSpec, last: LastProbe | None) -> bool:
    """Whether a probe is young enough for a replica to be judged by."""
    return last is not None and last.age_s <= probe.stale_after_s()


def _counted(probe: ProbeSpec, last: LastProbe, started_s: float) -> int:
    """The bad probes in a row, without those of the initial delay."""
    after_s = started_s - last.age_s - probe.initial_delay
    return 0 if after_s < 0 else min(last.streak, 1 + floor(after_s / probe.interval))
