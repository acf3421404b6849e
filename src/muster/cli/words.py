"""Times, counts and identifiers as a person reads them."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Protocol

from muster.core.text import count as count
from muster.core.text import duration as duration
from muster.core.text import signal_name as signal_name

SHORT_ID = 8
"""Characters of a short identifier: 32 ms of its time of creation (``core.ids``)."""


_DURATION = r"\b[0-9.]{1,9}(?:ms|[smhd])(?:[0-9]{2}[smh])?\b"
_MOMENT = r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\+00:00"
"""A moment as the controller writes it into sentences: in UTC, as it knows no reader's zone."""
_NUMBER = r"[0-9]{1,20}"


def without_durations(said: str) -> str:
    """A sentence without how long something has lasted or may last, which is no news by itself."""
    return re.sub(_DURATION, "", said)


def without_numbers(said: str) -> str:
    """A sentence without its numbers, where another number is no news by itself."""
    return re.sub(_NUMBER, "", without_durations(said))


def one(kind: str) -> str:
    """A thing of this kind: ``a job``, ``an agent``."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def moment(seconds: float | None) -> str:
    """Local time of day with its date and its time zone; a dash for None."""
    if seconds is None:
        return "-"
    return f"{_local(seconds):%Y-%m-%d %H:%M:%S %Z}"


class HasSentence(Protocol):
    """A reason, or whatever else the controller has formed a sentence about."""

    @property
    def sentence(self) -> str: ...


def sentence_of(reason: HasSentence) -> str:
    """The controller's sentence, with its moments in local time; an operator's words in it stay as
    they were written."""
    said, numbers = reason.sentence, getattr(reason, "numbers", {})
    for name in _OPERATORS_WORDS:
        words = numbers.get(name)
        if isinstance(words, str) and words and words in said:
            before, _, after = said.partition(words)
            return with_local_moments(before) + words + with_local_moments(after)
    return with_local_moments(said)


_OPERATORS_WORDS = ("note", "statuses", "status")
"""Numbers of reasons in which an operator's words stand."""


def waits(name: str, why: str) -> str:
    """The line that work waits, and why: a sentence that begins with "waits" says so itself."""
    return f"{name} {why}" if why.startswith("waits ") else f"{name} waits: {why}"


def with_local_moments(said: str) -> str:
    """The controller's words, with their moments in local time."""
    return re.sub(_MOMENT, _as_local, said)


def _as_local(found: re.Match[str]) -> str:
    try:
        return moment(datetime.fromisoformat(found[0]).timestamp())
    except ValueError:
        return found[0]


def clock_time(seconds: float, now: float) -> str:
    """Local time of day; with its date unless that is today."""
    found = _local(seconds)
    today = found.date() == _local(now).date()
    return f"{found:%H:%M:%S}" if today else f"{found:%Y-%m-%d %H:%M:%S}"


def _local(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).astimezone()


def shorten(ids: Iterable[str]) -> dict[str, str]:
    """For each identifier the shortest beginning, without the kind, that no other of its kind
    shares.

    It is never shorter than ``SHORT_ID``; a job's can be used as a REF.
    """
    ordered = sorted(set(ids))
    short: dict[str, str] = {}
    for position, id_ in enumerate(ordered):
        kind, dash, body = id_.partition("-")
        around = ordered[max(position - 1, 0) : position] + ordered[position + 1 : position + 2]
        shared = max((_shared(id_, other) for other in around), default=0)
        short[id_] = body[: max(SHORT_ID, shared + 1 - len(kind + dash))]
    return short


def _shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    for position, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return position
    return min(len(one), len(other))
