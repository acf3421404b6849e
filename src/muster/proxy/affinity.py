"""The value by which a client's requests reach one replica: that of a header, or of a cookie, which
a client that sends none is given."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.proxy.heads import AnswerHead, Header, RequestHead
    from muster.proxy.services import LiveService, NamedService

_VALUE_BYTES = 12


class Affinity:
    """The affinity of one request."""

    __slots__ = ("_given",)

    def __init__(self) -> None:
        self._given: bytes | None = None  # the value of a cookie that the client had not

    def session(self, live: LiveService, head: RequestHead) -> bytes | None:
        """The value that decides the replica; None if any may get the request."""
        if (cookie := live.cookie) is None:
            return head.value_of(live.affinity) if live.affinity else None
        if (sent := cookie_in(head.headers, cookie)) is not None:
            return sent
        self._given = self._given or secrets.token_urlsafe(_VALUE_BYTES).encode()
        return self._given

    def give(self, answer: AnswerHead, found: NamedService | None, scheme: bytes) -> None:
        """Have a client that was given a cookie send it from now on, until its session ends, with
        requests to the same service alone.

        Args:
            scheme: by which the client came.
        """
        if self._given is None or found is None or (name := found.live.cookie) is None:
            return
        path = re.sub(rb"[^!-:<-~]", b"", found.prefix) or b"/"  # no blank, no semicolon
        words = [b"Set-Cookie: ", name, b"=", self._given, b"; Path=", path, b"; HttpOnly"]
        words.append(b"; SameSite=Lax; Secure\r\n" if scheme == b"https" else b"; SameSite=Lax\r\n")
        answer.lines.append(b"".join(words))


def cookie_in(headers: Iterable[Header], name: bytes) -> bytes | None:
    """The value of the cookie with this name, the first of several (RFC 6265, 4.2)."""
    for key, line in headers:
        if key.lower() != b"cookie":
            continue
        for pair in line.split(b";"):
            found, equals, value = pair.strip().partition(b"=")
            if equals and found == name and value:
                return value
    return None
