"""HAProxy's runtime API as a model without a process, in which any command may be the last."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from muster.control.deployment.publishing.runtime_api import RuntimeApi
from muster.control.deployment.publishing.sink import SinkError

_SHOWN = "be_name srv_name srv_addr srv_port srv_admin_state srv_uweight"
_COUNTED = "# pxname,svname,scur,stot,eresp,econ,hrsp_5xx,ttime"
_READS = frozenset({"prompt", "show"})
_MAINTENANCE, _DRAINED = 1, 8


@dataclass
class ModelServer:
    address: str
    port: str
    weight: int
    admin: int = _MAINTENANCE

    @property
    def takes_requests(self) -> bool:
        return not self.admin and self.weight > 0


@dataclass
class HaproxyModel:
    """An HAProxy whose files are in ``place``.

    Args:
        refuses: the ordinals, from 0, of changes that it refuses.
        ends_after: the number of changes after which its connection ends; None if it does not.
        changed: is called after each change.
    """

    place: Path
    refuses: frozenset[int] = frozenset()
    ends_after: int | None = None
    changed: Callable[[], None] = lambda: None
    backends: dict[str, dict[str, ModelServer]] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    changes: int = 0

    def reload(self) -> None:
        """Begin anew, with the files as they are."""
        rows = (self.place / "muster.map").read_text().splitlines()
        self.keys = dict(row.split() for row in rows)
        self.backends = {}
        for line in (self.place / "muster.cfg").read_text().splitlines():
            words = line.split()
            if words[:1] == ["backend"]:
                servers = self.backends[words[1]] = {}
            elif words[:1] == ["server"]:
                address, _, port = words[2].rpartition(":")
                servers[words[1]] = ModelServer(address, port, int(words[4]), admin=0)

    def is_served(self, key: str) -> bool:
        """Whether a request with this key finds a server."""
        servers = self.backends.get(self.keys.get(key, ""), {})
        return any(each.takes_requests for each in servers.values())

    def do(self, command: str) -> str:
        words = command.split()
        if words[0] in _READS:
            return self._shown(words)
        if self.ends_after is not None and self.changes >= self.ends_after:
            raise SinkError("the connection has ended")
        self.changes += 1
        if self.changes - 1 in self.refuses:
            return "Out of memory"
        answer = self._change(words)
        self.changed()
        return answer

    def _shown(self, words: list[str]) -> str:
        of = words[-1]
        rows = [
            (backend, route, each)
            for backend, servers in self.backends.items()
            for route, each in servers.items()
        ]
        match words[1:2]:
            case ["backend"]:
                return "\n".join(["# name", *self.backends])
            case ["map"]:
                return "\n".join(f"0x1 {key} {name}" for key, name in self.keys.items())
            case ["servers"]:
                lines = [
                    f"{backend} {route} {each.address} {each.port} {each.admin} {each.weight}"
                    for backend, route, each in rows
                    if of in ("state", backend)
                ]
                return "\n".join(["1", f"# {_SHOWN}", *lines])
            case ["stat"]:
                lines = [f"{backend},{route},0,0,0,0,0,0" for backend, route, _ in rows]
                return "\n".join([_COUNTED, *lines])
        return ""

    def _change(self, words: list[str]) -> str:
        match words:
            case ["add", "server", path, at, "weight", weight]:
                backend, _, route = path.partition("/")
                address, _, port = at.rpartition(":")
                self.backends[backend][route] = ModelServer(address, port, int(weight))
                return "New server registered."
            case ["del", "server", path]:
                backend, _, route = path.partition("/")
                if not self.backends[backend][route].admin & _MAINTENANCE:
                    return "Only servers in maintenance mode can be deleted."
                del self.backends[backend][route]
                return "Server deleted."
            case ["set", "server", path, *what]:
                backend, _, route = path.partition("/")
                self._set(self.backends[backend][route], what)
            case ["add" | "set", "map", _, key, name]:
                self.keys[key] = name
            case ["del", "map", _, key]:
                del self.keys[key]
            case ["shutdown", "sessions", "server", _]:
                pass
            case _:
                raise AssertionError(words)
        return ""

    def _set(self, server: ModelServer, what: list[str]) -> None:
        match what:
            case ["weight", weight]:
                server.weight = int(weight)
            case ["addr", address, "port", port]:
                server.address, server.port = address, port
            case ["state", state]:
                server.admin = {"ready": 0, "drain": _DRAINED, "maint": _MAINTENANCE}[state]
            case _:
                raise AssertionError(what)


class ModelApi(RuntimeApi):
    """A connection to a model."""

    def __init__(self, model: HaproxyModel) -> None:
        super().__init__("")
        self._model = model

    def __enter__(self) -> "ModelApi":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def ask(self, command: str) -> str:
        return self._model.do(command)
