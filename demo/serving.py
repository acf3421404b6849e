"""`python -m demo.serving`: a language model as a service of three replicas, under load through
HAProxy while it is updated, a replica and a machine are lost, and the controller is killed.

It prints how many requests each of these cost. It is an act of `make demo`, too. Everything lives
in a temporary directory and is gone at the end. The exit code is 0 only if the update cost no
request, and nothing else more than those that were under way.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from demo import haproxy
from demo.haproxy import Haproxy, free_port, home_with_haproxy
from demo.load import Account, Load, Question
from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.app.home import Home
from muster.app.local import UpOptions, down, up
from muster.app.local_agents import holder
from muster.client import Client
from muster.core.errors import MusterError
from muster.core.states.deployment import EndpointLifecycle, RouteStatus
from muster.core.views.deployments import RouteView

NAME = "langid"
AGENTS, REPLICAS, CLIENTS = 3, 3, 6
LIMIT_S = 60.0
LOOK_S = 0.05
QUIET_S = 1.0
PROGRAM = Path(__file__).with_name("langid_service.py")
SERVICE: dict[str, Any] = {
    "kind": "deployment",
    "name": NAME,
    "command": [sys.executable, "service.py"],
    "files": {"service.py": PROGRAM.read_text()},
    "env": {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    "replicas": REPLICAS,
    "resources": {"cpu": 1, "memory": "512MiB"},
    "probe": {"interval": "0.5", "timeout": 2},
    "update": {"min_healthy_time": "0.5"},
    "drain": 1,
    "access": "public",
}
QUESTIONS = tuple(
    Question(text.encode(), language.encode())
    for language, text in (
        ("en", "The replicas are exchanged one by one, and nobody notices."),
        ("fr", "Les répliques sont échangées une par une, et personne ne le remarque."),
        ("de", "Die Replikate werden einzeln ausgetauscht, und niemand bemerkt es."),
        ("es", "Las réplicas se cambian una por una y nadie se da cuenta."),
        ("ru", "Реплики заменяются одна за другой, и никто этого не замечает."),
        ("ja", "レプリカは一つずつ交換され、誰も気づきません。"),
    )
)


@dataclass(frozen=True, slots=True)
class Phase:
    """A time under load: how long it took until all was well again, and most requests that it may
    cost."""

    what: str
    took_s: float
    account: Account
    most: int

    @property
    def well(self) -> bool:
        return self.account.requests > 0 and self.account.failed <= self.most


class Play:
    """The phases, one after the other.

    Raises:
        TimeoutError: the service is not well again in time.
    """

    def __init__(self, client: Client, home: Home, balancer: Haproxy, load: Load) -> None:
        self._client = client
        self._home = home
        self._balancer = balancer
        self._load = load
        self._revision = 1
        self.phases: list[Phase] = []

    def run(self) -> None:
        self._client.deploy(SERVICE)
        self._await(self._settled)
        self._load.be(CLIENTS)
        with self._phase("nothing happens", 0):
            time.sleep(QUIET_S)
        with self._phase("an update, one by one", 0):
            self._client.deploy({**SERVICE, "env": {**SERVICE["env"], "REVISION": "2"}})
            self._revision = 2
        with self._phase("kill -9 of a replica", CLIENTS) as gone:
            route = self._routes()[-1]
            gone.append(route.id)
            _kill([each for each in _naming(self._place(route)) if _serves(each, route)])
        with self._phase("kill -9 of all on a machine", CLIENTS) as gone:
            place = self._place(self._routes()[-1])
            gone += [each.id for each in self._routes() if self._place(each) == place]
            agent = holder(place)
            _kill([*([psutil.Process(agent)] if agent else []), *_naming(place)])
        with self._phase("kill -9 of the controller", 0):
            running = self._home.running()
            assert running is not None, "it has answered"
            os.kill(running.pid, signal.SIGKILL)
            self._await(lambda: (now := self._home.running()) is not None and now != running)
        self._load.be(0)
        self._client.cancel(NAME)

    @contextmanager
    def _phase(self, what: str, most: int) -> Iterator[list[str]]:
        """A phase; it ends when all is well again, and the routes that it is told are gone."""
        began_s, gone = time.monotonic(), list[str]()
        yield gone
        self._await(lambda: self._settled(gone))
        ended_s = time.monotonic()
        seen = self._load.account(ended_s).requests  # those of this phase have ended soon
        self._await(lambda: self._load.account(ended_s).requests >= seen + 2 * CLIENTS)
        account = self._load.account(began_s, ended_s)
        self.phases.append(Phase(what, ended_s - began_s, account, most))

    def _settled(self, gone: Sequence[str] = ()) -> bool:
        """Whether there are exactly the replicas that are wished, healthy, of the newest
        revision, none of those that are gone, and HAProxy has them."""
        try:
            found = self._client.deployments.show(NAME)
        except MusterError:
            return False
        written = (self._balancer.place / "muster.cfg").read_text()
        return (
            found.status is EndpointLifecycle.READY
            and found.rollout is None
            and [each.revision for each in found.routes] == [self._revision] * REPLICAS
            and all(each.status is RouteStatus.HEALTHY for each in found.routes)
            and not any(each.id in gone for each in found.routes)
            and written.count("    server ") == REPLICAS
            and all(each.id in written for each in found.routes)
        )

    def _routes(self) -> tuple[RouteView, ...]:
        return self._client.deployments.show(NAME).routes

    def _place(self, route: RouteView) -> Path:
        """The directory of a replica's agent."""
        [kernel] = self._client.session(str(route.session)).kernels
        return self._home.agent_directory(str(kernel.agent))

    def _await(self, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{NAME} is not well within {LIMIT_S:.0f} s")
            time.sleep(LOOK_S)


def _naming(directory: Path) -> list[psutil.Process]:
    """The supervisor of an agent's directory, and the kernels in its care."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            is_supervisor = process.cmdline()[-2:] == ["--dir", str(directory)]
            if is_supervisor or process.environ().get("MUSTER_SUPERVISOR") == str(directory):
                found.append(process)
    return found


def _serves(process: psutil.Process, route: RouteView) -> bool:
    """Whether a process is that of a replica."""
    with suppress(psutil.Error):
        return process.environ().get("MUSTER_SESSION_ID") == route.session
    return False


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.kill()


def table(phases: Sequence[Phase]) -> Table:
    """The phases, with the requests that they cost."""
    title = f"{CLIENTS} clients, {REPLICAS} replicas, through HAProxy"
    made = Table(title=title, title_justify="left", title_style="bold")
    made.add_column("while")
    for name in ("seconds", "requests", "failed", "at most", "p50 ms", "p99 ms"):
        made.add_column(name, justify="right")
    for each in phases:
        account = each.account
        style = "" if each.well else "bold red"
        latencies = (f"{1000 * took_s:.1f}" for took_s in (account.p50_s, account.p99_s))
        numbers = (f"{account.requests:,}", str(account.failed), str(each.most), *latencies)
        made.add_row(each.what, f"{each.took_s:.1f}", *numbers, style=style)
    return made


def run() -> list[Phase]:
    """The phases of a play on a cluster of its own, with an HAProxy of its own.

    Raises:
        TimeoutError: something is not well again in time.
        MusterError: the cluster does not start, or does not stop.
    """
    with home_with_haproxy() as (home, balancer):
        try:
            # Another cluster of this machine may take the first ports while the controller is away.
            up(UpOptions(home.path, agents=AGENTS, cpus="2", port=free_port(), proxy=False))
            known = home.client()
            with (
                Client(known["url"], known["token"]) as client,
                Load(balancer.port, f"/{NAME}/", QUESTIONS) as load,
            ):
                play = Play(client, home, balancer, load)
                play.run()
                return play.phases
        finally:
            down(home.path)


def main() -> int:
    console = Console(highlight=False, width=110)
    if haproxy.PROGRAM is None:
        console.print("there is no haproxy: apt-get install haproxy, or run `make setup`")
        return 1
    try:
        phases = run()
    except (TimeoutError, MusterError) as error:
        console.print(Text(f"✗ {error}", style="bold red"))
        return 1
    console.print(table(phases))
    for each in phases:
        for said, count in each.account.errors.items():
            console.print(f"{each.what}: {count} × {said}")
    return 0 if all(each.well for each in phases) else 1


if __name__ == "__main__":
    sys.exit(main())
