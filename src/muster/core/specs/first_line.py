"""The interpreter that the first line of a script names, such as ``#!/bin/bash -e``."""

from collections.abc import Mapping

MARK = "#!"
SHELL = "/bin/sh"
"""The interpreter of a command without such a line."""
MAX_LINE = 255
"""Characters of the line that Linux reads, at most."""
_FLAGS: Mapping[str, str] = {
    **dict.fromkeys(("sh", "bash", "dash", "ash", "ksh", "zsh", "fish"), "-c"),
    "python": "-c",
    **dict.fromkeys(("perl", "ruby", "node", "julia"), "-e"),
}
"""The option by which each interpreter takes its program as an argument."""


def interpreted(text: str) -> list[str]:
    """The program and arguments that run a command: the interpreter that its first line names, or
    the shell if that names none.

    Raises:
        ValueError: the interpreter takes no program as an argument, or the line ends as on Windows.
    """
    if not text.startswith(MARK):
        return [SHELL, "-c", text]
    words = interpreter_of(text)
    name = _last_part(words[0])
    if name == "env":  # which looks for the program itself, and parts its words only after -S
        names = [each for each in " ".join(words[1:]).split() if not each.startswith("-")]
        name = _last_part(names[0]) if names else name
    flag = _FLAGS.get(name) or _FLAGS.get(name.rstrip("0123456789."))
    if flag is None:
        raise ValueError(
            f"its first line names {words[0]!r}, which takes no program as an argument: write the "
            "text into `files`, and run it by its path there"
        )
    return [*words, flag, text]


def interpreter_of(text: str) -> list[str]:
    """The interpreter and its argument, if it has one, that the first line of a script names.

    Raises:
        ValueError: it names none, or ends as on Windows.
    """
    line = text.partition("\n")[0]
    if line.endswith("\r"):
        raise ValueError(
            f"its first line names {line[len(MARK) :].strip(' ')!r}: its lines end as on Windows; "
            "save it with Unix line ends, as dos2unix does"
        )
    words = line[len(MARK) : MAX_LINE].split(maxsplit=1)
    if not words:
        raise ValueError("its first line names no interpreter after #!")
    return [words[0], *(each.strip() for each in words[1:])]


def _last_part(path: str) -> str:
    return path.rpartition("/")[2]


def interpreter_in(command: list[str]) -> str | None:
    """The interpreter of a command that was written as text; None if it was not, as far as can be
    seen."""
    if len(command) < 3 or command[-2] not in ("-c", "-e"):
        return None
    is_script = command[-1].startswith(MARK)
    if not is_script and command[:-1] != [SHELL, "-c"]:
        return None
    return " ".join(command[:-2])
