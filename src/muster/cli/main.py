"""``muster``: the commands, and every failure as a sentence and an exit code."""

from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from muster.cli import failures
from muster.cli.commands.agents import agents
from muster.cli.commands.bars import cordon, drain, uncordon
from muster.cli.commands.cancel import cancel
from muster.cli.commands.cluster import agent, controller, down, up
from muster.cli.commands.doctor import doctor
from muster.cli.commands.groups import groups
from muster.cli.commands.history import history
from muster.cli.commands.logs import logs
from muster.cli.commands.plan import plan
from muster.cli.commands.ps import ps
from muster.cli.commands.quotas import quota, quotas
from muster.cli.commands.run import run
from muster.cli.commands.show import show
from muster.cli.commands.simulate import simulate
from muster.cli.commands.submit import submit
from muster.cli.commands.version import print_version, version
from muster.cli.commands.why import why
from muster.cli.target import Home, Target, Token, Url

SECTIONS: dict[str, tuple[Callable[..., object] | typer.Typer, ...]] = {
    "Work": (run, submit, plan, ps, show, logs, why, history, cancel),
    "Cluster": (up, down, agents, groups, agent, controller, simulate, doctor, version),
    "Policy": (quotas, quota, cordon, drain, uncordon),
}


def _name(command: Callable[..., object] | typer.Typer) -> str:
    return str(command.info.name) if isinstance(command, typer.Typer) else command.__name__


EPILOG = (
    "REF is a job's name, its id or the beginning of its id; REF/3 is task 3 of it. "
    "Exit codes: 0 well, 1 failed or refused, 2 wrong use (also accepted, but not placed yet with "
    "--no-wait, or left to run by Ctrl-C), 3 no controller answers; `muster run` ends with the "
    "code of its job."
)


class Program(TyperGroup):
    """The commands under headings; failures as ``failures.report`` says."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        extra |= {"standalone_mode": False, "prog_name": "muster"}
        try:
            code = super().main(*args, **extra)
        except Exception as error:
            code = failures.report(error)
        raise SystemExit(code if isinstance(code, int) else 0)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, functions in SECTIONS.items():
            with formatter.section(heading):
                shown = [self.commands[_name(function)] for function in functions]
                formatter.write_dl([(each.name, each.get_short_help_str(64)) for each in shown])


# Plain help: Rich's takes longer to import than all else together.
app = typer.Typer(
    cls=Program,
    name="muster",
    help="Hand work to a GPU cluster, watch it, and understand what does not start.",
    epilog=EPILOG,
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
_PASS_ON = {"allow_interspersed_args": False}  # what follows the command's name is the command's

for _function in (each for section in SECTIONS.values() for each in section):
    if isinstance(_function, typer.Typer):
        app.add_typer(_function, name=_name(_function))
    else:
        app.command(context_settings=_PASS_ON if _function is run else None)(_function)


@app.callback()
def muster(
    ctx: typer.Context,
    url: Url = None,
    token: Token = None,
    home: Home = None,
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=print_version, is_eager=True),
    ] = False,
) -> None:
    ctx.obj = (ctx.obj or Target()).said(url, token, home)
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def main() -> NoReturn:
    """The entry point."""
    app()
    raise AssertionError("unreachable")  # Program.main leaves by SystemExit
