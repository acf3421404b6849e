"""HAProxy as a sink: it is compared with what is wished, and what differs is changed.

A turn compares what is wished anew; where that goes wrong, or ``PERIOD_S`` is over, the next one
compares everything. So a change of one service is no work over all, and restarts, reloads by
others and changes that went wrong are found. Servers change at run time: they are added, get other
weights, and are drained before they are deleted. All is in a file as well, so that HAProxy begins
with it by itself. Only a backend that HAProxy does not have needs a reload. After each command a
service that had a server for its requests, and is to have one, has one (``haproxy_turn``).
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from muster.control.deployment.publishing.haproxy_config import (
    DRAIN_S,
    NOTHING,
    Wished,
    addresses_in,
    has_secrets,
    wished,
)
from muster.control.deployment.publishing.haproxy_load import Counters, Growth
from muster.control.deployment.publishing.haproxy_turn import (
    DRAINED,
    MAINTENANCE,
    ServerKey,
    ServerTurn,
)
from muster.control.deployment.publishing.published import Addresses
from muster.control.deployment.publishing.runtime_api import (
    Running,
    RuntimeApi,
    connect,
)
from muster.control.deployment.publishing.settings import HaproxySettings
from muster.control.deployment.publishing.sink import Sink, SinkError, Tended
from muster.core.serving.traffic import LoadReport, TrafficService
from muster.files import write_whole
from muster.providers.script.call import CallFailed, NotCalled, call, environment

log = logging.getLogger(__name__)

PERIOD_S = 2.0
"""How often all that HAProxy has is compared with what is wished."""
LOAD_PERIOD_S = 1.0
"""How often its counters are read, at most."""
PAUSE, LONGEST_PERIOD_S = 20, 10.0
"""Work that took long is done again after so many times as long, or so many seconds: the
controller needs its processors for other work."""
FEW = 50
"""Backends that are compared by themselves; if more have changed, all are compared at once."""
DRAIN_PERIOD_S = 0.25
"""How often requests under way are counted while a server is drained."""
RELOAD_PERIOD_S = 0.05
FRESH_S = 5.0
"""How often, and how long, backends are looked for after a reload."""
MASTER_S = 3.0
"""How long the master process may be away, because it begins or is being reloaded."""
RELOAD_S = 20.0
"""How long a reload may take before it counts as failed."""
FIRST_RELOAD_PAUSE_S = 2.0
LONGEST_RELOAD_PAUSE_S = 60.0
"""Between two reloads: new deployments share one, and one that changes nothing is rare."""
_REFUSAL_S = 0.5


class HaproxySink(Sink):
    """Has an HAProxy send requests to services.

    Args:
        report: is told of the load that HAProxy has counted.
        open_api: makes the connection to the runtime API, given its address.
    """

    name = "haproxy"

    def __init__(
        self,
        settings: HaproxySettings,
        report: Callable[[LoadReport], None],
        open_api: Callable[[str], RuntimeApi] = RuntimeApi,
    ) -> None:
        self._report = report
        self._growth = Growth()
        self._settings = settings
        self._open_api = open_api
        self._file = Path(settings.file)
        self._map = self._file.with_suffix(".map")
        self._addresses = Addresses(self._written())
        self._drains: dict[ServerKey, float] = {}  # when a server goes at the latest
        self._drain_s: dict[str, float] = {}  # of backends, also once nobody wishes for them
        self._reload = Reload(settings)
        self._wish = NOTHING
        self._followed: Wished | None = None  # as of the last turn; None if that went wrong
        self._all_at_s = 0.0  # when all is compared next
        self._load_at_s = 0.0

    def publish(self, services: Sequence[TrafficService]) -> Tended:
        wish = self._wish = wished(services, self._settings, self._addresses, self._wish)
        # A service that has gone may have a server to drain for as long as it said.
        self._drain_s |= {name: each.drain_s for name, each in wish.backends.items()}
        try:
            with self._open_api(self._settings.socket) as api:
                missing, complaint = self._compare(api, wish)
                self._tell_load(api, services)
        finally:
            self._write(wish)  # also where HAProxy is down: it begins with it
        next_s = max(self._all_at_s - time.monotonic(), 0.0)
        again_s = min(DRAIN_PERIOD_S, next_s) if self._drains else next_s
        if missing:
            lack = self._reload.ask_for(missing)
            if self._reload.is_fresh:
                again_s = RELOAD_PERIOD_S
            return Tended(again_s, lack or complaint)
        self._reload.done()
        return Tended(again_s, complaint)

    def rest(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _tell_load(self, api: RuntimeApi, services: Sequence[TrafficService]) -> None:
        now_s = time.monotonic()
        if now_s < self._load_at_s:
            return
        if (report := self._growth.report(api.counters(), services, now_s)) is not None:
            self._report(report)
        self._load_at_s = _next_at_s(now_s, LOAD_PERIOD_S)

    def _compare(self, api: RuntimeApi, wish: Wished) -> tuple[list[str], str]:
        """Change what differs: see ``_follow`` for the answer."""
        now_s, changed = time.monotonic(), self._changed(wish)
        self._followed = None
        if changed is None or now_s >= self._all_at_s:
            there, running, keys = api.backends(), api.servers(), api.map(str(self._map))
            missing, complaint = self._follow(api, wish, there, running, keys)
            self._all_at_s = _next_at_s(now_s, PERIOD_S)
        else:
            part, running = wish.part(changed), {}
            for name in changed:
                running |= api.servers(name)
            missing, complaint = self._follow(api, part, set(part.backends), running, part.keys)
        if not missing and not complaint:
            self._followed = wish
        return missing, complaint

    def _changed(self, wish: Wished) -> set[str] | None:
        """The backends of which other servers are wished than in the last turn, or that have
        servers to drain; None if it may be more that differs."""
        followed = self._followed
        if followed is None or followed.keys != wish.keys:
            return None
        changed = {name for name, each in wish.backends.items() if each != followed.backends[name]}
        changed |= {name for name, _ in self._drains}
        return changed if len(changed) <= FEW else None

    def _follow(
        self,
        api: RuntimeApi,
        wish: Wished,
        there: set[str],
        running: dict[ServerKey, Running],
        keys: dict[str, str],
    ) -> tuple[list[str], str]:
        """Change what differs between what is wished and what HAProxy has: its backends, servers,
        and keys of the map.

        Returns:
            the backends that HAProxy does not have, and what it refused.
        """
        missing = [name for name in wish.backends if name not in there]
        serving = {name: each for name, each in wish.backends.items() if name in there}
        for key, name in wish.keys.items():
            former = keys.get(key)
            if name in missing and former in there and former not in wish.backends:
                # It serves with its other lines until there is one with the right ones.
                serving[former] = replace(wish.backends[name], name=former)
        turn = ServerTurn(api, running)
        for backend in serving.values():
            for route in backend.servers:
                self._drains.pop((backend.name, route), None)
            turn.raise_servers(backend)
        keys = self._turn_map(api, wish, keys, there, turn.refused)
        for backend in serving.values():
            turn.lower_servers(backend)
        gone = {
            (name, route)
            for name, route in running
            if name not in serving or route not in serving[name].servers
        }
        needed = {name for name, each in serving.items() if each.takes_requests}
        # A service whose requests could not be turned to its other backend has this one.
        needed |= {keys[key] for key in wish.keys if key in keys and keys[key] not in serving}
        self._take_away(api, gone, needed, turn)
        for name in set(self._drain_s) - set(self._wish.backends) - {name for name, _ in gone}:
            del self._drain_s[name]
        return missing, "; ".join(turn.refused[:3])

    def _turn_map(
        self,
        api: RuntimeApi,
        wish: Wished,
        now: dict[str, str],
        there: set[str],
        refused: list[str],
    ) -> dict[str, str]:
        """Have requests go to the backends that HAProxy has; the answer is its keys after that."""
        path = self._map
        after = dict(now)
        for key, name in wish.keys.items():
            if now.get(key) == name or name not in there:
                continue
            verb = "set" if key in now else "add"
            if told := api.have(f"{verb} map {path} {key} {name}"):
                refused.append(told)
            else:
                after[key] = name
        for key in now:
            if key not in wish.keys:
                refused += filter(None, [api.have(f"del map {path} {key}")])
        return after

    def _take_away(
        self,
        api: RuntimeApi,
        gone: set[ServerKey],
        needed: set[str],
        turn: ServerTurn,
    ) -> None:
        """Drain servers that nobody wishes for, and delete those that are idle or out of time.

        Args:
            needed: the backends of which one server at least is to take requests.
        """
        now_s = time.monotonic()
        for key in set(self._drains) - gone:
            del self._drains[key]
        ripe = []
        for key in gone:
            is_drained = bool(turn.running[key].admin & (DRAINED | MAINTENANCE))
            if not is_drained and key[0] in needed and turn.is_last(key):
                continue
            if key not in self._drains:
                self._drains[key] = now_s + self._drain_s.get(key[0], DRAIN_S)
            if is_drained:
                ripe.append(key)
            else:
                turn.drain(key)
        if not ripe:
            return
        names = {name for name, _ in ripe}
        counters: dict[ServerKey, Counters] = {}
        for some in names if len(names) <= FEW else ("-1",):
            counters |= api.counters(some)
        for key in ripe:
            path = f"{key[0]}/{key[1]}"
            out_of_time = now_s >= self._drains[key]
            if counters.get(key, Counters()).current and not out_of_time:
                continue
            turn.refused += filter(None, [api.have(f"set server {path} state maint")])
            if out_of_time:
                turn.refused += filter(None, [api.have(f"shutdown sessions server {path}")])
            if api.ask(f"del server {path}").startswith("Server deleted"):
                del self._drains[key]

    def _written(self) -> dict[str, str]:
        """The addresses of replicas, by their routes, as they were written last."""
        try:
            return addresses_in(self._file.read_text(errors="replace"))
        except OSError:  # there is no file yet
            return {}

    def _write(self, wish: Wished) -> None:
        try:
            written, keys, config = _text(self._file), wish.map(), wish.config()
            if _text(self._map) != keys:
                # HAProxy may begin, or the disk be full, between two files: no key of either map
                # leads to a backend that is not there.
                with_former = wish.config_with_former(written or "")
                if written != with_former:
                    _replace(self._file, with_former)
                    written = with_former
                _replace(self._map, keys)
            if written != config:
                _replace(self._file, config)
        except OSError as error:
            raise SinkError(f"{self._file} cannot be written: {error.strerror}") from None


class Reload:
    """Reloads of HAProxy, on a thread of their own: servers change meanwhile."""

    def __init__(self, settings: HaproxySettings) -> None:
        self._settings = settings
        self._thread: threading.Thread | None = None
        self._next_s = 0.0
        self._asked_s = -FRESH_S
        self._pause_s = FIRST_RELOAD_PAUSE_S
        self._told = ""
        self._asked = 0

    def ask_for(self, missing: Sequence[str]) -> str:
        """Have HAProxy be reloaded, unless it is being, or was a moment ago; what an operator
        should know of that."""
        if not self._settings.master and not self._settings.reload:
            return f"reload HAProxy by hand: it does not know {missing[0]}"
        now_s = time.monotonic()
        if (self._thread is None or not self._thread.is_alive()) and now_s >= self._next_s:
            self._asked_s, self._next_s = now_s, now_s + self._pause_s
            if self._asked:
                self._pause_s = min(2 * self._pause_s, LONGEST_RELOAD_PAUSE_S)
            self._asked += 1
            self._thread = threading.Thread(target=self._run, name="haproxy-reload", daemon=True)
            self._thread.start()
        if self._asked < 2:
            return ""
        return self._told or f"HAProxy was reloaded, and does not know {missing[0]}"

    @property
    def is_fresh(self) -> bool:
        """Whether HAProxy was asked to reload a moment ago."""
        return time.monotonic() < self._asked_s + FRESH_S

    def done(self) -> None:
        """Note that HAProxy has all backends."""
        self._asked = 0
        self._pause_s = FIRST_RELOAD_PAUSE_S

    def _run(self) -> None:
        try:
            if self._settings.master:
                self._told = _ask_master(self._settings.master)
                return
            command = self._settings.reload
            answer = call(command, b"", environment({}), Path("/"), RELOAD_S)
            ended = f"{command[0]} ended with {answer.code}: {answer.last_line}"
            self._told = ended if answer.code else ""
        except (OSError, ValueError, NotCalled, CallFailed) as error:
            self._told = f"HAProxy is not reloaded: {error}"
        log.info("haproxy was reloaded%s", f": {self._told}" if self._told else "")


def _ask_master(address: str) -> str:
    """Have the master process reload HAProxy; what went wrong, as far as it tells.

    Raises:
        OSError: it is not reached.
    """
    deadline_s = time.monotonic() + MASTER_S
    while True:
        try:
            master = connect(address)
        except (ConnectionRefusedError, FileNotFoundError):
            if time.monotonic() > deadline_s:
                raise
            time.sleep(RELOAD_PERIOD_S)
        else:
            break
    with master:
        master.sendall(b"reload\n")
        master.settimeout(_REFUSAL_S)
        try:
            answer = master.recv(1000).decode(errors="replace")
        except OSError:  # it has become a new program, which does not know the connection
            return ""
    return answer.strip() if answer.startswith(("Permission", "Unknown")) else ""


def _next_at_s(began_s: float, period_s: float) -> float:
    """When work that has just ended is due again."""
    took_s = time.monotonic() - began_s
    return began_s + max(period_s, min(PAUSE * took_s, LONGEST_PERIOD_S))


def _text(path: Path) -> str | None:
    """The text of a file; None if there is none.

    Raises:
        OSError: it cannot be read.
    """
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return None


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all; whoever runs HAProxy may read it. With secrets in it, it is
    for its owner and its group alone."""
    write_whole(path, text, 0o640 if has_secrets(text) else 0o644)
