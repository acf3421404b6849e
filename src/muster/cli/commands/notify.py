"""``muster notify test``."""

import sys
from typing import Annotated

import click

from muster.cli.arguments import AsJson
from muster.cli.parameters import Argument, annotated
from muster.cli.screen import print_json
from muster.cli.target import Target, on_cluster


@click.group()
def notify() -> None:
    """Try the channels that are told when work ends."""


@notify.command(name="test")
@annotated
@on_cluster
def try_channel(
    target: Target,
    channel: Annotated[
        str,
        Argument(
            metavar="URL",
            help="As in `notify:` of a spec; - reads it from standard input, so that neither the "
            "shell's history nor the list of processes has it.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Send a notice to a channel now, and tell what became of it."""
    if channel == "-":
        channel = sys.stdin.readline().strip()
    with target.client() as client:
        notice = client.try_channel(channel)
    if as_json:
        print_json(notice)
    elif notice.status == "SENT":
        click.echo(f"sent to {notice.channel}")
    if notice.status != "SENT":
        why = notice.reason
        said = "no word of it yet" if why is None else f"{why.sentence}. {why.remedy}".strip()
        raise click.ClickException(f"not sent to {notice.channel}: {said}")
