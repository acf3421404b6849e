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

    from muster.cli.kinds.outputs import Outputs
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

    def output_of(
        self, client: "Client", found: RouteView
    ) -> "tuple[RecordView, Outputs[Any] | None]":
        from muster.cli.kinds import session

        if found.session is None:
            raise Conflict(f"{found.id} has no session yet: `muster why {found.id}` says why")
        return client.session(found.session), session.KIND.outputs


KIND = RouteKind()
