"""A queued kernel starts when one of its shape ends, on the devices of that one.

All tests run twice: with kernels of the supervisor's own user, and with those of another, some of
which a process of that user spawns in the places of others.
"""

import os
from pathlib import Path

import pytest
from tests.agent.supervisor.accounts import ADA, Users
from tests.agent.supervisor.driver import Driver, alive, read_when_there
from tests.patience import until


@pytest.fixture(
    params=[
        "own",
        pytest.param(
            "another's",
            marks=pytest.mark.skipif(os.getuid() != 0, reason="only root can become other users"),
        ),
    ],
    autouse=True,
)
def _account(request: pytest.FixtureRequest, supervisor: Driver, users: Users) -> None:
    if request.param != "own":
        supervisor.template["account"] = users.account(ADA)


@pytest.fixture
def place(users: Users) -> Path:
    """A directory in which every user may write."""
    path = users.place / "everybody"
    path.mkdir()
    path.chmod(0o777)
    return path


def waiting_for(path: Path) -> list[str]:
    """A command that runs until a file is there."""
    return ["sh", "-c", f"while [ ! -e {path} ]; do sleep 0.01; done"]


def test_queued_kernels_start_in_order_as_others_of_their_shape_end(supervisor: Driver) -> None:
    supervisor.start(
        "first",
        *({"id": f"heir{number}", "queued": True} for number in range(3)),
        command=["sh", "-c", "exit 0"],
    )
    supervisor.ended("heir2")

    kernels = ["first", "heir0", "heir1", "heir2"]
    ends = [event["kernel"] for event in supervisor.events if event["kind"] == "ended"]
    starts = [event["kernel"] for event in supervisor.events if event["kind"] == "started"]
    assert ends == starts == kernels


def test_heir_inherits_devices_and_both_facts_come_in_one_batch(
    supervisor: Driver, place: Path
) -> None:
    go = place / "go"
    supervisor.start({"id": "a", "devices": [2, 5], "device_milli": 250}, command=waiting_for(go))
    supervisor.start(
        {"id": "b", "queued": True, "devices": []},
        command=["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"],
    )
    supervisor.started("a")
    assert supervisor.status("b") == "queued"

    go.touch()
    supervisor.ended("b")

    end, start = supervisor.ended("a"), supervisor.started("b")
    if "account" not in supervisor.template:  # no other process has a part in it
        (batch,) = [batch for batch in supervisor.batches if end in batch]
        assert batch[:2] == [end, start]
    assert (end["kernel"], end["kind"], end["heir"]) == ("a", "ended", ["b", 1])
    assert (start["kernel"], start["kind"], start["predecessor"]) == ("b", "started", ["a", 1])
    assert (start["devices"], start["device_milli"]) == ([2, 5], 250)
    assert start["seq"] == end["seq"] + 1
    assert supervisor.log("b") == "2,5\n"


def test_kernel_of_another_shape_does_not_inherit(supervisor: Driver) -> None:
    supervisor.start("a", {"id": "b", "queued": True, "shape": "other"}, command=["true"])

    assert "heir" not in supervisor.ended("a")
    assert supervisor.status("b") == "queued"


def test_queued_kernel_without_a_predecessor_waits_until_it_is_named_again(
    supervisor: Driver,
) -> None:
    supervisor.start(
        {"id": "k", "queued": True}, command=["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
    )
    supervisor.start({"id": "k", "queued": True})
    assert supervisor.status("k") == "queued"

    supervisor.start(
        {"id": "k", "devices": [7]}, command=["sh", "-c", "echo again $CUDA_VISIBLE_DEVICES"]
    )

    assert supervisor.ended("k")["exit_code"] == 0
    assert supervisor.log("k") == "again 7\n"
    assert "predecessor" not in supervisor.started("k")


def test_kernel_named_again_leaves_the_backlog(supervisor: Driver, place: Path) -> None:
    go = place / "go"
    supervisor.start("a", command=waiting_for(go))
    supervisor.start({"id": "b", "queued": True}, {"id": "c", "queued": True}, command=["true"])
    supervisor.start("b", command=["sleep", "60"])
    supervisor.started("b")

    go.touch()

    assert supervisor.ended("a")["heir"] == ["c", 1]
    supervisor.ended("c")
    assert supervisor.all_of("b") == ["started"]


def test_hand_over_waits_until_the_whole_tree_is_gone(supervisor: Driver, place: Path) -> None:
    pid_file, go = place / "pid", place / "go"
    leave_a_child = f"setsid sh -c 'echo $$ > {pid_file}; exec sleep 60' & "
    wait = f"until [ -s {pid_file} ] && [ -e {go} ]; do sleep 0.01; done"
    supervisor.start("a", command=["sh", "-c", leave_a_child + wait])
    supervisor.start(
        {"id": "b", "queued": True},
        command=["sh", "-c", f"kill -0 $(cat {pid_file}) 2>/dev/null && echo overlap; exit 0"],
    )
    assert supervisor.status("b") == "queued"
    go.touch()
    supervisor.ended("b")

    assert supervisor.ended("a")["heir"] == ["b", 1]
    assert not supervisor.log_path("b").exists()
    assert not alive(int(pid_file.read_text()))


def test_stopping_a_queued_kernel_drops_it(supervisor: Driver, place: Path) -> None:
    go = place / "go"
    supervisor.start("a", command=waiting_for(go))
    supervisor.start({"id": "b", "queued": True}, command=["true"])

    supervisor.stop("b")

    end = supervisor.ended("b")
    assert (end["reason"], end["detail"]) == ("never_started", "cancelled")
    go.touch()
    assert "heir" not in supervisor.ended("a")


def test_recall_takes_back_what_is_queued_and_nothing_else(supervisor: Driver) -> None:
    supervisor.start("a", {"id": "b", "queued": True}, command=["sleep", "60"])
    supervisor.started("a")

    supervisor.say(
        op="recall",
        kernels=[{"id": name, "generation": 1} for name in ("a", "b", "unheard-of")],
    )

    assert supervisor.ended("b")["reason"] == "never_started"
    assert supervisor.status("a") == "running"
    assert supervisor.all_of("unheard-of") == []


def test_heir_that_cannot_be_executed_passes_the_devices_on(
    supervisor: Driver, place: Path
) -> None:
    go = place / "go"
    supervisor.start({"id": "a", "devices": [4]}, command=waiting_for(go))
    supervisor.start({"id": "b", "queued": True}, command=["/no/such/program"])
    supervisor.start({"id": "c", "queued": True}, command=["true"])
    assert supervisor.status("c") == "queued"

    go.touch()
    supervisor.ended("c")

    broken = supervisor.ended("b")
    assert (broken["predecessor"], broken["heir"]) == (["a", 1], ["c", 1])
    assert supervisor.started("c")["predecessor"] == ["b", 1]
    assert supervisor.started("c")["devices"] == [4]
    assert supervisor.all_of("b") == ["ended"]


def test_heir_whose_creation_fails_keeps_what_it_inherited(supervisor: Driver, place: Path) -> None:
    go = place / "go"
    supervisor.start({"id": "a", "devices": [4]}, command=waiting_for(go))
    supervisor.start({"id": "b", "queued": True}, workdir=f"{place}/missing")
    supervisor.start({"id": "c", "queued": True}, command=["true"])
    assert supervisor.status("c") == "queued"

    go.touch()

    failure = supervisor.event("b", "create_failed")
    assert (failure["predecessor"], failure["devices"]) == (["a", 1], [4])
    assert "heir" not in failure
    assert supervisor.status("c") == "queued"


def test_stopped_kernel_hands_over_too(supervisor: Driver) -> None:
    supervisor.start("a", command=["sh", "-c", "echo up; exec sleep 60"])
    supervisor.start({"id": "b", "queued": True}, command=["true"])
    read_when_there(supervisor.log_path("a"))

    supervisor.stop("a")

    assert supervisor.ended("a")["heir"] == ["b", 1]
    assert supervisor.ended("b")["exit_code"] == 0


def test_long_backlog_runs_through_and_every_message_holds_whole_hand_overs(
    supervisor: Driver,
) -> None:
    names = [f"k{number}" for number in range(300)]
    supervisor.start(*names[:3], *({"id": name, "queued": True} for name in names[3:]))
    supervisor.until(lambda: sum(event["kind"] == "ended" for event in supervisor.events) == 300)

    for batch in supervisor.batches if "account" not in supervisor.template else ():
        for position, event in enumerate(batch):
            if "heir" in event:
                assert batch[position + 1]["predecessor"] == [event["kernel"], 1]
    running: set[str] = set()
    for event in supervisor.events:
        if event["kind"] == "started":
            running.add(event["kernel"])
            assert len(running) <= 3
        else:
            running.discard(event["kernel"])
    # Those that were spawned ahead may be told of in another order: their predecessors are told of
    # once their output is closed.
    starts = [event for event in supervisor.events if event["kind"] == "started"]
    assert [event["kernel"] for event in sorted(starts, key=lambda event: event["at"])] == names
    assert sorted(event["kernel"] for event in supervisor.events if event["kind"] == "ended") == (
        sorted(names)
    )
    until(lambda: not list((supervisor.directory / "logs").iterdir()))
