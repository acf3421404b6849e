"""``muster retry``."""

from typing import TYPE_CHECKING, Annotated

import click

from muster.cli import kinds
from muster.cli.arguments import Ref, parse_ref
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.hand_in import handed_in
from muster.cli.nearest import suggesting
from muster.cli.parameters import Option
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
    staying: Staying,
    failed: Annotated[
        bool, Option("--failed", help="Run only what failed, not what was stopped with the job.")
    ] = False,
) -> None:
    """Run again, as a new job, what did not succeed of one that ended."""
    if parse_ref(ref).index is not None:
        raise click.BadParameter(f"{ref!r} is one task: only jobs are retried")

    def hand_in(client: "Client") -> "JobView":
        try:
            with suggesting(client, ref):
                return client.retry(ref, failed=failed)
        except NotFound as no_job:
            try:
                kind = kinds.of_record(client.show(ref))
            except NotFound:
                raise no_job from None
            said = f"{ref!r} is {one(kind.name)}: only jobs are retried"
            raise click.BadParameter(said) from None

    raise click.exceptions.Exit(handed_in(cluster, hand_in, staying.display()))
