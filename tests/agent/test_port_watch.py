"""The holders of replicas' ports, by real sockets of real processes."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from tests.patience import until
from tests.probing.servers import closed_port

from muster.agent.listening import listening_on
from muster.agent.port_watch import PortWatch
from muster.agent.supervisor.process_tree import (
    GENERATION_VARIABLE,
    ID_VARIABLE,
    SUPERVISOR_VARIABLE,
)
from muster.core.ids import KernelId
from muster.core.serving.port_holders import PortHolder, PortOrder, PortOrders, PortSeen

PYTHON = shutil.which("python3", path="/usr/bin:/bin") or "python3"  # that other users may run
ADA, MALLORY = 265_001, 265_002
NOBODY, REPLICA, OTHER_KERNEL, OTHER_ACCOUNT = PortHolder
root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root has processes of other users")

LISTENS = """
import socket, sys, time
sockets = []
for place in sys.argv[1:]:
    address, _, port = place.rpartition(":")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    one = socket.socket(family)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    one.bind((address, int(port)))
    one.listen()
    sockets.append(one)
print(flush=True)
time.sleep(600)
"""


@contextmanager
def process(kernel: str, *places: str, user: int | None = None) -> Iterator[int]:
    """A process of a kernel that listens at these places; its id."""
    environment = {ID_VARIABLE: kernel, GENERATION_VARIABLE: "1", SUPERVISOR_VARIABLE: "/agent"}
    started = subprocess.Popen(
        [PYTHON, "-I", "-S", "-c", LISTENS, *places],
        env=environment,
        stdout=subprocess.PIPE,
        user=user,
        extra_groups=None if user is None else [],
        group=user,
    )
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == b"\n"
        yield started.pid
    finally:
        started.kill()
        started.communicate()


class Looking:
    """A watch over the port of one replica, whose main process is ``main``."""

    def __init__(self, port: int, main: int) -> None:
        self.watch = PortWatch(lambda key: main if key == ("ker-1", 1) else None, lambda: None)
        self.watch.obey(PortOrders((PortOrder("rou-1", KernelId("ker-1"), 1, port),)))

    def look(self) -> list[PortHolder]:
        """Look once; the answer is the news."""
        watched = list(self.watch._watched.values())
        self.watch._take_note(self.watch._look(watched))
        return [each.holder for each in self.watch.take().ports]


@pytest.fixture
def port() -> int:
    return closed_port()


@pytest.fixture
def started() -> Iterator[Callable[..., int]]:
    with ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(process(*args, **options))


@root_only
def test_listeners_of_replicas_and_others_are_told_apart(
    port: int, started: Callable[..., int]
) -> None:
    main = started("ker-1", user=ADA)
    looking = Looking(port, main)
    assert looking.look() == [NOBODY]
    assert looking.look() == []  # nothing is told twice
    with process("ker-1", f"127.0.0.1:{port}", user=ADA):
        assert looking.look() == [REPLICA]
    assert looking.look() == [NOBODY]
    with process("ker-1", f"127.0.0.1:{port}", user=MALLORY):  # whatever its environment says
        assert looking.look() == [OTHER_ACCOUNT]
    with process("ker-2", f"127.0.0.1:{port}", user=ADA):
        assert looking.look() == [OTHER_KERNEL]


@root_only
@pytest.mark.parametrize(
    ("mine", "thiefs"),
    [
        ("127.0.0.1", "127.0.0.2"),
        ("0.0.0.0", "::1"),
        ("::", "127.0.0.1"),
        ("::1", "127.0.0.1"),
    ],
)
def test_every_address_of_a_port_counts(
    port: int, started: Callable[..., int], mine: str, thiefs: str
) -> None:
    main = started("ker-1", f"{mine}:{port}", user=ADA)
    looking = Looking(port, main)
    assert looking.look() == [REPLICA]
    with process("ker-9", f"{thiefs}:{port}", user=MALLORY):
        assert looking.look() == [OTHER_ACCOUNT]
    assert looking.look() == [REPLICA]


def test_kernel_of_the_same_account_that_shares_the_port_is_told(
    port: int, started: Callable[..., int]
) -> None:
    main = started("ker-1", f"127.0.0.1:{port}")
    looking = Looking(port, main)
    assert looking.look() == [REPLICA]
    with process("ker-2", f"127.0.0.1:{port}"):  # both with SO_REUSEPORT: each gets half
        assert looking.look() == [OTHER_KERNEL]


@root_only
def test_listener_of_root_that_is_in_no_kernel_stands_for_the_replica(
    port: int, started: Callable[..., int]
) -> None:
    """As of a container whose port the machine's own daemon passes on."""
    looking = Looking(port, started("ker-1", user=ADA))
    environment = {"PATH": os.environ["PATH"]}
    daemon = subprocess.Popen(
        [PYTHON, "-I", "-S", "-c", LISTENS, f"127.0.0.1:{port}"], env=environment
    )
    try:
        until(lambda: listening_on({port}))
        assert looking.look() == [REPLICA]
    finally:
        daemon.kill()
        daemon.wait()


def test_kernel_that_does_not_run_is_not_told_of(port: int) -> None:
    looking = Looking(port, os.getpid())
    looking.watch.obey(PortOrders((PortOrder("rou-1", KernelId("ker-7"), 1, port),)))
    assert looking.look() == []


def test_watch_tells_of_changes_and_obeys_until_it_forgets(
    port: int, started: Callable[..., int]
) -> None:
    main = started("ker-1")

    async def told() -> list[PortSeen]:
        news = asyncio.Event()
        watch = PortWatch(lambda key: main, news.set)
        watch.obey(PortOrders((PortOrder("rou-1", KernelId("ker-1"), 1, port),)))
        looking = asyncio.create_task(watch.run())
        found: list[PortSeen] = []
        async with asyncio.timeout(20):
            await news.wait()
            found += watch.take().ports
            news.clear()
            with process("ker-1", f"127.0.0.1:{port}"):
                await news.wait()
                found += watch.take().ports
                watch.forget()
        looking.cancel()
        assert not watch.has_news
        return found

    seen = asyncio.run(told())
    assert [each.holder for each in seen] == [NOBODY, REPLICA]
    assert seen[0] == PortSeen("rou-1", KernelId("ker-1"), 1, NOBODY)
