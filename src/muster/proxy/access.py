"""The rights of those who send requests (design: Access).

A caller is known by a Muster token, which the controller knows; its answer is remembered for a few
seconds, and longer while the controller cannot be asked. Whoever tries tokens is slowed down.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from hashlib import sha256

from muster.core.errors import MusterError
from muster.core.serving.traffic import Identity
from muster.proxy.answers import Refused
from muster.proxy.limits import Limits

Authorise = Callable[[str], Awaitable[Identity | None]]
"""Asks for the owner of a token, None if it is not good; raises MusterError where nobody can
tell."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


def may_be_ours(token: str) -> bool:
    """Whether a token has the form of Muster's."""
    return _TOKEN.fullmatch(token) is not None


@dataclass(frozen=True, slots=True)
class Known:
    """The controller's answer on a token: good until ``until_s``, and until ``away_until_s`` if
    nobody can be asked."""

    identity: Identity | None
    until_s: float
    away_until_s: float


@dataclass(slots=True)
class _Guesses:
    """The number of unknown tokens that an address may still try, as of ``at_s``."""

    left: float
    at_s: float


class Access:
    """The callers that are known at present."""

    def __init__(self, authorise: Authorise, limits: Limits) -> None:
        self._authorise = authorise
        self._limits = limits
        self._known: OrderedDict[bytes, Known] = OrderedDict()
        self._guesses: OrderedDict[str, _Guesses] = OrderedDict()
        self._asking: dict[bytes, asyncio.Future[Identity | None]] = {}

    def known(self, token: str, now_s: float) -> Known | None:
        """The remembered answer on a token, if that is still good."""
        found = self._known.get(_digest(token))
        return found if found is not None and now_s < found.until_s else None

    async def ask(
        self, token: str, address: str, now_s: float, *, is_guess: bool = True
    ) -> Identity | None:
        """The owner of a token; None if it is not good. Requests that come with one token at the
        same time share a question.

        Args:
            is_guess: whether it counts as one of the tokens that the address tries, if it is not
                good.

        Raises:
            Refused: nobody can tell at present, or the address has tried too many tokens.
        """
        if not may_be_ours(token):
            return None
        key = _digest(token)
        asking = self._asking.get(key)
        if asking is None:
            guesses = self._guesses_of(address, now_s) if is_guess else _Guesses(1, now_s)
            self._guess(guesses)
            asking = asyncio.ensure_future(self._ask(token, key, guesses, now_s))
            self._asking[key] = asking
            asking.add_done_callback(lambda _: self._asking.pop(key))
        return await asyncio.shield(asking)

    def _guess(self, guesses: _Guesses) -> None:
        """Count a token as a guess, until it turns out to be good.

        Raises:
            Refused: the address has tried too many, or there is no room for another question.
        """
        if guesses.left < 1:
            raise Refused(429, "too many unknown tokens: try again later", retry_s=1)
        if len(self._asking) >= self._limits.asked:
            raise Refused(503, "too many tokens are being looked up: try again", retry_s=1)
        guesses.left -= 1

    async def _ask(
        self, token: str, key: bytes, guesses: _Guesses, now_s: float
    ) -> Identity | None:
        until_s = now_s + self._limits.identity_s
        try:
            identity = await self._authorise(token)
        except MusterError:
            guesses.left += 1
            last = self._known.get(key)
            if last is None or now_s >= last.away_until_s:
                raise Refused(
                    503, "the controller cannot be asked who may send requests", retry_s=2
                ) from None
            # One request waits for a controller that hangs, not each of them.
            self._known[key] = replace(last, until_s=min(until_s, last.away_until_s))
            return last.identity
        if identity is not None:
            guesses.left += 1
        self._known[key] = Known(identity, until_s, until_s + self._limits.identity_away_s)
        self._known.move_to_end(key)
        if len(self._known) > self._limits.identities:
            self._known.popitem(last=False)
        return identity

    def _guesses_of(self, address: str, now_s: float) -> _Guesses:
        limits = self._limits
        found = self._guesses.setdefault(address, _Guesses(limits.guesses, now_s))
        self._guesses.move_to_end(address)
        if len(self._guesses) > limits.identities:
            self._guesses.popitem(last=False)
        gained = (now_s - found.at_s) / limits.guess_s
        found.left, found.at_s = min(limits.guesses, found.left + gained), now_s
        return found


def _digest(token: str) -> bytes:
    return sha256(token.encode("latin-1", "replace")).digest()
