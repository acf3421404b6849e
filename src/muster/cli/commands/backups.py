"""``muster backup`` and ``muster restore``."""

from pathlib import Path
from typing import Annotated

import click

from muster.cli.parameters import Argument
from muster.cli.target import Home

File = Annotated[Path, Argument(metavar="FILE")]


def backup(ctx: click.Context, file: File, home: Home = None) -> None:
    """Copy the state of this machine's cluster to a new file.

    Whether or not the controller runs. Jobs' output, and the keys and tokens in the data directory
    beside the database, are not in it.
    """
    from muster.app.backup import back_up

    made = back_up(file, home or ctx.obj.home)
    click.echo(f"backed up to {made.file} ({made.size_bytes / 2**20:.1f} MiB)")


def restore(ctx: click.Context, file: File, home: Home = None) -> None:
    """Put a backup in place of the state of this machine's cluster.

    Only while it does not run: `muster down` first. The state that is there is kept aside.
    """
    from muster.app.backup import restore as put_back

    made = put_back(file, home or ctx.obj.home)
    aside = f"; what was there is {made.kept_aside}" if made.kept_aside else ""
    click.echo(f"restored from {made.file}{aside}")
