"""The real HTTP API of a controller, without sockets: requests go in as a server would pass them
on, and are answered under virtual time."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Engine

from muster.api.app import create_app
from muster.api.reader import Reader
from muster.api.turns import TurnsAtOnce
from muster.control.plane import ControlPlane
from muster.core.clock import Clock
from muster.core.ids import AgentId
from muster.core.owner import Owner
from muster.wire.calls import (
    LogChunk,
    LogRequest,
)
from muster.wire.log_reading import OutputUnreachable
from muster.wire.messages import KernelKey
from proving.hollow.loop import TimelineLoop
from proving.hollow.timeline import Timeline

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a request: its HTTP status, and its body as JSON."""

    status: int
    body: Any


class _ReaderAtOnce(Reader):
    """A reader that reads in the caller's thread, because a simulation has no others."""

    async def read(
        self,
        owner: Owner,
        query: Callable[Concatenate[Any, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return self._read(query, *args, **kwargs)


class FrontDoor:
    """The API of one controller. It ends with the controller, and answers no request after that."""

    def __init__(
        self, plane: ControlPlane, engine: Engine, clock: Clock, timeline: Timeline
    ) -> None:
        self._loop = TimelineLoop(timeline)
        self._app = create_app(
            turns=TurnsAtOnce(),
            plane=plane,
            engine=engine,
            clock=clock,
            read_log=_nothing_to_read,
            short_outputs=_none_short,
            reader=_ReaderAtOnce(engine),
        )

    def close(self) -> None:
        self._loop.close()

    def ask(
        self,
        method: str,
        path: str,
        token: str,
        body: Mapping[str, Any] | None,
        answered: Callable[[Answered], None],
        *,
        key: str | None = None,
    ) -> None:
        """Send a request.

        Args:
            path: with the query, if there is one.
            key: the idempotency key, where the request may be repeated.
        """
        path, _, query = path.partition("?")
        headers = [(b"authorization", f"Bearer {token}".encode())]
        if key is not None:
            headers.append((b"idempotency-key", key.encode()))
        content = b"" if body is None else json.dumps(body).encode()
        headers.append((b"content-type", b"application/json"))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 1),
        }
        self._loop.create_task(self._serve(scope, content, answered))

    async def _serve(
        self,
        scope: MutableMapping[str, Any],
        content: bytes,
        answered: Callable[[Answered], None],
    ) -> None:
        status, pieces = 0, []

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                pieces.append(message.get("body", b""))

        await self._app(scope, receive, send)
        text = b"".join(pieces)
        answered(Answered(status, json.loads(text) if text else None))


async def _none_short(agent: AgentId, names: Sequence[KernelKey]) -> Mapping[KernelKey, bytes]:
    return {}


def _nothing_to_read(agent: AgentId, request: LogRequest) -> AsyncGenerator[LogChunk, None]:
    raise OutputUnreachable(agent, "is hollow")
