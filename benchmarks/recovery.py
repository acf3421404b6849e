"""The time from a failed task to the check of its machines, and from a machine that is healthy
again to the gang that runs on it: machines of the local provider, of which one has a GPU that is
broken (planted, `demo.broken_gpu`) until it reboots."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import Figure, MeaninglessFigures, Results, Samples
from demo.broken_gpu import PlantedGpus
from demo.recovery import GROUP, JOB, LIMIT_S, NAME, POOL, RANKS, machines
from tests.patience import until

from muster.app.home import Home
from muster.app.local import UpOptions, down, up
from muster.client import Client
from muster.core.specs.pool import PoolSpec
from muster.core.states import JobState
from muster.core.views.health import IncidentView
from muster.core.views.work import KernelView

TITLE = "Recovery: from the failure to the check, and from the healed machine to the restart"


@dataclass(frozen=True, slots=True)
class Plan:
    """``runs`` gangs one after the other, on machines of which another is broken each time."""

    runs: int


FULL = Plan(runs=9)
SHORT = Plan(runs=3)


def measure(plan: Plan) -> Results:
    """
    Raises:
        MeaninglessFigures: a gang did not recover as it should.
        MusterError, TimeoutError: there is no cluster to measure.
    """
    samples = Samples()
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        home = Home(Path(directory) / "home")
        planted = PlantedGpus(Path(directory) / "planted")
        path = os.environ["PATH"]
        os.environ["PATH"] = planted.path
        try:
            report = up(UpOptions(home=home.path, agents=0))
            with Client(report.url, home.client()["token"]) as client:
                client.put_group(GROUP)
                client.apply_pool(PoolSpec.model_validate(POOL))
                for run in range(plan.runs):
                    _recover(client, home, planted, run, samples)
        finally:
            os.environ["PATH"] = path
            down(home.path)
    return Results(plan.runs, [*_figures(samples)])


def _figures(samples: Samples) -> Iterator[Figure]:
    yield Figure(
        "failure_to_check_ms",
        samples.median("check"),
        "from the end of the failed task's process to the start of the check on its machine",
        "≤ 1,000",
    )
    yield Figure(
        "failure_to_last_check_ms",
        samples.median("last check"),
        f"to the start of the last check, where the others of {RANKS} tasks had to stop before",
        "≤ 1,000",
    )
    yield Figure(
        "healthy_to_restart_ms",
        samples.median("restart"),
        "from when the last machine was healthy again to when all tasks of the gang ran",
        "≤ 1,000",
    )
    yield Figure(
        "failure_to_restart_s",
        samples.median("all") / 1000,
        "from the failure until all tasks ran again, with checks and a reboot that take next to "
        "nothing",
    )


def _recover(client: Client, home: Home, planted: PlantedGpus, run: int, samples: Samples) -> None:
    """Break a GPU, see a gang through, and take its times."""
    names = machines(client)
    broken = names[run % RANKS]  # checks of a healthy one are wanted a few times an hour only
    (directory,) = home.providers.glob(f"{NAME}/*/{broken}/agent")
    planted.break_gpu(directory)
    job = client.submit(command=[str(planted.task)], **{**JOB, "name": f"train-{run}"})
    ended = client.wait(job.id, LIMIT_S)
    until(lambda: not client.incidents(), LIMIT_S)
    attempts = [client.task(job.id, rank).attempts for rank in range(RANKS)]
    if ended.state is not JobState.SUCCEEDED or any(len(each) != 2 for each in attempts):
        raise MeaninglessFigures(f"{ended.name} is {ended.state}, not recovered in two attempts")
    failed = next(first for first, _ in attempts if first.agent == broken)
    failed_at = _time(failed.ended_at)
    checks = _first_checks(client, failed_at)
    if set(checks) != set(names):
        raise MeaninglessFigures(f"machines were checked on {sorted(checks)} alone")
    healthy_at = max(_time(each.finished_at) for each in _incidents(client, failed_at))
    runs_at = max(_time(again.started_at) for _, again in attempts)
    samples.add("check", 1000 * (checks[broken] - failed_at))
    samples.add("last check", 1000 * (max(checks.values()) - failed_at))
    samples.add("restart", 1000 * (runs_at - healthy_at))
    samples.add("all", 1000 * (runs_at - failed_at))


def _incidents(client: Client, since: float) -> list[IncidentView]:
    return [each for each in client.incidents("ended") if each.began_at >= since - 1.0]


def _first_checks(client: Client, since: float) -> dict[str, float]:
    """When the first service after a failure began, by machine."""
    found: dict[str, float] = {}
    for session in client.sessions("all"):
        if session.owner.domain.startswith("@") and session.created_at >= since - 1.0:
            kernel: KernelView = client.session(session.id).kernels[0]
            if kernel.agent is not None and kernel.started_at is not None:
                at = found.get(kernel.agent, kernel.started_at)
                found[kernel.agent] = min(at, kernel.started_at)
    return found


def _time(at: float | None) -> float:
    if at is None:
        raise MeaninglessFigures("a time is not known")
    return at
