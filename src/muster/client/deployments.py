"""Deployments and routes: methods of both clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from muster.client.calls import PAGE, body_of
from muster.client.encoding import Ref, quoted
from muster.client.exchange import Exchange, exchange
from muster.client.resource import ClientResource, ListingQuery, RecordViews, ResourceCalls, newest
from muster.core import views
from muster.core.ids import IdKind
from muster.core.verbs.deployments import PAUSE_ROLLOUT, RESUME_ROLLOUT

if TYPE_CHECKING:
    from muster.core.specs import DeploymentSpec
    from muster.core.views.deployments import (
        DeploymentLoadView,
        DeploymentView,
        TopView,
    )


def newest_routes(
    state: str = "live", *, deployment: str | None = None, limit: int = 100
) -> ListingQuery:
    """Routes, newest first.

    Args:
        state: ``live``, ``ended``, ``all``, or one state.
        deployment: only those of this deployment.
        limit: how many at most.
    """
    return ListingQuery({"state": state, "deployment": deployment}, limit)


DEPLOYMENTS = ClientResource(
    name="deployment",
    prefix=IdKind.DEPLOYMENT,
    path="/v1/deployments",
    views=lambda: RecordViews(
        views.deployments.DeploymentView,
        views.deployments.DeploymentDetail,
        views.deployments.DeploymentPage,
    ),
    listing=newest,
    is_handed_in=True,
    is_cancelled=True,
)

ROUTES = ClientResource(
    name="route",
    prefix=IdKind.ROUTE,
    path="/v1/routes",
    views=lambda: RecordViews(
        views.deployments.RouteView, views.deployments.RouteView, views.deployments.RoutePage
    ),
    listing=newest_routes,
)


class Deployments(ResourceCalls):
    """Methods about deployments."""

    deployments = DEPLOYMENTS
    routes = ROUTES

    @exchange
    def deploy(self, spec: DeploymentSpec | Mapping[str, Any]) -> Exchange[DeploymentView]:
        """Make a deployment, or change the one of this name: what makes another revision is rolled
        out.

        Raises:
            InvalidSpec: with every problem found; nothing was changed.
            NotFound: there is no such group.
            Conflict: the name or the host is another deployment's.
        """
        _, body = body_of(spec)
        name = str(spec.get("name", "")) if isinstance(spec, Mapping) else spec.name
        asked = self._send("PUT", f"{DEPLOYMENTS.path}/{quoted(name)}", body=body)
        return self._read(views.deployments.DeploymentView, asked)

    @exchange
    def scale(self, ref: Ref, replicas: int) -> Exchange[DeploymentView]:
        """Wish another number of replicas.

        Raises:
            NotFound: there is no such deployment.
            Conflict: the number follows load; or it is taken down.
        """
        return self._change(DEPLOYMENTS, ref, "scale", replicas=replicas)

    pause_rollout = DEPLOYMENTS.verb(PAUSE_ROLLOUT)
    resume_rollout = DEPLOYMENTS.verb(RESUME_ROLLOUT)

    @exchange
    def undo_rollout(self, ref: Ref, revision: int | None = None) -> Exchange[DeploymentView]:
        """Go back to a former revision: the one that serves while another is rolled out, else the
        one before.

        Raises:
            NotFound, Conflict: there is no such deployment, it is taken down, or no such revision.
        """
        return self._change(DEPLOYMENTS, ref, "undo", revision=revision)

    @exchange
    def top(self, ref: Ref) -> Exchange[TopView]:
        """The requests of a deployment and of each replica.

        Raises:
            NotFound: there is no such deployment.
        """
        return self._get(views.deployments.TopView, DEPLOYMENTS.of(ref, "top"))

    @exchange
    def loads(
        self, *, group: str | None = None, limit: int = 100
    ) -> Exchange[list[DeploymentLoadView]]:
        """The newest live deployments, each with its requests.

        Args:
            group: only those of this scaling group.
            limit: how many at most.
        """
        found: list[DeploymentLoadView] = []
        cursor: str | None = None
        while (left := limit - len(found)) > 0:
            page = yield from self._get(
                views.deployments.DeploymentLoadPage,
                "/v1/traffic/top",
                group=group,
                limit=min(left, PAGE),
                cursor=cursor,
            )
            found += page.items
            cursor = page.next
            if cursor is None:
                break
        return found
