"""``muster simulate``: a trace replayed against policies, in virtual time."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from rich.console import Console
from rich.text import Text

from muster.cli.arguments import AsJson, seconds_of
from muster.cli.parameters import Argument, Option
from muster.cli.screen import Column, stderr, stdout, table, write
from muster.cli.streams import plain
from muster.cli.words import count, duration

if TYPE_CHECKING:
    from muster.simulate.policy_file import NamedPolicy
    from muster.simulate.report import Report

_TOLD_S = 0.1  # progress is shown so often at most


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How sessions and machines come, and what the scheduler knows of them."""

    speed_up: Annotated[
        float, Option("--speed-up", metavar="X", help="Have sessions come X times as fast.")
    ] = 1.0
    limit: Annotated[
        int | None,
        Option("--limit", min=1, help="Replay only so many sessions, the first that come."),
    ] = None
    ends_known: Annotated[
        bool,
        Option("--ends-known", help="Tell the scheduler how long each session will run."),
    ] = False
    boot: Annotated[
        str,
        Option("--boot", metavar="TIME", help="Time until a new slice of a pool takes work."),
    ] = "2m"


def simulate(
    trace: Annotated[
        Path,
        Argument(
            metavar="TRACE", help="File of the sessions: .csv (openb or generic) or .parquet."
        ),
    ],
    arrivals: Arrivals,
    clusters: Annotated[
        list[Path] | None,
        Option(
            "--cluster",
            metavar="FILE",
            help="File of the agents: .yaml, or openb's node .csv; repeat it to compare.",
        ),
    ] = None,
    policies: Annotated[
        list[str] | None,
        Option(
            "--policy",
            "--with",
            metavar="POLICY",
            help="A group's file, or names as in drf+strict; repeat it to compare.",
        ),
    ] = None,
    plot_to: Annotated[
        Path | None,
        Option("--plot", metavar="FILE", help="Draw the arrivals to a .png or .svg file."),
    ] = None,
    timings: Annotated[
        bool, Option("--timings", help="Report the scheduler's own time, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Replay a trace against policies, in virtual time."""
    from muster.simulate.plot import check_plot, plot
    from muster.simulate.policy_file import DEFAULT, UnknownPolicy, read_policy

    if not 0 < arrivals.speed_up < float("inf"):
        raise click.BadParameter(f"--speed-up is {arrivals.speed_up:g}: expected a number above 0")
    if plot_to is not None:
        check_plot(plot_to)
    try:
        named = [read_policy(each) for each in policies or [DEFAULT]]
    except UnknownPolicy as error:
        raise click.BadParameter(str(error)) from None
    reports = _replayed(trace, clusters or [], named, arrivals)
    if plot_to is not None:
        plot(reports, plot_to)
    if as_json:
        document = [each.as_dict(timings=timings) for each in reports]
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
    else:
        _show(reports, timings)


def _replayed(
    trace: Path, clusters: Sequence[Path], policies: Sequence["NamedPolicy"], arrivals: Arrivals
) -> list["Report"]:
    """A report of each policy on each cluster.

    Raises:
        MusterError: a file cannot be read, or is wrong.
    """
    from muster.simulate.cluster_file import read_cluster
    from muster.simulate.replay import replay
    from muster.simulate.report import report
    from muster.simulate.trace import read_trace

    named = _names(clusters)
    agents_of = {name: read_cluster(path) for name, path in named.items()} or {"": ()}
    boot_s = seconds_of("--boot", arrivals.boot)
    sessions = sorted(read_trace(trace), key=lambda each: each.submit_at_s)[: arrivals.limit]
    reports = []
    for cluster, policy in product(agents_of, policies):
        compared = cluster if len(agents_of) > 1 else ""
        agents, title = agents_of[cluster], _title(policy, compared)
        with _progress(title, len(sessions)) as told:
            recording = replay(
                sessions,
                agents,
                policy,
                speed_up=arrivals.speed_up,
                ends_known=arrivals.ends_known,
                boot_s=boot_s,
                progress=told,
            )
        reports.append(report(recording, compared))
    return reports


def _names(clusters: Sequence[Path]) -> dict[str, Path]:
    """The files of clusters by short names, or as they were given where these are not different.

    Raises:
        click.BadParameter: a file is named twice.
    """
    if len({*clusters}) < len(clusters):
        raise click.BadParameter("--cluster names a file twice: leave one out")
    stems = {path.stem: path for path in clusters}
    return stems if len(stems) == len(clusters) else {str(path): path for path in clusters}


def _title(policy: "NamedPolicy", cluster: str) -> str:
    return f"{policy.name} on {cluster}" if cluster else policy.name


@contextmanager
def _progress(title: str, sessions: int) -> Iterator[Callable[[int], None]]:
    """Progress on stderr, as a bar on a terminal: stdout is the same each time."""
    console, began = stderr(), time.monotonic()
    if console.is_terminal:
        from rich.progress import Progress

        with Progress(console=console, transient=True) as bar:
            task, shown_at = bar.add_task(plain(title), total=sessions), began

            def told(done: int) -> None:
                nonlocal shown_at
                if time.monotonic() - shown_at >= _TOLD_S:
                    shown_at = time.monotonic()
                    bar.update(task, completed=done)

            yield told
    else:
        yield lambda done: None
    took = duration(time.monotonic() - began)
    said = f"{title}: {count(sessions, 'session')} replayed in {took}"
    console.print(Text(plain(said)), soft_wrap=True)


def _show(reports: list["Report"], timings: bool) -> None:
    console = stdout()
    columns = [Column("", wraps=True), *(Column(each.title, right=True) for each in reports)]
    values = [_values(each, timings) for each in reports]
    rows = [
        [name, *(value[name] for value in values)]
        for name in values[0]
        if any(value[name] != _NOTHING for value in values)
    ]
    write(console, table(console, columns, rows))
    for each in reports:
        if len(each.pools) > 1:
            _show_pools(console, each)
        if each.unstarted:
            _show_unstarted(console, each)


_NOTHING = "-"


def _values(report: "Report", timings: bool) -> dict[str, str]:
    """Figures by their labels, in the order in which they are shown."""
    waits = report.waits
    shown = {
        "sessions": f"{report.sessions:,}",
        "never started": f"{report.sessions - report.started:,}",
        "makespan": duration(report.makespan_s),
        "GPUs allocated, mean": _percent(report.gpu_percent),
        "GPUs allocated, peak": _percent(report.gpu_peak_percent),
        "GPUs allocated while sessions waited": _percent(report.gpu_under_demand_percent),
        "CPUs allocated, mean": _percent(report.cpu_percent),
        "free GPU capacity of no use": _percent(report.fragmentation_percent),
        "all GPU capacity of no use": _percent(report.stranded_percent),
        "wait, mean": duration(waits.mean_s) if waits else _NOTHING,
        "wait, p50": duration(waits.p50_s) if waits else _NOTHING,
        "wait, p99": duration(waits.p99_s) if waits else _NOTHING,
        "wait, longest": duration(waits.max_s) if waits else _NOTHING,
        "queue, mean": f"{report.queue_mean:,.1f}",
        "queue, longest": f"{report.queue_max:,}",
        "fairness (Jain)": _NOTHING if report.fairness is None else f"{report.fairness:.3f}",
        "backfilled": _percent(report.backfill_percent),
        "preemptions": f"{report.preemptions:,}",
        "GPU hours lost to them": f"{report.lost_gpu_hours:,.1f}",
        "slices made": _of_pools(report, f"{sum(each.slices_made for each in report.pools):,}"),
        "slices deleted": _of_pools(
            report, f"{sum(each.slices_deleted for each in report.pools):,}"
        ),
        "slices, mean": _of_pools(report, f"{sum(each.slices_mean for each in report.pools):,.1f}"),
        "slices, peak": _of_pools(report, f"{report.slices_peak:,}"),
        "machine-hours": _of_pools(
            report, f"{sum(each.machine_hours for each in report.pools):,.1f}"
        ),
        "cost": _NOTHING if report.cost is None else f"{report.cost:,.2f}",
        "passes": f"{report.passes:,}",
        "decisions": f"{report.decisions:,}",
    }
    if timings:
        shown["time a pass"] = f"{report.timings.pass_ms:.2f}ms"
        shown["time a decision"] = f"{report.timings.decision_us:.0f}µs"
    return shown


def _of_pools(report: "Report", figure: str) -> str:
    return figure if report.pools else _NOTHING


def _percent(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.1f}%"


def _show_pools(console: Console, report: "Report") -> None:
    """The slices and the cost of each pool."""
    headings = ("MADE", "DELETED", "MEAN", "PEAK", "MACHINE-HOURS", "COST")
    columns = [
        Column(f"POOL, UNDER {report.title}", wraps=True),
        *(Column(each, right=True) for each in headings),
    ]
    rows = [
        [
            each.name,
            f"{each.slices_made:,}",
            f"{each.slices_deleted:,}",
            f"{each.slices_mean:,.1f}",
            f"{each.slices_peak:,}",
            f"{each.machine_hours:,.1f}",
            f"{each.cost:,.2f}",
        ]
        for each in report.pools
    ]
    console.print()
    write(console, table(console, columns, rows))


def _show_unstarted(console: Console, report: "Report") -> None:
    """Why sessions never started, the commonest reason first."""
    columns = [
        Column("NEVER STARTED", right=True),
        Column("FIRST"),
        Column(f"WHY, UNDER {report.title}", flexible=True, wraps=True),
    ]
    rows = [[f"{each.sessions:,}", each.example, each.why] for each in report.unstarted]
    console.print()
    write(console, table(console, columns, rows))
