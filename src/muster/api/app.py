"""The application: endpoints, errors and authentication over the injected parts."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from sqlalchemy import Engine
from starlette.datastructures import State
from starlette.types import Receive, Scope, Send

from muster.api import (
    accounts,
    autoscaler,
    cluster,
    events,
    history,
    logs,
    openapi,
    quotas,
    resources,
    tokens,
    traffic,
)
from muster.api.allowance import Allowance
from muster.api.answering import Answering
from muster.api.auth import BearerAuth, TokenAccess
from muster.api.bodies import LargeBodies
from muster.api.changes import Changes
from muster.api.context import Api, ClockState, ReadLog, ShortOutputs
from muster.api.openapi import Description
from muster.api.plan import plan_router
from muster.api.provider_checks import ProviderChecks
from muster.api.reader import Reader
from muster.api.resource import Resource
from muster.api.routes import RouteTable
from muster.api.stopping import OpenRequests, Stopping
from muster.api.submissions import Submissions
from muster.api.turns import Turns
from muster.api.urls import UrlBounds
from muster.api.waiting import wait_router
from muster.control.plane import ControlPlane
from muster.core.clock import Clock
from muster.core.ids import lookup_order
from muster.core.packages import modules_of, objects_of

MAX_OUTPUT_READERS = 2_000
MAX_OUTPUT_READERS_OF_ONE = 48
"""Readers of output of one owner: fewer than an agent serves, so that nobody takes all of an
agent's."""


RESOURCES: Sequence[Resource[Any, Any]] = sorted(
    objects_of(modules_of(resources), Resource),
    key=lambda resource: lookup_order(resource.entity.prefix),
)
"""The resources of every cluster: those that modules of ``api.resources`` declare."""
_OTHERS = (logs, history, cluster, autoscaler, quotas, events, accounts, tokens, traffic, openapi)
"""The modules of endpoints that are no resource's."""


class Application:
    """The API of a controller, an ASGI application for HTTP. ``state`` holds what its endpoints
    use."""

    def __init__(self, resources: Sequence[Resource[Any, Any]], access: TokenAccess, turns: Turns):
        self.state = State()
        self.state.requests = access.requests
        self.state.large_bodies = LargeBodies()
        self.state.description = Description(self.openapi)
        self._resources = tuple(resources)
        answering = Answering(_table(self._resources))
        authenticated = BearerAuth(answering, access, turns)
        self._entrance = UrlBounds(Stopping(authenticated, access.requests))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "the server serves nothing else"
        scope["app"] = self
        await self._entrance(scope, receive, send)

    def openapi(self, rest: Callable[[float], None] = lambda seconds: None) -> dict[str, Any]:
        """The API's description of itself; see ``openapi.document``."""
        return openapi.document(_routers(self._resources), rest)


def create_app(
    *,
    plane: ControlPlane,
    engine: Engine,
    clock: Clock,
    read_log: ReadLog,
    short_outputs: ShortOutputs,
    agent_address: str = "",
    resources: Sequence[Resource[Any, Any]] = RESOURCES,
    reader: Reader | None = None,
    trouble_beside: Callable[[], str | None] = lambda: None,
    home: Path | None = None,
    on_loopback: bool = False,
    clock_state: ClockState | None = None,
    turns: Turns | None = None,
) -> Application:
    """The HTTP API of a controller, to be served on the plane's event loop.

    Args:
        engine: the store's; only read.
        read_log: reads the output of a kernel from its agent.
        short_outputs: reads those of several outputs of an agent that are short.
        agent_address: where agents on other machines find the controller, as host:port.
        reader: of the engine, in place of the one that uses threads.
        trouble_beside: tells which parts beside the plane rest because they failed, and why.
        home: the controller's folder, where providers keep files; None where they are not asked.
        on_loopback: whether agents on other machines cannot join.
        clock_state: of ``clock``, where it may differ from the time of day.
        turns: of callers, in place of those by real time.

    ``stop`` is called before the server is stopped.
    """
    access = TokenAccess(plane, clock, OpenRequests())
    app = Application(resources, access, turns or Turns())
    reader = reader or Reader(engine)
    app.state.api = Api(
        plane=plane,
        reader=reader,
        changes=Changes(plane),
        submissions=Submissions(engine, plane, clock, reader),
        clock=clock,
        read_log=read_log,
        short_outputs=short_outputs,
        access=access,
        output_readers=Allowance(
            "readers of output", MAX_OUTPUT_READERS_OF_ONE, MAX_OUTPUT_READERS
        ),
        agent_address=agent_address,
        trouble_beside=trouble_beside,
        clock_state=clock_state or ClockState(),
        provider_checks=ProviderChecks(home, on_loopback=on_loopback),
    )
    return app


def _routers(resources: tuple[Resource[Any, Any], ...]) -> Sequence[APIRouter]:
    own = [resource.router for resource in resources]
    others = (module.router for module in _OTHERS)
    return [*own, plan_router(resources), wait_router(resources), *others]


def routes_of(resources: tuple[Resource[Any, Any], ...]) -> Sequence[APIRoute]:
    """The endpoints of an API with these resources, as they are declared."""
    routes = (route for router in _routers(resources) for route in router.routes)
    return [route for route in routes if isinstance(route, APIRoute)]


@cache
def _table(resources: tuple[Resource[Any, Any], ...]) -> RouteTable:
    """The way to the endpoints, which do not depend on a controller."""
    return RouteTable(routes_of(resources))


def stop(app: Application) -> None:
    """Refuse new requests and end every wait, follow and event stream, so that the server can stop;
    ``stopping.FINISH_S`` later end all other requests too. To be called on the event loop.
    """
    requests: OpenRequests = app.state.requests
    requests.close()
    api: Api = app.state.api
    api.changes.close()
