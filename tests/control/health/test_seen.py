"""Sightings of agents of their own health, up to incidents; and jobs that fail in a row."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from proving.hollow.supervisor import Run
from proving.hollow.virtual_clock import VirtualClock
from tests.control.driven_agent import DrivenAgent
from tests.control.health.ward import Ward

from muster.control.agent.desk import HEALTH_AGAIN_S as AGAIN_S
from muster.control.agent.desk import HEALTH_AT_ONCE as AT_ONCE
from muster.control.agent.pace import Pace
from muster.control.health.entity import Incident
from muster.control.health.seen import LOOK_AGAIN_S, MOST_A_DAY, suspicions
from muster.core.health.remedy import Remedy
from muster.core.ids import AgentId
from muster.core.owner import Owner, Principal, Role
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec
from muster.core.states.health import HealthStatus
from muster.store.store import CommitFailed
from muster.wire.messages import HealthSeen, Sighting

BOOT = "boot-1"
NOW = "now"
GPUS = 2
XID_79 = "Xid 79, fallen off the bus"


def saw(
    seq: int,
    remedy: Remedy = Remedy.REBOOT,
    devices: tuple[int, ...] = (1,),
    *,
    what: str = XID_79,
    confirmed: bool = True,
    boot_id: str = NOW,
) -> Sighting:
    return Sighting(seq, remedy, what, devices, confirmed, boot_id, 1.0)


class Seen(Ward):
    """Two machines of two GPUs each, which say what they see."""

    def __init__(self, path: Path, **health: Any) -> None:
        super().__init__(path, ("a", "b"), **health)

    def agent(self, name: str = "a") -> DrivenAgent:
        return self.world.agent(name)

    def says(self, *sightings: Sighting, name: str = "a") -> None:
        agent = self.agent(name)
        told = tuple(
            replace(each, boot_id=agent.machine.boot_id) if each.boot_id == NOW else each
            for each in sightings
        )
        self.world.desk.agent_said(agent.id, HealthSeen(told))
        self.world.settle()

    def incident(self, name: str = "a") -> Incident | None:
        return self.incidents.of(self.agent(name).id)

    def heals(self, name: str = "a") -> None:
        """Let an incident end."""
        self.until(HealthStatus.HEALTHY, name)

    def fail(self, user: str, job: str, *, exit_code: int = 1, after_s: float = 1.0) -> None:
        """A job of a user ends on machine ``a``."""
        owner = Principal(Owner("default", "default", user), Role.USER)
        behaviour = self.agent().behaviour
        self.agent().behaviour = lambda start: (
            Run(after_s, exit_code=exit_code)
            if start.template.service is None
            else behaviour(start)
        )
        spec = {"name": job, "command": ["x"], "placement": {"agents": ["a"]}}
        self.world.submit(JobSpec.model_validate(spec), owner)
        self.run(after_s + 1.0)
        self.agent().behaviour = behaviour


MakeSeen = Callable[..., Seen]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeSeen]:
    made: list[Seen] = []

    def seen(**health: Any) -> Seen:
        made.append(Seen(tmp_path / f"world-{len(made)}", **health))
        return made[-1]

    yield seen
    for each in made:
        each.close()


@pytest.fixture
def seen(make: MakeSeen) -> Seen:
    return make()


def test_sighting_puts_the_machine_under_suspicion_and_is_noted(seen: Seen) -> None:
    seen.says(saw(7))
    incident = seen.of()
    assert incident.why.code is ReasonCode.HEALTH_SEEN
    assert incident.why.sentence() == XID_79
    assert (incident.devices, incident.confirmed) == ((1,), True)
    assert incident.progress.remedy is Remedy.REBOOT
    assert seen.agent().noted == 7
    assert seen.incident("b") is None


def test_repetition_changes_nothing_and_is_noted_again(seen: Seen) -> None:
    seen.says(saw(7))
    seen.heals()
    before = seen.agent().noted
    seen.agent().noted = 0
    seen.says(saw(7))
    assert seen.incident() is None
    assert seen.agent().noted == before


def test_reconnect_repeats_nothing(seen: Seen) -> None:
    seen.says(saw(1), saw(2))
    seen.heals()
    seen.world.disconnect(seen.agent())
    seen.world.settle()
    seen.world.connect(seen.agent())
    seen.says(saw(1), saw(2))
    assert seen.incident() is None


def test_repetition_to_another_controller_is_added_to_the_incident(seen: Seen) -> None:
    seen.says(saw(1))
    first = seen.of().id
    seen.world.restart_controller()
    seen.says(saw(1))
    assert seen.of().id == first
    assert seen.agent().noted == 1


def test_sighting_of_a_wake_that_could_not_be_stored_is_not_lost(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise CommitFailed("database or disk is full")

    with monkeypatch.context() as outage:
        outage.setattr(seen.world.store, "commit", full)
        seen.world.desk.agent_said(seen.agent().id, HealthSeen((saw(1),)))
        seen.world.wake()
        assert seen.agent().noted == 0
    seen.run(3.0)
    assert seen.agent().noted == 1
    assert seen.incident() is not None


def test_device_that_the_machine_does_not_have_is_nobodys(seen: Seen) -> None:
    seen.says(saw(1, devices=(GPUS, 99)))
    assert seen.incident() is None
    assert seen.agent().noted == 1
    seen.says(saw(2, devices=(1, 99)))
    assert seen.of().devices == (1,)


def test_sighting_of_an_earlier_boot_asks_for_a_look_and_no_more(seen: Seen) -> None:
    seen.says(saw(1, Remedy.OPERATOR, boot_id="boot-0"))
    incident = seen.of()
    assert (incident.devices, incident.confirmed) == ((), False)
    assert incident.progress.remedy is Remedy.CHECK
    assert incident.status is not HealthStatus.ISOLATED


def test_group_without_passive_detection_hears_and_does_nothing(make: MakeSeen) -> None:
    seen = make(passive=False)
    seen.says(saw(1))
    assert seen.incident() is None
    assert seen.agent().noted == 1


def test_look_for_what_nobody_calls_a_fault_is_not_repeated_within_an_hour(seen: Seen) -> None:
    """Programs can provoke such errors, so that nobody's program takes a machine away again and
    again."""
    seen.says(saw(1, Remedy.CHECK, confirmed=False))
    assert seen.incident() is not None
    seen.heals()
    seen.says(saw(2, Remedy.CHECK, confirmed=False))
    assert seen.incident() is None
    seen.says(saw(3))
    assert seen.incident() is not None, "a fault counts at once"
    seen.heals()
    seen.run(LOOK_AGAIN_S, step_s=30.0)
    seen.says(saw(4, Remedy.CHECK, confirmed=False))
    assert seen.incident() is not None


def test_machine_that_is_healed_again_and_again_within_a_day_is_an_operators_affair(
    seen: Seen,
) -> None:
    for seq in range(1, MOST_A_DAY + 1):
        seen.says(saw(seq, Remedy.CHECK))
        assert seen.of().progress.remedy is Remedy.CHECK
        seen.heals()
    seen.says(saw(MOST_A_DAY + 1, Remedy.CHECK))
    assert seen.of().progress.remedy is Remedy.OPERATOR
    assert "6 times within a day" in seen.of().why.sentence()


def test_flood_of_one_agent_is_mostly_not_heard_and_no_other_waits_for_it(seen: Seen) -> None:
    world, agent = seen.world, seen.agent()
    commits = world.store.last_commit_at
    for seq in range(1, 1001):
        world.desk.agent_said(agent.id, HealthSeen((saw(seq, Remedy.CHECK, confirmed=False),)))
    assert sum(1 for _ in world.inbox.waiting()) == AT_ONCE
    seen.says(saw(1), name="b")
    assert agent.noted == AT_ONCE
    assert seen.of("b").confirmed
    assert commits <= world.store.last_commit_at
    assert world.closed == []


def test_honest_agent_gets_everything_said_however_much_it_saw(seen: Seen) -> None:
    for seq in range(1, 50):
        seen.world.clock.advance(AGAIN_S)
        seen.says(saw(seq))
        assert seen.agent().noted == seq


def test_empty_message_is_nothing(seen: Seen) -> None:
    seen.says()
    assert (seen.incident(), seen.agent().noted) == (None, 0)


def test_removed_agent_says_nothing_more(seen: Seen) -> None:
    id_ = seen.agent().id
    seen.world.desk.agent_said(AgentId("agt-unknown"), HealthSeen((saw(1),)))
    assert seen.world.closed
    seen.world.closed.clear()
    assert id_ in seen.world.plane.live.agents


# Suspicions of sightings


def test_sightings_of_one_remedy_are_one_suspicion_and_the_gravest_comes_first() -> None:
    told = [
        saw(1, Remedy.RESET, (0,), what="Xid 95", boot_id=BOOT),
        saw(2, Remedy.RESET, (1,), what="Xid 48", boot_id=BOOT),
        saw(3, Remedy.REBOOT, (), what="hangs", boot_id=BOOT),
    ]
    reboot, reset = suspicions(told, BOOT, range(GPUS))
    assert (reboot.remedy, reboot.devices) == (Remedy.REBOOT, ())
    assert (reset.remedy, reset.devices) == (Remedy.RESET, (0, 1))
    assert reset.what == "Xid 95; and 1 more sighting"


SIGHTINGS = st.builds(
    Sighting,
    st.integers(1, 2**40),
    st.sampled_from(Remedy),
    st.text(max_size=300),
    st.lists(st.integers(0, 127), max_size=8).map(tuple),
    st.booleans(),
    st.sampled_from([BOOT, NOW, "boot-0", ""]),
)


@given(st.lists(SIGHTINGS, max_size=32), st.sets(st.integers(0, 7)))
def test_suspicions_name_devices_of_the_machine_alone_and_are_few(
    told: list[Sighting], indexes: set[int]
) -> None:
    found = suspicions(told, BOOT, indexes)
    assert len(found) <= len(Remedy)
    for each in found:
        assert set(each.devices) <= indexes
        assert len(each.what) < 400
    strong = [each for each in found if each.remedy is not Remedy.CHECK]
    assert not strong or any(each.boot_id == BOOT for each in told)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(told=st.lists(st.lists(SIGHTINGS, max_size=4), max_size=6))
def test_whatever_an_agent_says_is_about_itself_alone(
    make: MakeSeen, told: list[list[Sighting]]
) -> None:
    seen = make()
    for sightings in told:
        seen.run(AGAIN_S)
        seen.says(*sightings)
    assert seen.incident("b") is None
    incident = seen.incident()
    assert incident is None or set(incident.devices) <= set(range(GPUS))
    assert seen.world.closed == []


# The pace


def test_pace_lets_some_through_at_once_and_then_one_at_a_time() -> None:
    clock = VirtualClock()
    pace = Pace(clock, AT_ONCE, AGAIN_S)
    heard = AgentId("agt-1")
    assert [pace.allows(heard) for _ in range(AT_ONCE + 3)] == [True] * AT_ONCE + [False] * 3
    clock.advance(AGAIN_S)
    assert [pace.allows(heard), pace.allows(heard)] == [True, False]
    assert pace.allows(AgentId("agt-2"))
    clock.advance(AT_ONCE * AGAIN_S)
    assert all(pace.allows(heard) for _ in range(AT_ONCE))


# Jobs that fail in a row


def test_jobs_of_several_users_that_fail_in_a_row_have_the_machine_looked_at(seen: Seen) -> None:
    for user in ("ann", "ben"):
        seen.fail(user, f"of-{user}")
    assert seen.incident() is None
    seen.fail("cem", "of-cem")
    incident = seen.of()
    assert incident.why.sentence() == "3 jobs of 3 users failed on it one after the other"
    assert (incident.devices, incident.confirmed) == ((), False)
    assert seen.incident("b") is None


def test_broken_sweep_of_one_user_has_nothing_looked_at(seen: Seen) -> None:
    for nth in range(8):
        seen.fail("ann", f"sweep-{nth}", after_s=20.0)
    assert seen.incident() is None


def test_jobs_of_one_user_that_fail_as_soon_as_they_begin_have_the_machine_looked_at(
    seen: Seen,
) -> None:
    for nth in range(5):
        assert seen.incident() is None
        seen.fail("ann", f"job-{nth}")
    assert seen.of().why.sentence() == (
        "5 jobs of 1 user failed on it one after the other, each as soon as it began"
    )


def test_failures_with_a_success_between_have_nothing_looked_at(seen: Seen) -> None:
    seen.fail("ann", "first")
    seen.fail("ben", "second")
    seen.fail("ben", "third", exit_code=0)
    seen.fail("cem", "fourth")
    assert seen.incident() is None


def test_failing_jobs_count_for_nothing_without_passive_detection(make: MakeSeen) -> None:
    seen = make(passive=False)
    for user in ("ann", "ben", "cem"):
        seen.fail(user, f"of-{user}")
    assert seen.incident() is None
