"""Names for jobs that were submitted without a name: the name of the program that they run."""

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby, pairwise

from muster.core.ids import looks_like_id

MAX_STEM = 40
_LOOKED_AT = 4096
"""Characters of a line for the shell that are looked at."""
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_BEFORE_A_PROGRAM = frozenset({"env", "exec", "nice", "nohup", "sudo", "time", "command", "srun"})
"""Words that run the program that follows them."""
_NO_PROGRAMS = frozenset(
    {"cd", "set", "export", "source", ".", "ulimit", "umask", "true", ":", "module", "unset"}
    | {"if", "then", "else", "fi", "for", "while", "do", "done", "[", "test", "trap", "sleep"}
)
"""Words that prepare the shell for a program in a later command of the line."""
_INTERPRETERS = re.compile(r"(python|pypy)[0-9.]*|node|perl|ruby|Rscript|julia|torchrun|deno")
_SUFFIX = re.compile(r"\.(py|sh|bash|js|ts|pl|rb|R|jl)$")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SEPARATOR = re.compile(r"[();<>|&\n]+")


def program_name(command: Sequence[str]) -> str:
    """A person's name for the program of a command: ``train`` for ``python train.py``, also in ``sh
    -c 'cd x && …'``; ``job`` where there is none."""
    found = _of_words(command)
    name = "".join(each for each in found if each.isascii() and (each.isalnum() or each in "._-"))
    name = name.strip("._-")[:MAX_STEM].rstrip("._-")
    return "job" if not name or looks_like_id(name) else name


def _of_words(words: Sequence[str]) -> str:
    """The name of one simple command."""
    words = [*_without_prefix(words)]
    if not words:
        return ""
    program = _file_name(words[0])
    if program in _SHELLS:
        line = next((after for word, after in pairwise(words) if _takes_line(word)), None)
        if line is not None:
            return _of_line(line) or program
    if program in _SHELLS or _INTERPRETERS.fullmatch(program):
        return _script(words[1:]) or program
    return _SUFFIX.sub("", program)


def _of_line(line: str) -> str:
    """The name of the first program in a shell line that does more than prepare the shell."""
    lexer = shlex.shlex(line[:_LOOKED_AT], posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    words: list[str] = []
    with suppress(ValueError):  # a quote that only the shell understands ends the reading
        words.extend(lexer)
    first = ""
    for apart, group in groupby(words, lambda word: _SEPARATOR.fullmatch(word) is not None):
        if apart:
            continue
        simple = [*_without_prefix([*group])]
        if not simple:
            continue
        first = first or _file_name(simple[0])
        if simple[0] not in _NO_PROGRAMS:
            return _of_words(simple)
    return first


def _without_prefix(words: Sequence[str]) -> Sequence[str]:
    """A command without the variables that it sets and the programs that only run another."""
    for position, word in enumerate(words):
        if not _ASSIGNMENT.match(word) and _file_name(word) not in _BEFORE_A_PROGRAM:
            return words[position:]
    return words[-1:] if words and not _ASSIGNMENT.match(words[-1]) else ()


def _script(arguments: Sequence[str]) -> str:
    """The name of the script that an interpreter runs, or of the module after ``-m``; empty for
    neither."""
    for position, word in enumerate(arguments):
        if word == "-m":
            return arguments[position + 1].rpartition(".")[2] if arguments[position + 1 :] else ""
        if not word.startswith("-"):
            return _SUFFIX.sub("", _file_name(word))
        if not word.startswith("--") and word.endswith(("c", "e")):  # the program text comes next
            return ""
    return ""


def _takes_line(option: str) -> bool:
    """Whether a shell's option is followed by a line that it runs, as ``-c`` and ``-lc``."""
    return option.startswith("-") and not option.startswith("--") and option.endswith("c")


def _file_name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
