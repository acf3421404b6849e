"""Routes on the command line."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from muster.cli.kinds.kind import Kind
from muster.core.views.deployments import RouteView

if TYPE_CHECKING:
    from muster.client import Client


class RouteKind(Kind[RouteView, RouteView]):
    name = "route"

    def newest(
        self, client: "Client", state: str, *, limit: int, **filters: Any
    ) -> Sequence[RouteView]:
        return client.routes(state, limit=limit) if state != "ended" else ()


KIND = RouteKind()
