"""`python -m demo.recovery`: a gang of three on machines of a pool, one of which has a broken GPU.
It is an act of `make demo`, too.

It prints what becomes of the gang and of the machines, from the failed task to the end. The GPUs
are planted (`demo.broken_gpu`), all else is real: the machines are processes that the local
provider makes, and reboots. Everything lives in a temporary directory and is gone at the end.
"""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from demo.broken_gpu import PlantedGpus
from rich.console import Console
from rich.text import Text

from muster.app.home import Home
from muster.app.local import UpOptions, down, up
from muster.client import Client
from muster.core.specs.pool import PoolSpec
from muster.core.views.health import IncidentView
from muster.core.views.work import JobView

RANKS = 3
LOOK_S = 0.05
LIMIT_S = 60.0
NAME = "gpus"
POOL: dict[str, Any] = {
    "name": NAME,
    "group": NAME,
    "provider": "local",
    "machine": {"cpu": 1, "memory": "512MiB", "gpus": 1, "gpu_model": "T4"},
    "min_slices": RANKS,
    "max_slices": RANKS,
}
GROUP: dict[str, Any] = {
    "name": NAME,
    "kind": "group",
    "health": {"checks": ["dcgm"], "leave": 2},
}
JOB: dict[str, Any] = {
    "name": "train",
    "group": NAME,
    "tasks": RANKS,
    "coscheduled": True,
    "placement": {"max_kernels_per_agent": 1},
    "resources": {"cpu": 1, "gpu": 1},
    "recovery": True,
}


class Course:
    """Prints each change of what people are told, with the seconds since the beginning, as lines
    that are cut to the console's width."""

    def __init__(self, console: Console, indent: str = "") -> None:
        self._console = console
        self._indent = indent
        self._began_s = time.monotonic()
        self._said: dict[str, str] = {}

    @property
    def at_s(self) -> float:
        return time.monotonic() - self._began_s

    def tell(self, what: str, said: str) -> None:
        if self._said.get(what) != said:
            self._said[what] = said
            line = f"{self._indent}{self.at_s:5.1f} s  {what:<18}  {said}"
            self._console.print(Text(line), no_wrap=True, overflow="ellipsis")


def watch(client: Client, job: str, course: Course) -> JobView:
    """Tell the course until the job has ended and every machine is healthy; how the job ended.

    Raises:
        TimeoutError: that is not so in time.
    """
    while True:
        found, incidents = client.job(job), client.incidents("all")
        attempts = max(client.task(job, rank).attempt for rank in range(RANKS))
        for recovery in client.recoveries("all"):
            said = f"{found.state.lower()} in attempt {attempts}, {_words(recovery.status)}"
            course.tell(f"job {found.name}", said)
        for each in sorted(incidents, key=lambda incident: incident.agent):
            course.tell(f"machine {each.agent[-6:]}", _said(each))
        if found.ended and all(each.finished_at is not None for each in incidents):
            return found
        if course.at_s > LIMIT_S:
            raise TimeoutError("the gang does not end, or a machine does not heal")
        time.sleep(LOOK_S)


def tell_cost(client: Client, course: Course) -> None:
    """Tell what the recovery cost."""
    for recovery in client.recoveries("all"):
        ratio = recovery.training_ratio(time.time()) or 0.0
        lost = f"{recovery.gpu_hours_lost * 3600:.0f} GPU-seconds lost"
        restarts = f"restarts: {recovery.restarts}"
        course.tell("cost", f"{restarts}, {lost}, effective training time ratio {ratio:.2f}")


def _words(status: str) -> str:
    return status.lower().replace("_", " ")


def _said(incident: IncidentView) -> str:
    """The state of a machine, by which means it is healed, and why."""
    state = _words(incident.status)
    if incident.status in ("RESETTING", "REBOOTING") and incident.heal is not None:
        state = f"{state} ({incident.heal})"
    return state if incident.reason is None else f"{state}: {incident.reason.sentence}"


def run(
    client: Client, home: Home, planted: PlantedGpus, console: Console, indent: str = ""
) -> JobView:
    """Make the machines, break a GPU, and see the gang through; how it ended.

    Raises:
        TimeoutError: the machines do not come, or something does not end, in time.
    """
    client.put_group(GROUP)
    client.apply_pool(PoolSpec.model_validate(POOL))
    agents = machines(client)
    (broken,) = home.providers.glob(f"{NAME}/*/{agents[1]}/agent")
    planted.break_gpu(broken)
    course = Course(console, indent)
    job = client.submit(command=[str(planted.task)], **JOB)
    ended = watch(client, job.id, course)
    tell_cost(client, course)
    return ended


def machines(client: Client) -> list[str]:
    """The names of the pool's machines once all have come."""
    began_s = time.monotonic()
    while True:
        agents = [each for each in client.agents() if each.group == NAME and each.connected]
        if len(agents) == RANKS:
            return sorted(each.name for each in agents)
        if time.monotonic() > began_s + LIMIT_S:
            raise TimeoutError("the machines of the pool do not come")
        time.sleep(LOOK_S)


def main() -> None:
    console = Console(highlight=False, width=200)
    with tempfile.TemporaryDirectory(prefix="muster-demo-") as directory:
        home = Home(Path(directory) / "home")
        planted = PlantedGpus(Path(directory) / "planted")
        os.environ["PATH"] = planted.path
        up(UpOptions(home=home.path, agents=0))
        try:
            known = home.client()
            with Client(known["url"], known["token"]) as client:
                run(client, home, planted, console)
        finally:
            down(home.path)


if __name__ == "__main__":
    main()
