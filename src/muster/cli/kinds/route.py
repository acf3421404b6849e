"""Routes on the command line."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from muster.cli.kinds.kind import Kind
from muster.core.errors import Conflict
from muster.core.views.base import RecordView
from muster.core.views.deployments import RouteView

if TYPE_CHECKING:
    from muster.client import Client


class RouteKind(Kind[RouteView, RouteView]):
    name = "route"

    def newest(
        self, client: "Client", state: str, *, limit: int, **filters: Any
    ) -> Sequence[RouteView]:
        return client.routes(state, limit=limit) if state != "ended" else ()

    def whose_output(self, client: "Client", found: RouteView) -> RecordView:
        if found.session is None:
            raise Conflict(f"{found.id} has no session yet: `muster why {found.id}` says why")
        return client.session(found.session)


KIND = RouteKind()
