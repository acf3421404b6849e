"""`python -m demo.updates [N]`: a service of three replicas is updated N times, twelve by default,
by each strategy, under load through HAProxy and through Muster's own proxy at once.

It prints how many requests that cost. Everything lives in a temporary directory and is gone at the
end. The exit code is 0 only if no request failed.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo import haproxy
from demo.haproxy import Haproxy, free_port, home_with_haproxy
from demo.load import Account, Load, Question
from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.app.home import Home
from muster.app.local import UpOptions, down, up
from muster.app.proxy_config import proxy_directory, running_proxy
from muster.client import Client
from muster.core.errors import MusterError
from muster.core.states.deployment import EndpointLifecycle, RouteStatus

NAME = "echo"
AGENTS, REPLICAS, CLIENTS, UPDATES = 3, 3, 4, 12
LIMIT_S = 60.0
LOOK_S = 0.05
STRATEGIES: Mapping[str, Mapping[str, Any]] = {
    "rolling": {"strategy": "rolling"},
    "blue-green": {"strategy": "blue-green", "keep_old": "0.5"},
    "canary": {
        "strategy": "canary",
        "steps": [{"weight": 34, "watch": "0.5"}, {"weight": 67, "watch": "0.5"}],
    },
}
SERVICE: dict[str, Any] = {
    "kind": "deployment",
    "name": NAME,
    "command": [sys.executable, "-S", "service.py"],
    "files": {"service.py": Path(__file__).with_name("echo_service.py").read_text()},
    "replicas": REPLICAS,
    "resources": {"cpu": 0.5},
    "probe": {"interval": "0.25", "timeout": 2},
    "drain": 1,
    "access": "public",
}
QUESTIONS = (Question(b"ping", b"ping"),)


@dataclass(frozen=True, slots=True)
class Outcome:
    """All updates by a strategy, and the requests meanwhile, by the balancer that they went
    through."""

    strategy: str
    updates: int
    took_s: float
    accounts: Mapping[str, Account]

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.accounts.values())


class Updates:
    """Updates of the service, one after the other, under the ``loads`` of its balancers.

    Raises:
        TimeoutError: an update does not end in time.
    """

    def __init__(self, client: Client, balancer: Haproxy, loads: Mapping[str, Load]) -> None:
        self._client = client
        self._balancer = balancer
        self._loads = loads
        self._revision = 1

    def begin(self) -> None:
        """Make the service, and have clients ask once it is there."""
        self._client.deploy(SERVICE)
        self._await(self._settled)
        for load in self._loads.values():
            self._await_answer(load)
            load.be(CLIENTS)

    def run(self, strategy: str, updates: int) -> Outcome:
        began_s = time.monotonic()
        for _ in range(updates):
            self._revision += 1
            changed = {"update": {"min_healthy_time": "0.5", **STRATEGIES[strategy]}}
            env = {"env": {"REVISION": str(self._revision)}}
            self._client.deploy({**SERVICE, **changed, **env})
            self._await(self._settled)
        ended_s = time.monotonic()
        for load in self._loads.values():
            self._await_more(load, ended_s)
        accounts = {name: load.account(began_s, ended_s) for name, load in self._loads.items()}
        return Outcome(strategy, updates, ended_s - began_s, accounts)

    def _settled(self) -> bool:
        """Whether there are exactly the replicas that are wished, healthy and of the newest
        revision, and HAProxy has them."""
        found = self._client.deployments.show(NAME)
        written = (self._balancer.place / "muster.cfg").read_text()
        return (
            found.status is EndpointLifecycle.READY
            and found.rollout is None
            and [each.revision for each in found.routes] == [self._revision] * REPLICAS
            and all(each.status is RouteStatus.HEALTHY for each in found.routes)
            and written.count("    server ") == REPLICAS
            and all(each.id in written for each in found.routes)
        )

    def _await_answer(self, load: Load) -> None:
        """Wait until a balancer knows the service, which is new."""
        load.be(1)

        def answers() -> bool:
            last = load.account(time.monotonic() - 1.0)
            return last.requests > last.failed

        self._await(answers)

    def _await_more(self, load: Load, from_s: float) -> None:
        """Wait until the requests of before have ended: each client has begun another one."""
        seen = load.account(from_s).requests
        self._await(lambda: load.account(from_s).requests >= seen + 2 * CLIENTS)

    def _await(self, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{NAME} is not well within {LIMIT_S:.0f} s")
            time.sleep(LOOK_S)


@contextmanager
def cluster(balancer: Haproxy, home: Home) -> Iterator[tuple[Client, Mapping[str, Load]]]:
    """A cluster with an HAProxy and a proxy of its own, and the load on each."""
    with ExitStack() as stack:
        stack.callback(down, home.path)
        up(UpOptions(home.path, agents=AGENTS, cpus="2", port=free_port(), proxy_port=free_port()))
        proxy = running_proxy(proxy_directory(home))
        if proxy is None:
            raise MusterError(f"the proxy does not run: see {proxy_directory(home)}")
        known = home.client()
        client = stack.enter_context(Client(known["url"], known["token"]))
        ports = {"HAProxy": balancer.port, "the proxy": proxy.port}
        loads = {
            name: stack.enter_context(Load(port, f"/{NAME}/", QUESTIONS))
            for name, port in ports.items()
        }
        yield client, loads


def run(updates: int, say: Callable[[Outcome], None]) -> list[Outcome]:
    """So many updates by each strategy. ``say`` is called with each outcome.

    Raises:
        TimeoutError: an update does not end in time.
        MusterError: the cluster does not start, or does not stop.
    """
    outcomes = []
    with home_with_haproxy() as (home, balancer), cluster(balancer, home) as (client, loads):
        play = Updates(client, balancer, loads)
        play.begin()
        for strategy in STRATEGIES:
            outcomes.append(play.run(strategy, updates))
            say(outcomes[-1])
    return outcomes


def table(outcomes: Sequence[Outcome]) -> Table:
    """The outcomes, with the requests that they cost."""
    title = f"{CLIENTS} clients at each balancer, {REPLICAS} replicas"
    made = Table(title=title, title_justify="left", title_style="bold")
    made.add_column("strategy")
    made.add_column("through")
    for name in ("updates", "seconds", "requests", "failed", "p50 ms", "p99 ms"):
        made.add_column(name, justify="right")
    for each in outcomes:
        for through, account in each.accounts.items():
            style = "bold red" if account.failed else ""
            latencies = (f"{1000 * took_s:.1f}" for took_s in (account.p50_s, account.p99_s))
            numbers = (f"{each.took_s:.1f}", f"{account.requests:,}", str(account.failed))
            made.add_row(
                each.strategy, through, str(each.updates), *numbers, *latencies, style=style
            )
    return made


def main(words: Sequence[str]) -> int:
    console = Console(highlight=False, width=110)
    if haproxy.PROGRAM is None:
        console.print("there is no haproxy: apt-get install haproxy, or run `make setup`")
        return 1

    def say(outcome: Outcome) -> None:
        console.print(f"{outcome.strategy}: {outcome.updates} updates, {outcome.failed} failed")

    try:
        outcomes = run(int(words[0]) if words else UPDATES, say)
    except (TimeoutError, MusterError) as error:
        console.print(Text(f"✗ {error}", style="bold red"))
        return 1
    console.print(table(outcomes))
    for each in outcomes:
        for through, account in each.accounts.items():
            for said, count in account.errors.items():
                console.print(f"{each.strategy} through {through}: {count} × {said}")
    return 0 if not any(each.failed for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
