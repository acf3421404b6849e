"""`python -m demo.pools [FILE]`: a cluster without machines, a pool of up to four, and ten jobs.

It prints how machines come and go, and draws it into FILE, if one is given. Everything lives in a
temporary directory and is gone at the end.
"""

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console

from muster.app.home import Home
from muster.app.local import UpOptions, down, up
from muster.client import Client
from muster.core.specs.pool import PoolSpec
from muster.core.states import JobState

JOBS = 10
WORK_S = 4
LOOK_S = 0.1
LIMIT_S = 120.0
POOL: dict[str, Any] = {
    "name": "here",
    "provider": "local",
    "machine": {"cpu": 1, "memory": "512MiB"},
    "max_slices": 4,
    "idle_timeout": 5,
}
STATES = ("REQUESTING", "BOOTING", "INITIALIZING", "READY", "leaving")
COLOURS = ("#f0e442", "#e69f00", "#56b4e9", "#009e73", "#999999")  # (source: Okabe 2008)

Course: TypeAlias = list[tuple[float, Counter[str], int, int]]
"""Moments in seconds since the beginning: slices by state, jobs that wait, jobs that run."""


def watch(client: Client, jobs: list[str], console: Console) -> Course:
    """The course until the last slice is gone."""
    began_s, last = time.monotonic(), ""
    course: Course = []
    while True:
        at_s = time.monotonic() - began_s
        slices = Counter(
            "leaving" if each.doomed is not None else each.status for each in client.slices()
        )
        states = Counter(client.job(job).state for job in jobs)
        waiting, running = states[JobState.PENDING], states[JobState.RUNNING]
        look = (at_s, slices, waiting, running)
        told = ", ".join(f"{slices[each]} {each}" for each in STATES if slices[each]) or "none"
        line = f"{waiting:2} wait, {running:2} run; slices: {told}"
        if line != last:
            console.print(f"{at_s:5.1f} s  {line}")
            last = line
            course.append(look)
        if not slices and not waiting and not running:
            return [*course, look]
        if at_s > LIMIT_S:
            raise TimeoutError("the machines do not go")
        time.sleep(LOOK_S)


def draw(course: Course, path: Path) -> None:
    """Slices by state over time, and the jobs that wait."""
    import matplotlib as mpl

    mpl.use("svg" if path.suffix == ".svg" else "agg")
    from matplotlib import pyplot as plt

    mpl.rcParams |= {"svg.hashsalt": "muster", "svg.fonttype": "none"}
    figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    times = [at_s for at_s, *_ in course]
    layers = [[slices[state] for _, slices, *_ in course] for state in STATES]
    axes.stackplot(
        times, layers, labels=[each.lower() for each in STATES], colors=COLOURS, step="post"
    )
    waiting = [each for *_, each, _ in course]
    axes.step(times, waiting, where="post", color="black", label="jobs that wait")
    axes.set_xlabel("seconds")
    axes.set_ylabel("slices, jobs")
    axes.legend(loc="upper right", fontsize="small", frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="muster-demo-") as directory:
        home = Home(Path(directory))
        up(UpOptions(home=home.path, agents=0))
        try:
            known = home.client()
            with Client(known["url"], known["token"]) as client:
                client.apply_pool(PoolSpec.model_validate(POOL))
                work: dict[str, Any] = {"command": ["sleep", str(WORK_S)], "resources": {"cpu": 1}}
                jobs = [client.submit(name=f"work-{n}", **work).id for n in range(1, JOBS + 1)]
                course = watch(client, jobs, console)
        finally:
            down(home.path)
    if len(sys.argv) > 1:
        draw(course, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
