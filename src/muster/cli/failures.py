"""Every failure as one sentence on stderr: what was wrong and what to do; never a traceback.

MUSTER_DEBUG=1 adds the traceback.
"""

import os
from pathlib import Path

import click

from muster.cli.exits import ExitCode
from muster.cli.streams import plain, say
from muster.core.errors import InvalidSpec, MusterError


def report(error: Exception) -> int:
    """Print the sentence of an error; the answer is the exit code."""
    if os.environ.get("MUSTER_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    match error:
        case click.exceptions.NoArgsIsHelpError():
            click.echo(error.format_message(), err=True)
            return ExitCode.USAGE
        case click.NoSuchOption(option_name=name) if name[1:2].isdecimal():
            said = f"{name} begins no option, and no number here is below 0"
            return _usage(click.UsageError(said, error.ctx))
        case click.ClickException():
            return _usage(error)
        case InvalidSpec(problems=problems) if len(problems) > 1:
            lines = "".join(f"\n  {problem.sentence()}" for problem in problems)
            return _say(f"refused, nothing was done:{lines}", ExitCode.FAILED)
        case MusterError():
            return _say(str(error), _code_of(error))
        case FileNotFoundError(filename=None) if _directory_is_gone():
            return _say(
                "the current directory does not exist any more: change to another one",
                ExitCode.FAILED,
            )
        case OSError():
            where = f" {error.filename}:" if error.filename else ""
            return _say(f"cannot do that:{where} {error.strerror or error}", ExitCode.FAILED)
        case click.Abort(__cause__=KeyboardInterrupt()):
            return ExitCode.INTERRUPTED  # the person knows
        case click.Abort():
            return _say("nothing was done", ExitCode.FAILED)
        case _:
            what = f"{type(error).__name__}: {error}"
            return _say(
                f"this is a defect of Muster ({what}); please report it, with what "
                f"MUSTER_DEBUG=1 adds",
                ExitCode.FAILED,
            )


def _code_of(error: MusterError) -> int:
    from muster.client import NoConnection, NotAUrl, NoToken, Unreachable

    match error:
        case NotAUrl():
            return ExitCode.USAGE
        case NoToken():
            return ExitCode.FAILED
        case Unreachable() | NoConnection():
            return ExitCode.UNREACHABLE
        case _:
            return ExitCode.FAILED


def _directory_is_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _usage(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    hint = f" (see `{context.command_path} --help`)" if context is not None else ""
    return _say(error.format_message().rstrip(".") + hint, error.exit_code)


def _say(sentence: str, code: int) -> int:
    say(("muster: ", "bold red"), (plain(sentence), "red"))
    return code
