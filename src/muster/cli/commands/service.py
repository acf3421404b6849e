"""``muster service``: systemd runs a controller, an agent or a proxy."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from muster.cli.cluster import Home
from muster.cli.command_group import CommandGroup
from muster.cli.parameters import Argument, Option, annotated

if TYPE_CHECKING:
    from muster.app.service import SystemUnit

Role = Annotated[str, Argument(metavar="ROLE", help="controller, agent or proxy.")]
OfUser = Annotated[
    bool, Option("--user", help="Use a unit of your own. [default: of the system, if you are root]")
]


@click.group(cls=CommandGroup)
def service() -> None:
    """Have systemd run a controller, an agent or a proxy."""


@service.command(context_settings={"ignore_unknown_options": True})
@annotated
def install(
    ctx: click.Context,
    role: Role,
    options: Annotated[
        list[str] | None, Argument(metavar="[OPTIONS]...", help="Options of `muster ROLE`.")
    ] = None,
    user: OfUser = False,
    home: Home = None,
) -> None:
    """Write a unit that runs `muster ROLE OPTIONS`, and start it.

    For example: muster service install agent --controller host:7601 --token-file join-token
    """
    from muster.app.database_option import warnings_of
    from muster.app.home import Home as DataDirectory
    from muster.app.home import default_home
    from muster.app.service import install as write
    from muster.app.startable import require_startable
    from muster.cli.commands import load

    found = _service(role, user)
    words = options or []
    command = load(role)
    assert command is not None, "all roles are commands"
    with command.make_context(role, [*words], parent=ctx.find_root()) as context:
        # Wrong options are refused now, and not by a unit that never starts.
        parameters = {**context.params}
        database = parameters.get("database")
        if role == "agent" and parameters.get("address") is None:
            raise click.UsageError("Missing option '--controller'.")
    if any(word == "--token" or word.startswith("--token=") for word in words):
        raise click.BadParameter("others may read units: give the token with --token-file")
    if database is not None and warnings_of(database):
        raise click.BadParameter(
            "others may read units: leave the password out of --database, and give it in ~/.pgpass"
        )
    require_startable(found.role, parameters)
    place = (home or ctx.find_root().obj.home or default_home()).expanduser().absolute()
    if role != "agent":
        DataDirectory(place).require_own()
    left = write(found, words, place, Path.cwd())
    click.echo(f"{found.file} written")
    _say(left)


@service.command()
@annotated
def uninstall(role: Role, user: OfUser = False) -> None:
    """Stop a unit and remove it; an agent's kernels run on."""
    from muster.app.service import uninstall as remove

    found = _service(role, user)
    left = remove(found)
    click.echo(f"{found.file} removed")
    _say(left)


@service.command()
@annotated
def show(role: Role, user: OfUser = False) -> None:
    """Print a unit that is installed."""
    from muster.app.service import show as text_of

    click.echo(text_of(_service(role, user)), nl=False)


def _service(role: str, of_user: bool) -> "SystemUnit":
    from muster.app.service import SystemUnit
    from muster.app.service import UnitRole as Roles

    if role not in list(Roles):
        raise click.BadParameter(
            f"{role!r}: expected controller, agent or proxy", param_hint="ROLE"
        )
    return SystemUnit(Roles(role), of_user or os.geteuid() != 0)


def _say(left: list[str]) -> None:
    for command in left:
        click.echo(f"now run: {command}")
