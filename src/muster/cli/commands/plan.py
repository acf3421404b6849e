"""``muster plan``."""

import shlex
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import click
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.exits import ExitCode
from muster.cli.explained import placement_shown
from muster.cli.hand_in import under_a_free_name
from muster.cli.nearest import suggesting_dependencies
from muster.cli.placement_options import Project, with_keys
from muster.cli.screen import Column, stdout, table, write
from muster.cli.spec_file import SpecFile, read_spec
from muster.cli.streams import plain, print_json
from muster.cli.words import sentence_of, with_local_moments
from muster.core.states.task import COLOURS, TaskState

if TYPE_CHECKING:
    from muster.core.views.placement import PlannedKernelView, PlanView

SHOWN = 20
"""Kernels whose places are listed."""

_COLOURS = {
    "starts": COLOURS[TaskState.SUCCEEDED],
    "displaces": COLOURS[TaskState.SUCCEEDED],
    "waits": COLOURS[TaskState.PENDING],
    "cancelled": COLOURS[TaskState.FAILED],
}
_CODES = {"waits": ExitCode.NOT_PLACED, "cancelled": ExitCode.FAILED}


@on_cluster
def plan(
    cluster: Cluster,
    file: Annotated[str, SpecFile],
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a job or a session would start now, and where.

    Nothing is handed in, and of a deployment there is no plan. Ends with 0 if it would start, 2 if
    it would wait, 1 if it is refused.
    """
    from muster.core.specs import JobSpec, SessionSpec

    of_deployment = (
        "no plan is made of a deployment; hand it in by `muster deploy --detach "
        f"{shlex.quote(file)}`, and `muster why NAME` tells what its replicas lack"
    )
    spec = read_spec(file, JobSpec, SessionSpec, others={"deployment": of_deployment})
    if project is not None:
        spec = with_keys(spec, {"project": project})
    with cluster.client() as client, suggesting_dependencies(client):
        if isinstance(spec, JobSpec):  # `muster submit` numbers its name, too
            answer = under_a_free_name(client, spec, client.plan)
        else:
            answer = client.plan(spec)
    if as_json:
        print_json(answer)
    else:
        console = stdout()
        write(console, *plan_shown(console, answer))
    raise click.exceptions.Exit(_CODES.get(answer.outcome, ExitCode.OK))


def plan_shown(console: Console, plan: "PlanView") -> list[RenderableType]:
    """The verdict, every reason with its remedy, the places, and the shortfalls of the agents."""
    outcome = (plan.outcome.value, _COLOURS.get(plan.outcome, ""))
    parts: list[RenderableType] = [
        Text.assemble(outcome, "  ", (plain(with_local_moments(plan.verdict)), "bold")),
    ]
    if plan.reasons and plan.outcome == "starts":
        parts.append(Text("  the others wait:"))
    for remedy, reasons in groupby(plan.reasons, lambda reason: reason.remedy):
        parts += [Text(f"  {plain(sentence_of(reason))}") for reason in reasons]
        if remedy and plan.outcome != "displaces":
            parts.append(Text(f"    {plain(remedy)}"))
    parts += [Text(f"  {plain(sentence_of(each))}") for each in plan.adds]
    if plan.kernels:
        parts += [Text(), kernels_table(console, plan.kernels)]
        if len(plan.kernels) > SHOWN:
            parts.append(Text(f"and {len(plan.kernels) - SHOWN:,} more; --json names them"))
    return parts + placement_shown(console, plan.placement)


def kernels_table(console: Console, kernels: "tuple[PlannedKernelView, ...]") -> Table:
    columns = [Column("KERNEL", right=True), Column("AGENT"), Column("GPUS")]
    rows = (
        [
            str(kernel.index),
            kernel.agent,
            ",".join(
                f"{share.index}" if share.share >= 1 else f"{share.index}({share.share:g})"
                for share in kernel.devices
            ),
        ]
        for kernel in kernels[:SHOWN]
    )
    return table(console, columns, rows)
