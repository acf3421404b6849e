"""Makes the keys of a JobSpec from the options of ``muster run``."""

import os
import stat
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import click

AMOUNT = "NAME=AMOUNT, such as licence=1"
ATTRIBUTE = "NAME=VALUE, such as zone=a"


def pairs(texts: Sequence[str], option: str, form: str = AMOUNT) -> dict[str, str]:
    """The text after each NAME=, by the name; ``form`` is the form that the texts should have.

    Raises:
        click.BadParameter: a text is of another form, or a name stands twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value:
            raise click.BadParameter(f"{text!r}: expected {form}", param_hint=option)
        if name in found:
            raise click.BadParameter(f"{name} is given twice", param_hint=option)
        found[name] = value
    return found


def environment(texts: Sequence[str], caller: Mapping[str, str]) -> dict[str, str]:
    """The variables of KEY=VALUE; KEY alone takes the caller's value.

    Raises:
        click.BadParameter: the caller has no such variable, or there is no name.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name:
            raise click.BadParameter(f"{text!r}: expected KEY=VALUE or KEY", param_hint="--env")
        if not equals:
            if name not in caller:
                raise click.BadParameter(
                    f"{name} is not set here: give it a value, as in {name}=1", param_hint="--env"
                )
            value = caller[name]
        found[name] = value
    return found


def unread_input() -> int:
    """Bytes that wait on standard input, where that is a file or a pipe; a terminal counts none."""
    import fcntl
    import struct
    import termios

    with suppress(OSError, ValueError):  # standard input is closed, or in a test no file at all
        fd = sys.stdin.fileno()
        kind = os.fstat(fd)
        if stat.S_ISREG(kind.st_mode):
            return max(kind.st_size - os.lseek(fd, 0, os.SEEK_CUR), 0)
        if stat.S_ISFIFO(kind.st_mode) or stat.S_ISSOCK(kind.st_mode):
            waiting: int = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0]
            return waiting
    return 0


def command_of(words: Sequence[str]) -> list[str] | str:
    """The command that was typed after the options; one word with blanks is a line for the
    shell."""
    if len(words) == 1 and any(each.isspace() for each in words[0]):
        return words[0]
    return list(words)


def without_nones(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that were given; the others keep the spec's defaults."""
    return {name: value for name, value in fields.items() if value is not None}
