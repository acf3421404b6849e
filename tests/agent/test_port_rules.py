"""Rules by which ports are their owners', in a network namespace of their own."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.patience import until

from muster.agent import port_rules
from muster.agent.port_rules import PortRules
from muster.core.serving.port_holders import BY_NFTABLES, BY_NOTHING

NFT = shutil.which("nft", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
needs_nft = pytest.mark.skipif(
    os.getuid() != 0 or NFT is None, reason="only root has rules, and only with nft"
)
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or "python3"  # that other users may run
UIDS = range(264_000, 264_100)
ADA, MALLORY, MAPPED, STRANGER = 264_001, 264_002, 61_001, 61_002
PORT, OTHER_PORT = 21_001, 21_002

SERVES = """
import socket, sys
host, port = sys.argv[1:]
server = socket.create_server((host, int(port)), family=socket.AF_INET6 if ":" in host else 2)
print(flush=True)
while True:
    connection = server.accept()[0]
    connection.sendall(b"hello")
    connection.close()
"""
ASKS = """
import socket, sys
host, port = sys.argv[1:]
connection = socket.socket(socket.AF_INET6 if ":" in host else 2)
connection.settimeout(1)
try:
    connection.connect((host, int(port)))
    print(connection.recv(100).decode())
except OSError as error:
    print(type(error).__name__)
"""


class Machine:
    """A network namespace with loopback, which the process ``pid`` keeps."""

    def __init__(self, pid: int) -> None:
        self.enter = ("nsenter", f"--net=/proc/{pid}/ns/net")

    def command(self, uid: int, script: str, host: str, port: int) -> list[str]:
        become = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
        return [*self.enter, *become, PYTHON, "-I", "-S", "-c", script, host, str(port)]

    @contextmanager
    def serving(self, uid: int, port: int = PORT, host: str = "127.0.0.1") -> Iterator[None]:
        """A program of a user listens."""
        command = self.command(uid, SERVES, host, port)
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
            try:
                assert server.stdout is not None
                assert server.stdout.readline() == b"\n"
                yield
            finally:
                server.kill()

    def ask(self, uid: int, port: int = PORT, host: str = "127.0.0.1") -> str:
        """The answer that a user's program gets."""
        command = self.command(uid, ASKS, host, port)
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


@pytest.fixture
def machine() -> Iterator[Machine]:
    with subprocess.Popen(["unshare", "--net", "sleep", "600"]) as keeper:
        own = Path("/proc/self/ns/net").readlink()
        until(lambda: Path(f"/proc/{keeper.pid}/ns/net").readlink() != own)
        made = Machine(keeper.pid)
        subprocess.run([*made.enter, "ip", "link", "set", "lo", "up"], check=True)
        try:
            yield made
        finally:
            keeper.kill()


@pytest.fixture
def rules(machine: Machine, tmp_path: Path) -> PortRules:
    (tmp_path / "users" / str(MAPPED)).mkdir(parents=True)
    return PortRules(tmp_path, [UIDS], tmp_path / "users", [*machine.enter, str(NFT)])


def write(rules: PortRules, owners: Mapping[int, int]) -> None:
    rules.wish(owners)
    asyncio.run(rules.write())
    assert (rules.kind, rules.lack) == (BY_NFTABLES, "")


@needs_nft
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_port_is_reached_by_its_owner_and_by_those_as_whom_no_kernel_runs(
    machine: Machine, rules: PortRules, host: str
) -> None:
    with machine.serving(ADA, host=host), machine.serving(ADA, OTHER_PORT, host):
        assert machine.ask(MALLORY, host=host) == "hello"  # without rules
        write(rules, {PORT: ADA})
        for user in (ADA, 0, STRANGER):
            assert machine.ask(user, host=host) == "hello"
        for user in (MALLORY, MAPPED):
            assert machine.ask(user, host=host) == "ConnectionRefusedError"
        assert machine.ask(MALLORY, OTHER_PORT, host) == "hello"  # which nobody reserved


@needs_nft
def test_thief_of_a_port_answers_nobody(machine: Machine, rules: PortRules) -> None:
    write(rules, {PORT: ADA})
    with machine.serving(MALLORY):
        for user in (0, STRANGER, ADA):
            assert machine.ask(user) == "TimeoutError"
    with machine.serving(ADA):
        assert machine.ask(0) == "hello"


@needs_nft
def test_rules_of_an_earlier_agent_stand_until_the_next_knows_its_kernels(
    machine: Machine, rules: PortRules, tmp_path: Path
) -> None:
    write(rules, {PORT: ADA})
    with machine.serving(ADA):
        later = PortRules(tmp_path, [UIDS], tmp_path / "users", [*machine.enter, str(NFT)])
        asyncio.run(later.write())
        later.clear()
        assert machine.ask(MALLORY) == "ConnectionRefusedError"
        write(later, {})
        assert machine.ask(MALLORY) == "hello"


@needs_nft
def test_rules_come_back_that_somebody_removed_and_go_with_the_agent(
    machine: Machine, rules: PortRules
) -> None:
    def tables() -> str:
        listing = [*machine.enter, str(NFT), "list", "tables"]
        return subprocess.run(listing, capture_output=True, check=True, text=True).stdout

    write(rules, {PORT: ADA})
    subprocess.run([*machine.enter, str(NFT), "flush", "ruleset"], check=True)
    asyncio.run(rules.write())
    with machine.serving(ADA):
        assert machine.ask(MALLORY) == "ConnectionRefusedError"
    rules.clear()
    assert "muster" in tables()  # a kernel still has its port
    write(rules, {})
    rules.clear()
    assert tables() == ""


@needs_nft
def test_ports_of_an_agent_that_does_not_come_back_are_free_again(
    machine: Machine, rules: PortRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_rules, "KEPT_S", 1)
    write(rules, {PORT: ADA})
    with machine.serving(MALLORY):
        until(lambda: machine.ask(0) == "hello")


@needs_nft
def test_many_ports_are_written_at_once(machine: Machine, rules: PortRules) -> None:
    write(rules, dict.fromkeys(range(20000, 30000), ADA))
    with machine.serving(ADA):
        assert machine.ask(MALLORY) == "ConnectionRefusedError"


@pytest.mark.skipif(os.getuid() != 0, reason="only root has rules")
@pytest.mark.parametrize(
    ("command", "lack"),
    [
        (["sh", "-c", "echo Operation not permitted >&2; exit 1"], "Operation not permitted"),
        (["/nowhere/nft"], "nft cannot be run"),
    ],
)
def test_rules_that_are_refused_are_told(tmp_path: Path, command: list[str], lack: str) -> None:
    rules = PortRules(tmp_path, [UIDS], tmp_path / "users", command)
    rules.wish({PORT: ADA})
    asyncio.run(rules.write())
    assert rules.kind == BY_NOTHING
    assert lack in rules.lack
