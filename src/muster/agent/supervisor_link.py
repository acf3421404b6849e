"""The agent's end of the supervisor's socket: commands as JSON lines, events as they come."""

import asyncio
import json
import logging
import math
import os
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, Protocol, Self, TypedDict, cast

from muster.agent.accounts import Account
from muster.agent.supervisor.protocol import SOCKET_NAME, VERSION
from muster.agent.supervisor_process import identify
from muster.core.health.service import MAX_RESULT_BYTES
from muster.core.resources import GPU_WHOLE
from muster.wire.messages import Go, KernelKey, KernelTemplate, Recall, Start, Stop

if TYPE_CHECKING:
    from muster.agent.supervisor.kernel import Event

log = logging.getLogger(__name__)

ATTACH_TIMEOUT_S = 10.0
LINE_LIMIT_BYTES = 2 * 1024 * 1024
"""The longest line; longer ones are cut into several. The supervisor takes lines twice as long."""

FORGET_AT_ONCE = 1000

_OVER = ("ended", "create_failed")
_CREDENTIALS = struct.Struct("iII")  # of the other end of a socket: process, user, group

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


AccountsOf = Mapping[str, Account | None]
"""The account of each owner; None is the agent's own user."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The limits that this agent adds to the controller's order for a kernel, and the names of
    devices that CUDA does not know by their indexes (``mig.cuda_names``)."""

    log_max_bytes: int
    pids_max: int
    scratch_max_bytes: int
    device_names: Mapping[int, str] = field(default_factory=dict)


class SupervisorLost(Exception):
    """The supervisor does not answer."""


class OtherVersion(Exception):
    """The supervisor speaks another version of the protocol than this agent. If it holds no kernels
    it was told to end; else ``live`` counts its kernels, and its process is ``pid``."""

    def __init__(self, version: object, live: int, pid: int) -> None:
        super().__init__(
            f"the kernel supervisor was started by another version of muster (it speaks version "
            f"{version} of its protocol, this agent {VERSION}) and holds {live} kernels"
        )
        self.live, self.pid = live, pid


class KernelState(TypedDict):
    """A kernel in a supervisor's answer to ``attach``, as far as the agent reads it."""

    id: str
    generation: int
    status: str
    shape: NotRequired[str]
    pid: NotRequired[int]  # of its main process, once that runs
    lost: NotRequired[bool]  # it ended with a dead supervisor, and nobody has seen how


class SupervisorState(TypedDict):
    """A supervisor's answer to ``attach``; ``limits`` says how it limits kernels, if at all."""

    version: int
    kernels: list[KernelState]
    limits: str


class Listener(Protocol):
    """The agent's reactions to the supervisor; called on the event loop, in order."""

    def attached(self, state: SupervisorState) -> None:
        """The supervisor holds these kernels; events that nobody has acknowledged follow."""

    def heard(self, events: "Sequence[Event]") -> None:
        """Events about kernels, in order. Events of one moment come together."""

    def refused(self, why: str) -> None:
        """The supervisor could not obey a command."""


class SupervisorLink(asyncio.Protocol):
    """A connection to the supervisor; the future ``lost`` is done when it is over. ``process``
    identifies the supervisor's process, see ``supervisor_process``."""

    def __init__(self, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = loop.create_future()
        self._listener = listener
        self._attached: asyncio.Future[None] = loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._rest = b""
        self._pid = 0
        self.process = ""

    @classmethod
    async def attach(cls, directory: Path, listener: Listener) -> Self:
        """Connect to the supervisor of ``directory``, which drops the agent that was attached
        before.

        Raises:
            SupervisorLost: there is none, or it does not answer.
            OtherVersion: this agent cannot speak to it.
        """
        link = cls(listener)
        # Through a descriptor, because a socket's path must be shorter than a directory's may be.
        folder = os.open(directory, os.O_PATH | os.O_DIRECTORY)
        try:
            async with asyncio.timeout(ATTACH_TIMEOUT_S):
                await asyncio.get_running_loop().create_unix_connection(
                    lambda: link, f"/proc/self/fd/{folder}/{SOCKET_NAME}"
                )
                link._say({"op": "attach"})
                await link._attached
        except (OSError, TimeoutError) as error:
            link.close()
            raise SupervisorLost(f"no supervisor answers in {directory}: {error}") from None
        finally:
            os.close(folder)
        return link

    def close(self) -> None:
        """Close the connection; the supervisor goes on by itself."""
        if self._transport is not None:
            self._transport.abort()

    async def drained(self) -> None:
        """Wait until the supervisor has taken most of its commands."""
        await self._writable.wait()

    # Commands

    def start(self, starts: Sequence[Start], terms: Terms, accounts: AccountsOf) -> list[Start]:
        """Have kernels started; the answer is the starts that are too large for a message."""
        positions: dict[int, int] = {}
        templates: list[dict[str, Any]] = []
        kernels: list[dict[str, Any]] = []
        for start in starts:
            position = positions.setdefault(id(start.template), len(templates))
            if position == len(templates):
                account = accounts[start.template.owner]
                templates.append(_template(start.template, terms, account))
            kernels.append(_kernel(start, position, terms.device_names))
        line = _encode({"op": "start", "templates": templates, "kernels": kernels})
        if len(line) < LINE_LIMIT_BYTES:
            self._say_line(line)
            return []
        if len(starts) == 1:
            return [*starts]
        middle = len(starts) // 2
        return [
            *self.start(starts[:middle], terms, accounts),
            *self.start(starts[middle:], terms, accounts),
        ]

    def stop(self, stops: Iterable[Stop]) -> None:
        kernels = [
            {
                "id": stop.kernel,
                "generation": stop.generation,
                "grace_s": stop.grace_s,
                "reason": stop.reason,
            }
            for stop in stops
        ]
        self._say({"op": "stop", "kernels": kernels})

    def go(self, held: Iterable[Go]) -> None:
        """Let kernels run that were started with ``hold``, and wait at their gang's barrier."""
        kernels = [{"id": each.kernel, "generation": each.generation} for each in held]
        self._say({"op": "go", "kernels": kernels})

    def recall(self, recalls: Iterable[Recall]) -> None:
        kernels = [{"id": each.kernel, "generation": each.generation} for each in recalls]
        self._say({"op": "recall", "kernels": kernels})

    def renew_lease(self, until_s: float) -> None:
        """Let kernels run until this moment of the boot clock; infinity is without an end."""
        self._say({"op": "lease", "until_s": None if math.isinf(until_s) else until_s})

    def acknowledge(self, seq: int) -> None:
        self._say({"op": "ack", "seq": seq})

    def forget(self, ended: Iterable[tuple[KernelKey, tuple[Path, ...]]]) -> None:
        """Have the logs and scratch directories of ended kernels removed; beside each kernel stand
        the places of other users where it has left files."""
        by_places: dict[tuple[Path, ...], list[KernelKey]] = {}
        for key, places in ended:
            by_places.setdefault(places, []).append(key)
        for places, keys in by_places.items():
            told = [str(place) for place in places]
            for first in range(0, len(keys), FORGET_AT_ONCE):
                some = keys[first : first + FORGET_AT_ONCE]
                kernels = [{"id": kernel, "generation": generation} for kernel, generation in some]
                self._say({"op": "forget", "kernels": kernels, "places": told})

    def shut_down(self) -> None:
        """Have the supervisor end, together with all kernels that it still holds."""
        self._say({"op": "shutdown", "grace_s": 0.0})

    def _say(self, message: dict[str, Any]) -> None:
        self._say_line(_encode(message))

    def _say_line(self, line: str) -> None:
        if self._transport is not None and not self.lost.done():
            self._transport.write(line.encode() + b"\n")

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("socket")
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self._pid = _CREDENTIALS.unpack(credentials)[0]
        self.process = identify(self._pid)

    def connection_lost(self, error: Exception | None) -> None:
        self._writable.set()
        if not self.lost.done():
            self.lost.set_result(None)
        if not self._attached.done():
            self._attached.set_exception(OSError("it closed the connection"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            match json.loads(line):
                case {"events": events}:
                    self._listener.heard(events)
                case {"error": why}:
                    self._listener.refused(why)
                case {"state": {"version": version} as state} if version == VERSION:
                    self._listener.attached(state)
                    self._attached.set_result(None)
                case {"state": state}:
                    self._part_with(state)
                    return
                case other:
                    log.warning("the supervisor says what this agent does not know: %s", other)

    def _part_with(self, state: dict[str, Any]) -> None:
        """Leave a supervisor of another version, because the meaning of its further messages is
        unknown. Every version understands the command to end."""
        live = sum(kernel["status"] not in _OVER for kernel in state["kernels"])
        if not live:
            self.shut_down()
        self._attached.set_exception(OtherVersion(state.get("version"), live, self._pid))
        self.close()


def _template(template: KernelTemplate, terms: Terms, account: Account | None) -> dict[str, Any]:
    return {
        "command": template.command,
        "env": dict(template.env),
        "workdir": template.workdir,
        "files": dict(template.files),
        "grace_s": template.grace_s,
        "cpu_milli": template.cpu_milli,
        "least_cpu": template.least_cpu,
        "memory_bytes": template.memory_bytes,
        "log_max_bytes": terms.log_max_bytes,
        "pids_max": terms.pids_max,
        "disk_bytes": template.disk_bytes or terms.scratch_max_bytes,
        "owner": template.owner,
        "account": None if account is None else asdict(account),
        "result_bytes": MAX_RESULT_BYTES if template.service or template.keeps_result else 0,
        "stderr_apart": template.stderr_apart,
    }


def _kernel(start: Start, template: int, devices: Mapping[int, str]) -> dict[str, Any]:
    # All shares of one kernel are alike: whole devices, or a part of one device.
    return {
        "id": start.kernel,
        "generation": start.generation,
        "template": template,
        "env": dict(start.env),
        "devices": [devices.get(share.index, share.index) for share in start.shares],
        "device_milli": start.shares[0].milli if start.shares else GPU_WHOLE,
        "shape": start.template.shape,
        "queued": start.queued,
        "hold": start.hold,
    }
