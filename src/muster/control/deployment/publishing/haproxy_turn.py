"""The changes of HAProxy's servers in one turn.

HAProxy takes one command at a time, and each may be the last: it is refused, or the connection
ends. So servers that are to take more requests come first; those that are to take fewer, or none,
follow. A server that is the only one of its backend to take requests stays until another one does.
"""

from collections import Counter
from collections.abc import Mapping

from muster.control.deployment.publishing.haproxy_config import Backend, Server
from muster.control.deployment.publishing.runtime_api import Running, RuntimeApi

ServerKey = tuple[str, str]
"""The names of a backend and of one of its servers, which is the id of a route."""
DRAINED = 0x08
MAINTENANCE = 0x01


class ServerTurn:
    """The servers of HAProxy, as they are after each command of the turn.

    Args:
        running: the servers as HAProxy has just told of them.
    """

    def __init__(self, api: RuntimeApi, running: Mapping[ServerKey, Running]) -> None:
        self.refused: list[str] = []
        self.running = dict(running)
        self._api = api
        taking = [key for key, each in running.items() if each.takes_requests]
        self._taking = Counter(backend for backend, _ in taking)

    def raise_servers(self, backend: Backend) -> None:
        """Add the servers that are missing, and have those take requests that are to take more of
        them than now."""
        for route, server in backend.servers.items():
            key = backend.name, route
            if key not in self.running:
                self._add(key, server)
            elif self._moves_to(key, server):
                self._raise(key, server)

    def lower_servers(self, backend: Backend) -> None:
        """Have those take fewer requests that are to take fewer of them than now."""
        for route, server in backend.servers.items():
            key = backend.name, route
            now = self.running.get(key)
            if now is None or now.server.weight <= server.weight:
                continue
            if server.weight or not backend.takes_requests or not self.is_last(key):
                self._set_weight(key, server.weight)

    def drain(self, key: ServerKey) -> bool:
        """Have a server take no further request; whether HAProxy has done so."""
        if not self._have(f"set server {_path(key)} state drain"):
            return False
        self._note(key, self.running[key]._replace(admin=DRAINED))
        return True

    def is_last(self, key: ServerKey) -> bool:
        """Whether a server is the only one of its backend that takes requests."""
        return self.running[key].takes_requests and self._taking[key[0]] == 1

    def _add(self, key: ServerKey, server: Server) -> None:
        if self._have(f"add server {_path(key)} {server.at} weight {server.weight}"):
            self._note(key, Running(server, MAINTENANCE))
            self._make_ready(key)

    def _moves_to(self, key: ServerKey, server: Server) -> bool:
        """Have a server be at its address; whether it is."""
        now = self.running[key]
        there = now.server.address, now.server.port
        if there == (server.address, server.port):
            return True
        command = f"set server {_path(key)} addr {server.address} port {server.port}"
        if not self._have(command):
            return False
        self._note(key, now._replace(server=server._replace(weight=now.server.weight)))
        return True

    def _raise(self, key: ServerKey, server: Server) -> None:
        now = self.running[key]
        # One that takes no requests has its weight before it takes any.
        is_raised = server.weight > now.server.weight
        is_set_before = bool(now.admin) and server.weight != now.server.weight
        if (is_raised or is_set_before) and not self._set_weight(key, server.weight):
            return
        if now.admin:
            self._make_ready(key)

    def _make_ready(self, key: ServerKey) -> None:
        if self._have(f"set server {_path(key)} state ready"):
            self._note(key, self.running[key]._replace(admin=0))

    def _set_weight(self, key: ServerKey, weight: int) -> bool:
        if not self._have(f"set server {_path(key)} weight {weight}"):
            return False
        now = self.running[key]
        self._note(key, now._replace(server=now.server._replace(weight=weight)))
        return True

    def _have(self, command: str) -> bool:
        """Have HAProxy change something; whether it did."""
        refusal = self._api.have(command)
        if refusal:
            self.refused.append(refusal)
        return not refusal

    def _note(self, key: ServerKey, now: Running) -> None:
        """Note how a server is after a command."""
        former = self.running.get(key)
        took = former is not None and former.takes_requests
        self._taking[key[0]] += now.takes_requests - took
        self.running[key] = now


def _path(key: ServerKey) -> str:
    backend, route = key
    return f"{backend}/{route}"
