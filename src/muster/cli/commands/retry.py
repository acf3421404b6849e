"""``muster retry``."""

from typing import TYPE_CHECKING, Annotated

import click

from muster.cli.arguments import AsJson, Ref, parse_ref
from muster.cli.hand_in import Told, handed_in
from muster.cli.nearest import suggesting
from muster.cli.parameters import Option
from muster.cli.target import Target, on_cluster
from muster.core.errors import NotFound

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views import JobView


@on_cluster
def retry(
    target: Target,
    ref: Ref,
    failed: Annotated[
        bool, Option("--failed", help="Only what failed, not what was stopped with the job.")
    ] = False,
    wait: Annotated[
        bool, Option("--wait", help="Wait until it has ended; end with its exit code.")
    ] = False,
    quiet: Annotated[
        bool, Option("--quiet", "-q", help="Print the id alone; no progress with --wait.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run again, as a new job, what did not succeed of one that ended."""
    subject = parse_ref(ref)
    if subject.index is not None or subject.is_session:
        what = "a session" if subject.is_session else "one task"
        raise click.BadParameter(f"{ref!r} is {what}: only jobs are retried")

    def hand_in(client: "Client") -> "JobView":
        try:
            with suggesting(client, ref):
                return client.retry(ref, failed=failed)
        except NotFound as no_job:
            try:
                client.session(ref)
            except NotFound:
                raise no_job from None
            raise click.BadParameter(f"{ref!r} is a session: only jobs are retried") from None

    told = Told(detach=not wait, quiet=quiet, as_json=as_json)
    raise click.exceptions.Exit(handed_in(target, hand_in, told))
