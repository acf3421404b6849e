"""The words of a batch script's `#SBATCH` lines, by the rules of Slurm's own reader (`src/sbatch`,
22.05)."""

MARK = "#SBATCH"
_QUOTES = "\"'"


class SbatchError(ValueError):
    """A batch script or a command line that sbatch refuses, in a sentence."""


def directives(text: str) -> list[str]:
    """The words of all `#SBATCH` lines, as one list of arguments. They end at the first line that
    is neither empty nor a comment.

    Raises:
        SbatchError: it is no script, or a quotation has no end.
    """
    if not text.startswith("#!"):
        raise SbatchError(
            "this does not look like a batch script: its first line must be #! followed by the "
            "path of an interpreter, as #!/bin/sh"
        )
    if "\r\n" in text:
        raise SbatchError("the script has line breaks of DOS (\\r\\n): convert it, as by dos2unix")
    words: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith(MARK):
            words += _words(line.removeprefix(MARK), number)
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return words


def _words(line: str, number: int) -> list[str]:
    """The words of a line up to a comment. A backslash keeps the character after it, also inside
    either kind of quotation marks."""
    words: list[str] = []
    word: str | None = None
    quote = ""
    characters = iter(line)
    for each in characters:
        if each == "\\":
            word = (word or "") + next(characters, "")
        elif quote:
            if each == quote:
                quote = ""
            else:
                word = (word or "") + each
        elif each == "#":
            break
        elif each in _QUOTES:
            quote, word = each, word or ""
        elif not each.isspace():
            word = (word or "") + each
        elif word is not None:
            words.append(word)
            word = None
    if quote:
        raise SbatchError(f"line {number}: the quotation that {quote} begins has no end")
    return words if word is None else [*words, word]
