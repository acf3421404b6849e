"""The rules for text, wherever it enters: bounded, valid Unicode, and without NUL.

A process, a file name and a row of SQL take nothing else. The length is looked at before anything
is matched against a pattern, so that no pattern can be fed more than its place allows.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

MAX_NAME = 255
"""Characters of a name or an amount, at most; longer ones could not be shown whole anywhere."""

MAX_ARGUMENT = 131_072
"""Characters of the longest argument or variable that Linux gives a process: no text is longer."""

NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
"""The pattern of a name: 1 to 63 letters, digits, dots, dashes or underscores, a letter or digit at
both ends."""

ATTRIBUTE = r"[A-Za-z][A-Za-z0-9._/-]{0,62}"
"""The pattern of the name of an agent's attribute."""

ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,254}"
"""The pattern of the name of a variable of the environment."""


def check_text(text: str, limit: int = MAX_NAME) -> str:
    """``text`` itself, once it is known that every part of Muster can take it.

    Args:
        limit: of characters.

    Raises:
        ValueError: it is longer, has a NUL, or has half of a surrogate pair, which is no character.
    """
    if len(text) > limit:
        raise ValueError(f"expected at most {limit} characters")
    if "\0" in text:
        raise ValueError("expected text without NUL characters")
    if not is_unicode(text):
        raise ValueError("expected text that is valid Unicode")
    return text


def made_text(text: str, limit: int = MAX_NAME) -> str:
    """The text nearest to ``text`` that ``check_text`` takes: for messages of a library or the
    system."""
    return text[:limit].replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def printable(text: str) -> str:
    """``text`` without characters that a terminal would obey: control characters, escapes, and
    marks that turn the direction of writing. Ends of lines stay."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in text
    )


def is_unicode(text: str) -> bool:
    """Whether ``text`` can be written as UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def duration(seconds: float) -> str:
    """A length of time in at most two units: 40ms, 1.3s, 12s, 3m05s, 2h10m, 3d04h; 0ms if it is
    negative."""
    if seconds < 0.9995:
        return f"{max(round(seconds * 1000), 0)}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, left_s = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{left_s:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02}h"


def utc_moment(seconds: float) -> str:
    """A moment in UTC, to the second, as sentences have it that are read in any zone:
    2026-03-14T02:30:00+00:00. The command line shows it in local time."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # past the year 9999
        return f"{seconds:.0f} s after 1970"


def count(number: int, noun: str) -> str:
    """1 task, 2 tasks, 10,000 tasks."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def healthy_of(healthy: int, wanted: int) -> str:
    """How many of the replicas that are wished are healthy; more are while some leave, or while an
    update makes others beside them."""
    if healthy > wanted:
        return f"{count(healthy, 'replica')} healthy, {wanted:,} wanted"
    return f"{healthy:,} of {count(wanted, 'replica')} healthy"


def either(words: Iterable[str]) -> str:
    """Words of which one is meant: ``job, session or agent``."""
    *others, last = words
    return f"{', '.join(others)}{' or ' if others else ''}{last}"


def signal_name(number: int) -> str:
    """9 → SIGKILL; a number without a name stays a number."""
    import signal  # late: every command imports this module

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
