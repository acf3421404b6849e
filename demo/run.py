"""`make demo`: a cluster of three agents on this machine, four jobs of different kinds, one on
machines of a pool, of which one breaks and heals, and a service that is hit while it answers.

Everything lives in a temporary directory and is gone at the end, whatever happened. The exit code
is 0 only if every job ended as it should.
"""

import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from demo import haproxy, recovery, serving
from demo.broken_gpu import PlantedGpus
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from muster.app.home import Home
from muster.app.local import UpOptions, down, up
from muster.client import Client
from muster.core.errors import MusterError
from muster.core.states import AgentStatus, JobState, TaskState
from muster.core.views.work import JobView, KernelView

AGENTS = 3
CPUS = 4
GPUS = 4
RANKS = 4
SLICES = 200
FAILURES = 2
GPUS_OF_NONE = 9

LIMIT_S = 400
"""For all of it; a job alone may take a minute."""
JOB_LIMIT_S = 60.0
CLEAN_UP_LIMIT_S = 20.0
PLAIN_WIDTH = 110

PROGRAMS = Path(__file__).parent


class Unexpected(Exception):
    """Something did not go as it should; the text says what."""


class OutOfTime(Exception):
    """All of it together took too long."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the closing table: attempts of a job that are told of together."""

    job: str
    what: str
    agent: str
    gpus: str
    seconds: float | None
    outcome: str


Act = Callable[["Stage"], Iterator[Row]]


class Stage:
    """The tools of the acts: the cluster's client, GPUs that can be broken, and the screen."""

    def __init__(self, client: Client, home: Path, planted: PlantedGpus, console: Console) -> None:
        self.client = client
        self.home = home
        self.planted = planted
        self.console = console

    def title(self, number: int, sentence: str) -> None:
        self.console.print()
        self.console.print(Text.assemble((f"{number}. ", "bold cyan"), (sentence, "bold")))

    def show(self, text: str, style: str = "dim") -> None:
        for line in text.splitlines():
            self.console.print(Text(f"   {line}", style=style))

    def run(self, **fields: Any) -> JobView:
        """Hand in a job, by the keys of its spec, and see it to its end.

        Raises:
            Unexpected: it did not end in time.
        """
        columns = (
            TextColumn("   {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        job = self.client.submit(timeout=JOB_LIMIT_S, **fields)
        with Progress(
            *columns, console=self.console, transient=True, disable=not self.console.is_terminal
        ) as progress:
            bar = progress.add_task(job.name, total=job.tasks_total)

            def follow(now: JobView) -> None:
                done = now.counts.get(TaskState.SUCCEEDED, 0)
                progress.update(bar, completed=done, description=f"{now.name} {now.state.lower()}")

            job = self.client.wait(job.id, JOB_LIMIT_S, follow)
        if not job.ended:
            raise Unexpected(f"{job.name} is {job.state} after {JOB_LIMIT_S:.0f} s")
        return job

    def expect_success(self, job: JobView) -> None:
        """
        Raises:
            Unexpected: it did not succeed.
        """
        if job.state is not JobState.SUCCEEDED:
            self.show(self.log(job, 0), style="red")
            why = f": {job.reason.sentence}" if job.reason else ""
            raise Unexpected(f"{job.name} is {job.state}{why}")
        self.console.print(f"   [green]✓[/] {job.name} succeeded after {_seconds(job):.2f} s")

    def log(self, job: JobView, task: int, attempt: int | None = None) -> str:
        pieces = self.client.logs(job.id, task=task, attempt=attempt)
        return b"".join(pieces).decode(errors="replace")

    def attempts(self, job: JobView, task: int) -> Sequence[KernelView]:
        return self.client.task(job.id, task).attempts


def train_a_gang(stage: Stage) -> Iterator[Row]:
    stage.title(1, f"A gang of {RANKS} that trains a network on handwritten digits, data-parallel")
    stage.show(
        "Its tasks start together or not at all, meet at MASTER_ADDR:MASTER_PORT and add up\n"
        "their gradients round a ring of sockets."
    )
    job = stage.run(
        name="train-digits",
        command=[sys.executable, "-m", "demo.train"],
        files=_files("ring.py", "train.py"),
        env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        tasks=RANKS,
        coscheduled=True,
        resources={"gpu": 2},
    )
    for rank in range(RANKS):
        stage.show(stage.log(job, rank))
    stage.expect_success(job)
    for rank in range(RANKS):
        (attempt,) = stage.attempts(job, rank)
        yield _row(job, f"rank {rank}", attempt)


def compute_slices(stage: Stage) -> Iterator[Row]:
    stage.title(2, f"A job of {SLICES} tasks that add up to pi")
    job = stage.run(
        name="pi",
        command=[sys.executable, "-S", "demo/pi_slice.py"],
        files=_files("pi_slice.py"),
        tasks=SLICES,
    )
    stage.expect_success(job)
    total = math.fsum(float(stage.log(job, index)) for index in range(SLICES))
    stage.show(f"the sum of what {SLICES} tasks printed is {total:.9f}")
    if abs(total - math.pi) > 1e-8:
        raise Unexpected(f"expected {math.pi:.9f}: some task is missing, or ran on other input")
    on_agent = defaultdict(list)
    for index in range(SLICES):
        (attempt,) = stage.attempts(job, index)
        on_agent[attempt.agent or "?"].append(attempt)
    for agent, attempts in sorted(on_agent.items()):
        spent_s = sum(_seconds(attempt) for attempt in attempts)
        yield Row(job.name, f"{len(attempts)} tasks", agent, "", spent_s, "succeeded")


def retry_a_task(stage: Stage) -> Iterator[Row]:
    stage.title(3, f"A task that fails {FAILURES} times, with a budget of {FAILURES} retries")
    job = stage.run(
        name="flaky",
        command=[sys.executable, "-S", "demo/flaky.py"],
        files=_files("flaky.py"),
        max_retries_failure=FAILURES,
    )
    attempts = stage.attempts(job, 0)
    for attempt in attempts:
        stage.show(stage.log(job, 0, attempt.attempt))
    stage.expect_success(job)
    codes = [attempt.exit_code for attempt in attempts]
    if codes != [1] * FAILURES + [0]:
        raise Unexpected(f"expected {FAILURES} failed attempts and one good one, not {codes}")
    for attempt in attempts:
        yield _row(job, f"attempt {attempt.attempt}", attempt)


def ask_for_too_much(stage: Stage) -> Iterator[Row]:
    stage.title(4, f"A job that asks for {GPUS_OF_NONE} GPUs, where agents have {GPUS} each")
    job = stage.client.submit(
        name="too-large",
        command=["/bin/true"],
        resources={"gpu": GPUS_OF_NONE},
    )
    stage.show(f"$ muster why {job.name}", style="bold")
    stage.console.file.flush()
    environ = {key: value for key, value in os.environ.items() if not key.startswith("MUSTER_")}
    shown = subprocess.run(
        [Path(sys.executable).with_name("muster"), "why", job.name],
        env=environ | {"MUSTER_HOME": str(stage.home)},
        timeout=JOB_LIMIT_S,
        check=False,
    )
    why = stage.client.why(job.id)
    stage.client.cancel(job.id)
    job = stage.client.wait(job.id, JOB_LIMIT_S)
    if shown.returncode != 0:
        raise Unexpected(f"muster why ended with {shown.returncode}")
    if not why.reasons or why.placement is None or why.placement.agents != AGENTS:
        raise Unexpected(f"expected reasons that concern {AGENTS} agents, not: {why.verdict}")
    if job.state is not JobState.KILLED or job.started_at is not None:
        raise Unexpected(f"expected it to be cancelled before it started, but it is {job.state}")
    stage.console.print(f"   [green]✓[/] {job.name} was cancelled")
    yield Row(job.name, "1 task", "nowhere", "", None, "cancelled")


def heal_a_machine(stage: Stage) -> Iterator[Row]:
    stage.title(5, f"A gang on {recovery.RANKS} machines of a pool, one of which has a broken GPU")
    stage.show(
        "The GPUs are planted, all else is real: the failed task has the machines checked, the\n"
        "faulty one is rebooted, and the gang begins again."
    )
    home = Home(stage.home)
    try:
        job = recovery.run(stage.client, home, stage.planted, stage.console, indent="   ")
    except TimeoutError as error:
        raise Unexpected(str(error)) from error
    stage.expect_success(job)
    for rank in range(recovery.RANKS):
        attempts = stage.attempts(job, rank)
        if len(attempts) != 2:
            raise Unexpected(f"expected two attempts of rank {rank}, not {len(attempts)}")
        yield _row(job, f"rank {rank} again", attempts[-1])


def serve_a_model(stage: Stage) -> Iterator[Row]:
    stage.title(6, f"A language model as a service of {serving.REPLICAS} replicas, behind HAProxy")
    if haproxy.PROGRAM is None:
        stage.show(
            "There is no haproxy here, so this is left out: `make setup` tells how to get it."
        )
        return
    stage.show(
        "On a cluster of its own, under load all the while: it is updated, and a replica, a\n"
        "machine and the controller are killed."
    )
    try:
        phases = serving.run()
    except TimeoutError as error:
        raise Unexpected(str(error)) from error
    for phase in phases:
        failed = f"{phase.account.failed} of {phase.account.requests:,} requests failed"
        yield Row(serving.NAME, phase.what, "", "", phase.took_s, failed)
    stage.console.print(serving.table(phases))
    if not all(phase.well for phase in phases):
        raise Unexpected("more requests failed than may")


ACTS: Sequence[Act] = (
    train_a_gang,
    compute_slices,
    retry_a_task,
    ask_for_too_much,
    heal_a_machine,
    serve_a_model,
)


def _files(*programs: str) -> dict[str, str]:
    """Programs of this folder, as each kernel finds them in its scratch directory."""
    return {f"demo/{name}": (PROGRAMS / name).read_text() for name in programs}


def _row(job: JobView, what: str, attempt: KernelView) -> Row:
    gpus = ",".join(str(device.index) for device in attempt.devices)
    outcome = "succeeded" if attempt.exit_code == 0 else f"exit code {attempt.exit_code}"
    return Row(job.name, what, attempt.agent or "?", gpus, _seconds(attempt), outcome)


def _seconds(ended: JobView | KernelView) -> float:
    """From its start to its end.

    Raises:
        Unexpected: it lacks one of them.
    """
    end = ended.finished_at if isinstance(ended, JobView) else ended.ended_at
    if ended.started_at is None or end is None:
        raise Unexpected(f"{ended.id} has ended, but there is no telling when")
    return end - ended.started_at


def _table(rows: Sequence[Row]) -> Table:
    table = Table(title="What ran where, and how long", title_justify="left", title_style="bold")
    for name in ("job", "what", "agent", "GPUs"):
        table.add_column(name)
    table.add_column("seconds", justify="right")
    table.add_column("outcome")
    job = ""
    for row in rows:
        if row.job != job and job:
            table.add_section()
        seconds = "" if row.seconds is None else f"{row.seconds:.2f}"
        name = row.job if row.job != job else ""
        table.add_row(name, row.what, row.agent, row.gpus, seconds, row.outcome)
        job = row.job
    return table


def _play(stage: Stage) -> bool:
    """Run the acts and show the table; whether all went as it should."""
    rows: list[Row] = []
    well = True
    for act in ACTS:
        try:
            rows += act(stage)
        except (Unexpected, MusterError) as error:
            well = False
            stage.console.print(Text(f"   ✗ {error}", style="bold red"))
    stage.console.print()
    stage.console.print(_table(rows))
    return well


@contextmanager
def _cluster(console: Console) -> Iterator[Stage]:
    """A cluster of its own in a temporary directory; nothing of it stays.

    Raises:
        MusterError: it does not start, or does not stop.
        Unexpected: its agents do not come.
    """
    directory = Path(tempfile.mkdtemp(prefix="muster-demo-"))
    home, planted = directory / "home", PlantedGpus(directory / "planted")
    os.environ["PATH"] = planted.path
    try:
        report = up(UpOptions(home, agents=AGENTS, cpus=str(CPUS), gpus=f"{GPUS}xH100"))
        token = Home(home).client()["token"]
        with Client(report.url, token) as client:
            _await_agents(client)
            console.print(
                f"A cluster of {AGENTS} agents came up at {report.url} in {report.took_s:.1f} s. "
                f"Each declares {CPUS} CPUs and {GPUS} H100s."
            )
            yield Stage(client, home, planted, console)
    finally:
        _stop_listening_to_signals()
        try:
            down(home, timeout_s=CLEAN_UP_LIMIT_S)
        finally:
            shutil.rmtree(directory)


def _await_agents(client: Client) -> None:
    deadline_s = time.monotonic() + JOB_LIMIT_S
    while client.cluster().agents.get(AgentStatus.ALIVE, 0) < AGENTS:
        if time.monotonic() > deadline_s:
            raise Unexpected(f"the agents did not come within {JOB_LIMIT_S:.0f} s")
        time.sleep(0.05)


def _listen_to_signals() -> None:
    """Have signals that end this program early end it by way of the clean-up."""

    def out_of_time(_signum: int, _frame: FrameType | None) -> NoReturn:
        load = f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
        raise OutOfTime(f"the last act is not done after {LIMIT_S} s in all; the load is {load}")

    def interrupt(_signum: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, out_of_time)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, interrupt)
    signal.alarm(LIMIT_S)


def _stop_listening_to_signals() -> None:
    signal.alarm(0)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)


def main() -> int:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PLAIN_WIDTH)
    began_s = time.monotonic()
    _listen_to_signals()
    try:
        with _cluster(console) as stage:
            well = _play(stage)
    except KeyboardInterrupt:
        console.print("\nInterrupted; all of it is stopped and removed.")
        return 130
    except (Unexpected, OutOfTime, MusterError) as error:
        console.print(Text(f"✗ {error}", style="bold red"))
        return 1
    verdict = "All went as it should" if well else "Not all went as it should"
    style = "bold green" if well else "bold red"
    took_s = time.monotonic() - began_s
    console.print(f"[{style}]{verdict}[/], {took_s:.0f} s in all. The cluster is stopped and gone.")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
