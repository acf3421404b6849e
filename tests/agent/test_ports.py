"""Ports reserved for kernels: nobody else's, kept over a restart, given back."""

import os
import random
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from muster.agent.ports import NoPorts, PortInUse, PreparedPorts
from muster.core.ids import KernelId

ONE, TWO, THREE = ((KernelId(f"krn-{n}"), 1) for n in (1, 2, 3))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def ports_of(directory: Path, allowed: range) -> PreparedPorts:
    directory.mkdir(exist_ok=True)
    return PreparedPorts(directory, allowed, random.Random(1))


@pytest.fixture
def two_free() -> range:
    """Two ports next to each other that nobody listens on."""
    while True:
        port = free_port()
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("", port))
                second.bind(("", port + 1))
            except OSError:
                continue
        return range(port, port + 2)


@pytest.fixture
def ports(tmp_path: Path, two_free: range) -> Iterator[PreparedPorts]:
    with closing(ports_of(tmp_path / "a", two_free)) as made:
        yield made


def test_reserved_ports_are_different_and_can_be_bound(
    ports: PreparedPorts, two_free: range
) -> None:
    reserved = ports.reserve(ONE, 1) + ports.reserve(TWO, 1)
    assert sorted(reserved) == list(two_free)
    for port in reserved:
        with socket.socket() as kernel:
            kernel.bind(("", port))


def test_reserving_again_gives_the_same_ports(ports: PreparedPorts) -> None:
    assert ports.reserve(ONE, 2) == ports.reserve(ONE, 2)


def test_too_few_ports_reserve_none(ports: PreparedPorts) -> None:
    with pytest.raises(NoPorts, match="2 of 3"):
        ports.reserve(ONE, 3)
    assert not ports.reserved()
    assert len(ports.reserve(TWO, 2)) == 2


def test_port_that_somebody_listens_on_is_not_reserved(
    ports: PreparedPorts, two_free: range
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", two_free[0]))
        other.listen()
        assert ports.reserve(ONE, 1) == (two_free[1],)
        with pytest.raises(NoPorts):
            ports.reserve(TWO, 1)


def test_released_ports_can_be_reserved_again(ports: PreparedPorts) -> None:
    ports.reserve(ONE, 2)
    ports.release([ONE])
    ports.release([ONE])
    ports.release([THREE])
    assert len(ports.reserve(TWO, 2)) == 2


def test_ports_of_another_agent_of_the_machine_are_left_alone(
    ports: PreparedPorts, tmp_path: Path, two_free: range
) -> None:
    mine = ports.reserve(ONE, 1)
    with closing(ports_of(tmp_path / "b", two_free)) as others:
        assert set(others.reserve(ONE, 1)).isdisjoint(mine)
        with pytest.raises(NoPorts):
            others.reserve(TWO, 1)


def test_names_that_anybody_may_take_reserve_nothing(ports: PreparedPorts, two_free: range) -> None:
    """Such as those of abstract sockets, which every kernel may bind."""
    with ExitStack() as stack:
        for port in two_free:
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(f"\0muster-port-{port}")
        assert len(ports.reserve(ONE, 2)) == 2


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_lock_of_the_agents_of_root_cannot_be_held_by_others(ports: PreparedPorts) -> None:
    ports.reserve(ONE, 1)
    open_files = (Path(os.path.realpath(entry)) for entry in Path("/proc/self/fd").iterdir())
    (lock,) = {path for path in open_files if path.match("/run/muster/ports-*.locks")}
    opens = ["setpriv", "--reuid=210001", "--clear-groups", "cat", str(lock)]

    assert b"Permission denied" in subprocess.run(opens, capture_output=True, check=False).stderr


def test_locks_tell_nobody_which_ports_are_reserved(
    ports: PreparedPorts, two_free: range, tmp_path: Path
) -> None:
    (port,) = ports.reserve(ONE, 1)
    locked = [line.split()[-2:] for line in Path("/proc/locks").read_text().splitlines()]
    assert locked
    assert [str(port)] * 2 not in locked
    with closing(ports_of(tmp_path / "b", two_free)) as others:
        assert others.reserve(TWO, 1) != (port,)


def test_reservations_survive_a_restart(tmp_path: Path, two_free: range) -> None:
    with closing(ports_of(tmp_path, two_free)) as before:
        kept = before.reserve(ONE, 1)
        before.reserve(TWO, 1)
        before.save()
        before.release([TWO])
    with closing(ports_of(tmp_path, two_free)) as after:
        assert dict(after.reserved()) == {ONE: kept}
        assert set(after.reserve(TWO, 1)).isdisjoint(kept)


def test_file_is_written_once_for_all_that_is_reserved_or_given_back_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its length grows with the kernels, so each of a thousand would otherwise pay for all."""
    written: list[Path] = []
    replace = Path.replace

    def counted(path: Path, to: Path) -> Path:
        written.append(to)
        return replace(path, to)

    monkeypatch.setattr(Path, "replace", counted)
    with closing(ports_of(tmp_path, range(20_000, 20_100))) as ports:
        for key in (ONE, TWO, THREE):
            ports.reserve(key, 1)
        assert not written
        ports.save()
        ports.save()
        ports.release([ONE, TWO, THREE])
        ports.release([ONE, TWO, THREE])
    assert len(written) == 2


def test_reservations_that_cannot_be_written_down_are_given_back(
    tmp_path: Path, two_free: range
) -> None:
    with closing(ports_of(tmp_path, two_free)) as ports:
        ports.reserve(ONE, 1)
        ports.save()
        ports.reserve(TWO, 1)
        in_the_way = tmp_path / "ports.json"
        in_the_way.unlink()
        in_the_way.mkdir()
        with pytest.raises(OSError, match="directory"):
            ports.save()
        in_the_way.rmdir()
        assert [*ports.reserved()] == [ONE]
        ports.reserve(THREE, 1)
        ports.save()
        assert [*ports.reserved()] == [ONE, THREE]


@pytest.mark.parametrize("damaged", ["", "{}[", '[["krn-1"]]', "7"])
def test_damaged_file_is_as_good_as_none(tmp_path: Path, damaged: str) -> None:
    (tmp_path / "ports.json").write_text(damaged)
    with closing(ports_of(tmp_path, range(20_000, 20_100))) as ports:
        assert not ports.reserved()


def test_fixed_port_is_reserved_beside_the_others(ports: PreparedPorts, two_free: range) -> None:
    first, second = two_free
    assert ports.reserve(ONE, 1, fixed=first) == (second,)
    assert ports.reserve(ONE, 1, fixed=first) == (second,)
    with socket.socket() as program:
        program.bind(("", first))
    with pytest.raises(NoPorts):  # of those that Muster chooses, neither is left
        ports.reserve(TWO, 1)


def test_fixed_port_of_another_kernel_is_in_use(
    ports: PreparedPorts, tmp_path: Path, two_free: range
) -> None:
    """It is reserved before its program listens; be the kernel of this agent or of another one."""
    ports.reserve(ONE, 1, fixed=two_free[1])
    with closing(ports_of(tmp_path / "b", two_free)) as others:
        for each in (ports, others):
            with pytest.raises(PortInUse, match=f"port {two_free[1]} is in use"):
                each.reserve(TWO, 0, fixed=two_free[1])
            with pytest.raises(PortInUse):
                each.reserve(TWO, 0, fixed=two_free[0])  # it was chosen for the first
            assert TWO not in each.reserved()


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", "::", "::1"])
def test_fixed_port_on_which_somebody_listens_is_in_use(
    ports: PreparedPorts, two_free: range, address: str
) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as other:
        if family is socket.AF_INET6:
            other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            other.bind((address, two_free[0]))
        except OSError:
            pytest.skip(f"this machine has no {address}")
        other.listen()
        with pytest.raises(PortInUse):
            ports.reserve(ONE, 0, fixed=two_free[0])
    ports.reserve(ONE, 0, fixed=two_free[0])


def test_connections_that_are_ending_do_not_hold_a_fixed_port(
    ports: PreparedPorts, two_free: range
) -> None:
    """Connections of a program that has just ended are in TIME_WAIT for a minute."""
    with socket.socket() as program:
        program.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        program.bind(("127.0.0.1", two_free[0]))
        program.listen()
        with socket.create_connection(("127.0.0.1", two_free[0])) as client:
            answering, _ = program.accept()
            answering.close()  # it closes first, and so has the state
            assert client.recv(1) == b""
    with socket.socket() as plain, pytest.raises(OSError, match="in use"):
        plain.bind(("127.0.0.1", two_free[0]))
    ports.reserve(ONE, 0, fixed=two_free[0])


def test_fixed_port_is_given_back_before_the_others(
    ports: PreparedPorts, tmp_path: Path, two_free: range
) -> None:
    chosen = ports.reserve(ONE, 1, fixed=two_free[0])
    ports.release_fixed([ONE])
    ports.release_fixed([ONE])
    with closing(ports_of(tmp_path / "b", two_free)) as others:
        others.reserve(TWO, 0, fixed=two_free[0])
    assert ports.reserved() == {ONE: chosen}


def test_fixed_port_survives_a_restart(tmp_path: Path, two_free: range) -> None:
    directory = tmp_path / "a"
    with closing(ports_of(directory, two_free)) as before:
        before.reserve(ONE, 0, fixed=two_free[0])
        before.reserve(TWO, 0, fixed=two_free[1])
        before.save()
        before.release([TWO])
    with (
        closing(ports_of(directory, two_free)) as after,
        closing(ports_of(tmp_path / "b", two_free)) as others,
    ):
        assert dict(after.reserved()) == {ONE: ()}
        with pytest.raises(PortInUse):
            others.reserve(THREE, 0, fixed=two_free[0])
        after.release([ONE])
        others.reserve(THREE, 0, fixed=two_free[0])
        others.reserve(TWO, 0, fixed=two_free[1])
