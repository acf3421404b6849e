"""Numbers that know how they were written, where they would be printed otherwise.

YAML reads 3.10 as the number 3.1. Where a number is meant that is the same; where text is meant it
is another text, so a field of text refuses such a number (``written_as``).
"""


class WrittenInt(int):
    """A whole number that is not printed as it was ``written``: 1_000, 0x1F, +5."""

    written: str

    def __new__(cls, value: int, written: str) -> "WrittenInt":
        number = super().__new__(cls, value)
        number.written = written
        return number


class WrittenFloat(float):
    """A number that is not printed as it was ``written``: 3.10, .5, 1.0e+3."""

    written: str

    def __new__(cls, value: float, written: str) -> "WrittenFloat":
        number = super().__new__(cls, value)
        number.written = written
        return number


def written_number(value: float, written: str) -> float:
    """``value``, which remembers how it was written if it would be printed otherwise."""
    if str(value) == written:
        return value
    return WrittenInt(value, written) if isinstance(value, int) else WrittenFloat(value, written)


def written_as(value: object) -> str | None:
    """How a number was written, if it would be printed otherwise; None for all other values."""
    return value.written if isinstance(value, WrittenInt | WrittenFloat) else None
