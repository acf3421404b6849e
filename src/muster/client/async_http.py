"""HTTP for the asynchronous client, on httpx."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import httpx

from muster.client.exchange import Answer, Request, StreamBroke
from muster.client.http import CONNECT_TIMEOUT_S
from muster.client.reaching import problem_of, tls_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from muster.client.connection import Connection


_NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts nobody. Where nothing is encrypted, reading all authorities would only take a while."""


class AsyncHttp:
    """Requests to one cluster; for several tasks of one event loop at once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._http = httpx.AsyncClient(
            base_url=connection.url,
            headers={"Authorization": f"Bearer {connection.token}"} if connection.token else {},
            verify=tls_context(connection.ca) if connection.url.startswith("https") else _NOBODY,
            # A proxy for the outside world must not stand before this machine's own cluster.
            trust_env=not connection.loopback,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def ask(self, request: Request) -> Answer:
        """
        Raises:
            NoAnswer, Unreachable: see ``Request``.
        """
        try:
            response = await self._http.send(self._built(request))
        except httpx.TransportError as error:
            raise problem_of(error, self._connection) from None
        return Answer(response.status_code, response.headers, response.content)

    async def open(self, request: Request) -> tuple[Answer, AsyncBody]:
        """Status and headers, and a reader of the content; an error's content has been read
        already.

        Raises:
            NoAnswer, Unreachable: see ``Request``.
        """
        try:
            response = await self._http.send(self._built(request), stream=True)
            content = await response.aread() if response.is_error else b""
        except httpx.TransportError as error:
            raise problem_of(error, self._connection) from None
        answer = Answer(response.status_code, response.headers, content)
        return answer, AsyncBody(response)

    def _built(self, request: Request) -> httpx.Request:
        connect_s = min(request.timeout_s or CONNECT_TIMEOUT_S, CONNECT_TIMEOUT_S)
        return self._http.build_request(
            request.method,
            self._connection.url + request.path,
            content=request.body,
            headers=dict(request.headers),
            timeout=httpx.Timeout(request.timeout_s, connect=connect_s),
        )


class AsyncBody:
    """The content of one answer."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._pieces: AsyncIterator[bytes] = response.aiter_bytes()

    async def read(self) -> bytes:
        """The next piece; empty at the end.

        Raises:
            StreamBroke: the connection ended before the content did.
        """
        try:
            return await anext(self._pieces, b"")
        except httpx.TransportError as error:
            raise StreamBroke(str(error) or type(error).__name__) from None

    async def close(self) -> None:
        await self._response.aclose()
