"""The meaning of probes."""

import pytest

from muster.core.specs.serving import ProbeSide, ProbeSpec
from muster.core.states.deployment import RouteStatus
from muster.serving.probing import (
    Asked,
    HealthCode,
    HealthVerdict,
    LastProbe,
    evicts,
    is_fresh,
    judge,
    weigh,
)

PROBE = ProbeSpec(
    interval=5.0,
    timeout=3.0,
    healthy_threshold=2,
    unhealthy_threshold=3,
    initial_delay=60.0,
    start_timeout=300.0,
    evict_after=60.0,
)
STALE_S = 24.0
H, U, D = RouteStatus.HEALTHY, RouteStatus.UNHEALTHY, RouteStatus.DEGRADED


def good(streak: int, age_s: float = 1.0) -> LastProbe:
    return LastProbe(True, streak, age_s)


def bad(streak: int, age_s: float = 1.0) -> LastProbe:
    return LastProbe(False, streak, age_s)


@pytest.mark.parametrize(
    ("status", "last", "started_s", "was_good", "verdict", "code"),
    [
        # nothing is known
        (D, None, 5.0, False, "nothing", "never probed"),
        (D, None, 9000.0, False, "nothing", "never probed"),  # the prober may be blind
        (H, good(9, STALE_S), 9000.0, True, "nothing", "good"),
        (H, good(9, STALE_S + 0.1), 9000.0, True, "stale", "stale"),
        (U, bad(9, STALE_S + 0.1), 9000.0, True, "stale", "stale"),
        (D, bad(9, STALE_S + 0.1), 9000.0, False, "nothing", "stale"),
        # good ones
        (D, good(1), 10.0, False, "nothing", "good"),
        (D, good(2), 10.0, False, "healthy", "good"),
        (U, good(1), 900.0, True, "nothing", "good"),
        (U, good(2), 900.0, True, "healthy", "good"),
        (H, good(500), 900.0, True, "nothing", "good"),
        # bad ones before the first good one
        (D, bad(50), 299.0, False, "nothing", "starting"),
        (D, bad(1), 300.0, False, "failed to start", "never good"),
        (D, good(1), 300.0, False, "nothing", "good"),
        # bad ones afterwards
        (H, bad(2), 900.0, True, "nothing", "bad"),
        (H, bad(3), 900.0, True, "unhealthy", "bad"),
        (D, bad(3), 900.0, True, "unhealthy", "bad"),
        (U, bad(9), 900.0, True, "nothing", "bad"),
        # bad ones in the initial delay do not count, not even later
        (H, bad(9), 60.5, True, "nothing", "in initial delay"),
        (H, bad(9), 61.0, True, "nothing", "bad"),
        (H, bad(9), 70.9, True, "nothing", "bad"),
        (H, bad(9), 71.0, True, "unhealthy", "bad"),
    ],
)
def test_verdicts(
    status: RouteStatus,
    last: LastProbe | None,
    started_s: float,
    was_good: bool,
    verdict: str,
    code: str,
) -> None:
    health = judge(PROBE, status, last, started_s, was_good, unheard_s=0.0)
    assert (health.verdict, health.why.code) == (HealthVerdict(verdict), HealthCode(code))


@pytest.mark.parametrize(
    ("status", "unheard_s", "verdict", "code"),
    [
        (H, STALE_S - 0.1, "nothing", "never probed"),
        (U, STALE_S - 0.1, "nothing", "never probed"),
        (H, STALE_S, "stale", "stale"),
        (U, STALE_S, "stale", "stale"),
        (D, STALE_S, "nothing", "never probed"),
    ],
)
def test_controller_that_has_just_begun_keeps_what_the_former_one_found(
    status: RouteStatus, unheard_s: float, verdict: str, code: str
) -> None:
    health = judge(PROBE, status, None, 9000.0, True, unheard_s)
    assert (health.verdict, health.why.code) == (HealthVerdict(verdict), HealthCode(code))


def test_verdict_tells_its_numbers() -> None:
    health = judge(PROBE, H, bad(4), 900.0, was_good=True, unheard_s=0.0)
    assert dict(health.why.numbers) == {"streak": 4, "threshold": 3}


@pytest.mark.parametrize(
    ("unhealthy_s", "fresh", "expected"),
    [(59.9, True, False), (60.0, True, True), (9000.0, False, False)],
)
def test_nobody_is_evicted_too_early_or_on_old_knowledge(
    unhealthy_s: float, fresh: bool, expected: bool
) -> None:
    assert evicts(PROBE, unhealthy_s, fresh) is expected


def test_probe_is_fresh_for_three_intervals() -> None:
    assert is_fresh(PROBE, good(1, STALE_S))
    assert not is_fresh(PROBE, good(1, STALE_S + 0.1))
    assert not is_fresh(PROBE, None)


@pytest.mark.parametrize(
    ("side", "good", "reached", "asked", "may_ask", "weight"),
    [
        ("controller", False, False, None, True, "counts"),
        ("agent", True, True, Asked(1.0, True), True, "ignored"),
        ("auto", False, True, None, True, "counts"),  # the replica's own fault
        ("auto", False, False, None, False, "counts"),  # nobody else can tell
        ("auto", False, False, None, True, "asks agent"),
        ("auto", False, False, Asked(STALE_S, False), True, "ignored"),
        ("auto", False, False, Asked(STALE_S + 0.1, False), True, "counts"),
        ("auto", False, True, Asked(1.0, False), True, "counts"),
        ("auto", False, False, Asked(9000.0, True), True, "ignored"),
        ("auto", False, True, Asked(9000.0, True), True, "ignored"),  # a wall that refuses
        ("auto", True, True, Asked(9000.0, True), True, "ends asking"),
    ],
)
def test_weight_of_a_probe_from_the_controllers_side(
    side: str, good: bool, reached: bool, asked: Asked | None, may_ask: bool, weight: str
) -> None:
    probe = PROBE.model_copy(update={"side": ProbeSide(side)})
    assert weigh(probe, good=good, reached=reached, asked=asked, may_ask=may_ask) == weight
