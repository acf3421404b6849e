"""The action that follows an Xid."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.health.kernel_log import XidEvent
from muster.core.health.xid import (
    BURST_S,
    DAY_S,
    MAX_REMEMBERED,
    action_in,
    decide,
    named_action,
    remembered,
)
from muster.core.health.xid_catalogue import ACTIONS, CATALOGUE, XidAction

HOUR_S = 3600.0
STEPS = list(XidAction)


def xid(number: int, at_s: float = 0.0, detail: str = "") -> XidEvent:
    return XidEvent("0000:3b:00", number, detail, at_s)


def changed(to: int, words: str, at_s: float = 0.0) -> XidEvent:
    return xid(154, at_s, f"GPU recovery action changed from 0x0 (None) to {to:#x} ({words})")


@pytest.mark.parametrize(
    ("number", "action"),
    [
        (43, XidAction.IGNORE),
        (63, XidAction.IGNORE),
        (13, XidAction.APPLICATION),
        (31, XidAction.APPLICATION),
        (94, XidAction.APPLICATION),
        (48, XidAction.RESET),
        (64, XidAction.RESET),
        (95, XidAction.RESET),
        (119, XidAction.RESET),
        (79, XidAction.REBOOT),
        (54, XidAction.OPERATOR),
        (74, XidAction.CHECK),
        (149, XidAction.CHECK),
        (167, XidAction.CHECK),
    ],
)
def test_lone_xid_asks_for_what_the_catalogue_says(number: int, action: XidAction) -> None:
    assert decide(xid(number)).action is action


def test_xid_that_nobody_knows_leads_to_a_check_however_often_it_comes() -> None:
    recent = [xid(9999, at_s=hour * HOUR_S) for hour in range(20)]
    decision = decide(xid(9999, at_s=21 * HOUR_S), recent)
    assert decision.action is XidAction.CHECK
    assert "not in NVIDIA's catalogue" in decision.why


def test_number_that_the_catalogue_calls_unused_is_not_known() -> None:
    assert decide(xid(65)).action is XidAction.CHECK


@pytest.mark.parametrize(
    ("to", "words", "action"),
    [
        (0, "None", XidAction.IGNORE),
        (1, "GPU Reset Required", XidAction.RESET),
        (1, "PF FLR", XidAction.RESET),
        (2, "Node Reboot Required", XidAction.REBOOT),
        (2, "OS Reboot", XidAction.REBOOT),
        (3, "Drain P2P", XidAction.CHECK),
        (4, "Drain and Reset", XidAction.RESET),
        (5, "Recover IMEX Domain", XidAction.OPERATOR),
        (0x1F, "Something new", XidAction.CHECK),
    ],
)
def test_action_of_the_driver_is_told_by_its_number(to: int, words: str, action: XidAction) -> None:
    assert action_in(changed(to, words)) is action
    assert decide(changed(to, words)).action is action


def test_change_in_words_that_are_not_understood_leads_to_a_check() -> None:
    assert action_in(xid(154, detail="GPU needs care")) is XidAction.CHECK
    assert action_in(xid(79, detail="changed from 0x0 (None) to 0x2 (OS Reboot)")) is None


def test_action_that_the_driver_names_after_an_xid_outranks_the_catalogue() -> None:
    after = changed(2, "Node Reboot Required", at_s=1.0)
    assert decide(xid(95), [after]).action is XidAction.REBOOT
    assert decide(xid(95, at_s=2 * BURST_S), [after]).action is XidAction.RESET


def test_action_that_the_driver_named_before_an_xid_is_not_about_it() -> None:
    before = changed(2, "OS Reboot", at_s=5.0)
    assert decide(xid(31, at_s=10.0), [before]).action is XidAction.APPLICATION


def test_last_action_that_the_driver_names_counts() -> None:
    changes = [changed(2, "OS Reboot", at_s=2.0), changed(1, "PF FLR", at_s=1.0)]
    assert decide(xid(31), changes).action is XidAction.REBOOT


def test_action_that_nvml_names_outranks_the_catalogue() -> None:
    assert decide(xid(79), told=XidAction.RESET).action is XidAction.RESET
    assert decide(xid(31), told=named_action(2)).action is XidAction.REBOOT


def test_driver_that_asks_for_nothing_takes_nothing_back() -> None:
    assert decide(xid(95), told=named_action(0)).action is XidAction.RESET
    assert decide(xid(95), [changed(0, "None", at_s=1.0)]).action is XidAction.RESET


def test_clean_up_after_another_error_is_ignored_and_alone_is_checked() -> None:
    assert decide(xid(45, at_s=1.0), [xid(94)]).action is XidAction.IGNORE
    assert decide(xid(45, at_s=1.0), [xid(45)]).action is XidAction.CHECK
    assert decide(xid(45, at_s=2 * BURST_S), [xid(94)]).action is XidAction.CHECK


@pytest.mark.parametrize(
    ("number", "again"),
    [
        (31, XidAction.CHECK),
        (74, XidAction.RESET),
        (95, XidAction.REBOOT),
        (79, XidAction.OPERATOR),
        (54, XidAction.OPERATOR),
        (63, XidAction.IGNORE),
    ],
)
def test_same_need_on_one_gpu_within_a_day_goes_one_step_further(
    number: int, again: XidAction
) -> None:
    first = xid(number)
    later = decide(xid(number, at_s=HOUR_S), [first])
    assert later.action is again
    assert decide(xid(number, at_s=DAY_S + 1), [first]).action is decide(first).action


def test_escalation_says_why() -> None:
    assert decide(xid(95, at_s=HOUR_S), [xid(140)]).why == (
        "Xid 95, error of memory for all applications: NVIDIA's catalogue gives RESET_GPU; reset "
        "was due on this GPU within the last day already, so it is reboot now"
    )


def test_other_need_within_a_day_escalates_nothing() -> None:
    assert decide(xid(95, at_s=HOUR_S), [xid(31), xid(63)]).action is XidAction.RESET


def test_many_xids_of_one_mishap_are_one() -> None:
    burst = [xid(95, at_s=second) for second in range(20)]
    assert decide(xid(95, at_s=20.0), burst).action is XidAction.RESET


def test_third_time_is_no_step_further_than_the_second() -> None:
    recent = [xid(31), xid(31, at_s=HOUR_S)]
    assert decide(xid(31, at_s=2 * HOUR_S), recent).action is XidAction.CHECK


def test_events_of_one_day_are_remembered_and_not_too_many_of_them() -> None:
    kept: tuple[XidEvent, ...] = ()
    for second in range(3 * MAX_REMEMBERED):
        kept = remembered(kept, xid(31, at_s=float(second)))
    assert len(kept) == MAX_REMEMBERED
    assert kept[-1].at_s == 3 * MAX_REMEMBERED - 1
    assert remembered(kept, xid(31, at_s=2 * DAY_S)) == (xid(31, at_s=2 * DAY_S),)


def test_every_bucket_of_the_catalogue_has_an_action_and_is_used() -> None:
    assert {each.bucket for each in CATALOGUE.values()} == {*ACTIONS}
    assert all(number == each.number for number, each in CATALOGUE.items())
    assert len(CATALOGUE) == 111


EVENTS = st.builds(
    xid,
    st.sampled_from([13, 31, 45, 48, 63, 74, 79, 95, 154, 9999]),
    st.floats(0, 2 * DAY_S),
    st.sampled_from(["", "changed from 0x0 (None) to 0x2 (OS Reboot)"]),
)


@settings(max_examples=60)
@given(EVENTS, st.lists(EVENTS, max_size=12), st.none() | st.integers(0, 9))
def test_decision_is_never_a_riddle_and_no_unknown_xid_reboots(
    event: XidEvent, recent: list[XidEvent], told: int | None
) -> None:
    decision = decide(event, recent, None if told is None else named_action(told))
    assert decision.action is not XidAction.WORKFLOW
    named = told or event.number == 154 or any(each.number == 154 for each in recent)
    if event.number == 9999 and not named:
        assert decision.action is XidAction.CHECK
    alone = decide(event)
    if not named and event.number != 45:
        assert STEPS.index(decision.action) >= STEPS.index(alone.action)
