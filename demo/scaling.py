"""`python -m demo.scaling [FILE]`: a service without replicas, and a load that comes and goes.

It prints how the number of replicas follows, with the reason of each change, and draws it into
FILE, if one is given. Requests that come while there is no replica wait at Muster's own proxy.
Everything lives in a temporary directory and is gone at the end.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from demo.load import Load, Question
from rich.console import Console
from rich.text import Text

from muster.app.home import Home
from muster.app.local import UpOptions, down, up
from muster.app.proxy_config import proxy_directory, running_proxy
from muster.client import Client
from muster.core.reasons import ReasonCode
from muster.core.states.deployment import RouteStatus

NAME = "sleepy"
LOOK_S = 0.1
LIMIT_S = 120.0
STEPS = ((0.0, 0), (3.0, 2), (11.0, 6), (25.0, 2), (35.0, 0))
"""Moments in seconds, and from then on so many clients, each with one request at a time."""
SERVICE: dict[str, Any] = {
    "kind": "deployment",
    "name": NAME,
    "command": [sys.executable, "-S", "service.py"],
    "files": {"service.py": Path(__file__).with_name("sleepy_service.py").read_text()},
    "scale": {"min": 0, "max": 3, "target": 2, "window": 5, "cool_down_down": 3},
    "resources": {"cpu": 1},
    "probe": {"interval": "0.5", "timeout": 1},
    "drain": 2,
    "access": "public",
}


class Look(NamedTuple):
    """A moment: the clients, the replicas that are wished, and those of them that are healthy."""

    at_s: float
    clients: int
    wished: int
    healthy: int


def watch(client: Client, load: Load, console: Console) -> list[Look]:
    """The course until the load has come and gone, and the last replica with it.

    Raises:
        TimeoutError: the replicas do not go.
    """
    began_s, told = time.monotonic(), set[int]()
    course: list[Look] = []
    while True:
        at_s = time.monotonic() - began_s
        clients = [number for moment, number in STEPS if moment <= at_s][-1]
        load.be(clients)
        found = client.deployments.show(NAME)
        healthy = sum(each.status is RouteStatus.HEALTHY for each in found.routes)
        look = Look(at_s, clients, found.replicas, healthy)
        if not course or look[1:] != course[-1][1:]:
            line = f"{clients} clients, {found.replicas} replicas wished, {healthy} healthy"
            console.print(f"{at_s:5.1f} s  {line}")
            course.append(look)
        for entry in reversed(client.history(found.id).items):
            for reason in entry.reasons:
                if reason.code == ReasonCode.SCALED_BY_LOAD and entry.seq not in told:
                    told.add(entry.seq)
                    console.print(Text(f"         {reason.sentence}", style="dim"))
        if at_s > STEPS[-1][0] and not found.replicas and not found.routes:
            return [*course, look]
        if at_s > LIMIT_S:
            raise TimeoutError("the replicas do not go")
        time.sleep(LOOK_S)


def draw(course: list[Look], path: Path) -> None:
    """Replicas over time, and the clients."""
    import matplotlib as mpl

    mpl.use("svg" if path.suffix == ".svg" else "agg")
    from matplotlib import pyplot as plt

    mpl.rcParams |= {"svg.hashsalt": "muster", "svg.fonttype": "none"}
    figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    times = [look.at_s for look in course]
    healthy = [look.healthy for look in course]
    green, orange = "#009e73", "#e69f00"  # (source: Okabe 2008)
    axes.fill_between(times, healthy, step="post", color=green, label="healthy replicas")
    wished = [look.wished for look in course]
    axes.step(times, wished, where="post", color=orange, label="wished replicas")
    clients = [look.clients for look in course]
    axes.step(times, clients, where="post", color="black", label="clients")
    axes.set_xlabel("seconds")
    axes.set_ylabel("replicas, clients")
    axes.legend(loc="upper right", fontsize="small", frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> int:
    console = Console(highlight=False, width=140)
    with tempfile.TemporaryDirectory(prefix="muster-demo-") as directory:
        home = Home(Path(directory))
        up(UpOptions(home.path, agents=1, cpus="3", proxy=True))
        try:
            known, proxy = home.client(), running_proxy(proxy_directory(home))
            assert proxy is not None, "`up` waits for it"
            with (
                Client(known["url"], known["token"]) as client,
                Load(proxy.port, f"/{NAME}/", [Question(b"", b"done")]) as load,
            ):
                client.deploy(SERVICE)
                course = watch(client, load, console)
                account = load.account()
        finally:
            down(home.path)
    console.print(f"{account.requests} requests, {account.failed} failed")
    if len(sys.argv) > 1:
        draw(course, Path(sys.argv[1]))
    return 1 if account.failed else 0


if __name__ == "__main__":
    sys.exit(main())
