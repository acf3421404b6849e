"""``muster db``: the state of a cluster as a whole."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.cluster import Home
from muster.cli.exits import ExitCode
from muster.cli.parameters import Argument, Option, annotated
from muster.cli.screen import plain, stderr, stdout
from muster.cli.words import count, moment
from muster.core.errors import MusterError

if TYPE_CHECKING:
    from muster.app.home import Home as Directory
    from muster.app.maintenance.checking import Audited
    from muster.app.maintenance.making import Made

Database = Annotated[
    str | None,
    Option(
        "--database",
        metavar="URL",
        help="postgresql://USER@HOST/NAME, or a file. [default: that of this machine's cluster]",
    ),
]
File = Annotated[Path, Argument(metavar="FILE")]


@click.group()
def db() -> None:
    """Check, back up, restore, migrate or move a cluster's state."""


@db.command()
@annotated
def check(
    ctx: click.Context, database: Database = None, home: Home = None, as_json: AsJson = False
) -> None:
    """Compare everything that is stored with what it follows from.

    Nothing is changed, and a controller that runs goes on. A part that takes long is reported on
    standard error every 5 s; after an hour it is given up. The exit code is 0 if all is as it has
    to be, 1 if something differs, and 2 if that could not be found out.
    """
    from muster.app.maintenance.checking import check as checked

    audited = []
    try:
        for each in checked(_url(ctx, database, home), _report_progress):
            audited.append(each)
            if not as_json:  # at once, because some take long
                for line in _told(each):
                    stdout().print(line, soft_wrap=True)
    except MusterError as error:
        from muster.cli import failures

        failures.report(error)
        raise click.exceptions.Exit(ExitCode.NOT_CHECKED) from None
    if as_json:
        import json
        from dataclasses import asdict

        click.echo(json.dumps([asdict(each) for each in audited], indent=2))
    if any(each.trouble for each in audited):
        raise click.exceptions.Exit(ExitCode.NOT_CHECKED)
    if any(each.found for each in audited):
        raise click.exceptions.Exit(ExitCode.FAILED)


def _report_progress(title: str, took_s: float) -> None:
    click.echo(f"checking for {took_s:.0f} s whether {title}", err=True)


@db.command()
@annotated
def backup(ctx: click.Context, file: File, database: Database = None, home: Home = None) -> None:
    """Write the state of a cluster to a new file.

    Whether or not the controller runs. Jobs' output, and the keys and tokens in the data directory,
    are not in it. It can be restored into a database of either kind.
    """
    from muster.app.maintenance.backup import back_up

    made = back_up(_url(ctx, database, home), file)
    size = f"{made.size_bytes / 2**20:.1f} MiB"
    click.echo(f"backed up {count(made.rows, 'row')} to {made.file} ({size})")


@db.command()
@annotated
def restore(
    ctx: click.Context,
    file: File,
    database: Database = None,
    home: Home = None,
    discard_later: Annotated[
        bool,
        Option(
            "--discard-later", help="Restore also if live work is forgotten that came after it."
        ),
    ] = False,
) -> None:
    """Put a backup in the place of a cluster's state.

    Only while no controller runs: `muster down` first. The state that is there is kept aside.
    """
    from muster.app.maintenance.restoring import restore as put_back

    url = _url(ctx, database, home)
    _warn_of_leases(url)
    put = put_back(url, file, discard_later=discard_later)
    aside = f"; what was there is {put.made.kept_aside}" if put.made.kept_aside else ""
    click.echo(
        f"restored {count(put.made.rows, 'row')} of {moment(put.made_at)} from {put.file}{aside}"
    )
    click.echo(
        "Once the controller runs, agents stop the kernels that began later, and run again what "
        "has ended since."
    )
    _warn(put.made)


@db.command()
@annotated
def migrate(
    ctx: click.Context,
    database: Database = None,
    home: Home = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Say only what would be done.")] = False,
) -> None:
    """Bring the tables of an older version of Muster up to this one's.

    A controller that starts does so itself. All of it is one transaction.
    """
    from muster.app.maintenance.migrating import migrate as bring_up
    from muster.app.maintenance.migrating import missing_migrations

    url = _url(ctx, database, home)
    if not dry_run:
        _warn_of_leases(url)
    migrations = missing_migrations(url) if dry_run else bring_up(url)
    for number, words in migrations.missing:
        click.echo(f"{number}  {words}")
    if not migrations.missing:
        click.echo(f"nothing to do: the tables are of this version (migration {migrations.found})")
    elif dry_run:
        found = f"migration {migrations.found}" if migrations.found else "an empty database"
        click.echo(f"{count(len(migrations.missing), 'migration')} to run from {found}")
    else:
        click.echo(f"ran {count(len(migrations.missing), 'migration')}")


@db.command()
@annotated
def copy(
    ctx: click.Context,
    source: Annotated[str, Argument(metavar="FROM", help="A URL, or a file.")],
    target: Annotated[str, Argument(metavar="TO", help="An empty database: a URL, or a file.")],
    home: Home = None,
) -> None:
    """Move a cluster to another database, of either kind.

    Only while no controller runs: `muster down` first. FROM stays as it is.
    """
    from muster.app.maintenance.copying import copy as copied

    _warn_of_password(source, target)
    _warn_of_leases(source)
    copy_ = copied(_home(ctx, home), source, target)
    click.echo(f"copied {count(copy_.made.rows, 'row')}, each as it was")
    if copy_.is_used:
        click.echo("`muster up` and `muster controller` work on the copy from now on")
    else:
        click.echo("to work on the copy, start its controller with --database")
    _warn(copy_.made)


def _home(ctx: click.Context, home: Path | None) -> "Directory":
    from muster.app.home import Home as Directory
    from muster.app.home import default_home

    place = Directory(home or ctx.obj.home or default_home())
    place.require_own()
    return place


def _url(ctx: click.Context, database: str | None, home: Path | None) -> str:
    from muster.app.maintenance.place import database_of

    _warn_of_password(database)
    return database_of(_home(ctx, home), database)


def _warn_of_password(*named: str | None) -> None:
    from muster.app.database_option import warnings_of

    for warning in warnings_of(*named):
        click.echo(f"warning: {warning}", err=True)


def _warn_of_leases(database: str) -> None:
    from muster.app.maintenance.leases import warnings_of_leases

    for warning in warnings_of_leases(database):
        click.echo(f"warning: {warning}", err=True)


def _told(audited: "Audited") -> Iterator[Text]:
    """The lines that tell the outcome of an audit."""
    if audited.trouble is not None:
        yield Text.assemble(("✗", "bold red"), f" {audited.title}: {plain(audited.trouble)}")
    elif not audited.found:
        yield Text.assemble(("✓", "green"), f" {audited.title}")
    else:
        yield Text.assemble(("✗", "bold red"), f" {audited.title}: {audited.found:,} differ")
    for finding in audited.first:
        yield Text(f"  {plain(finding.subject)} {plain(finding.sentence)}")
    if audited.found > len(audited.first):
        yield Text(f"  … and {audited.found - len(audited.first):,} more", style="dim")


def _warn(made: "Made") -> None:
    if made.differing:
        said = "; ".join(f"not {each.title}" for each in made.differing)
        warning = f"warning: it was like this before, and `muster db check` tells more: {said}"
        stderr().print(Text(warning), soft_wrap=True)
