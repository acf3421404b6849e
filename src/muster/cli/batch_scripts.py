"""Scripts for other schedulers, with options in comments that Muster does not read."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

_MARKS = ("#SBATCH", "#PBS", "#BSUB", "#$ -")
_READ_BYTES = 65_536


def unread_options(text: str) -> str | None:
    """The mark of the lines with options for another scheduler, if the script has some."""
    for line in text.splitlines():
        for mark in _MARKS:
            if line.startswith(mark):
                return mark.removesuffix(" -")
    return None


def note_on_options(
    words: Iterable[str], directory: str, texts: Mapping[str, str] | None = None
) -> str | None:
    """The sentence on options that are not read, if a script of the command has some.

    Args:
        words: the command, whose words may name scripts of this machine, in ``directory``.
        texts: scripts by the names under which they are written to the work's own directory.
    """
    for name, text in _scripts(words, directory, texts or {}):
        mark = unread_options(text)
        if mark is not None:
            others = ", or `muster sbatch`, which reads them" if mark == "#SBATCH" else ""
            return (
                f"{name} has lines with {mark}, which are not read: say what it needs by options "
                f"of `muster run`, such as --gpu 2 --timeout 1h, or in a spec{others}"
            )
    return None


def _scripts(
    words: Iterable[str], directory: str, texts: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """The names and the texts of the scripts of a command."""
    yield from texts.items()
    for word in words:
        if "\n" in word:
            yield "the command", word
            continue
        with suppress(OSError, ValueError):  # too long for a path, or no path
            path = Path(directory, word)
            if path.is_file():
                with path.open("rb") as stream:
                    yield word, stream.read(_READ_BYTES).decode(errors="replace")
