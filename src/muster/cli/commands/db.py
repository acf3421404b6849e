"""``muster db``: the state of a cluster as a whole."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.cluster import Home
from muster.cli.command_group import CommandGroup
from muster.cli.exits import ExitCode
from muster.cli.parameters import Argument, Option, annotated
from muster.cli.screen import stderr, stdout
from muster.cli.streams import plain
from muster.cli.words import count, moment
from muster.core.errors import MusterError
from muster.core.resources import format_bytes

if TYPE_CHECKING:
    from muster.app.home import Home as Directory
    from muster.app.maintenance.checking import Audited
    from muster.app.maintenance.making import Made
    from muster.app.maintenance.restoring import Restored, TokenChoice
    from muster.app.maintenance.revoking import Revoked

Database = Annotated[
    str | None,
    Option(
        "--database",
        metavar="URL",
        help="postgresql://USER@HOST/NAME, or a file. [default: that of this machine's cluster]",
    ),
]
File = Annotated[Path, Argument(metavar="FILE")]
PassphraseFile = Annotated[
    Path | None,
    Option(
        "--passphrase-file",
        metavar="FILE",
        help="File whose first line is the passphrase, - being standard input. [default: ask]",
    ),
]


@click.group(cls=CommandGroup)
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
def backup(
    ctx: click.Context,
    file: File,
    database: Database = None,
    home: Home = None,
    everything: Annotated[
        bool, Option("--all", help="Keys, tokens and settings of the data directory, too.")
    ] = False,
    encrypt: Annotated[
        bool, Option("--encrypt", help="Encrypt it with a passphrase, with --all.")
    ] = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Write the state of a cluster, or the whole cluster, to a new file.

    Whether or not the controller runs. Jobs' output is not in it; without --all, neither are the
    keys and tokens in the data directory. It can be restored into a database of either kind.
    """
    if not everything:
        if encrypt or passphrase_file is not None:
            raise click.BadParameter("--encrypt and --passphrase-file go with --all")
        from muster.app.maintenance.backup import back_up

        made = back_up(_url(ctx, database, home), file)
        size = format_bytes(made.size_bytes)
        click.echo(f"backed up {count(made.rows, 'row')} to {made.file} ({size})")
        return
    from muster.app.maintenance.archive import back_up_cluster
    from muster.app.maintenance.sealing import require_strong

    url, passphrase = _url(ctx, database, home), None
    if encrypt or passphrase_file is not None:
        passphrase = _passphrase(passphrase_file, twice=True)
        require_strong(passphrase)
    whole = back_up_cluster(_home(ctx, home), url, file, passphrase)
    size = format_bytes(whole.size_bytes)
    rows = count(whole.state.rows, "row")
    click.echo(f"backed up {rows}, {', '.join(whole.files)} to {file} ({size})")
    if passphrase is None:
        click.echo(
            "warning: whoever reads this file has the keys and tokens of the cluster; --encrypt "
            "makes it unreadable without a passphrase",
            err=True,
        )


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
    revoke_tokens: Annotated[
        bool,
        Option("--revoke-tokens", help="Revoke all tokens in it: everybody needs a new one."),
    ] = False,
    keep_tokens: Annotated[
        bool,
        Option(
            "--keep-tokens",
            help="Have its tokens be good, also if it is not known which were revoked since.",
        ),
    ] = False,
    files_only: Annotated[
        bool,
        Option(
            "--files-only",
            help="Put only the files of the data directory back, of a backup with --all.",
        ),
    ] = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Put a backup in the place of a cluster's state.

    One of --all takes the place of keys, tokens and settings, too.
    Only while no controller runs: `muster down` first. What is there is kept aside. What was
    revoked since the backup was made stays revoked.
    """
    from muster.app.maintenance.archive import is_archive
    from muster.app.maintenance.restoring import TokenChoice
    from muster.app.maintenance.restoring import restore as put_back
    from muster.app.revocations import read_revocations

    if revoke_tokens and keep_tokens:
        raise click.BadParameter("--revoke-tokens and --keep-tokens contradict each other")
    choice = TokenChoice.NONE if revoke_tokens else TokenChoice.LISTED
    choice = TokenChoice.KEPT if keep_tokens else choice
    try:
        is_whole = is_archive(file)
    except OSError as error:
        raise MusterError(f"cannot read {file}: {error.strerror}") from None
    if is_whole:
        _revive(ctx, file, database, home, discard_later, choice, files_only, passphrase_file)
        return
    if files_only or passphrase_file is not None:
        raise click.BadParameter(
            "--files-only and --passphrase-file are for backups with --all, and this is none"
        )
    place = _home(ctx, home)
    url = _url(ctx, database, home)
    _warn_of_leases(url)
    put = put_back(
        url,
        file,
        discard_later=discard_later,
        choice=choice,
        revocations=read_revocations(place.path),
    )
    _say_restored(put)


def _revive(
    ctx: click.Context,
    file: Path,
    database: str | None,
    home: Path | None,
    discard_later: bool,
    choice: "TokenChoice",
    files_only: bool,
    passphrase_file: Path | None,
) -> None:
    from muster.app.maintenance.reviving import revive
    from muster.app.maintenance.sealing import is_sealed

    _warn_of_password(database)
    place = _home(ctx, home)
    passphrase = None
    if is_sealed(file):
        passphrase = _passphrase(passphrase_file, twice=False)
    revived = revive(
        place,
        database,
        file,
        passphrase,
        discard_later=discard_later,
        choice=choice,
        files_only=files_only,
    )
    if revived.state is not None:
        _say_restored(revived.state)
        click.echo(f"the state is in {revived.database}")
    files = ", ".join(revived.written)
    click.echo(f"wrote {files} to {place.path}" if files else f"{place.path} has these files")
    if revived.kept_aside:
        names = ", ".join(path.name for path in revived.kept_aside)
        click.echo(f"what was there is {names}")


def _say_restored(put: "Restored") -> None:
    aside = f"; what was there is {put.made.kept_aside}" if put.made.kept_aside else ""
    click.echo(
        f"restored {count(put.made.rows, 'row')} of {moment(put.made_at)} from {put.file}{aside}"
    )
    for line in _said_of(put.revoked):
        click.echo(line)
    click.echo(
        "Once the controller runs, agents stop the kernels that began later, and run again what "
        "has ended since."
    )
    _warn(put.made)


def _said_of(revoked: "Revoked") -> Iterator[str]:
    """Sentences on what a restore has revoked in the state of the backup."""
    if revoked.tokens or revoked.join_tokens:
        tokens = f"{count(revoked.tokens, 'token')} and {count(revoked.join_tokens, 'join token')}"
        yield f"revoked now: {tokens} that were good when the backup was made"
    if revoked.agents:
        yield f"removed since, so their credentials are good no more: {', '.join(revoked.agents)}"
    if revoked.users:
        yield f"removed since, and again now: users {', '.join(revoked.users)}"
    if revoked.kept_users:
        yield (
            f"removed since, and here still because of their work, without a token: users "
            f"{', '.join(revoked.kept_users)}; `muster users remove --cancel` ends it"
        )


def _passphrase(file: Path | None, *, twice: bool) -> str:
    from muster.app.maintenance.sealing import passphrase_in, passphrase_typed

    return passphrase_typed(twice=twice) if file is None else passphrase_in(file)


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
