"""The socket: who may speak, what is answered, and what happens when nobody listens."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from tests.agent.supervisor.driver import Driver
from tests.patience import until

from muster.agent.supervisor.launch import connect
from muster.agent.supervisor.protocol import MAX_LINE_BYTES


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"{", "a line is not JSON"),
        (b"[]", "a line must be a JSON object"),
        (b"\xff", "a line is not JSON"),
        (b'{"op":"dance"}', "unknown op 'dance'"),
        (b'{"op":"lease","until_s":"soon"}', "'until_s' must be a number of seconds"),
        (b'{"op":"lease","until_s":NaN}', "'until_s' must be zero or more"),
        (b'{"op":"ack"}', "'seq' must be a whole number, zero or more"),
        (b'{"op":"ack","seq":true}', "'seq' must be a whole number, zero or more"),
        (b'{"op":"stop","kernels":[{"id":"../x","generation":1}]}', "'../x' is no kernel id"),
        (b'{"op":"stop","kernels":{}}', "'kernels' must be a list of objects"),
        (b'{"op":"start","templates":[],"kernels":[{"id":"k","generation":1}]}',
         "kernel k: there is no template 0"),
        (b'{"op":"start","templates":[{"command":[]}],"kernels":[]}',
         "'command' must be a list of strings"),
        (b'{"op":"start","templates":[{"command":["a"],"workdir":"here"}],"kernels":[]}',
         "'workdir' must be an absolute path or null"),
        (b'{"op":"start","templates":[{"command":["a"],"env":{"A=B":""}}],"kernels":[]}',
         "'A=B' cannot be an environment variable"),
        (b'{"op":"start","templates":[{"command":["a"],"log_max_bytes":1}],"kernels":[]}',
         "'log_max_bytes' must be at least 65536"),
    ],
)  # fmt: skip
def test_line_that_cannot_be_obeyed_is_answered_and_does_no_harm(
    supervisor: Driver, line: bytes, sentence: str
) -> None:
    supervisor.say_line(line)

    assert supervisor.error().startswith(sentence)
    assert supervisor.run(["true"])["exit_code"] == 0


def test_line_that_never_ends_is_cut_off_and_the_next_agent_served(supervisor: Driver) -> None:
    with suppress(ConnectionError):  # it need not take all of it
        supervisor.say_line(b" " * (2 * MAX_LINE_BYTES))
    supervisor.until_hung_up()

    supervisor.attach()
    assert supervisor.run(["true"])["exit_code"] == 0


def test_line_of_nearly_the_limit_is_taken(supervisor: Driver) -> None:
    text = "x" * (MAX_LINE_BYTES - 1000)
    end = supervisor.run(["sh", "-c", "test $(wc -c < file) -gt 4000000"], files={"file": text})

    assert end["exit_code"] == 0


def test_line_in_pieces_and_two_lines_in_one_are_understood(supervisor: Driver) -> None:
    start = {
        "op": "start",
        "templates": [{"command": ["true"]}],
        "kernels": [{"id": "k", "generation": 1}],
    }
    data = json.dumps(start).encode() + b'\n{"op":"nonsense"}\n'
    for position in range(0, len(data), 40):
        supervisor.socket.sendall(data[position : position + 40])
        supervisor.listen()

    assert supervisor.ended("k")["exit_code"] == 0
    assert supervisor.error() == "unknown op 'nonsense'"


def test_whoever_has_not_attached_is_not_obeyed(supervisor: Driver) -> None:
    with connect(supervisor.directory) as other:
        other.settimeout(10)
        other.sendall(b'{"op":"shutdown","grace_s":0}\n')
        assert json.loads(other.recv(1000)) == {"error": "attach first"}

    assert supervisor.run(["true"])["exit_code"] == 0


def test_new_agent_takes_the_place_of_the_old(supervisor: Driver) -> None:
    with connect(supervisor.directory) as old:
        old.settimeout(10)
        old.sendall(b'{"op":"attach"}\n')
        assert b'"state"' in old.recv(10_000)
        supervisor.attach()
        assert old.recv(1000) == b"", "the old one is told by being hung up on"

    assert supervisor.run(["true"])["exit_code"] == 0


def test_more_connections_than_there_is_room_for_are_turned_away(supervisor: Driver) -> None:
    others = [connect(supervisor.directory) for _ in range(40)]
    try:
        others[-1].settimeout(10)
        assert others[-1].recv(1) == b""
    finally:
        for other in others:
            other.close()

    assert supervisor.run(["true"])["exit_code"] == 0


def test_agent_that_comes_back_hears_all_it_has_not_acknowledged(
    supervisor: Driver, tmp_path: Path
) -> None:
    supervisor.run(["true"], kernel="acknowledged")
    supervisor.acknowledge()
    supervisor.run(["true"], kernel="heard")
    for code in (0, 5):
        wait_and_exit = f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; exit {code}"
        supervisor.start(f"late{code}", command=["sh", "-c", wait_and_exit])
    supervisor.start("running", command=["sleep", "60"])
    supervisor.started("running")
    for code in (0, 5):
        supervisor.started(f"late{code}")
    supervisor.detach()
    (tmp_path / "go").touch()
    for code in (0, 5):
        supervisor.until_written(f"late{code}", "ended")
    before = {event["seq"]: event for event in supervisor.events}
    supervisor.batches.clear()

    state = supervisor.attach()

    assert {entry["id"]: entry["status"] for entry in state["kernels"]} == {
        "heard": "ended",
        "late0": "ended",
        "late5": "ended",
        "running": "running",
    }
    supervisor.ended("late0")
    assert supervisor.ended("late5")["exit_code"] == 5
    again = [event for batch in supervisor.batches for event in batch]
    assert [event["seq"] for event in again] == list(range(3, state["next_seq"]))
    assert all(before.get(event["seq"], event) == event for event in again)


def test_state_tells_who_runs_waits_and_has_ended(supervisor: Driver) -> None:
    supervisor.start({"id": "a", "devices": [1]}, command=["sleep", "60"])
    supervisor.start({"id": "b", "queued": True, "shape": "t"})
    supervisor.run(["sh", "-c", "exit 3"], kernel="c")
    started = supervisor.started("a")

    state = supervisor.settle()

    by_id = {entry.pop("id"): entry for entry in state["kernels"]}
    assert by_id["a"] == {
        "generation": 1,
        "status": "running",
        "shape": "s",
        "devices": [1],
        "pid": started["pid"],
        "started_at": started["at"],
    }
    assert by_id["b"] == {"generation": 1, "status": "queued", "shape": "t", "devices": []}
    assert by_id["c"]["status"] == "ended"
    assert state["next_seq"] == 4


def test_agent_that_does_not_read_costs_no_memory_and_loses_nothing(supervisor: Driver) -> None:
    """20 MB of events, the details of failed creations, are left in the journal for it."""
    missing = "/missing" * 120
    for first in range(0, 20_000, 500):
        names = [f"k{number}" for number in range(first, first + 500)]
        supervisor.start(*names, workdir=missing)
    journal = supervisor.directory / "journal"
    until(lambda: journal.stat().st_size > 20_000_000)

    status = Path(f"/proc/{supervisor.pid}/status").read_text()
    assert int(status.split("VmRSS:")[1].split()[0]) < 40_000

    supervisor.until(lambda: sum(map(len, supervisor.batches)) >= 20_000)
    seqs = [event["seq"] for batch in supervisor.batches for event in batch]
    assert seqs == list(range(1, 20_001))


def test_start_of_a_whole_backlog_in_one_line_is_served_whole(supervisor: Driver) -> None:
    names = [f"k{number}" for number in range(400)]
    supervisor.start(*names)

    supervisor.until(lambda: len(supervisor.events) == 800)
    assert {event["kernel"] for event in supervisor.events if event["kind"] == "ended"} == (
        set(names)
    )
