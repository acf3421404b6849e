"""A proxy's talk with its controller: services, tokens, load.

The controller may be away for any time: the proxy goes on with the services that it knows.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import httpx
import msgspec

from muster.core.errors import MusterError
from muster.core.serving.traffic import Identity, TrafficView
from muster.proxy.proxy import Proxy

log = logging.getLogger(__name__)

TRAFFIC_PATH = "/v1/traffic"
IDENTIFY_PATH = "/v1/traffic/identify"
LOAD_PATH = "/v1/traffic/load"

ANSWER_S = 5.0
POLL_S = 60.0
"""How long the controller may hold the question for news."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
REPORT_EVERY_S = 1.0
AT_ONCE_S = 0.02
"""How soon the first request that waits for a replica is reported."""


T = TypeVar("T")

_TRAFFIC = msgspec.json.Decoder(TrafficView)
_IDENTITY: msgspec.json.Decoder[Identity | None] = msgspec.json.Decoder(Identity | None)


class NoController(MusterError):
    """The controller cannot be asked; the text says why."""


class Controller:
    """The controller of ``file``, which holds its ``url``, a ``token``, and the path ``ca`` of the
    authority that vouches for it, if it has one of its own. The file is read anew after each
    failure; if it and the authority's file say the same, other questions under way go on."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._said: tuple[str, str] | None = None
        self._client: httpx.AsyncClient | None = None

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def identify(self, token: str) -> Identity | None:
        """The owner of a token; None if it is not good.

        Raises:
            NoController: nobody can tell.
        """
        content = await self._ask("POST", IDENTIFY_PATH, ANSWER_S, {"token": token})
        return _decoded(content, _IDENTITY)

    async def traffic(self, since: int | None) -> TrafficView | None:
        """The services, once they are newer than the version ``since``; None if they are not for so
        long that the controller says so.

        Raises:
            NoController: it cannot tell.
        """
        query = "" if since is None else f"?since={since}"
        content = await self._ask("GET", TRAFFIC_PATH + query, POLL_S)
        return _decoded(content, _TRAFFIC) if content else None

    async def report(self, proxy: Proxy) -> None:
        """Report the load since the last report.

        Raises:
            NoController: it was not told.
        """
        load = msgspec.to_builtins(proxy.take_load())
        await self._ask("POST", LOAD_PATH, ANSWER_S, load)

    async def _ask(self, method: str, path: str, answer_s: float, body: object = None) -> bytes:
        try:
            if self._client is None:
                self._said = _said(self._file)
                self._client = _client_of(*self._said)
            response = await self._client.request(
                method,
                path,
                content=None if body is None else json.dumps(body),
                headers={"Content-Type": "application/json"},
                timeout=httpx.Timeout(answer_s, connect=ANSWER_S),
            )
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, KeyError) as error:
            await self._renew()
            raise NoController(f"the controller does not answer: {error!r}"[:200]) from None
        if not response.is_success:
            await self._renew()
            raise NoController(f"the controller answers {path} with {response.status_code}")
        return response.content

    async def _renew(self) -> None:
        """Begin anew if the file says something else by now."""
        with suppress(OSError, ValueError):
            if _said(self._file) != self._said:
                await self.close()


async def follow(controller: Controller, proxy: Proxy, keep: Callable[[TrafficView], None]) -> None:
    """Keep the proxy's services as the controller tells them, for ever. ``keep`` is called with
    each table."""
    pause_s, version, away = FIRST_PAUSE_S, None, False
    loop = asyncio.get_running_loop()
    while True:
        asked_at_s = loop.time()
        try:
            view = await controller.traffic(version)
        except NoController as error:
            if not away:
                log.warning("%s; the proxy goes on with the services that it knows", error)
            away, version = True, None  # a controller that comes back may count anew
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            continue
        if away:
            log.info("the controller answers again")
        pause_s, away = FIRST_PAUSE_S, False
        if view is not None and view.version != version:
            version = view.version
            proxy.set_table(view)
            keep(view)
        elif loop.time() - asked_at_s < FIRST_PAUSE_S:
            await asyncio.sleep(LONGEST_PAUSE_S)  # it does not hold the question


async def report(controller: Controller, proxy: Proxy) -> None:
    """Report the proxy's load at once, then each second, and at once when a request waits for the
    first replica of its service; for ever."""
    while True:
        proxy.waited_for.clear()
        with suppress(NoController):  # the next report tells of what is under way then
            await controller.report(proxy)
        await asyncio.sleep(AT_ONCE_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(REPORT_EVERY_S):
                await proxy.waited_for.wait()


def _said(file: Path) -> tuple[str, str]:
    """The texts of the file and of the authority that it names, if it names one.

    Raises:
        OSError, ValueError: one is missing or damaged.
    """
    text = file.read_text()
    ca = json.loads(text).get("ca")
    return text, Path(ca).read_text() if ca else ""


def _client_of(text: str, authority: str) -> httpx.AsyncClient:
    """
    Raises:
        OSError, ValueError, KeyError: a text is damaged.
    """
    known = json.loads(text)
    return httpx.AsyncClient(
        base_url=known["url"],
        headers={"Authorization": f"Bearer {known['token']}"},
        verify=ssl.create_default_context(cadata=authority) if authority else True,
        trust_env=False,
    )


def _decoded(content: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NoController(f"the controller's answer cannot be read: {error}"[:200]) from None
