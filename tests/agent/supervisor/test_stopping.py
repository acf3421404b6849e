"""SIGTERM to the whole tree, grace, SIGKILL; leases; shutdown."""

import os
import signal
import time
from pathlib import Path

from tests.agent.supervisor.driver import Driver, alive, read_when_there, wait_gone
from tests.patience import until

IGNORING = "trap '' TERM; echo up; exec sleep 60"
"""One process that makes no others: one that cannot any more while it is killed may end by that."""


def test_stopped_kernel_reports_the_reason_it_was_given(supervisor: Driver) -> None:
    supervisor.start("k", command=["sh", "-c", "echo up; exec sleep 60"])
    read_when_there(supervisor.log_path("k"))

    supervisor.stop("k")

    end = supervisor.ended("k")
    assert (end["reason"], end["detail"], end["signal"]) == ("stopped", "cancelled", signal.SIGTERM)


def test_kernel_that_ends_well_on_sigterm_keeps_its_exit_code(supervisor: Driver) -> None:
    handle = "trap 'echo saved; exit 3' TERM; echo up; while :; do sleep 0.01; done"
    supervisor.start("k", command=["sh", "-c", handle])
    read_when_there(supervisor.log_path("k"))

    supervisor.stop("k")

    end = supervisor.ended("k")
    assert (end["reason"], end["exit_code"]) == ("stopped", 3)
    assert supervisor.log("k").endswith("saved\n")


def test_kernel_that_ignores_sigterm_is_killed_after_its_grace(supervisor: Driver) -> None:
    supervisor.start("k", command=["sh", "-c", IGNORING])
    read_when_there(supervisor.log_path("k"))

    began_s = time.monotonic()
    supervisor.stop("k", grace_s=0.3)

    assert supervisor.ended("k")["signal"] == signal.SIGKILL
    assert 0.3 <= time.monotonic() - began_s < 5


def test_grace_of_zero_kills_at_once(supervisor: Driver) -> None:
    supervisor.start("k", command=["sh", "-c", "trap 'echo asked' TERM; echo up; sleep 60"])
    read_when_there(supervisor.log_path("k"))

    supervisor.stop("k", grace_s=0)

    end = supervisor.ended("k")
    assert (end["reason"], end["signal"]) == ("stopped", signal.SIGKILL)
    assert supervisor.log("k") == "up\n"


def test_second_stop_with_a_shorter_grace_shortens_it(supervisor: Driver) -> None:
    supervisor.start("k", command=["sh", "-c", IGNORING])
    read_when_there(supervisor.log_path("k"))
    supervisor.stop("k", grace_s=600)
    assert supervisor.status("k") == "stopping"

    supervisor.stop("k", grace_s=0.1)

    assert supervisor.ended("k")["signal"] == signal.SIGKILL


def test_second_stop_with_a_longer_grace_changes_nothing(supervisor: Driver) -> None:
    supervisor.start("k", command=["sh", "-c", IGNORING])
    read_when_there(supervisor.log_path("k"))
    began_s = time.monotonic()
    supervisor.stop("k", grace_s=0.2)

    supervisor.stop("k", grace_s=600)

    assert supervisor.ended("k")["signal"] == signal.SIGKILL
    assert time.monotonic() - began_s < 5


def test_stop_reaches_processes_in_sessions_of_their_own(
    supervisor: Driver, tmp_path: Path
) -> None:
    inner = f"trap 'echo heard > {tmp_path}/inner; exit' TERM; echo up > {tmp_path}/up; "
    inner += "while :; do sleep 0.01; done"
    supervisor.start("k", command=["sh", "-c", f'trap : TERM; setsid sh -c "{inner}" & wait; wait'])
    read_when_there(tmp_path / "up")

    supervisor.stop("k", grace_s=10)

    assert supervisor.ended("k")["reason"] == "stopped"
    assert (tmp_path / "inner").read_text() == "heard\n"


def test_children_may_use_the_grace_after_the_main_process_has_left(
    supervisor: Driver, tmp_path: Path
) -> None:
    """A shell that runs a trainer dies of SIGTERM first; the trainer saves its checkpoint."""
    save = f"trap 'sleep 0.2; echo saved > {tmp_path}/checkpoint; exit' TERM; echo up; "
    save += "while :; do sleep 0.01; done"
    supervisor.start("k", command=["sh", "-c", f'sh -c "{save}"; true'])
    read_when_there(supervisor.log_path("k"))

    supervisor.stop("k", grace_s=10)

    assert supervisor.ended("k")["signal"] == signal.SIGTERM
    assert (tmp_path / "checkpoint").read_text() == "saved\n"


def test_what_a_stopped_kernel_leaves_is_killed_when_its_grace_is_over(
    supervisor: Driver, tmp_path: Path
) -> None:
    stubborn = f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.01; done"
    supervisor.start("k", command=["sh", "-c", f'setsid sh -c "{stubborn}"; true'])
    pid = int(read_when_there(tmp_path / "pid"))

    supervisor.stop("k", grace_s=0.2)

    assert supervisor.ended("k")["signal"] == signal.SIGTERM
    assert not alive(pid)


def test_stopped_process_hears_sigterm(supervisor: Driver) -> None:
    supervisor.start("k", command=["sh", "-c", "echo up; exec sleep 60"])
    read_when_there(supervisor.log_path("k"))
    os.kill(supervisor.started("k")["pid"], signal.SIGSTOP)

    supervisor.stop("k", grace_s=600)

    assert supervisor.ended("k")["signal"] == signal.SIGTERM


def test_stop_of_an_unknown_kernel_is_answered_and_bars_its_late_start(supervisor: Driver) -> None:
    supervisor.stop("k")
    supervisor.stop("k")
    end = supervisor.ended("k")
    assert end["reason"] == "unknown_kernel"

    supervisor.start("k")
    supervisor.settle()

    assert supervisor.events == [end]
    assert supervisor.state["kernels"] == []


def test_stop_of_an_unknown_kernel_is_answered_again_once_acknowledged(supervisor: Driver) -> None:
    supervisor.stop("k")
    supervisor.ended("k")
    supervisor.acknowledge()

    supervisor.stop("k")

    supervisor.until(lambda: supervisor.all_of("k") == ["ended", "ended"])


def test_stop_of_one_generation_does_not_bar_the_next(supervisor: Driver) -> None:
    supervisor.stop("k")
    supervisor.ended("k")

    supervisor.start({"id": "k", "generation": 2})

    assert supervisor.ended("k", generation=2)["exit_code"] == 0


def test_stop_of_a_kernel_that_has_ended_adds_nothing(supervisor: Driver) -> None:
    supervisor.run(["true"])

    supervisor.stop("k")
    supervisor.settle()

    assert supervisor.all_of("k") == ["started", "ended"]


def test_lease_that_runs_out_stops_everything(supervisor: Driver) -> None:
    supervisor.start("polite", command=["sleep", "60"])
    supervisor.start("stubborn", command=["sh", "-c", IGNORING], grace_s=0.1)
    supervisor.start({"id": "queued", "queued": True, "shape": "other"})
    read_when_there(supervisor.log_path("stubborn"))

    supervisor.lease(0.2)

    assert supervisor.ended("polite")["reason"] == "lease_expired"
    stubborn = supervisor.ended("stubborn")
    assert (stubborn["reason"], stubborn["signal"]) == ("lease_expired", signal.SIGKILL)
    assert supervisor.ended("queued")["reason"] == "never_started"

    supervisor.start("late")
    assert supervisor.error() == "start refused: the kernel lease ran out; renew it first"
    supervisor.lease(60)
    assert supervisor.run(["true"], kernel="later")["exit_code"] == 0


def test_lease_that_is_renewed_stops_nothing(supervisor: Driver) -> None:
    supervisor.start("k", command=["sleep", "60"])
    supervisor.started("k")
    supervisor.lease(0.2, 600)

    supervisor.run(["sleep", "0.4"], kernel="clock")

    assert supervisor.status("k") == "running"


def test_lease_that_has_ended_when_it_is_read_stops_everything(supervisor: Driver) -> None:
    supervisor.start("k", command=["sleep", "60"])
    supervisor.started("k")
    supervisor.lease(600)
    supervisor.lease(-0.1)  # it waited in a socket

    assert supervisor.ended("k")["reason"] == "lease_expired"


def test_lease_without_an_end_stops_nothing(supervisor: Driver) -> None:
    supervisor.start("k", command=["sleep", "60"])
    supervisor.started("k")
    supervisor.lease(0.2, None)

    supervisor.run(["sleep", "0.4"], kernel="clock")

    assert supervisor.status("k") == "running"


def test_lease_runs_out_while_no_agent_is_there(supervisor: Driver) -> None:
    supervisor.start("k", command=["sleep", "60"])
    pid = supervisor.started("k")["pid"]
    supervisor.lease(0.3)
    supervisor.detach()

    wait_gone(pid)


def test_shutdown_stops_all_reports_and_exits_when_it_is_acknowledged(supervisor: Driver) -> None:
    supervisor.start("polite", command=["sh", "-c", "echo up; exec sleep 60"])
    supervisor.start("stubborn", command=["sh", "-c", IGNORING])
    supervisor.start({"id": "queued", "queued": True, "shape": "other"})
    for kernel in ("polite", "stubborn"):
        read_when_there(supervisor.log_path(kernel))

    supervisor.say(op="shutdown", grace_s=0.2)

    assert supervisor.ended("polite")["detail"] == "all work on its agent was stopped"
    assert supervisor.ended("stubborn")["signal"] == signal.SIGKILL
    assert supervisor.ended("queued")["reason"] == "never_started"
    supervisor.start("late")
    assert supervisor.error() == "start refused: the supervisor is shutting down"
    supervisor.acknowledge()
    supervisor.until_hung_up()


def test_sigterm_to_the_supervisor_is_a_shutdown(supervisor: Driver) -> None:
    supervisor.start("k", command=["sh", "-c", "echo up; exec sleep 60"])
    read_when_there(supervisor.log_path("k"))

    os.kill(supervisor.pid, signal.SIGTERM)

    assert supervisor.ended("k")["detail"] == "all work on its agent was stopped"
    supervisor.acknowledge()
    supervisor.until_hung_up()


def test_kernel_that_a_machine_ends_beside_its_supervisor_was_stopped(supervisor: Driver) -> None:
    """A machine that goes down sends SIGTERM to all processes."""
    supervisor.start("k", command=["sh", "-c", "echo $$; exec sleep 60"])
    pid = int(read_when_there(supervisor.log_path("k")))

    os.kill(supervisor.pid, signal.SIGSTOP)  # so that it hears both signals in whatever order
    os.kill(pid, signal.SIGTERM)
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    os.kill(supervisor.pid, signal.SIGTERM)
    os.kill(supervisor.pid, signal.SIGCONT)

    end = supervisor.ended("k")
    assert (end["reason"], end["detail"]) == ("stopped", "all work on its agent was stopped")
    supervisor.acknowledge()
    supervisor.until_hung_up()
