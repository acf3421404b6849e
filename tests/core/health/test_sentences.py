"""The sentences that tell the state of an incident: what is waited for, and until when."""

import pytest

from muster.core.health import sentences
from muster.core.states.health import HEALTH_TABLE, ILL, HealthStatus


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            sentences.incident("a1", HealthStatus.CHECKING, 12.0),
            "agent a1 is being checked, for 12s",
        ),
        (
            sentences.ended("a1", HealthStatus.HEALTHY, 300.0, 2),
            "agent a1 is healthy again, after 5m00s and 2 rounds of healing",
        ),
        (
            sentences.ended("a1", HealthStatus.HEALTHY, 300.0, 0),
            "agent a1 is healthy again, after 5m00s",
        ),
        (
            sentences.ended("a1", HealthStatus.GONE, 60.0, 1),
            "agent a1 was removed, 1m00s after the incident began",
        ),
        (
            sentences.work_leaves(1, 90.0),
            "1 kernel still holds room there, and may stay for 1m30s",
        ),
        (sentences.work_leaves(2, -1.0), "2 kernels still hold room there, told to leave"),
        (
            sentences.work_leaves(2, None),
            "2 kernels still hold room there, and may run to the end",
        ),
        (sentences.soon("checked"), "it is checked once nothing is in the way any more"),
        (sentences.tried_again("checked", 30.0), "it is checked in 30s"),
        (
            sentences.under_way("the check", 30.0, 870.0),
            "the check has taken 30s, and has failed unless it ends within 14m30s",
        ),
        (
            sentences.under_way("the reset", 130.0, -10.0),
            "the reset has taken 2m10s, and is overdue",
        ),
        (
            sentences.rebooting(60.0, 1140.0, hard=False),
            "it was told to reboot 1m00s ago: another boot of it has to join within 19m00s",
        ),
        (
            sentences.rebooting(1300.0, -100.0, hard=True),
            "a reboot from outside was asked for 21m40s ago: another boot of it has to join any "
            "moment, or the reboot has failed",
        ),
        (sentences.rounds(1, 3), "1 round of healing was tried, of at most 3"),
        (
            sentences.unknowns(2, 3),
            "2 checks in a row found out nothing; after 3 it counts as faulty",
        ),
        (
            sentences.last_check(60.0, "faulty by dcgm"),
            "the last check, 1m00s ago: faulty by dcgm",
        ),
    ],
)
def test_sentence_tells_what_is_waited_for_and_until_when(said: str, sentence: str) -> None:
    assert said == sentence


def test_every_status_of_a_live_incident_has_a_word_of_its_own() -> None:
    assert set(ILL) == set(HEALTH_TABLE.live)
    assert len(set(ILL.values())) == len(ILL)
