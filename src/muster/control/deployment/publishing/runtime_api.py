"""HAProxy's runtime API: a socket that takes commands and answers each with a text."""

import socket
import time
from types import TracebackType
from typing import NamedTuple

from muster.control.deployment.publishing.haproxy_config import PREFIX, Server
from muster.control.deployment.publishing.haproxy_load import Counters
from muster.control.deployment.publishing.sink import SinkError
from muster.core.host_port import parted

ANSWER_S = 2.0
"""How long HAProxy may take to answer a command."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
_READY = b"\n> "
_DONE = ("New server registered", "IP changed", "port changed", "no need to change")
"""The beginnings of answers to changes that were made; most have no words."""
_STALE = ("no such server", "no such backend", "entry not found", "key not found", "already exists")
"""The beginnings of answers to changes of what is no longer as HAProxy has just told."""


class Running(NamedTuple):
    """A server as HAProxy has it now.

    Args:
        admin: 0 if it takes requests; else why not, as bits of HAProxy's.
    """

    server: Server
    admin: int

    @property
    def takes_requests(self) -> bool:
        return self.admin == 0 and self.server.weight > 0


class RuntimeApi:
    """A connection to the runtime API, for one turn.

    Raises:
        SinkError: by each method: HAProxy does not answer, or not in time.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._socket: socket.socket | None = None

    def __enter__(self) -> "RuntimeApi":
        try:
            self._socket = connect(self._address)
        except OSError as error:
            raise SinkError(f"HAProxy is not reached at {self._address}: {error}") from None
        try:
            self.ask("prompt")  # the connection stays open for further commands
        except SinkError:
            self._socket.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._socket is not None:
            self._socket.close()

    def ask(self, command: str) -> str:
        """The answer to a command."""
        assert self._socket is not None
        assert "\n" not in command
        assert ";" not in command
        deadline_s = time.monotonic() + ANSWER_S
        answer = bytearray()
        try:
            self._socket.settimeout(ANSWER_S)
            self._socket.sendall(command.encode() + b"\n")
            while not answer.endswith(_READY) and answer != _READY[1:]:
                self._socket.settimeout(max(deadline_s - time.monotonic(), 0.001))
                data = self._socket.recv(256 * 1024)
                if not data or len(answer) > MAX_ANSWER_BYTES:
                    raise SinkError("HAProxy ended the connection of its runtime API")
                answer += data
        except OSError as error:
            raise SinkError(f"HAProxy does not answer {command.split()[0]}: {error}") from None
        return answer[: -len(_READY)].decode(errors="replace").strip()

    def have(self, command: str) -> str:
        """Have HAProxy change something; the refusal if it does not, empty if it does.

        Raises:
            SinkError: also where HAProxy is not as it has told a moment ago: it was reloaded, or
                somebody else changes it. It is to be compared anew.
        """
        answer = self.ask(command)
        if answer.startswith("Permission denied"):
            raise SinkError("HAProxy's runtime API refuses: its socket needs level admin")
        if answer.lower().startswith(_STALE):
            raise SinkError(f"HAProxy has changed meanwhile: {command[:120]!r}: {answer[:80]}")
        return "" if not answer or answer.startswith(_DONE) else f"{command[:120]!r}: {answer[:80]}"

    def backends(self) -> set[str]:
        """The names of Muster's backends."""
        return {line for line in self.ask("show backend").splitlines() if line.startswith(PREFIX)}

    def servers(self, of: str = "") -> dict[tuple[str, str], Running]:
        """The servers of one or all of Muster's backends, by the names of both."""
        found = {}
        lines = self.ask(f"show servers state {of}").splitlines()
        columns = lines[1].lstrip("# ").split() if len(lines) > 1 else []
        try:
            backend, name, address, port, admin, weight = (
                columns.index(column)
                for column in (
                    *("be_name", "srv_name", "srv_addr", "srv_port"),
                    *("srv_admin_state", "srv_uweight"),
                )
            )
            for line in lines[2:]:
                words = line.split()
                if words and words[backend].startswith(PREFIX):
                    server = Server(words[address], int(words[port]), int(words[weight]))
                    found[words[backend], words[name]] = Running(server, int(words[admin]))
        except (ValueError, IndexError):
            raise SinkError("HAProxy tells of its servers in words that are not known") from None
        return found

    def counters(self, of: str = "-1") -> dict[tuple[str, str], Counters]:
        """The counters of each server of one or all of Muster's backends, by the names of both."""
        found = {}
        lines = self.ask(f"show stat {of} 4 -1").splitlines()
        columns = lines[0].lstrip("# ").split(",") if lines else []
        try:
            current, total, unanswered, unreached, faulty, mean = (
                columns.index(column)
                for column in ("scur", "stot", "eresp", "econ", "hrsp_5xx", "ttime")
            )
            for line in lines[1:]:
                words = line.split(",")
                if words[0].startswith(PREFIX):
                    failures = sum(int(words[at] or 0) for at in (unanswered, unreached, faulty))
                    found[words[0], words[1]] = Counters(
                        int(words[current]), int(words[total]), failures, int(words[mean] or 0)
                    )
        except (ValueError, IndexError):
            raise SinkError("HAProxy tells of its requests in words that are not known") from None
        return found

    def map(self, path: str) -> dict[str, str]:
        """The keys of a map, and the value of each."""
        answer = self.ask(f"show map {path}")
        if answer.startswith("Unknown map"):
            raise SinkError(f"HAProxy's frontend uses no map {path}")
        rows = [line.split() for line in answer.splitlines()]
        return {row[1]: row[2] for row in rows if len(row) == 3}


def connect(address: str) -> socket.socket:
    """A connection to a socket, by its path or as host:port.

    Raises:
        OSError: nobody answers there in time.
    """
    if not address.startswith("/"):
        host, port = parted(address)
        return socket.create_connection((host, int(port)), ANSWER_S)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(ANSWER_S)
        made.connect(address)
    except OSError:
        made.close()
        raise
    return made
