"""The moments at which targets are probed."""

import pytest

from muster.probing.targets import FIRST_WITHIN_S, ProbedAddress

NOW_S = 12_345.678


def target(number: int, interval_s: float) -> ProbedAddress:
    return ProbedAddress(f"rou-{number}", 1, "127.0.0.1", 80, interval_s, 1.0, b"", ())


@pytest.mark.parametrize("interval_s", [0.1, 1.0, 5.0, 60.0, 3600.0])
def test_targets_that_begin_together_are_spread(interval_s: float) -> None:
    targets = [target(number, interval_s) for number in range(1000)]
    for each in targets:
        each.begin_at(NOW_S)
    within_s = min(interval_s, FIRST_WITHIN_S)
    assert crowd([each.due_s for each in targets], NOW_S, within_s / 20) < 100
    for each in targets:
        each.go_on_at(each.due_s + 0.01)
    seconds = [each.due_s for each in targets]
    assert crowd(seconds, NOW_S, interval_s / 20) < 100
    for each in targets:
        each.go_on_at(each.due_s + 0.01)
    gaps = [each.due_s - before for each, before in zip(targets, seconds, strict=True)]
    assert gaps == pytest.approx([interval_s] * 1000)


def test_targets_come_at_the_same_moments_after_a_restart() -> None:
    before, after = target(7, 10.0), target(7, 10.0)
    before.begin_at(NOW_S)
    after.begin_at(NOW_S + 123.4)
    for _ in range(30):
        before.go_on_at(before.due_s)
        after.go_on_at(after.due_s)
    assert (after.due_s - before.due_s) % 10.0 == pytest.approx(0.0, abs=1e-6) or (
        after.due_s - before.due_s
    ) % 10.0 == pytest.approx(10.0)


def test_moments_that_have_passed_are_left_out() -> None:
    late = target(3, 1.0)
    late.begin_at(NOW_S)
    due_s = late.due_s
    late.go_on_at(due_s + 7.3)
    assert due_s + 7.3 < late.due_s <= due_s + 8.3


def crowd(moments: list[float], begin_s: float, within_s: float) -> int:
    """The most moments in one of the spans of this length."""
    spans: dict[int, int] = {}
    for moment in moments:
        span = int((moment - begin_s) / within_s)
        spans[span] = spans.get(span, 0) + 1
    return max(spans.values())
