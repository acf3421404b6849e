"""``muster completion``."""

import os
from pathlib import PurePath
from typing import Annotated

import click

from muster.cli.parameters import Argument


def completion(
    shell: Annotated[
        str | None,
        Argument(metavar="[SHELL]", help="bash, zsh or fish. [default: the one of $SHELL]"),
    ] = None,
) -> None:
    """Print what makes a shell complete `muster` commands.

    For example in ~/.bashrc: eval "$(muster completion bash)"
    """
    from click.shell_completion import get_completion_class

    name = shell or PurePath(os.environ.get("SHELL", "bash")).name
    completing = get_completion_class(name)
    if completing is None:
        raise click.BadParameter(f"{name!r}: expected bash, zsh or fish")
    program = click.get_current_context().find_root()
    assert program.info_name is not None, "the program names itself"
    click.echo(completing(program.command, {}, program.info_name, "_MUSTER_COMPLETE").source())
