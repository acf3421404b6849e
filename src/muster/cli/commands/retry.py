"""``muster retry``."""

from typing import TYPE_CHECKING, Annotated

import click

from muster.cli import kinds
from muster.cli.arguments import Ref, parse_ref
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.completion import complete_group
from muster.cli.hand_in import handed_in
from muster.cli.job_options import Environment, ResourceOptions
from muster.cli.nearest import suggesting
from muster.cli.parameters import Option
from muster.cli.request import without_nones
from muster.cli.staying import Staying
from muster.cli.words import one
from muster.core.errors import NotFound

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.work import JobView


@on_cluster
def retry(
    cluster: Cluster,
    ref: Ref,
    resources: ResourceOptions,
    environment: Environment,
    staying: Staying,
    timeout: Annotated[
        str | None, Option("--timeout", metavar="TIME", help="Stop a task after so long, as 1h30m.")
    ] = None,
    scheduling_timeout: Annotated[
        str | None,
        Option(
            "--scheduling-timeout", metavar="TIME", help="Give up after so long a wait for room."
        ),
    ] = None,
    retries: Annotated[
        int | None,
        Option("--retries", help="Retry a failing task so often.", field="max_retries_failure"),
    ] = None,
    priority: Annotated[
        int | None, Option("--priority", help="Set the priority, 0 to 100; higher goes first.")
    ] = None,
    group: Annotated[
        str | None,
        Option("--group", help="Run in this scaling group.", autocompletion=complete_group),
    ] = None,
    failed: Annotated[
        bool, Option("--failed", help="Run only what failed, not what was stopped with the job.")
    ] = False,
) -> None:
    """Run again, as a new job, what did not succeed of one that ended.

    Its spec is that of the job, with what options say in place of it."""
    changes = without_nones(
        {
            **resources.keys(),
            **environment.overrides(),
            "timeout": timeout,
            "scheduling_timeout": scheduling_timeout,
            "max_retries_failure": retries,
            "priority": priority,
            "group": group,
        }
    )
    if parse_ref(ref).index is not None:
        raise click.BadParameter(f"{ref!r} is one task: only jobs are retried")

    def hand_in(client: "Client") -> "JobView":
        try:
            with suggesting(client, ref):
                return client.retry(ref, failed=failed, changes=changes)
        except NotFound as no_job:
            try:
                kind = kinds.of_record(client.show(ref))
            except NotFound:
                raise no_job from None
            said = f"{ref!r} is {one(kind.name)}: only jobs are retried"
            raise click.BadParameter(said) from None

    raise click.exceptions.Exit(handed_in(cluster, hand_in, staying.display()))
