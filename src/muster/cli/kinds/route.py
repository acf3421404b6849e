"""Routes on the command line."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from muster.cli.kinds.kind import Kind, Shown
from muster.core.errors import Conflict
from muster.core.views.base import RecordView
from muster.core.views.deployments import RouteView

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from muster.client import Client


class RouteKind(Kind[RouteView, RouteView]):
    name = "route"

    def newest(
        self, client: "Client", state: str, *, limit: int, **filters: Any
    ) -> Sequence[RouteView]:
        return client.routes(state, limit=limit) if state != "ended" else ()

    def described(
        self, console: "Console", client: "Client", found: RouteView, shown: Shown
    ) -> "Sequence[RenderableType]":
        from muster.cli.described.deployment import route_parts

        name = client.deployments.show(found.deployment).name
        return route_parts(found, name, time.time())

    def whose_output(self, client: "Client", found: RouteView) -> RecordView:
        if found.session is None:
            raise Conflict(f"{found.id} has no session yet: `muster why {found.id}` says why")
        return client.session(found.session)


KIND = RouteKind()
