"""Deployments on the command line."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from muster.cli.kinds.kind import Kind, Shown
from muster.cli.streams import Line, plain
from muster.core.errors import Conflict
from muster.core.exit_codes import FAILED
from muster.core.states.deployment import UP, EndpointLifecycle
from muster.core.text import healthy_of
from muster.core.views.base import RecordView
from muster.core.views.deployments import DeploymentDetail, DeploymentView

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from muster.cli.kinds.outputs import Outputs
    from muster.client import Client

MOST_LOOKED_AT = 100
"""Routes among which one is looked for that has run."""


class DeploymentKind(Kind[DeploymentView, DeploymentDetail]):
    name = "deployment"
    is_cancelled = True

    def newest(
        self, client: "Client", state: str, *, limit: int, **filters: Any
    ) -> Sequence[DeploymentView]:
        """The newest of those records; live ones are those that are not being taken down."""
        found = client.deployments(state, limit=limit)
        if state != "live":
            return found
        return [each for each in found if each.status is not EndpointLifecycle.DESTROYING]

    def name_of(self, record: DeploymentView) -> str | None:
        return record.name

    def offers(self, record: DeploymentView) -> Iterator[tuple[str, str]]:
        said = f"{record.standing.lower()}, {healthy_of(record.healthy, record.replicas)}"
        yield record.name, said
        yield record.id, said

    def described(
        self, console: "Console", client: "Client", found: DeploymentDetail, shown: Shown
    ) -> "Sequence[RenderableType]":
        from muster.cli.described.deployment import deployment_parts

        return deployment_parts(found, time.time())

    def concluded(self, client: "Client", found: DeploymentDetail) -> "tuple[Line, int]":
        from muster.cli.follow.deployment import said

        return Line(plain(said(found))), 0 if found.succeeded else FAILED

    def output_of(
        self, client: "Client", found: DeploymentDetail
    ) -> "tuple[RecordView, Outputs[Any] | None]":
        """The session of the only replica, or of the last one if none runs; of several those of
        all."""
        from muster.cli.kinds import session
        from muster.cli.kinds.replicas import ReplicaOutputs

        up = [each for each in found.routes if each.session is not None and each.status in UP]
        if not up:
            recent = client.routes("all", deployment=found.id, limit=MOST_LOOKED_AT)
            up = [each for each in recent if each.session is not None][:1]
        if not up:
            raise Conflict(f"no replica of {found.name} has run yet: `muster why {found.name}`")
        if len(up) > 1:
            return found, ReplicaOutputs(sorted(up, key=lambda route: route.id))
        return client.session(str(up[0].session)), session.KIND.outputs


KIND = DeploymentKind()
