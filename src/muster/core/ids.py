"""Identifiers: time-ordered, so that rows arrive at the end of an index, and typable by a person.

An identifier is the three letters of its kind, a dash and 16 characters of Crockford's base 32 (no
i, l, o, u): nine of milliseconds since the epoch, seven of randomness that counts up within a
millisecond. Ordering by text is ordering by time of creation. A person may type any prefix that is
unique, with or without the kind.
"""

import re
from enum import StrEnum
from typing import TYPE_CHECKING, NewType

if TYPE_CHECKING:
    import random

    from muster.core.clock import Clock

SessionId = NewType("SessionId", str)
KernelId = NewType("KernelId", str)
JobId = NewType("JobId", str)
AgentId = NewType("AgentId", str)
TokenId = NewType("TokenId", str)


class IdKind(StrEnum):
    """The kinds of ids of Muster's own records, by the three letters with which they begin. Those
    to which people refer come first, in the order in which API, client and commands list them and
    look for a name."""

    JOB = "job"
    SESSION = "ses"
    NOTICE = "ntc"
    RECOVERY = "rec"
    DEPLOYMENT = "dep"
    ROUTE = "rte"
    AGENT = "agt"
    POOL = "pol"
    SLICE = "slc"
    INCIDENT = "inc"
    KERNEL = "krn"
    TOKEN = "tok"

    def begins(self, ref: str) -> bool:
        """Whether a reference is an id of this kind, or the beginning of one with its dash."""
        return ref.lower().startswith(f"{self}-")


_PLACES = {str(kind): place for place, kind in enumerate(IdKind)}


def lookup_order(prefix: str) -> int:
    """The place of the kind with this prefix among those in which a name is looked for; a kind that
    is not among ``IdKind`` comes last."""
    return _PLACES.get(prefix, len(_PLACES))


_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_RANDOM_BITS = 35
_RANDOM_LIMIT = 1 << _RANDOM_BITS
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]

_BODY = rf"[{_ALPHABET}]{{16}}"
_LIKE_AN_ID = re.compile(rf"{IdKind.SESSION}(-.*)?|([a-z]{{3}}-)?{_BODY}")


def looks_like_id(name: str) -> bool:
    """Whether a person who types this name would mean an id: a whole one, with or without its kind,
    or anything that begins as a session's id does. A name ``ses`` counts too, because ``ses-1`` is
    made of it."""
    return _LIKE_AN_ID.fullmatch(name.lower()) is not None


# Formed once, because each task has ids made for it.
_JOB, _SESSION, _KERNEL = f"{IdKind.JOB}-", f"{IdKind.SESSION}-", f"{IdKind.KERNEL}-"


class IdFactory:
    """Makes identifiers from an injected clock and source of randomness."""

    def __init__(self, clock: "Clock", rng: "random.Random") -> None:
        self._clock = clock
        self._rng = rng
        self._value = 0  # invariant: never decreases, so later identifiers sort later
        self._high = -1
        self._text_of_high = ""  # all but the last four characters, the same for many in a row

    def _next(self) -> str:
        fresh = int(self._clock.now() * 1000) << _RANDOM_BITS
        if fresh > self._value:
            # Half of the range is kept for counting up within the same millisecond.
            self._value = fresh | self._rng.randrange(_RANDOM_LIMIT // 2)
        else:
            self._value += 1
        high, low = divmod(self._value, 1 << 20)
        if high != self._high:
            self._high = high
            pairs = (_PAIRS[high >> shift & 1023] for shift in range(50, -1, -10))
            self._text_of_high = "".join(pairs)
        return self._text_of_high + _PAIRS[low >> 10] + _PAIRS[low & 1023]

    def new(self, prefix: str) -> str:
        """An id of the kind whose ids begin with ``prefix`` and a dash."""
        return f"{prefix}-{self._next()}"

    def job(self) -> JobId:
        return JobId(_JOB + self._next())

    def session(self) -> SessionId:
        return SessionId(_SESSION + self._next())

    def kernel(self) -> KernelId:
        return KernelId(_KERNEL + self._next())

    def agent(self) -> AgentId:
        return AgentId(self.new(IdKind.AGENT))

    def token(self) -> TokenId:
        return TokenId(self.new(IdKind.TOKEN))


def system_boot(boot_id: str) -> str:
    """The boot of the operating system in which a machine's boot is; several machines may share
    one, and then write their own boot behind a slash."""
    return boot_id.partition("/")[0]


def prefix_range(prefix: str, typed: str) -> tuple[str, str]:
    """The half-open range of the ids that ``typed`` may mean, of the kind with this prefix.

    Case does not matter, and the kind may be left out: ``job-06f3``, ``06F3`` and ``06f3`` mean the
    same. The answer is a range rather than a LIKE pattern, so that the primary key serves the
    query.
    """
    stem = prefix + "-"
    body = typed.lower().removeprefix(stem)
    low = stem + body
    return low, low + "~"
