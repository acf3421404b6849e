"""``muster wait``."""

from typing import TYPE_CHECKING, Annotated

import click

from muster.cli import kinds
from muster.cli.arguments import AsJson, parse_ref, seconds_of
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.completion import complete_waited_for
from muster.cli.exits import ExitCode
from muster.cli.follow.feed import LostSight, away_line, back_line
from muster.cli.kinds import deployment
from muster.cli.nearest import suggesting
from muster.cli.parameters import Argument, Option
from muster.cli.streams import plain, print_json, say
from muster.cli.words import one
from muster.core.errors import NotFound

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.base import RecordView


@on_cluster
def wait(
    cluster: Cluster,
    refs: Annotated[
        list[str],
        Argument(
            metavar="REF...",
            help="Jobs, sessions and deployments.",
            autocompletion=complete_waited_for,
        ),
    ],
    until_any: Annotated[
        bool, Option("--any/--all", help="Wait for one of them, or for all.", show_default=False)
    ] = False,
    timeout: Annotated[
        str | None,
        Option("--timeout", metavar="TIME", help="Wait so long at most, such as 90 or 1h30m."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Wait until jobs and sessions end, and deployments are healthy.

    Ends with the worst of their exit codes, with --any the first one's; with 2 if the time is over
    before, or after Ctrl-C: the work goes on."""
    for ref in refs:
        if parse_ref(ref).index is not None:
            raise click.BadParameter(f"{ref!r} is one task: wait for its job")
    timeout_s = None if timeout is None else seconds_of("--timeout", timeout)
    try:
        over, code = _waited(cluster, refs, until_any, timeout_s, quiet=as_json)
    except KeyboardInterrupt:
        say("nobody waits any more: the work goes on")
        raise click.exceptions.Exit(ExitCode.NOT_ENDED) from None
    if as_json:
        print_json(over)
    raise click.exceptions.Exit(code)


def _waited(
    cluster: Cluster, refs: list[str], until_any: bool, timeout_s: float | None, *, quiet: bool
) -> "tuple[list[RecordView], int]":
    """The records that are over, and the exit code. Unless ``quiet`` a line is printed for each.

    Raises:
        LostSight: nobody answers any more.
        MusterError: one of them cannot be waited for.
    """
    from muster.client import Unreachable

    def heard(answers: bool) -> None:
        url = client.url
        say(back_line(url) if answers else away_line(url, "the work"))

    codes: list[int] = []
    left: dict[str, str] = {}  # what is not over yet, by id: the REFs

    def tell(ended: "RecordView") -> None:
        line, code = kinds.of_record(ended).concluded(client, ended)
        codes.append(code)
        del left[ended.id]
        if not quiet:
            click.echo(plain(line.text))

    with cluster.client(on_contact=heard) as client:
        try:
            left |= {_found(client, ref).id: ref for ref in refs}
            wanted = 1 if until_any else len(left)
            over = client.wait_for(*left, any=until_any, timeout_s=timeout_s, on_end=tell)
        except Unreachable as error:
            raise LostSight(error) from None
    if len(over) < wanted:
        say(f"the time is over; these go on: {', '.join(left.values())}")
        return over, ExitCode.NOT_ENDED
    return over, max(codes)


def _found(client: "Client", ref: str) -> "RecordView":
    """The job, session or deployment that a REF names.

    Raises:
        NotFound, Ambiguous: see ``Client.show``; NotFound also for a record of another kind.
    """
    waited_for = [*kinds.work(), deployment.KIND]
    with suggesting(client, ref, waited_for):
        found = client.show(ref)
    kind = kinds.of_record(found)
    if kind not in waited_for:
        raise NotFound(f"{ref} is {one(kind.name)}, of which nothing is waited for")
    return found
