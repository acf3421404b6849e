"""One run of a check's program, as its reader gets it: how it ended and what it printed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from muster.core.health.verdict import bounded
from muster.core.text import count, duration, signal_name

MAX_OUTPUT = 4 << 20
"""Bytes of a program's output that a reader looks at, at most."""
_QUOTED = 120


class Ending(StrEnum):
    """How a program ended."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    TIMED_OUT = "timed_out"  # it was ended, having run for too long
    NOT_ENDED = "not_ended"  # it should have been ended and could not be
    NOT_STARTED = "not_started"


@dataclass(frozen=True, slots=True)
class CheckRun:
    """
    Args:
        code: the exit code if it exited, the signal's number if it was ended by a signal.
        output: the beginning of its standard output.
        dropped_bytes: how much more it printed, which nobody kept.
        errors: the end of its standard error, in words that can be shown.
        ran_s: how long it ran.
        why: of a program that was not started.
    """

    ending: Ending
    code: int = 0
    output: bytes = field(default=b"", repr=False)
    dropped_bytes: int = 0
    errors: str = ""
    ran_s: float = 0.0
    why: str = ""


class Unreadable(Exception):
    """A run whose output cannot be judged; the text is a sentence that says why, ``told`` the
    program's own words."""

    def __init__(self, what: str, told: str = "") -> None:
        super().__init__(what)
        self.told = told


def document_of(run: CheckRun, program: str, *, after_text: bool = False) -> dict[str, Any]:
    """The JSON object that a program printed.

    Args:
        program: its name, for sentences.
        after_text: whether text may stand before the object.

    Raises:
        Unreadable: it did not end by itself, printed none, only a part of one, or too much.
    """
    match run.ending:
        case Ending.NOT_STARTED:
            raise Unreadable(f"{program} could not be started: {run.why}")
        case Ending.TIMED_OUT:
            raise Unreadable(
                f"{program} was ended after {duration(run.ran_s)}, its time limit", run.errors
            )
        case Ending.NOT_ENDED:
            raise Unreadable(
                f"{program} still runs after {duration(run.ran_s)} and cannot be killed, as when a "
                f"driver hangs",
                run.errors,
            )
        case Ending.SIGNALLED:
            raise Unreadable(f"{program} was ended by {signal_name(run.code)}", run.errors)
    if run.dropped_bytes or len(run.output) > MAX_OUTPUT:
        size = len(run.output) + run.dropped_bytes
        raise Unreadable(f"{program} printed {count(size, 'byte')}, which is too much to be read")
    if not run.output.strip():
        what = f"{program} printed nothing and ended with exit code {run.code}"
        raise Unreadable(what, run.errors)
    try:
        begin = max(run.output.find(b"{"), 0) if after_text else 0
        document = json.loads(run.output[begin:])
    except (ValueError, RecursionError):
        told = f"it begins {quoted(run.output)}"
        raise Unreadable(
            f"{program} printed no complete JSON and ended with exit code {run.code}",
            f"{run.errors}; {told}" if run.errors else told,
        ) from None
    if not isinstance(document, dict):
        raise Unreadable(f"{program} printed JSON that is no object", quoted(run.output))
    return document


def quoted(output: bytes) -> str:
    """The beginning of an output, in one line."""
    return repr(bounded(output[: 4 * _QUOTED].decode(errors="replace"), _QUOTED))


def listed(document: Mapping[str, Any], key: str) -> list[Any]:
    """The list at this key; empty if there is none."""
    value = document.get(key)
    return value if isinstance(value, list) else []
