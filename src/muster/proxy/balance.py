"""The choice of a replica: shares by weight, or always the same one for a session."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from math import log
from typing import TypeVar


@dataclass(slots=True, eq=False)
class Share:
    """A replica's part of the requests. ``credit`` is by how much it lags behind that part."""

    route: str
    weight: int
    in_flight: int = 0
    credit: int = 0


S = TypeVar("S", bound=Share)


def next_by_weight(shares: Iterable[S]) -> S | None:
    """The share whose turn it is: among equals the one with the fewest requests under way.

    Each share's credit grows by its weight, and the one chosen pays all weights: among so many
    choices as the weights sum up to, each share has exactly its part, spread evenly (nginx's smooth
    weighted round robin).
    """
    best, total = None, 0
    for share in shares:
        share.credit += share.weight
        total += share.weight
        if (
            best is None
            or share.credit > best.credit
            or (share.credit == best.credit and share.in_flight < best.in_flight)
        ):
            best = share
    if best is not None:
        best.credit -= total
    return best


def of_session(session: bytes, shares: Iterable[S]) -> S | None:
    """The share that a session always gets, as long as it is there: those of other shares stay
    where they are when one comes or goes (weighted rendezvous hashing)."""
    return max(shares, key=lambda share: _score(session, share), default=None)


def _score(session: bytes, share: Share) -> float:
    digest = blake2b(session, digest_size=8, key=share.route.encode()[:64]).digest()
    part = ((int.from_bytes(digest) >> 12) + 0.5) / 2**52  # between 0 and 1, neither of them
    return -share.weight / log(part)
