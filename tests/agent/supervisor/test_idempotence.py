"""An order counts once for each (id, generation), however often and in whatever order it comes."""

from pathlib import Path

import pytest
from tests.agent.supervisor.driver import Driver, read_when_there, take_over


def test_start_that_comes_twice_runs_once(supervisor: Driver, tmp_path: Path) -> None:
    count = ["sh", "-c", f"echo run >> {tmp_path}/runs; sleep 0.05"]
    supervisor.start("k", "k", command=count)
    supervisor.start("k", command=count)
    supervisor.ended("k")
    supervisor.start("k", command=count)  # ended, but nobody has acknowledged it
    supervisor.settle()

    assert supervisor.all_of("k") == ["started", "ended"]
    assert (tmp_path / "runs").read_text() == "run\n"


def test_kernel_is_forgotten_once_its_end_is_acknowledged(supervisor: Driver) -> None:
    supervisor.run(["true"])
    assert supervisor.status("k") == "ended"

    supervisor.acknowledge()

    assert supervisor.status("k") is None
    supervisor.batches.clear()
    supervisor.settle()
    supervisor.run(["true"], kernel="next")
    assert {event["kernel"] for batch in supervisor.batches for event in batch} == {"next"}


def test_acknowledging_only_the_start_keeps_the_kernel(supervisor: Driver) -> None:
    supervisor.run(["true"])

    supervisor.say(op="ack", seq=supervisor.started("k")["seq"])

    assert supervisor.status("k") == "ended"


def test_acknowledgement_of_an_event_to_come_is_refused(supervisor: Driver) -> None:
    supervisor.run(["true"])
    supervisor.say(op="ack", seq=3)

    assert supervisor.error() == "ack of event 3: the last one is 2"


def test_lower_generation_than_the_known_one_is_ignored(supervisor: Driver) -> None:
    supervisor.start({"id": "k", "generation": 2}, command=["sleep", "60"])
    supervisor.started("k", generation=2)

    supervisor.start({"id": "k", "generation": 1})

    assert supervisor.status("k", generation=1) is None
    assert supervisor.status("k", generation=2) == "running"


def test_higher_generation_stops_the_older_and_starts_when_it_is_gone(
    supervisor: Driver, tmp_path: Path
) -> None:
    slow_to_leave = f"trap 'sleep 0.1; echo left >> {tmp_path}/log; exit' TERM; echo up; "
    supervisor.start("k", command=["sh", "-c", slow_to_leave + "while :; do sleep 0.01; done"])
    read_when_there(supervisor.log_path("k"))

    supervisor.start(
        {"id": "k", "generation": 2}, command=["sh", "-c", f"echo newer >> {tmp_path}/log"]
    )
    supervisor.ended("k", generation=2)

    end = supervisor.ended("k")
    assert (end["reason"], end["detail"]) == ("stopped", "superseded")
    assert end["seq"] < supervisor.started("k", generation=2)["seq"]
    assert (tmp_path / "log").read_text() == "left\nnewer\n"


def test_of_several_higher_generations_the_highest_starts(supervisor: Driver) -> None:
    supervisor.start("k", command=["sleep", "60"])
    supervisor.started("k")

    supervisor.start({"id": "k", "generation": 2}, {"id": "k", "generation": 3}, command=["true"])

    assert supervisor.ended("k", generation=3)["exit_code"] == 0
    assert supervisor.ended("k", generation=2)["reason"] == "never_started"
    assert supervisor.ended("k", generation=1)["reason"] == "stopped"


def test_newer_generation_that_is_stopped_while_it_waits_never_starts(supervisor: Driver) -> None:
    ignoring = "trap '' TERM; echo up; while :; do sleep 0.01; done"
    supervisor.start("k", command=["sh", "-c", ignoring], grace_s=30)
    read_when_there(supervisor.log_path("k"))
    supervisor.start({"id": "k", "generation": 2}, command=["true"])

    supervisor.stop("k", generation=2)

    assert supervisor.ended("k", generation=2)["reason"] == "never_started"
    supervisor.stop("k", grace_s=0)
    supervisor.ended("k")
    assert [event["generation"] for event in supervisor.events if event["kind"] == "started"] == [1]


def test_creation_that_failed_is_tried_again_when_it_is_ordered_again(
    supervisor: Driver, tmp_path: Path
) -> None:
    supervisor.start("k", workdir=f"{tmp_path}/later")
    supervisor.event("k", "create_failed")
    assert supervisor.status("k") == "create_failed"

    (tmp_path / "later").mkdir()
    supervisor.start("k", workdir=f"{tmp_path}/later")

    assert supervisor.ended("k")["exit_code"] == 0


def test_acknowledging_a_failed_creation_does_not_forget_the_next_try(
    supervisor: Driver, tmp_path: Path
) -> None:
    supervisor.start("k", workdir=f"{tmp_path}/missing")
    supervisor.event("k", "create_failed")
    supervisor.start("k", command=["sleep", "60"])
    supervisor.started("k")

    supervisor.say(op="ack", seq=supervisor.event("k", "create_failed")["seq"])

    assert supervisor.status("k") == "running"


@pytest.mark.parametrize("restarted", [False, True])
def test_acknowledging_a_failed_creation_does_not_forget_the_end_of_the_next_try(
    supervisor: Driver, tmp_path: Path, restarted: bool
) -> None:
    count = ["sh", "-c", f"echo run >> {tmp_path}/runs"]
    supervisor.start("k", command=count, workdir=f"{tmp_path}/missing")
    failure = supervisor.event("k", "create_failed")
    supervisor.start("k", command=count)
    supervisor.ended("k")
    if restarted:
        take_over(supervisor)

    supervisor.say(op="ack", seq=failure["seq"])
    assert supervisor.status("k") == "ended"
    supervisor.start("k", command=count)
    supervisor.settle()

    assert supervisor.all_of("k") == ["create_failed", "started", "ended"]
    supervisor.acknowledge()
    assert supervisor.status("k") is None
    assert (tmp_path / "runs").read_text() == "run\n"


def test_stop_of_a_failed_creation_confirms_that_nothing_runs(
    supervisor: Driver, tmp_path: Path
) -> None:
    supervisor.start("k", workdir=f"{tmp_path}/missing")
    supervisor.event("k", "create_failed")

    supervisor.stop("k")

    assert supervisor.ended("k")["reason"] == "never_started"


def test_order_with_one_wrong_field_is_refused_whole(supervisor: Driver) -> None:
    supervisor.start("fine", {"id": "wrong", "generation": -1})

    assert supervisor.error() == "'generation' must be a whole number, zero or more"
    assert supervisor.status("fine") is None
