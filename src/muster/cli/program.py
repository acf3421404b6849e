"""``muster``: the commands, and every failure as a sentence and an exit code."""

import os
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import click

from muster.cli.cluster import Ca, Cluster, Home, Token, Url
from muster.cli.commands import COMMANDS, SECTIONS, load
from muster.cli.parameters import Option, annotated
from muster.version import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EPILOG = (
    "REF is a job's name, its id or the beginning of its id; REF/3 is task 3 of it. "
    "Exit codes: 0 well, 1 failed or refused, 2 wrong use (also accepted, but not placed yet with "
    "--no-wait, or left to run by Ctrl-C), 3 no controller answers; `muster run` ends with the "
    "code of its job."
)

COMPLETING = "_MUSTER_COMPLETE"
"""The variable with which a shell asks for completions (`muster completion`)."""
HELP_WIDTH, COMPLETION_WIDTH = 64, 45
"""Characters of a command's summary where all are listed, and where one is completed."""


class CommandLine(click.Group):
    """The commands under headings, each imported when it is asked for; failures as
    ``failures.report`` says."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        extra |= {"standalone_mode": False, "prog_name": "muster"}
        if COMPLETING in os.environ:
            from muster.cli.bash_words import register

            register()
        try:
            code = super().main(*args, **extra)
        except Exception as error:
            from muster.cli import failures

            code = failures.report(error)
        raise SystemExit(code if isinstance(code, int) else 0)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
            if not near:
                raise
            said = f"{error.message.rstrip('.')}; did you mean {near[0]}?"
            raise click.UsageError(said, ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, commands in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(name, each.summary_within(HELP_WIDTH)) for name, each in commands.items()]
                )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """The commands and options that continue the typed text; click would import each command to
        learn its summary."""
        from click.shell_completion import CompletionItem

        commands = [
            CompletionItem(name, help=each.summary_within(COMPLETION_WIDTH))
            for name, each in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]


def print_version(wanted: bool) -> None:
    """``--version`` among other options; alone it does not get here (``main``)."""
    if wanted:
        click.echo(f"muster {__version__}")
        raise click.exceptions.Exit


@click.group(
    cls=CommandLine,
    name="muster",
    help="Hand work to a GPU cluster, watch it, and understand what does not start.",
    epilog=EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@annotated
def app(
    ctx: click.Context,
    url: Url = None,
    token: Token = None,
    home: Home = None,
    ca: Ca = None,
    show_version: Annotated[
        bool, Option("--version", help="Show the version.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    ctx.obj = (ctx.obj or Cluster()).said(url, token, home, ca)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
