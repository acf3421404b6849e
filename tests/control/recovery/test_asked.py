"""The memory of how often a user's failing tasks had machines checked is bounded, and forgets."""

from muster.control.recovery.asked import MAX_USERS, MOST, WITHIN_S, AskedChecks
from muster.core.ids import AgentId
from muster.core.owner import Owner

ADA, BOB = Owner("d", "p", "ada"), Owner("d", "p", "bob")
NODE = AgentId("agent-1")


def asked_often(owner: Owner = ADA) -> AskedChecks:
    asked = AskedChecks()
    for number in range(MOST):
        asked.note(owner, NODE, (f"inc-{number}", 1.0), float(number))
    return asked


def test_a_user_may_ask_again_after_a_while() -> None:
    asked = asked_often()
    assert not asked.may_ask(ADA, NODE, 10.0)
    assert asked.may_ask(ADA, NODE, WITHIN_S + 0.5)


def test_other_users_and_other_machines_do_not_count() -> None:
    asked = asked_often()
    assert asked.may_ask(BOB, NODE, 10.0)
    assert asked.may_ask(ADA, AgentId("agent-2"), 10.0)
    assert not asked.may_ask(Owner("d", "another", "ada"), NODE, 10.0)


def test_one_wait_counts_once() -> None:
    asked = AskedChecks()
    for _ in range(MOST + 1):
        asked.note(ADA, NODE, ("inc-1", 1.0), 5.0)
    assert asked.may_ask(ADA, NODE, 10.0)


def test_a_fault_takes_everything_back() -> None:
    asked = asked_often()
    asked.found_faulty(NODE)
    assert asked.may_ask(ADA, NODE, 10.0)


def test_machines_that_are_no_more_and_old_times_are_forgotten() -> None:
    asked = asked_often()
    asked.forget({NODE}, 10.0)
    assert not asked.may_ask(ADA, NODE, 10.0)
    asked.forget((), 10.0)
    assert asked.may_ask(ADA, NODE, 10.0)


def test_the_oldest_users_make_room() -> None:
    asked = asked_often()
    for number in range(MAX_USERS):
        asked.note(Owner("d", "p", f"user-{number}"), NODE, ("inc-9", 1.0), 9.0)
    assert asked.may_ask(ADA, NODE, 10.0)
