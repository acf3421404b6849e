"""The sockets that listen on this machine, and the kernels whose processes have them.

A socket's uid is that of the process which made it, and the operating system's word. For the kernel
the processes are looked at that have the socket open: by their cgroup, which no kernel of another
account can leave, and where kernels have none by their environment, which is believed of processes
of the kernel's own account only.
"""

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from muster.agent.supervisor.process_tree import (
    GENERATION_VARIABLE,
    ID_VARIABLE,
    SUPERVISOR_VARIABLE,
)

_TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_LISTEN, _SYN_RECEIVED = "0A", "03"
_SLOT = re.compile(r"/(muster-[0-9a-f]+-[0-9a-f]+)/(?:least/)?([0-9]+)")
"""Of a kernel's cgroup: the name of its supervisor's, and its own (``supervisor.cgroups``)."""
_SOCKET = "socket:["
_TAGS = (ID_VARIABLE, GENERATION_VARIABLE, SUPERVISOR_VARIABLE)


@dataclass(frozen=True, slots=True)
class ListeningSocket:
    """A TCP socket that listens, at whichever address.

    Args:
        uid: of the process that made it.
        inode: its number among all sockets of the machine.
    """

    uid: int
    inode: int


Place = tuple[str, ...]
"""The kernel to which a process belongs, as its cgroup or its environment tells; empty for none."""


def sees_sockets() -> bool:
    """Whether this machine tells of sockets that listen."""
    return _TABLES[0].exists() and os.access(_TABLES[0], os.R_OK)


def listening_on(ports: Collection[int]) -> dict[int, frozenset[ListeningSocket]]:
    """The sockets that listen on each of these ports, of those on which any does.

    Raises:
        OSError: the machine does not tell.
    """
    found: dict[int, set[ListeningSocket]] = defaultdict(set)
    for port, listener in _listeners():
        if port in ports:
            found[port].add(listener)
    return {port: frozenset(listeners) for port, listeners in found.items()}


def _listeners() -> Iterator[tuple[int, ListeningSocket]]:
    """All sockets that listen. A table has them first, so that the rest of it, which may be long,
    is not read."""
    for table in _TABLES:
        with suppress(FileNotFoundError), table.open() as lines:  # the second is there with IPv6
            next(lines, "")
            for line in lines:
                fields = line.split()
                if fields[3] == _LISTEN:
                    port = int(fields[1].rpartition(":")[2], 16)
                    yield port, ListeningSocket(int(fields[7]), int(fields[9]))
                elif fields[3] != _SYN_RECEIVED:
                    break


def place_of(pid: int) -> Place:
    """The place of a process: by its cgroup, else by its environment; empty if it is in no kernel,
    or has ended, or cannot be looked at."""
    with suppress(OSError):
        slot = _SLOT.search(Path(f"/proc/{pid}/cgroup").read_text())
        if slot is not None:
            return slot.groups()
    with suppress(OSError):
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        values = dict(entry.partition(b"=")[::2] for entry in reversed(entries))
        if ID_VARIABLE.encode() in values:
            return tuple(values.get(tag.encode(), b"").decode(errors="replace") for tag in _TAGS)
    return ()


def places_of(listeners: Collection[ListeningSocket]) -> Mapping[ListeningSocket, set[Place]]:
    """The places of the processes that have each of these sockets open, as far as this process can
    see them. It looks at the processes of the sockets' users alone."""
    by_link = {f"{_SOCKET}{each.inode}]": each for each in listeners}
    uids = {each.uid for each in listeners}
    found: dict[ListeningSocket, set[Place]] = defaultdict(set)
    for pid in _processes_of(uids):
        for listener in {by_link[link] for link in _links(pid) if link in by_link}:
            found[listener].add(place_of(pid))
    return found


def _processes_of(uids: Collection[int]) -> Iterator[int]:
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                with suppress(OSError):  # it has ended
                    if entry.stat().st_uid in uids:
                        yield int(entry.name)


def _links(pid: int) -> Iterator[str]:
    """The files that a process has open; none if it may not be looked at."""
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with suppress(OSError):
                yield str(Path(entry.path).readlink())
