"""A kernel that is held is ready to run, and runs once it is told to go."""

from pathlib import Path

import pytest
from tests.agent.supervisor.driver import Driver, take_over


def go(supervisor: Driver, kernel: str, generation: int = 1) -> None:
    supervisor.say(op="go", kernels=[{"id": kernel, "generation": generation}])


def held(kernel: str, **more: object) -> dict[str, object]:
    return {"id": kernel, "hold": True, **more}


def test_held_kernel_says_that_it_is_ready_and_runs_once_it_may(
    supervisor: Driver, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    supervisor.start(
        held("a", devices=[3]), command=["sh", "-c", f"echo $CUDA_VISIBLE_DEVICES; touch {ran}"]
    )
    created = supervisor.event("a", "created")
    assert created["devices"] == [3]
    supervisor.settle()
    assert supervisor.status("a") == "created"
    assert not ran.exists()

    go(supervisor, "a")
    assert supervisor.started("a")["devices"] == [3]
    assert supervisor.ended("a")["exit_code"] == 0
    assert ran.exists()
    assert supervisor.log("a") == "3\n"
    assert supervisor.all_of("a") == ["created", "started", "ended"]


def test_kernel_that_may_run_before_it_is_heard_of_twice_runs_once(supervisor: Driver) -> None:
    supervisor.start(held("a"), command=["echo", "once"])
    supervisor.event("a", "created")
    for _ in range(3):
        go(supervisor, "a")
    supervisor.ended("a")
    go(supervisor, "a")
    supervisor.settle()
    assert supervisor.log("a") == "once\n"
    assert supervisor.all_of("a") == ["created", "started", "ended"]


def test_held_kernel_that_is_ordered_again_without_a_hold_runs(supervisor: Driver) -> None:
    supervisor.start(held("a"), command=["true"])
    supervisor.event("a", "created")
    supervisor.start("a", command=["true"])
    assert supervisor.ended("a")["exit_code"] == 0
    assert supervisor.all_of("a") == ["created", "started", "ended"]


def test_held_kernel_that_is_stopped_never_ran_and_leaves_nothing(supervisor: Driver) -> None:
    supervisor.start(held("a"), command=["true"])
    supervisor.event("a", "created")
    supervisor.stop("a")
    assert supervisor.ended("a")["reason"] == "never_started"
    go(supervisor, "a")
    supervisor.settle()
    assert supervisor.all_of("a") == ["created", "ended"]


def test_held_kernel_gives_way_to_its_newer_generation(supervisor: Driver) -> None:
    supervisor.start(held("a"), command=["true"])
    supervisor.event("a", "created")
    supervisor.start({"id": "a", "generation": 2}, command=["true"])
    assert supervisor.ended("a")["reason"] == "never_started"
    assert supervisor.ended("a", 2)["exit_code"] == 0


def test_held_kernel_ends_with_the_supervisor_that_held_it(supervisor: Driver) -> None:
    supervisor.start(held("a"), command=["true"])
    supervisor.event("a", "created")
    supervisor.kill()
    take_over(supervisor)
    assert supervisor.ended("a")["reason"] == "supervisor_lost"


@pytest.mark.parametrize("acknowledged", [False, True])
def test_held_kernel_is_told_to_an_agent_that_comes_back(
    supervisor: Driver, acknowledged: bool
) -> None:
    supervisor.start(held("a"), command=["true"])
    supervisor.event("a", "created")
    if acknowledged:
        supervisor.acknowledge()
    supervisor.detach()
    state = supervisor.attach()
    assert [each["status"] for each in state["kernels"]] == ["created"]
    go(supervisor, "a")
    assert supervisor.ended("a")["exit_code"] == 0


def test_working_directory_that_is_missing_is_told_before_anything_runs(
    supervisor: Driver, tmp_path: Path
) -> None:
    missing = tmp_path / "missing"
    supervisor.start(held("a"), command=["true"], workdir=str(missing))
    assert supervisor.event("a", "create_failed")["reason"] == "workdir_missing"
    missing.mkdir()
    supervisor.start(held("a"), command=["pwd"], workdir=str(missing))
    supervisor.event("a", "created")
    go(supervisor, "a")
    supervisor.ended("a")
    assert supervisor.log("a") == f"{missing}\n"
