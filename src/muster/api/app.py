"""The application: endpoints, errors and authentication over the injected parts."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from sqlalchemy import Engine

from muster.api import accounts, autoscaler, cluster, events, history, logs, quotas, tokens, traffic
from muster.api.agents import AGENTS
from muster.api.allowance import Allowance
from muster.api.answers import add_error_handlers
from muster.api.auth import BearerAuth, TokenAccess
from muster.api.bodies import LargeBodies
from muster.api.changes import Changes
from muster.api.context import Api, ClockState, ReadLog, ShortOutputs
from muster.api.deployments import DEPLOYMENTS, ROUTES
from muster.api.health import INCIDENTS
from muster.api.jobs import JOBS
from muster.api.notices import NOTICES
from muster.api.openapi import describe
from muster.api.plan import plan_router
from muster.api.pools import POOLS
from muster.api.provider_checks import ProviderChecks
from muster.api.reader import Reader
from muster.api.recoveries import RECOVERIES
from muster.api.resource import Resource
from muster.api.sessions import SESSIONS
from muster.api.slices import SLICES
from muster.api.stopping import OpenRequests, Stopping
from muster.api.submissions import Submissions
from muster.api.turns import Turns
from muster.api.urls import UrlBounds
from muster.control.plane import ControlPlane
from muster.core.clock import Clock
from muster.version import __version__

MAX_OUTPUT_READERS = 2_000
MAX_OUTPUT_READERS_OF_ONE = 48
"""Readers of output of one owner: fewer than an agent serves, so that nobody takes all of an
agent's."""


RESOURCES: Sequence[Resource[Any, Any]] = (
    JOBS,
    SESSIONS,
    NOTICES,
    RECOVERIES,
    DEPLOYMENTS,
    ROUTES,
    AGENTS,
    POOLS,
    SLICES,
    INCIDENTS,
)
"""The resources of every cluster."""
_OTHERS = (logs, history, cluster, autoscaler, quotas, events, accounts, tokens, traffic)
"""The modules of endpoints that are no resource's."""


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
) -> FastAPI:
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
    app = _bare_app()
    requests = OpenRequests()
    access = TokenAccess(plane, clock, requests)
    reader = reader or Reader(engine)
    app.state.requests = requests
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
    app.state.large_bodies = LargeBodies()
    _include_endpoints(app, resources)
    app.add_middleware(BearerAuth, access=access, turns=turns or Turns())
    app.add_middleware(Stopping, requests=requests)
    app.add_middleware(UrlBounds)  # the last one is the outermost
    add_error_handlers(app)
    describe(app)
    return app


def _bare_app() -> FastAPI:
    return FastAPI(
        title="Muster",
        version=__version__,
        description="Batch jobs and sessions on a cluster. Every request but /health carries "
        "`Authorization: Bearer TOKEN`; amounts and times are canonical: thousandths, bytes, "
        "seconds since the epoch.",
        openapi_url=None,  # ``describe`` serves it
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )


def _include_endpoints(app: FastAPI, resources: Sequence[Resource[Any, Any]]) -> None:
    for resource in resources:
        app.include_router(resource.router)
    app.include_router(plan_router(tuple(resources)))
    for module in _OTHERS:
        app.include_router(module.router)


def stop(app: FastAPI) -> None:
    """Refuse new requests and end every wait, follow and event stream, so that the server can stop;
    ``stopping.FINISH_S`` later end all other requests too. To be called on the event loop.
    """
    requests: OpenRequests = app.state.requests
    requests.close()
    api: Api = app.state.api
    api.changes.close()
